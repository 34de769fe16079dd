//! The CPU's convolution algorithms.

mod axis;
mod fft;
mod im2col;
mod implicit_gemm;
mod winograd;

use super::ConvOp;
use planner::Bytes;
use std::fmt;
use tensor::{ALIGNMENT, Accumulate, ConvGeometry, Cpu, Space};

/// Workspaces are cut at multiples of this many elements.
const ALIGNED_LEN: usize = ALIGNMENT / size_of::<f32>();

/// One algorithm on the CPU, for some or all operations and geometries.
///
/// An implementation is stateless: whatever it needs between its stages lies in the workspace. What it derives from the
/// filter alone, it may make in a stage of its own, [`CpuAlgorithm::prepare`], for several micro-batches to share.
pub trait CpuAlgorithm: Sync + fmt::Debug {
    /// The name used in tables, plans and cost tables, in cuDNN's spelling where cuDNN has the algorithm.
    fn name(&self) -> &'static str;

    /// Typical largest error over the largest output, against exact arithmetic: the accuracy class.
    fn max_error(&self) -> f32;

    /// Elements (`f32`) of workspace needed on `threads` threads, or `None` where the algorithm does not apply. What is
    /// said here is exact: `run` touches no other memory of a size that grows with the operands.
    fn workspace_len(&self, op: ConvOp, geometry: &ConvGeometry, threads: usize) -> Option<usize>;

    /// The same in bytes, for all who do not run the algorithm themselves.
    fn workspace(&self, op: ConvOp, geometry: &ConvGeometry, threads: usize) -> Option<Bytes> {
        let len = self.workspace_len(op, geometry, threads)?;
        Some(Bytes(Space::of::<f32>(len).bytes() as u64))
    }

    /// Elements at the beginning of the workspace that [`CpuAlgorithm::prepare`] fills for [`CpuAlgorithm::run`]; none
    /// where nothing can be prepared, as for [`ConvOp::BackwardFilter`], which has no filter. How many they are and what
    /// lies where does not depend on the number of samples.
    fn prepared_len(&self, _op: ConvOp, _geometry: &ConvGeometry) -> usize {
        0
    }

    /// Makes of `filter` what every micro-batch needs of it, in the first [`CpuAlgorithm::prepared_len`] elements of
    /// `workspace`; in the others, of which there are as many as for `run` on this geometry, it may leave anything.
    fn prepare(
        &self,
        _cpu: &Cpu,
        _op: ConvOp,
        _geometry: &ConvGeometry,
        _filter: &[f32],
        _workspace: &mut [f32],
    ) {
    }

    /// Computes `out` from `a` and `b` (their meaning: see [`super`]). `workspace` has at least
    /// [`CpuAlgorithm::workspace_len`] elements, aligned to a cache line. It begins with what `prepare` made of the same
    /// filter, for this number of samples or another: `run` leaves that as it is and, if there is any, does not read `b`.
    /// The rest holds anything, NaN included. Slices have exactly the lengths of the geometry. With
    /// [`Accumulate::Replace`] `out` holds anything.
    fn run(
        &self,
        cpu: &Cpu,
        op: ConvOp,
        geometry: &ConvGeometry,
        operands: Operands<'_>,
        accumulate: Accumulate,
        workspace: &mut [f32],
    );
}

/// The operands of one call; which is which, says the table in [`super`].
#[derive(Debug)]
pub struct Operands<'a> {
    /// `x` or `dy`.
    pub a: &'a [f32],
    /// The filter `w`, or `dy`.
    pub b: &'a [f32],
    /// `y`, `dx` or `dw`.
    pub out: &'a mut [f32],
}

/// Every algorithm, the one that applies to nearly everything first.
pub fn algorithms() -> &'static [&'static dyn CpuAlgorithm] {
    &[
        &implicit_gemm::IMPLICIT_GEMM,
        &implicit_gemm::IMPLICIT_PRECOMP_GEMM,
        &im2col::Im2col,
        winograd::FUSED_2X2,
        winograd::FUSED_4X4,
        winograd::NONFUSED_4X4,
        &fft::FFT_TILING,
        &fft::FFT_TILING_16,
    ]
}
