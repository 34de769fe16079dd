//! What the micro-batches of a convolution are made of: cuDNN's algorithms, and descriptors of every size.

use crate::{
    call::{Call, Micro},
    signature::{Signature, Tensors},
};
use planner::{Algorithm, ConvOp};
use std::{collections::BTreeMap, ffi::c_int};

/// cuDNN's algorithms of an operation, in the order of its enum.
fn names(op: ConvOp) -> &'static str {
    match op {
        ConvOp::Forward => {
            "IMPLICIT_GEMM IMPLICIT_PRECOMP_GEMM GEMM DIRECT FFT FFT_TILING WINOGRAD WINOGRAD_NONFUSED"
        }
        ConvOp::BackwardData => "ALGO_0 ALGO_1 FFT FFT_TILING WINOGRAD WINOGRAD_NONFUSED",
        ConvOp::BackwardFilter => "ALGO_0 ALGO_1 FFT ALGO_3 WINOGRAD WINOGRAD_NONFUSED FFT_TILING",
    }
}

/// Whether an algorithm gives bit-equal results every time: these two sum by atomic additions.
pub(crate) fn is_deterministic(algorithm: &Algorithm) -> bool {
    !matches!(algorithm.as_str(), "ALGO_0" | "ALGO_3")
}

/// See above.
pub(crate) struct Pieces {
    pub(crate) signature: Signature,
    /// By cuDNN's number.
    pub(crate) algorithms: Vec<Algorithm>,
    /// Of micro-batches by their size.
    tensors: BTreeMap<u32, Tensors>,
}

impl Pieces {
    pub(crate) fn new(signature: Signature) -> Self {
        let algorithms = names(signature.op).split(' ').map(Algorithm::from).collect();
        Self { signature, algorithms, tensors: BTreeMap::new() }
    }

    /// Makes the descriptors of micro-batches of `size` samples.
    pub(crate) fn prepare(&mut self, call: &Call, size: u32) -> Option<()> {
        if !self.tensors.contains_key(&size) {
            self.tensors.insert(size, self.signature.tensors(call.cudnn, size)?);
        }
        Some(())
    }

    /// What cuDNN calls its algorithm of this number.
    pub(crate) fn name(&self, algorithm: c_int) -> Option<&Algorithm> {
        self.algorithms.get(usize::try_from(algorithm).ok()?)
    }

    /// An algorithm on `size` samples from `first` on; nothing if that size was not prepared.
    pub(crate) fn micro(&self, algorithm: &Algorithm, size: u32, first: u32) -> Option<Micro<'_>> {
        let number = self.algorithms.iter().position(|known| known == algorithm)?;
        let (tensors, offsets) = (self.tensors.get(&size)?, self.signature.offsets(first));
        Some(Micro { algorithm: number as c_int, tensors, offsets })
    }
}
