//! Undivided and divided, side by side.

use super::{
    TimeRun,
    number::{ms, times},
    table::{Align, Table},
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
    configurations: Vec<[String; 2]>,
    #[serde(skip)]
    policy: String,
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
    fn new(name: String, undivided_ms: f64, chosen_ms: f64) -> Self {
        let speedup = (undivided_ms > 0.0 && chosen_ms > 0.0).then(|| undivided_ms / chosen_ms);
        Self { name, undivided_ms, chosen_ms, speedup }
    }

    fn cells(&self) -> [String; 3] {
        let speedup = self.speedup.map_or_else(|| "-".to_owned(), times);
        [ms(self.undivided_ms), ms(self.chosen_ms), speedup]
    }
}

impl Comparison {
    /// Compares the run `undivided` with the run under the `chosen` policy.
    pub fn new(undivided: &TimeRun, chosen: &TimeRun) -> Self {
        let pairs = || undivided.plan.kernels.iter().zip(&chosen.plan.kernels);
        let time = |measured_ms: Option<f64>| measured_ms.unwrap_or(0.0);
        let kernels = pairs().map(|(a, b)| Ratio::new(a.name(), time(a.measured_ms), time(b.measured_ms)));
        let total =
            |name: &str, of: fn(&TimeRun) -> f64| Ratio::new(name.to_owned(), of(undivided), of(chosen));
        Self {
            kernels: kernels.collect(),
            totals: [
                Some(total("convolution kernels", |run| run.kernels_measured_ms)),
                Some(total("forward", |run| run.forward_ms)),
                Some(total("backward", |run| run.backward_ms)),
                Some(total("forward-backward", |run| run.forward_backward_ms)),
                chosen.update_ms.map(|_| total("update", |run| run.update_ms.unwrap_or(0.0))),
                Some(total("whole iteration", TimeRun::iteration_ms)),
            ]
            .into_iter()
            .flatten()
            .collect(),
            configurations: pairs()
                .map(|(a, b)| [a.configuration.clone(), b.configuration.clone()])
                .collect(),
            policy: chosen.plan.policies(),
            arenas: [undivided, chosen].map(|run| Bytes(run.memory.arena_bytes)),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = ["undivided ms", "chosen ms", "faster"].map(|name| (name, Align::Right));
        let words = ["kernel", "undivided", "chosen"].map(|name| (name, Align::Left));
        let mut kernels = Table::new(words.into_iter().chain(numbers));
        for (ratio, configurations) in self.kernels.iter().zip(&self.configurations) {
            let words = [ratio.name.clone()].into_iter().chain(configurations.iter().cloned());
            kernels.row(words.chain(ratio.cells()));
        }
        let mut totals = Table::new([("", Align::Left)].into_iter().chain(numbers));
        for ratio in &self.totals {
            totals.row([ratio.name.clone()].into_iter().chain(ratio.cells()));
        }
        writeln!(f, "Comparison, measured in the net: undivided, and {}:", self.policy)?;
        write!(f, "{kernels}\n\n{totals}\n\n  arena: {} undivided, {} chosen", self.arenas[0], self.arenas[1])
    }
}
