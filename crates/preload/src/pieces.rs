//! What the micro-batches of a convolution are made of: algorithms, and descriptors of every size and arithmetic.

use crate::{
    call::{Call, Micro},
    signature::{Descriptor, Signature},
};
use planner::{Algorithm, ConvOp};
use std::{collections::BTreeMap, ffi::c_int};

/// `CUDNN_FMA_MATH`.
const FMA: c_int = 3;

/// cuDNN's algorithms of an operation, in the order of its enum.
fn names(op: ConvOp) -> &'static [&'static str] {
    match op {
        ConvOp::Forward => &[
            "IMPLICIT_GEMM",
            "IMPLICIT_PRECOMP_GEMM",
            "GEMM",
            "DIRECT",
            "FFT",
            "FFT_TILING",
            "WINOGRAD",
            "WINOGRAD_NONFUSED",
        ],
        ConvOp::BackwardData => &["ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"],
        ConvOp::BackwardFilter => {
            &["ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"]
        }
    }
}

/// An algorithm in one arithmetic.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// cuDNN's name, with the arithmetic if there are several.
    pub(crate) name: Algorithm,
    pub(crate) algorithm: c_int,
    pub(crate) math: c_int,
    pub(crate) deterministic: bool,
}

impl Candidate {
    fn new(op: ConvOp, algorithm: c_int, math: c_int, is_plain: bool) -> Self {
        let name = names(op)[algorithm as usize];
        // These two sum by atomic additions.
        let adds_atomically = matches!(name, "ALGO_0" | "ALGO_3");
        let suffix = match math {
            _ if is_plain => "",
            FMA => "/FMA",
            _ => "/TENSOR",
        };
        let name = Algorithm::from(format!("{name}{suffix}"));
        Self { name, algorithm, math, deterministic: !adds_atomically }
    }
}

/// See above.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) signature: Signature,
    pub(crate) candidates: Vec<Candidate>,
    /// Of micro-batches by their size.
    tensors: BTreeMap<u32, [Option<Descriptor>; 3]>,
    /// By arithmetic.
    convolutions: BTreeMap<c_int, Descriptor>,
}

impl Pieces {
    /// Every algorithm in each of these kinds of arithmetic.
    pub(crate) fn new(call: &Call, signature: Signature, maths: &[c_int]) -> Option<Self> {
        let op = signature.op;
        let algorithms = 0..names(op).len() as c_int;
        let of =
            |algorithm| maths.iter().map(move |&math| Candidate::new(op, algorithm, math, maths.len() == 1));
        let candidates = algorithms.flat_map(of).collect();
        let convolution = |&math| Some((math, signature.convolution(call.cudnn, math)?));
        let convolutions = maths.iter().map(convolution).collect::<Option<_>>()?;
        Some(Self { signature, candidates, tensors: BTreeMap::new(), convolutions })
    }

    /// Makes the descriptors of micro-batches of `size` samples.
    pub(crate) fn prepare(&mut self, call: &Call, size: u32) -> Option<()> {
        if !self.tensors.contains_key(&size) {
            let tensors = self.signature.tensors(call.cudnn, size)?;
            self.tensors.insert(size, tensors);
        }
        Some(())
    }

    /// The candidate of this name.
    pub(crate) fn candidate(&self, name: &Algorithm) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.name == *name)
    }

    /// What an algorithm is called.
    pub(crate) fn name(&self, algorithm: c_int, math: c_int) -> Option<&Algorithm> {
        let is_it = |candidate: &&Candidate| (candidate.algorithm, candidate.math) == (algorithm, math);
        self.candidates.iter().find(is_it).map(|candidate| &candidate.name)
    }

    /// `size` samples from `first` on; nothing if that size was not prepared.
    pub(crate) fn micro(&self, candidate: &Candidate, size: u32, first: u32) -> Option<Micro<'_>> {
        Some(Micro {
            algorithm: candidate.algorithm,
            tensors: self.tensors.get(&size)?,
            convolution: self.convolutions.get(&candidate.math)?,
            offsets: self.signature.offsets(first),
        })
    }
}
