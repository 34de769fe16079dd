//! What to do with feature maps that do not all fit: keep, offload or compute again.
//!
//! Every policy takes an [`Outline`] and the [`Costs`] of its actions, and gives actions for a [`Schedule`] with the
//! workspace of each kernel. [`simulate`] says of any schedule how long it takes.

mod accudnn;
mod anneal;
mod bound;
mod costs;
mod joint;
mod plan;
mod price;
mod problem;
mod simulate;
mod trial;
mod vdnn;

pub use accudnn::{LayerWork, Speeds, TimedSize, Tuned, learning_rate, tune};
pub use costs::{Costs, PassCosts};
pub use joint::joint;
pub use plan::{BelowFloor, Fate, MemoryPlan};
pub use simulate::{Timeline, simulate};
pub use vdnn::{Algorithms, Offloading, vdnn, vdnn_dyn};

use crate::{outline::Outline, schedule::Schedule};
use plan::Fitting;
use planner::Bytes;
use problem::Problem;
use serde::de::{IntoDeserializer, value::Error};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What decides which feature maps stay on the device. It is spelt as it serialises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// All of them do.
    Keep,
    /// vDNN (Rhu et al. 2016): all inputs of feature layers are offloaded, and kernels are the fastest.
    #[serde(rename = "vdnn-all:p", alias = "vdnn-all")]
    VdnnAll,
    /// The same with kernels of least workspace.
    #[serde(rename = "vdnn-all:m")]
    VdnnAllLean,
    /// vDNN: the inputs of convolutions are offloaded, and kernels are the fastest.
    #[serde(rename = "vdnn-conv:p", alias = "vdnn-conv")]
    VdnnConv,
    /// The same with kernels of least workspace.
    #[serde(rename = "vdnn-conv:m")]
    VdnnConvLean,
    /// vDNN: the least offloading that fits, with the fastest algorithms that do.
    VdnnDyn,
    /// AccUDNN (Guo et al. 2019): what its model says can be swapped without a stall, and more if it must.
    Accudnn,
    /// Ours: each map stays, is offloaded or is computed again, with the workspaces of kernels, in least time.
    Joint,
}

impl MemoryPolicy {
    /// The plan of this policy for a net whose transient buffers may take `budget`. vDNN leaves alone what is from node
    /// `classifier` on.
    ///
    /// # Errors
    /// [`BelowFloor`]: no plan of this policy fits, or it offloads more than the host may lock.
    pub fn plan(
        self,
        outline: &Outline,
        costs: &Costs,
        budget: Bytes,
        classifier: usize,
    ) -> Result<MemoryPlan, BelowFloor> {
        costs.check(outline);
        let vdnn = |inputs, algorithms| vdnn(outline, costs, budget, classifier, (inputs, algorithms));
        let plan = match self {
            Self::Keep => Fitting::new(outline, costs, Schedule::plain(outline).actions).within(budget),
            Self::VdnnAll => vdnn(Offloading::All, Algorithms::Fastest),
            Self::VdnnAllLean => vdnn(Offloading::All, Algorithms::LeastMemory),
            Self::VdnnConv => vdnn(Offloading::Convolutions, Algorithms::Fastest),
            Self::VdnnConvLean => vdnn(Offloading::Convolutions, Algorithms::LeastMemory),
            Self::VdnnDyn => vdnn_dyn(vdnn),
            Self::Accudnn => Problem::new(outline, costs).swapped(budget).map(|(_, _, plan)| plan),
            Self::Joint => joint(outline, costs, budget),
        }?;
        match plan.host.saturating_sub(costs.host) {
            Bytes::ZERO => Ok(plan),
            lacks => Err(BelowFloor { floor: plan.device, lacks, ..BelowFloor::default() }),
        }
    }

    /// The smallest budget in which this policy has a plan, and the layer that sets it.
    pub fn floor(self, outline: &Outline, costs: &Costs, classifier: usize) -> BelowFloor {
        self.plan(outline, costs, Bytes::ZERO, classifier).err().unwrap_or_default()
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for MemoryPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = "keep, vdnn-all, vdnn-conv (each with :m or :p), vdnn-dyn, accudnn or joint";
        Self::deserialize(text.into_deserializer()).map_err(|_: Error| format!("choose {names}"))
    }
}
