//! Why a kernel did not get something faster.

use crate::model::{Bytes, Configuration, faster};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What stands between a kernel and its fastest configuration.
///
/// Prints as `FFT_TILING at 256 is 5.5x faster but lacks 259 MiB`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Explanation {
    /// Nothing: no workspace, however large, gives a faster configuration of what was measured and admitted.
    FastestMeasured,
    /// Workspace.
    LacksWorkspace {
        /// The fastest configuration if workspace were unlimited.
        configuration: Configuration,
        /// The chosen configuration's time over its time.
        speedup: f64,
        /// How much more workspace than the kernel could have had it needs.
        lacking: Bytes,
    },
}

impl Explanation {
    /// Compares what was chosen, of the `available` workspace, with the fastest there is.
    pub(crate) fn new(chosen: &Configuration, fastest: &Configuration, available: Bytes) -> Self {
        if !faster(fastest.time_ms(), chosen.time_ms()) {
            return Self::FastestMeasured;
        }
        let speedup = chosen.time_ms() / fastest.time_ms();
        let lacking = fastest.workspace().saturating_sub(available);
        Self::LacksWorkspace { configuration: fastest.clone(), speedup, lacking }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::LacksWorkspace { configuration, speedup, lacking } = self else {
            return f.pad("the fastest measured was chosen");
        };
        let what = match configuration.runs() {
            [run] if run.count == 1 => format!("{} at {}", run.micro.algorithm, run.micro.micro_batch),
            _ => configuration.to_string(),
        };
        // Two decimals where one would print a real gain as 1.0x.
        let decimals = if *speedup < 2.0 { 2 } else { 1 };
        f.pad(&format!("{what} is {speedup:.decimals$}x faster but lacks {lacking}"))
    }
}
