//! The policies by name.

use super::{Algorithms, BelowFloor, Costs, MemoryPlan, Offloading, accudnn, floor, joint, vdnn, vdnn_dyn};
use crate::{outline::Outline, schedule::Schedule};
use planner::Bytes;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What decides which feature maps stay on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum MemoryPolicy {
    /// All of them do.
    Keep,
    /// vDNN (Rhu et al. 2016): all inputs of feature layers are offloaded.
    VdnnAll(Algorithms),
    /// vDNN: the inputs of convolutions are.
    VdnnConv(Algorithms),
    /// vDNN: the least offloading that fits, with the fastest algorithms that do.
    VdnnDyn,
    /// AccUDNN (Guo et al. 2019): what a model of the iteration says can be swapped without a stall, and more if it must.
    Accudnn,
    /// Ours: for each map to stay, to be offloaded or to be computed again, with the workspaces of kernels, in least time.
    Joint,
}

impl MemoryPolicy {
    /// All, as they are spelt.
    pub const NAMES: &str = "keep, vdnn-all, vdnn-conv (each with :m or :p), vdnn-dyn, accudnn or joint";

    /// The plan of this policy for a net whose transient buffers may take `budget`. vDNN leaves alone what is from node
    /// `classifier` on.
    ///
    /// # Errors
    /// [`BelowFloor`]: no plan of this policy fits.
    pub fn plan(
        self,
        outline: &Outline,
        costs: &Costs,
        budget: Bytes,
        classifier: usize,
    ) -> Result<MemoryPlan, BelowFloor> {
        let vdnn =
            |offloading, algorithms| vdnn(outline, costs, budget, classifier, (offloading, algorithms));
        match self {
            Self::Keep => MemoryPlan::within(outline, costs, Schedule::plain(outline).actions, budget),
            Self::VdnnAll(algorithms) => vdnn(Offloading::All, algorithms),
            Self::VdnnConv(algorithms) => vdnn(Offloading::Convolutions, algorithms),
            Self::VdnnDyn => vdnn_dyn(vdnn),
            Self::Accudnn => accudnn(outline, costs, budget),
            Self::Joint => joint(outline, costs, budget),
        }
    }

    /// The smallest budget in which this policy has a plan, and the layer that sets it.
    pub fn floor(self, outline: &Outline, costs: &Costs, classifier: usize) -> BelowFloor {
        match self {
            Self::Joint => floor(outline, costs),
            _ => match self.plan(outline, costs, Bytes::ZERO, classifier) {
                Ok(plan) => BelowFloor { floor: plan.device, node: String::new() },
                Err(floor) => floor,
            },
        }
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |kernels: &Algorithms| if *kernels == Algorithms::Fastest { 'p' } else { 'm' };
        match self {
            Self::Keep => f.write_str("keep"),
            Self::VdnnAll(kernels) => write!(f, "vdnn-all:{}", letter(kernels)),
            Self::VdnnConv(kernels) => write!(f, "vdnn-conv:{}", letter(kernels)),
            Self::VdnnDyn => f.write_str("vdnn-dyn"),
            Self::Accudnn => f.write_str("accudnn"),
            Self::Joint => f.write_str("joint"),
        }
    }
}

impl FromStr for MemoryPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, letter) = text.split_once(':').map_or((text, None), |(name, letter)| (name, Some(letter)));
        let kernels = match letter {
            None | Some("p") => Some(Algorithms::Fastest),
            Some("m") => Some(Algorithms::LeastMemory),
            Some(_) => None,
        };
        match (name, kernels, letter) {
            ("vdnn-all", Some(kernels), _) => Ok(Self::VdnnAll(kernels)),
            ("vdnn-conv", Some(kernels), _) => Ok(Self::VdnnConv(kernels)),
            ("keep", _, None) => Ok(Self::Keep),
            ("vdnn-dyn", _, None) => Ok(Self::VdnnDyn),
            ("accudnn", _, None) => Ok(Self::Accudnn),
            ("joint", _, None) => Ok(Self::Joint),
            _ => Err(format!("choose {}", Self::NAMES)),
        }
    }
}

impl From<MemoryPolicy> for String {
    fn from(policy: MemoryPolicy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for MemoryPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
