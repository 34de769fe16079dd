//! The Pareto front of configurations in (time, workspace).

use super::{configuration::Configuration, units::Bytes};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// Configurations of one kernel of which none is as good as another in both time and workspace (the paper's desirable
/// set). Ordered by rising workspace, hence by strictly falling time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DesirableSet {
    pub(crate) points: Vec<Configuration>,
}

impl DesirableSet {
    /// The fastest configuration whose workspace is at most `limit`.
    pub fn fastest_within(&self, limit: Bytes) -> Option<&Configuration> {
        self.points[..self.partition_point(|point| point.workspace() <= limit)].last()
    }
}

/// The configurations by rising workspace and falling time.
impl Deref for DesirableSet {
    type Target = [Configuration];

    fn deref(&self) -> &[Configuration] {
        &self.points
    }
}
