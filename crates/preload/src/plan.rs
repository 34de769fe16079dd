//! What a convolution is divided into, and how, for every workspace that its caller may give.

use crate::cudnn::{AlgorithmPerformance, NOT_SUPPORTED, Owned, SUCCESS, Status};
use crate::{call::Call, shared::lock, signature::Signature};
use planner::{Algorithm, Bytes, Configuration, ConvOp, DesirableSet, Measurement};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, Mutex, atomic::AtomicU64};

/// cuDNN's algorithms of an operation, in the order of its enum.
pub(crate) fn algorithms(op: ConvOp) -> impl Iterator<Item = &'static str> {
    let names = match op {
        ConvOp::Forward => {
            "IMPLICIT_GEMM IMPLICIT_PRECOMP_GEMM GEMM DIRECT FFT FFT_TILING WINOGRAD WINOGRAD_NONFUSED"
        }
        ConvOp::BackwardData => "ALGO_0 ALGO_1 FFT FFT_TILING WINOGRAD WINOGRAD_NONFUSED",
        ConvOp::BackwardFilter => "ALGO_0 ALGO_1 FFT ALGO_3 WINOGRAD WINOGRAD_NONFUSED FFT_TILING",
    };
    names.split(' ')
}

/// A plan, or why there is none.
pub(crate) type Planned = Result<Arc<Plan>, String>;

/// The plan for every convolution that Find or Get was asked about, or that a plan of cuDNN runs, and the most workspace
/// that was measured with.
pub(crate) static KNOWN: LazyLock<Mutex<HashMap<Signature, (usize, Planned)>>> =
    LazyLock::new(Default::default);

/// The plan for a convolution, if there is one.
pub(crate) fn known_plan(signature: &Signature) -> Option<Arc<Plan>> {
    lock(&KNOWN).get(signature)?.1.clone().ok()
}

/// A convolution with descriptors of its micro-batches, by size, its measurements on one GPU, and what follows.
pub(crate) struct Plan {
    pub(crate) signature: Signature,
    /// Of the operands, and of the convolution.
    descriptors: BTreeMap<u32, [Owned; 4]>,
    rows: Vec<Measurement>,
    /// The fastest configuration for every workspace.
    pub(crate) front: DesirableSet,
    /// How often the virtual algorithm ran.
    pub(crate) calls: AtomicU64,
}

impl Plan {
    /// For micro-batches of these sizes, before anything is measured; nothing if cuDNN makes no descriptors.
    pub(crate) fn new(signature: Signature, sizes: &[u32]) -> Option<Self> {
        let descriptors = sizes.iter().map(|&size| Some((size, signature.descriptors(size)?)));
        let descriptors = descriptors.collect::<Option<_>>()?;
        let (rows, front, calls) = Default::default();
        Some(Self { signature, descriptors, rows, front, calls })
    }

    /// What these measurements make possible, all of them in workspace that may be had; nothing if that is nothing.
    pub(crate) fn measured(self, rows: Vec<Measurement>) -> Option<Self> {
        let front = planner::desirable_set(&rows, self.signature.mini_batch(), Bytes(u64::MAX));
        (!front.is_empty()).then_some(Self { rows, front, ..self })
    }

    /// cuDNN's number of an algorithm.
    fn number(&self, algorithm: &Algorithm) -> Option<c_int> {
        let mut names = algorithms(self.signature.op);
        names.position(|known| known == algorithm.as_str()).map(|number| number as c_int)
    }

    /// `call` with the descriptors of `size` samples.
    pub(crate) fn part(&self, call: &Call, size: u32) -> Option<Call> {
        let descriptors = self.descriptors.get(&size)?.each_ref().map(|own| own.raw);
        Some(Call { descriptors, ..*call })
    }

    /// Launches `size` samples of `call` from `first` on.
    pub(crate) fn launch(&self, call: &Call, algorithm: &Algorithm, (size, first): (u32, u32)) -> Status {
        let Some((mut part, number)) = self.part(call, size).zip(self.number(algorithm)) else {
            return NOT_SUPPORTED;
        };
        let offsets = self.signature.offsets(first);
        for (operand, offset) in part.operands.iter_mut().zip(offsets) {
            *operand = operand.wrapping_byte_add(offset);
        }
        if let Some([z, pz, ..]) = &mut part.epilogue {
            // z is as y, and often is y.
            (*z, *pz) = (part.descriptors[2], pz.wrapping_byte_add(offsets[2]));
        }
        part.launch(number)
    }

    /// The fastest configuration that does with so much workspace.
    pub(crate) fn within(&self, bytes: usize) -> Option<&Configuration> {
        self.front.fastest_within(Bytes(bytes as u64))
    }

    /// What cuDNN's own answer takes: as we measured the algorithm in the caller's arithmetic. If the answer is in another
    /// one, it may be faster, as far as cuDNN says so; -1 if nobody measured it.
    pub(crate) fn own_ms(&self, own: &AlgorithmPerformance) -> f64 {
        let (said_ms, is_alike) = (f64::from(own.time_ms), own.math == self.signature.math);
        let mini_batch = self.signature.mini_batch();
        let mut undivided = self.rows.iter().filter(|row| row.micro_batch == mini_batch);
        match undivided.find(|row| self.number(&row.algorithm) == Some(own.algorithm)) {
            Some(row) if is_alike || said_ms <= 0.0 => row.time_ms,
            Some(row) => row.time_ms.min(said_ms),
            None => said_ms,
        }
    }

    /// Runs `call` in micro-batches on its handle, without waiting for any of them. Nothing, if no configuration does
    /// with its workspace or the first micro-batch is refused: then nothing was launched.
    pub(crate) fn run(&self, mut call: Call) -> Option<Status> {
        let [one, _] = self.signature.scalars();
        let (mut first, runs) = (0, self.within(call.workspace.1)?.runs());
        // With some activations cuDNN refuses some algorithms, which is to happen at the first or not at all.
        let is_mixed = runs.iter().any(|run| run.micro.algorithm != runs[0].micro.algorithm);
        if call.epilogue.is_some() && is_mixed {
            return None;
        }
        for run in runs {
            let Measurement { algorithm, micro_batch, .. } = &run.micro;
            for _ in 0..run.count {
                match self.launch(&call, algorithm, (*micro_batch, first)) {
                    SUCCESS => first += micro_batch,
                    _ if first == 0 => return None,
                    status => return Some(status),
                }
                if call.op == ConvOp::BackwardFilter {
                    // The first micro-batch takes the caller's beta, and the others add to what is there then.
                    call.scalars[1] = one;
                }
            }
        }
        Some(SUCCESS)
    }
}
