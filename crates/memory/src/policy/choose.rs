//! The policies by name.

use super::{BelowFloor, Costs, MemoryPlan, joint};
use crate::{
    outline::Outline,
    schedule::{Action, Schedule},
};
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
    VdnnAll(KernelChoice),
    /// vDNN: the inputs of convolutions are.
    VdnnConv(KernelChoice),
    /// vDNN: the least offloading that fits, with the fastest algorithms that do.
    VdnnDyn,
    /// AccUDNN (Guo et al. 2019): what a model of the iteration says can be swapped without a stall, and more if it must.
    Accudnn,
    /// Ours: for each map to stay, to be offloaded or to be computed again, with the workspaces of kernels, in least time.
    Joint,
}

/// Which algorithms the static policies of vDNN use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// `m`: those of least workspace.
    LeastMemory,
    /// `p`: the fastest.
    Fastest,
}

impl MemoryPolicy {
    /// All, as they are spelt.
    pub const NAMES: &str = "keep, vdnn-all, vdnn-conv (each with :m or :p), vdnn-dyn, accudnn or joint";

    /// The plan of this policy for a net whose transient buffers may take `budget`.
    ///
    /// # Errors
    /// [`BelowFloor`]: no plan of this policy fits.
    pub fn plan(self, outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
        match self {
            Self::Keep => keep(outline, costs, budget),
            _ => joint(outline, costs, budget),
        }
    }
}

/// Everything stays; each kernel has what is free at its step.
fn keep(outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
    let actions = Schedule::plain(outline).actions;
    let plan = |workspace| {
        let plan = MemoryPlan::new(outline, costs, actions.clone(), workspace);
        plan.expect("the plain schedule is one")
    };
    let least = plan(costs.nodes.iter().map(|passes| [0, 1].map(|pass| passes[pass].least())).collect());
    let alive = least.timeline.alive.iter().zip(&actions);
    let Some((_, &most)) = alive.clone().max_by_key(|(alive, _)| **alive) else { return Ok(least) };
    if least.device > budget {
        return Err(BelowFloor { floor: least.device, node: outline.node_of(most).to_owned() });
    }
    // Placement may take more than what is alive: then there is less for workspaces.
    let mut within = budget;
    loop {
        let mut workspace = least.workspace.clone();
        for (&alive, action) in alive.clone() {
            let (Action::Forward(node) | Action::Backward(node)) = *action else { continue };
            let pass = usize::from(matches!(action, Action::Backward(_)));
            let free = (within + workspace[node][pass]).saturating_sub(alive);
            workspace[node][pass] = costs.nodes[node][pass].workspace(free).unwrap_or(workspace[node][pass]);
        }
        let fastest = plan(workspace);
        if fastest.device <= budget {
            return Ok(fastest);
        }
        within = within.saturating_sub(fastest.device.saturating_sub(budget));
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |kernels: &KernelChoice| if *kernels == KernelChoice::Fastest { 'p' } else { 'm' };
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
            None | Some("p") => Some(KernelChoice::Fastest),
            Some("m") => Some(KernelChoice::LeastMemory),
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
