//! Undivided and divided, side by side.

use crate::number::{ms, times};
use crate::{plan::PlanReport, table::Table};
use serde::Serialize;
use std::fmt;

/// Two runs of the same net: without and with micro-batches.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Every kernel as measured in the net.
    pub kernels: Vec<Ratio>,
    /// The kernels' sum, passes, update and whole iteration.
    pub totals: Vec<Ratio>,
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

    fn cells(&self) -> [String; 4] {
        [self.name.clone(), ms(self.undivided_ms), ms(self.chosen_ms), times(self.speedup)]
    }
}

impl Comparison {
    /// Compares the plans of two runs, undivided and as chosen, with `totals` of the runs.
    pub fn new([undivided, chosen]: [&PlanReport; 2], totals: Vec<Ratio>) -> Self {
        let ratio = |(a, b): (&crate::KernelReport, &crate::KernelReport)| {
            Ratio::new(a.name(), [a, b].map(|kernel| kernel.measured_ms.unwrap_or(0.0)))
        };
        Self { kernels: undivided.kernels.iter().zip(&chosen.kernels).map(ratio).collect(), totals }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = |ratios: &[Ratio]| {
            let mut table = Table::new(["", ">undivided ms", ">chosen ms", ">faster"]);
            ratios.iter().for_each(|ratio| table.row(ratio.cells()));
            table
        };
        let (kernels, totals) = (table(&self.kernels), table(&self.totals));
        write!(f, "Comparison of the two, measured in the net:\n{kernels}\n\n{totals}")
    }
}
