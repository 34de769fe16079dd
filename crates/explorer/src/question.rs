//! What the page asks.

use ::memory::Outline;
use planner::{ConvShape, Kernel, Math, PlanOptions};
use serde::Deserialize;

/// A question.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub(crate) enum Question {
    /// Take over a cost table as JSON lines; of a GPU, more are added to the first.
    Table { gpu: String, text: String },
    /// Take over a net, as `microbatch plan --json` describes it.
    Net {
        name: String,
        #[serde(flatten)]
        net: Net,
    },
    /// Plan a net.
    Plan(Box<PlanQuestion>),
}

/// A net: its kernels, and what its memory depends on, if it has more than those.
#[derive(Clone, Deserialize)]
pub(crate) struct Net {
    pub(crate) kernels: Vec<Kernel>,
    #[serde(default)]
    pub(crate) outline: Outline,
}

/// Plan a net.
#[derive(Deserialize)]
pub(crate) struct PlanQuestion {
    pub(crate) net: String,
    pub(crate) gpu: String,
    pub(crate) math: Math,
    pub(crate) mini_batch: u32,
    pub(crate) options: PlanOptions,
    /// Whether the limit is one of all device memory: a kernel may have what is free at its own step.
    pub(crate) in_memory: bool,
    /// The kernel whose cliff is drawn.
    pub(crate) kernel: Option<String>,
}

/// Refuses what is no convolution, in a sentence.
pub(crate) fn check(shape: &ConvShape, mini_batch: u32) -> Result<(), String> {
    let ConvShape { c, h, w, k, r, s, groups, stride: [down, across], dilation, pad, .. } = *shape;
    let extents = [c, h, w, k, r, s, groups, down, across, dilation[0], dilation[1], mini_batch];
    if extents.contains(&0) || extents.iter().chain(&pad).any(|&extent| extent > 1 << 20) {
        return Err("every extent must be from 1 to 1048576".to_owned());
    }
    for (axis, (size, taps)) in [(h, r), (w, s)].into_iter().enumerate() {
        let window = u64::from(dilation[axis]) * (u64::from(taps) - 1) + 1;
        if window > u64::from(size) + 2 * u64::from(pad[axis]) {
            return Err(format!("a window of {window} does not fit {size} with {} of padding", pad[axis]));
        }
    }
    match c % groups + k % groups {
        0 => Ok(()),
        _ => Err(format!("{groups} groups do not divide {c} and {k} channels")),
    }
}
