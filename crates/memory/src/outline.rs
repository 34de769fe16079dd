//! A net as far as its memory is concerned.

use planner::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A net in execution order: what reads and writes what, what backward passes see again, and how large it all is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// The layers. Those without bottoms bring the data.
    pub nodes: Vec<OutlineNode>,
    /// The blobs, each assigned once.
    pub values: Vec<OutlineValue>,
    /// Parameters and persistent state.
    pub params: Vec<OutlineParam>,
    /// Whether the trained parameters are updated, which then have a history.
    pub updates: bool,
    /// Whether gradients are kept throughout, as mini-batches or ranks add to them; others live from the first backward
    /// pass that adds to them to their update.
    pub keeps_gradients: bool,
    /// Bytes of the device's memory that the layers hold beside the arena's: mini-batches prepared ahead.
    pub staged: Bytes,
    /// Bytes of host memory that the layers hold: data sets, mini-batches prepared ahead.
    pub host: Bytes,
}

/// One layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlineNode {
    /// Its name.
    pub name: String,
    /// The values it reads.
    pub bottoms: Vec<usize>,
    /// The values it writes.
    pub tops: Vec<usize>,
    /// For each bottom, whether it computes that gradient.
    pub propagates: Vec<bool>,
    /// Whether it runs backward.
    pub backward: bool,
    /// Of how many bottoms, from the first on, backward reads the data.
    pub read_bottoms: usize,
    /// Whether backward reads the tops' data.
    pub needs_top: bool,
    /// The parameters to whose gradients backward adds.
    pub gradients: Vec<usize>,
    /// What forward keeps for backward.
    pub saved: Bytes,
    /// Whether a repeated forward pass reads that instead of computing it again.
    pub repeats_from_saved: bool,
    /// Scratch or workspace, forward and backward.
    pub scratch: [Bytes; 2],
    /// Whether each of these is the pass's alone throughout the iteration, as under WD.
    pub keeps_scratch: bool,
}

/// One blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlineValue {
    /// Its size.
    pub bytes: Bytes,
    /// The node that writes it.
    pub producer: usize,
    /// The value whose memory it uses: itself, or for a node in place that of its bottom.
    pub root: usize,
    /// Whether a gradient of it is computed.
    pub needs_diff: bool,
    /// Whether it is filled once and never changes.
    pub constant: bool,
    /// Whether it is read after the iteration: a loss, or what no layer reads.
    pub output: bool,
}

/// One parameter, or a piece of state that persists as parameters do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlineParam {
    /// Its name, under which nets share it.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// Size of a second copy in another type, if there is one.
    pub copy: Bytes,
    /// Whether a gradient of it is computed.
    pub trained: bool,
    /// Size of what a solver keeps of it from one update to the next.
    pub history: Bytes,
}

impl Outline {
    /// The share, from 0 to 1, of an update's work that these parameters have, by their sizes.
    pub(crate) fn part(&self, params: Range<usize>) -> f64 {
        let sum = |params: &[OutlineParam]| -> u64 {
            params.iter().filter(|param| param.trained).map(|param| param.bytes.0).sum()
        };
        match sum(&self.params) {
            0 => 1.0,
            all => sum(&self.params[params]) as f64 / all as f64,
        }
    }

    /// Whether the node brings data: it runs first, and once in an iteration.
    pub fn is_source(&self, node: usize) -> bool {
        self.nodes[node].bottoms.is_empty()
    }
}

/// What one layer brings into the arena, before lifetimes let buffers share their places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerMemory {
    /// The layer.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// The shape of its first top.
    pub shape: String,
    /// Its tops' data; 0 in place.
    pub data: Bytes,
    /// Their gradients; 0 in place and where none is computed.
    pub diff: Bytes,
    /// Workspace and other scratch, the larger of the forward and the backward step.
    pub workspace: Bytes,
    /// Parameters and persistent state; a shared parameter counts where it first stands.
    pub weights: Bytes,
}
