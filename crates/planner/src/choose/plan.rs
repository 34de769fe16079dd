//! What a plan says.

use super::{fronts::Front, options::PlanOptions};
use crate::model::{Bytes, Configuration, ConvOp, Kernel, Measurement, WorkspacePolicy, faster};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one kernel got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Its division into micro-batches.
    pub configuration: Configuration,
    /// How much workspace it has: what its configuration needs.
    pub workspace: Bytes,
    /// How much it could have had: the limit, or under WD its segment and what the division leaves over.
    #[serde(default)]
    pub available: Bytes,
    /// What it would get without micro-batching: under the same limit, or, under WD, of the same total.
    pub undivided: Option<Measurement>,
    /// Why it did not get something faster.
    pub explanation: Explanation,
}

impl PlannedKernel {
    /// `configuration`, one of `front`, with what it is compared to.
    pub(crate) fn new(
        kernel: &Kernel,
        front: &Front,
        configuration: &Configuration,
        available: Bytes,
        undivided: Option<&Measurement>,
    ) -> Self {
        let fastest = front.set.last().unwrap_or(configuration);
        Self {
            kernel: kernel.clone(),
            configuration: configuration.clone(),
            workspace: configuration.workspace(),
            available,
            undivided: undivided.cloned(),
            explanation: Explanation::new(configuration, fastest, available),
        }
    }

    /// Planned time of all its micro-batches.
    pub fn time_ms(&self) -> f64 {
        self.configuration.time_ms()
    }

    /// How many times faster than undivided it is, if it can run undivided. Under WD it may lose (below 1).
    pub fn gain(&self) -> Option<f64> {
        self.undivided.as_ref().map(|undivided| undivided.time_ms / self.time_ms())
    }
}

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
        /// Workspace that it needs beyond what the kernel could have.
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
        // What is there for its workspace under WD may be too little for the segment that this lies in.
        let [workspace, segment] = [fastest.workspace(), fastest.workspace().aligned()];
        let lacking = (if workspace > available { workspace } else { segment }).saturating_sub(available);
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

/// How the total of WD was divided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DivisionReport {
    /// A lower bound of every division's time, by linear relaxation.
    pub lower_bound_ms: f64,
    /// Binary variables of the ILP: the sizes of all desirable sets together.
    pub binaries: usize,
}

/// The configuration of every kernel. Times are sums of measured ones: predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The options that it was made with.
    pub options: PlanOptions,
    /// The kernels in the order given.
    pub kernels: Vec<PlannedKernel>,
    /// Sum of all kernels' times.
    pub time_ms: f64,
    /// The same without micro-batching, if every kernel can run undivided under the limit.
    pub undivided_time_ms: Option<f64>,
    /// Under WD, how the total was divided.
    pub division: Option<DivisionReport>,
}

impl Plan {
    /// Adds everything up.
    pub(crate) fn new(
        options: &PlanOptions,
        kernels: Vec<PlannedKernel>,
        division: Option<DivisionReport>,
    ) -> Self {
        let undivided_ms = kernels.iter().map(|kernel| Some(kernel.undivided.as_ref()?.time_ms));
        Self {
            options: options.clone(),
            // A sum of nothing is -0.
            time_ms: kernels.iter().map(PlannedKernel::time_ms).sum::<f64>() + 0.0,
            undivided_time_ms: undivided_ms.sum::<Option<f64>>().map(|sum| sum + 0.0),
            division,
            kernels,
        }
    }

    /// Bytes of workspace that the plan takes: under WR and WS one arena that all kernels share, as large as the
    /// largest workspace; under WD a segment for each kernel.
    pub fn workspace_total(&self) -> Bytes {
        match self.options.workspace_policy {
            WorkspacePolicy::Wd => self.workspace_separate(),
            _ => self.kernels.iter().map(|planned| planned.workspace).max().unwrap_or_default(),
        }
    }

    /// What the workspaces would take if each kernel had one of its own, as in frameworks that do not share them.
    pub fn workspace_separate(&self) -> Bytes {
        self.kernels.iter().map(|planned| planned.workspace.aligned()).sum()
    }

    /// What the kernel of a layer got.
    pub fn kernel(&self, name: &str, op: ConvOp) -> Option<&PlannedKernel> {
        self.kernels.iter().find(|planned| planned.kernel.id.op == op && planned.kernel.name == name)
    }

    /// How many times faster than undivided all kernels together are, if there are any and each can run undivided.
    pub fn gain(&self) -> Option<f64> {
        self.undivided_time_ms
            .filter(|_| !self.kernels.is_empty())
            .map(|undivided_ms| undivided_ms / self.time_ms)
    }
}
