//! The Pareto front of configurations in (time, workspace).

use super::{configuration::Configuration, units::Bytes};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// Configurations of one kernel of which none is as good as another in both time and workspace (the paper's desirable
/// set). Ordered by rising workspace, hence by strictly falling time; of exact ties the first inserted stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DesirableSet {
    points: Vec<Configuration>,
}

impl DesirableSet {
    /// Adds `configuration` unless one in the set is as good, and drops those that are not better than it in either
    /// respect. Returns whether it was added.
    pub fn insert(&mut self, configuration: Configuration) -> bool {
        let (time_ms, workspace) = (configuration.time_ms(), configuration.workspace());
        // Times fall along the set, so the last one that needs no more workspace is the strongest rival.
        let position = self.points.partition_point(|point| point.workspace() <= workspace);
        if position > 0 && self.points[position - 1].time_ms() <= time_ms {
            return false;
        }
        let first = self.points[..position].partition_point(|point| point.workspace() < workspace);
        let dominated = self.points[position..].iter().take_while(|point| point.time_ms() >= time_ms).count();
        self.points.splice(first..position + dominated, [configuration]);
        true
    }

    /// The fastest configuration whose workspace is at most `limit`.
    pub fn fastest_within(&self, limit: Bytes) -> Option<&Configuration> {
        let fitting = self.points.partition_point(|point| point.workspace() <= limit);
        fitting.checked_sub(1).map(|last| &self.points[last])
    }
}

/// The configurations by rising workspace and falling time.
impl Deref for DesirableSet {
    type Target = [Configuration];

    fn deref(&self) -> &[Configuration] {
        &self.points
    }
}
