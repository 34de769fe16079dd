//! How a total is divided.

use crate::model::{Bytes, Cost};

/// One choice of every group, together within the total.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The index of each group's choice.
    pub picks: Vec<usize>,
    /// Sum of their times.
    pub time_ms: f64,
    /// Time that no division can beat: the linear relaxation.
    pub lower_bound_ms: f64,
}

impl Division {
    pub(crate) fn new(groups: &[Vec<Cost>], picks: Vec<usize>, lower_bound_ms: f64) -> Self {
        let time_ms = std::iter::zip(groups, &picks).map(|(group, &pick)| group[pick].time_ms).sum();
        Self { picks, time_ms, lower_bound_ms }
    }

    /// Sum of the picked workspaces.
    pub fn workspace(&self, groups: &[Vec<Cost>]) -> Bytes {
        std::iter::zip(groups, &self.picks).map(|(group, &pick)| group[pick].workspace).sum()
    }
}
