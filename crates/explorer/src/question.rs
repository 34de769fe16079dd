//! What the page asks.

use ::memory::{LayerMemory, Outline};
use planner::{BatchSizePolicy, Bytes, ConvShape, Kernel, Math};
use serde::Deserialize;

/// A question.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub(crate) enum Question {
    /// Take over a cost table as JSON lines; of a GPU and an arithmetic, more are added to the first.
    Table { gpu: String, text: String },
    /// Take over a net, as `microbatch plan --json` describes it.
    Net { name: String, report: NetReport },
    /// Plan a net.
    Plan(Box<PlanQuestion>),
}

/// What of a plan's report describes its net.
#[derive(Deserialize)]
pub(crate) struct NetReport {
    pub(crate) plan: KernelList,
    #[serde(default)]
    pub(crate) layer_memory: Vec<LayerMemory>,
    pub(crate) outline: Option<Outline>,
}

#[derive(Deserialize)]
pub(crate) struct KernelList {
    pub(crate) kernels: Vec<KernelEntry>,
}

#[derive(Deserialize)]
pub(crate) struct KernelEntry {
    pub(crate) kernel: Kernel,
}

/// Plan a net.
#[derive(Deserialize)]
pub(crate) struct PlanQuestion {
    pub(crate) net: String,
    pub(crate) gpu: String,
    pub(crate) math: Math,
    pub(crate) mini_batch: u32,
    pub(crate) policy: BatchSizePolicy,
    pub(crate) give: Give,
    pub(crate) limit: Bytes,
    pub(crate) max_error: Option<f32>,
    /// The kernel whose cliff is drawn.
    pub(crate) kernel: Option<String>,
}

/// How kernels get workspace.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Give {
    Wr,
    Wd,
    Ws,
    /// What is free at a kernel's own step within a budget of all memory.
    Memory,
}

/// Refuses what is no convolution, in a sentence.
pub(crate) fn check(shape: &ConvShape, mini_batch: u32) -> Result<(), String> {
    let ConvShape { c, h, w, k, r, s, groups, stride, dilation, pad } = *shape;
    let extents = [c, h, w, k, r, s, groups, stride[0], stride[1], dilation[0], dilation[1], mini_batch];
    if extents.iter().any(|&extent| extent == 0 || extent > 1 << 20) || pad.iter().any(|&pad| pad > 1 << 20) {
        return Err("every extent must be from 1 to 1048576".to_owned());
    }
    for (axis, (size, taps)) in [(h, r), (w, s)].into_iter().enumerate() {
        let window = u64::from(dilation[axis]) * (u64::from(taps) - 1) + 1;
        if window > u64::from(size) + 2 * u64::from(pad[axis]) {
            return Err(format!("a window of {window} does not fit {size} with {} of padding", pad[axis]));
        }
    }
    if c % groups != 0 || k % groups != 0 {
        return Err(format!("{groups} groups do not divide {c} and {k} channels"));
    }
    Ok(())
}
