//! Undivided and divided, side by side.

use crate::{
    number::{ms, times},
    plan::PlanReport,
    table::Table,
};
use planner::Bytes;
use serde::Serialize;
use std::fmt;

/// Two runs of the same net: without and with micro-batches.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Every kernel as measured in the net.
    pub kernels: Vec<Ratio>,
    /// The kernels' sum, passes, update and whole iteration.
    pub totals: Vec<Ratio>,
    #[serde(skip)]
    divisions: Vec<[String; 2]>,
    #[serde(skip)]
    policies: String,
    #[serde(skip)]
    arenas: [Bytes; 2],
}

/// A time under both plans.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What was timed.
    pub name: String,
    /// Undivided.
    pub undivided_ms: f64,
    /// With the chosen policy.
    pub chosen_ms: f64,
    /// How many times faster the latter is; `null` where nothing was measured.
    pub speedup: Option<f64>,
}

impl Ratio {
    /// What is called `name` took so long undivided and as chosen.
    pub fn new(name: impl Into<String>, [undivided_ms, chosen_ms]: [f64; 2]) -> Self {
        let speedup = (undivided_ms > 0.0 && chosen_ms > 0.0).then(|| undivided_ms / chosen_ms);
        Self { name: name.into(), undivided_ms, chosen_ms, speedup }
    }

    fn cells(&self) -> [String; 3] {
        [ms(self.undivided_ms), ms(self.chosen_ms), times(self.speedup)]
    }
}

impl Comparison {
    /// Compares the plans of two runs, undivided and as chosen, with `totals` of the runs and the arenas that they
    /// took.
    pub fn new([undivided, chosen]: [&PlanReport; 2], totals: Vec<Ratio>, arenas: [Bytes; 2]) -> Self {
        let pairs = || undivided.kernels.iter().zip(&chosen.kernels);
        let ratio = |(a, b): (&crate::KernelReport, &crate::KernelReport)| {
            Ratio::new(a.name(), [a, b].map(|kernel| kernel.measured_ms.unwrap_or(0.0)))
        };
        Self {
            kernels: pairs().map(ratio).collect(),
            totals,
            divisions: pairs().map(|(a, b)| [a, b].map(|kernel| kernel.division.clone())).collect(),
            policies: chosen.policies(),
            arenas,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [">undivided ms", ">chosen ms", ">faster"];
        let mut kernels = Table::new(["kernel", "undivided", "chosen"].into_iter().chain(numbers));
        for (ratio, [undivided, chosen]) in self.kernels.iter().zip(&self.divisions) {
            kernels.row([&ratio.name, undivided, chosen].into_iter().cloned().chain(ratio.cells()));
        }
        let mut totals = Table::new([""].into_iter().chain(numbers));
        for ratio in &self.totals {
            totals.row([ratio.name.clone()].into_iter().chain(ratio.cells()));
        }
        let Self { policies, arenas: [undivided, chosen], .. } = self;
        writeln!(f, "Comparison, measured in the net: undivided, and {policies}:")?;
        write!(f, "{kernels}\n\n{totals}\n\n  arena: {undivided} undivided, {chosen} chosen")
    }
}
