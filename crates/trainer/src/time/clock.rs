//! The times of iterations, from points that the device has reached.

use super::report::TimeReport;
use crate::error::Result;
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
    /// By action, beginning and end of a copy that runs beside the rest, or when computation that had waited went on.
    pub(super) copies: HashMap<usize, Vec<Mark>>,
    pub(super) kernels: Vec<(usize, ConvOp, [Mark; 2])>,
}

/// Times of all iterations, in milliseconds.
#[derive(Default)]
pub(super) struct Clock {
    /// Each kernel's times, by node.
    pub(super) kernels: HashMap<(usize, ConvOp), Vec<f64>>,
    /// Sums over the iterations, and what is of the last one.
    pub(super) report: TimeReport,
}

impl Clock {
    /// Reads one iteration, whose time is without the update, as Caffe counts.
    pub(super) fn add(&mut self, marks: Marks) -> Result<()> {
        let Marks { start, actions, copies, kernels } = marks;
        let (mut from, mut both_ms, report) = (&start, 0.0, &mut self.report);
        (report.spans_ms, report.copying_ms, report.stall_ms) = Default::default();
        for (at, (action, end)) in actions.iter().enumerate() {
            let ms = from.ms_until(end)?;
            let [begin, done] = match copies.get(&at).map_or(&[][..], Vec::as_slice) {
                [begin, done] => [begin, done],
                [begin] => [begin, end],
                _ => [from, end],
            };
            let span_ms = [start.ms_until(begin)?, start.ms_until(done)?];
            match COPIES.iter().position(|&stream| stream == action.stream()) {
                Some(way) => report.copying_ms[way] += span_ms[1] - span_ms[0],
                None => report.stall_ms += from.ms_until(begin)?,
            }
            report.spans_ms.push(span_ms);
            from = end;
            match *action {
                Action::Update(..) => {
                    *report.update_ms.get_or_insert_default() += ms;
                    continue;
                }
                Action::Forward(node) => {
                    report.layers[node].forward_ms += ms;
                    report.forward_ms += ms;
                }
                Action::Backward(node) | Action::Recompute(node) => {
                    report.layers[node].backward_ms += ms;
                    report.backward_ms += ms;
                }
                // A copy runs beside the rest: launching it takes next to nothing.
                Action::Offload(_) | Action::Prefetch(_) | Action::Hold(_) => {}
            }
            both_ms += ms;
        }
        for (node, op, [start, end]) in kernels {
            self.kernels.entry((node, op)).or_default().push(start.ms_until(&end)?);
        }
        report.iterations_ms.push(both_ms);
        Ok(())
    }
}
