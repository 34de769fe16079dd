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
    /// Beginnings and ends of the copies among them, if these run beside the rest.
    pub(super) copies: Vec<[Mark; 2]>,
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
            forward_ms: 0.0,
            backward_ms: 0.0,
            update_ms: 0.0,
        }
    }

    /// Reads one iteration and returns its time without the update, as Caffe counts.
    pub(super) fn add(&mut self, marks: Marks) -> Result<f64, NetError> {
        let Marks { start, actions, copies, kernels } = marks;
        let (mut from, mut both_ms) = (&start, 0.0);
        let mut copies = copies.iter();
        (self.spans_ms, self.copying_ms) = (Vec::with_capacity(actions.len()), [0.0; 2]);
        for (action, end) in &actions {
            let ms = from.ms_until(end)?;
            let direction = COPIES.iter().position(|&stream| stream == action.stream());
            let [begin, done] = match direction.and_then(|_| copies.next()) {
                Some([begin, done]) => [begin, done],
                None => [from, end],
            };
            let span_ms = [start.ms_until(begin)?, start.ms_until(done)?];
            direction.iter().for_each(|&way| self.copying_ms[way] += span_ms[1] - span_ms[0]);
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
