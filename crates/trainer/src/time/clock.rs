//! The times of iterations, from points that the device has reached.

use crate::error::NetError;
use cudnn_layers::conv::ConvOp;
use memory::{Action, StreamKind};
use std::collections::HashMap;
use tensor::Mark;

const COPIES: [StreamKind; 2] = [StreamKind::CopyOut, StreamKind::CopyIn];

/// The points of one iteration, read once the device has reached them.
pub(super) struct Marks {
    pub(super) start: Mark,
    /// The ends of the actions.
    pub(super) actions: Vec<(Action, Mark)>,
    /// By action, the beginning and the end of a copy that runs beside the rest, or when computation went on that had waited.
    pub(super) copies: HashMap<usize, Vec<Mark>>,
    pub(super) kernels: Vec<(usize, ConvOp, [Mark; 2])>,
}

/// Times of all iterations, in milliseconds.
pub(super) struct Clock {
    /// Sums of each layer, forward and backward.
    pub(super) layers: Vec<[f64; 2]>,
    /// Each kernel's times, by node.
    pub(super) kernels: HashMap<(usize, ConvOp), Vec<f64>>,
    pub(super) iterations_ms: Vec<f64>,
    /// Of the last iteration, as in [`TimeReport`].
    pub(super) spans_ms: Vec<[f64; 2]>,
    pub(super) copying_ms: [f64; 2],
    pub(super) stall_ms: f64,
    pub(super) forward_ms: f64,
    pub(super) backward_ms: f64,
    pub(super) update_ms: f64,
}

impl Clock {
    pub(super) fn new(layers: usize) -> Self {
        Self {
            layers: vec![[0.0; 2]; layers],
            kernels: HashMap::new(),
            iterations_ms: Vec::new(),
            spans_ms: Vec::new(),
            copying_ms: [0.0; 2],
            stall_ms: 0.0,
            forward_ms: 0.0,
            backward_ms: 0.0,
            update_ms: 0.0,
        }
    }

    /// Reads one iteration and returns its time without the update, as Caffe counts.
    pub(super) fn add(&mut self, marks: Marks) -> Result<f64, NetError> {
        let Marks { start, actions, copies, kernels } = marks;
        let (mut from, mut both_ms) = (&start, 0.0);
        (self.spans_ms, self.copying_ms, self.stall_ms) = (Vec::with_capacity(actions.len()), [0.0; 2], 0.0);
        for (at, (action, end)) in actions.iter().enumerate() {
            let ms = from.ms_until(end)?;
            let [begin, done] = match copies.get(&at).map_or(&[][..], Vec::as_slice) {
                [begin, done] => [begin, done],
                [begin] => [begin, end],
                _ => [from, end],
            };
            let span_ms = [start.ms_until(begin)?, start.ms_until(done)?];
            match COPIES.iter().position(|&stream| stream == action.stream()) {
                Some(way) => self.copying_ms[way] += span_ms[1] - span_ms[0],
                None => self.stall_ms += from.ms_until(begin)?,
            }
            self.spans_ms.push(span_ms);
            from = end;
            match *action {
                Action::Update => {
                    self.update_ms += ms;
                    continue;
                }
                Action::Forward(node) => {
                    self.layers[node][0] += ms;
                    self.forward_ms += ms;
                }
                Action::Backward(node) | Action::Recompute(node) => {
                    self.layers[node][1] += ms;
                    self.backward_ms += ms;
                }
                // A copy runs beside the rest: launching it takes next to nothing.
                Action::Offload(_) | Action::Prefetch(_) | Action::Hold(_) => {}
            }
            both_ms += ms;
        }
        for (node, op, [start, end]) in kernels {
            self.kernels.entry((node, op)).or_default().push(start.ms_until(&end)?);
        }
        self.iterations_ms.push(both_ms);
        Ok(both_ms)
    }
}
