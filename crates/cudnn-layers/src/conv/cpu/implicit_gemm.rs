//! Products of matrices with an unrolled image that is never stored.

mod correlate;
mod filter;
mod filter_gradient;
mod patch;
mod turn;

use super::{CpuAlgorithm, Operands};
use crate::conv::ConvOp;
use correlate::Correlation;
use filter_gradient::FilterGradient;
use tensor::{Accumulate, ConvGeometry, Cpu};

/// The algorithm of cuDNN's names, for every geometry whose strides do not take pixels too far apart.
#[derive(Debug)]
pub(super) struct ImplicitGemm {
    /// Whether what every task needs is prepared once, in the workspace.
    prepared: bool,
}

/// Each task prepares what it needs: the workspace is a few hundred KiB for each thread, whatever the mini-batch.
pub(super) const IMPLICIT_GEMM: ImplicitGemm = ImplicitGemm { prepared: false };
/// The filter, or `dy`, is prepared once for all tasks: as much more workspace as it has elements. Micro-batches share the
/// filter.
pub(super) const IMPLICIT_PRECOMP_GEMM: ImplicitGemm = ImplicitGemm { prepared: true };

impl CpuAlgorithm for ImplicitGemm {
    fn name(&self) -> &'static str {
        if self.prepared { "IMPLICIT_PRECOMP_GEMM" } else { "IMPLICIT_GEMM" }
    }

    fn max_error(&self) -> f32 {
        1e-6
    }

    fn workspace_len(&self, op: ConvOp, g: &ConvGeometry, threads: usize) -> Option<usize> {
        match op {
            ConvOp::Forward | ConvOp::BackwardData => {
                Correlation::new(op, g, self.prepared).workspace_len(threads)
            }
            ConvOp::BackwardFilter => FilterGradient::new(g, threads, self.prepared).workspace_len(threads),
        }
    }

    fn prepared_len(&self, op: ConvOp, g: &ConvGeometry) -> usize {
        match op {
            ConvOp::Forward | ConvOp::BackwardData => Correlation::new(op, g, self.prepared).prepared_len(),
            ConvOp::BackwardFilter => 0,
        }
    }

    fn prepare(&self, cpu: &Cpu, op: ConvOp, g: &ConvGeometry, filter: &[f32], workspace: &mut [f32]) {
        if op != ConvOp::BackwardFilter {
            Correlation::new(op, g, self.prepared).prepare(cpu, filter, workspace);
        }
    }

    fn run(
        &self,
        cpu: &Cpu,
        op: ConvOp,
        g: &ConvGeometry,
        operands: Operands<'_>,
        accumulate: Accumulate,
        workspace: &mut [f32],
    ) {
        match op {
            ConvOp::Forward | ConvOp::BackwardData => {
                Correlation::new(op, g, self.prepared).run(cpu, operands, accumulate, workspace);
            }
            ConvOp::BackwardFilter => {
                FilterGradient::new(g, cpu.threads(), self.prepared)
                    .run(cpu, operands, accumulate, workspace);
            }
        }
    }
}
