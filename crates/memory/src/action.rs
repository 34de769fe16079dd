//! What an iteration does, with which buffers, and when these lie where.

use planner::Bytes;
use serde::{Deserialize, Serialize};

/// Something to be done in an iteration. Nodes are given by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Bottoms to tops.
    Forward(usize),
    /// Gradients of the tops to gradients of bottoms and parameters.
    Backward(usize),
    /// Updates the parameters from the first index to before the second by their gradients.
    Update(usize, usize),
    /// A copy of a buffer to the host, which frees its place on the device after its last use.
    Offload(Buffer),
    /// The copy back.
    Prefetch(Buffer),
    /// Computes nothing, but keeps the buffer in its place up to here: its copy is done by what follows.
    Hold(Buffer),
    /// A repeated forward pass, which restores a buffer that was given up. It changes no running statistics.
    Recompute(usize),
}

/// A queue of a device. Actions of one stream run in their order; between two, they wait where [`Schedule::waits`](crate::Schedule::waits) says
/// so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamKind {
    /// All computation.
    Compute,
    /// Copies to the host.
    CopyOut,
    /// Copies from the host.
    CopyIn,
}

impl Action {
    /// The stream that it runs on.
    pub fn stream(self) -> StreamKind {
        match self {
            Action::Offload(_) => StreamKind::CopyOut,
            Action::Prefetch(_) => StreamKind::CopyIn,
            _ => StreamKind::Compute,
        }
    }

    /// The node whose pass it runs, and which pass: 0 forward, 1 backward.
    pub fn pass(self) -> Option<(usize, usize)> {
        match self {
            Action::Forward(node) | Action::Recompute(node) => Some((node, 0)),
            Action::Backward(node) => Some((node, 1)),
            _ => None,
        }
    }
}

/// What a net keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Buffer {
    /// Data of the values with this root.
    Data(usize),
    /// Their gradient.
    Diff(usize),
    /// What a node keeps from forward to backward.
    Saved(usize),
    /// Scratch or workspace of the action of this index.
    Scratch(usize),
    /// Data of a value that is filled once.
    Constant(usize),
    /// A parameter, or a piece of state.
    Parameter(usize),
    /// Its gradient.
    Gradient(usize),
    /// What the solver keeps of it between updates, such as momentum.
    History(usize),
}

/// Whose memory something lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The device's arena.
    Device,
    /// The host's slab, for what is offloaded.
    Host,
}

/// A time during which a buffer lies somewhere: from one action to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// Where.
    pub place: Place,
    /// Index of the action that fills it, or from which on its place is kept.
    pub first: usize,
    /// Index of the last action that needs it.
    pub last: usize,
    /// Its size.
    pub bytes: Bytes,
}

impl Residence {
    /// Whether there is a time that both have in common.
    pub fn meets(&self, other: &Residence) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether it lasts at action `at`.
    pub fn holds(&self, at: usize) -> bool {
        self.first <= at && at <= self.last
    }
}
