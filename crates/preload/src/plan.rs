//! How one convolution is divided, for every workspace that its caller may give.

use crate::{
    call::{Arguments, Call},
    cudnn::{SUCCESS, Status},
    pieces::Pieces,
};
use planner::{Algorithm, Bytes, Configuration, ConvOp, DesirableSet, Explanation, Measurement};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The measurements of a convolution on one GPU, and what follows from them.
pub(crate) struct Plan {
    pub(crate) pieces: Pieces,
    rows: Vec<Measurement>,
    front: DesirableSet,
    /// The most workspace that was measured with.
    pub(crate) ceiling: usize,
    /// Bytes that the virtual algorithm was last said to need.
    pub(crate) promised: AtomicUsize,
    /// How often the virtual algorithm ran.
    pub(crate) calls: AtomicU64,
}

impl Plan {
    /// What the measurements `rows` make possible; nothing if they make nothing possible.
    pub(crate) fn new(pieces: Pieces, rows: Vec<Measurement>, ceiling: usize) -> Option<Self> {
        let front = planner::desirable_set(&rows, pieces.signature.mini_batch(), Bytes(ceiling as u64));
        let (promised, calls) = (AtomicUsize::new(0), AtomicU64::new(0));
        (!front.is_empty()).then_some(Self { pieces, rows, front, ceiling, promised, calls })
    }

    /// The fastest configuration that does with so much workspace.
    pub(crate) fn within(&self, bytes: usize) -> Option<&Configuration> {
        self.front.fastest_within(Bytes(bytes as u64))
    }

    /// What an algorithm of cuDNN takes for the undivided convolution in the caller's arithmetic.
    pub(crate) fn undivided_ms(&self, algorithm: &Algorithm) -> Option<f64> {
        let mini_batch = self.pieces.signature.mini_batch();
        let is_it = |row: &&Measurement| row.micro_batch == mini_batch && row.algorithm == *algorithm;
        self.rows.iter().find(is_it).map(|row| row.time_ms)
    }

    /// Why `chosen` is not faster.
    pub(crate) fn explanation(&self, chosen: &Configuration, limit: usize) -> Explanation {
        let limit = Bytes(limit as u64);
        match self.front.iter().last().filter(|fastest| fastest.workspace() > limit) {
            Some(fastest) => Explanation::LacksWorkspace {
                configuration: fastest.clone(),
                speedup: chosen.time_ms() / fastest.time_ms(),
                lacking: fastest.workspace().saturating_sub(limit),
            },
            None => Explanation::FastestMeasured,
        }
    }

    /// Runs the convolution in micro-batches on the caller's handle, without waiting for any of them. Nothing, if no
    /// configuration does with the caller's workspace or the first micro-batch is refused: then nothing was launched.
    pub(crate) fn run(&self, call: &Call, arguments: &Arguments) -> Option<Status> {
        let signature = &self.pieces.signature;
        let ([one, _], mut arguments, mut first) = (signature.scalars(), *arguments, 0);
        for run in self.within(arguments.workspace_bytes)?.runs() {
            let Measurement { algorithm, micro_batch, .. } = &run.micro;
            for _ in 0..run.count {
                let micro = self.pieces.micro(algorithm, *micro_batch, first)?;
                match call.run_micro(&micro, &arguments) {
                    SUCCESS => first += micro_batch,
                    _ if first == 0 => return None,
                    status => return Some(status),
                }
                if signature.op == ConvOp::BackwardFilter {
                    // The first micro-batch takes the caller's beta, and the others add to what is there then.
                    arguments.scalars[1] = one;
                }
            }
        }
        self.calls.fetch_add(1, Relaxed);
        Some(SUCCESS)
    }
}
