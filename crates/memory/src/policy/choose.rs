//! The policies by name.

use super::{plan::Fitting, *};
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
    /// AccUDNN (Guo et al. 2019): what a model of the iteration says can be swapped without a stall, and more if it
    /// must.
    Accudnn,
    /// Ours: for each map to stay, to be offloaded or to be computed again, with the workspaces of kernels, in least
    /// time.
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
            Self::Keep => Fitting::new(outline, costs, Schedule::plain(outline).actions).within(budget),
            Self::VdnnAll(algorithms) => vdnn(Offloading::All, algorithms),
            Self::VdnnConv(algorithms) => vdnn(Offloading::Convolutions, algorithms),
            Self::VdnnDyn => vdnn_dyn(vdnn),
            Self::Accudnn => accudnn(outline, costs, budget),
            Self::Joint => joint(outline, costs, budget),
        }
    }

    /// The smallest budget in which this policy has a plan, and the layer that sets it.
    pub fn floor(self, outline: &Outline, costs: &Costs, classifier: usize) -> BelowFloor {
        self.plan(outline, costs, Bytes::ZERO, classifier).err().unwrap_or_default()
    }
}

/// How they are spelt; of vDNN's the first is what its name alone means.
const SPELLINGS: [(&str, MemoryPolicy); 8] = [
    ("keep", MemoryPolicy::Keep),
    ("vdnn-all:p", MemoryPolicy::VdnnAll(Algorithms::Fastest)),
    ("vdnn-all:m", MemoryPolicy::VdnnAll(Algorithms::LeastMemory)),
    ("vdnn-conv:p", MemoryPolicy::VdnnConv(Algorithms::Fastest)),
    ("vdnn-conv:m", MemoryPolicy::VdnnConv(Algorithms::LeastMemory)),
    ("vdnn-dyn", MemoryPolicy::VdnnDyn),
    ("accudnn", MemoryPolicy::Accudnn),
    ("joint", MemoryPolicy::Joint),
];

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spelling = SPELLINGS.iter().find(|(_, policy)| policy == self);
        f.write_str(spelling.map_or("vdnn", |(name, _)| name))
    }
}

impl FromStr for MemoryPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = SPELLINGS.iter().find(|(name, _)| *name == text || name.strip_suffix(":p") == Some(text));
        found.map(|&(_, policy)| policy).ok_or_else(|| format!("choose {}", Self::NAMES))
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
