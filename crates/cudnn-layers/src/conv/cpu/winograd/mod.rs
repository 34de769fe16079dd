//! Winograd's minimal filtering for filters of 3 x 3 with stride 1: tiles of 2 x 2 or 4 x 4 outputs.
//!
//! A tile's window `x` and a filter `g` are evaluated at `A x A` points, multiplied there, and interpolated:
//! `y = A^T [(G g G^T) (B^T x B)] A`. Summed over input channels, the product at each point ("frequency") is a matrix
//! product: tiles x input channels times input channels x output channels, with 2.25 (F2) or 4 (F4) times fewer
//! multiplications than the definition. The price is workspace for the transformed operands, and for F4 a digit of
//! accuracy.
//!
//! | name | workspace |
//! | --- | --- |
//! | `WINOGRAD_2X2`, `WINOGRAD_4X4` | transformed filters, which micro-batches share, and one block of tiles per thread |
//! | `WINOGRAD_4X4_NONFUSED` | the whole micro-batch transformed and some filters per thread |

mod analyse;
mod backward_filter;
mod filter;
mod forward;
mod layout;
mod minimal;
mod multiply;
mod nonfused;
mod pixels;
mod synthesise;
#[cfg(test)]
mod tests;

use super::{CpuAlgorithm, Operands};
use crate::conv::ConvOp;
use backward_filter::BackwardFilter;
use filter::Direction;
use forward::Forward;
use layout::Problem;
use minimal::{F2, F4, Minimal};
use std::{fmt, marker::PhantomData};
use tensor::{Accumulate, ConvGeometry, Cpu};

/// `WINOGRAD_2X2`: as accurate as the definition.
pub(super) const FUSED_2X2: &dyn CpuAlgorithm =
    &Winograd::<F2, 2, 4> { name: "WINOGRAD_2X2", nonfused: false, max_error: 1e-6, transforms: PhantomData };
/// `WINOGRAD_4X4`: fewest multiplications.
pub(super) const FUSED_4X4: &dyn CpuAlgorithm =
    &Winograd::<F4, 4, 6> { name: "WINOGRAD_4X4", nonfused: false, max_error: 5e-6, transforms: PhantomData };
/// `WINOGRAD_4X4_NONFUSED`: transformed filters never leave the caches.
pub(super) const NONFUSED_4X4: &dyn CpuAlgorithm = &Winograd::<F4, 4, 6> {
    name: "WINOGRAD_4X4_NONFUSED",
    nonfused: true,
    max_error: 5e-6,
    transforms: PhantomData,
};

/// Transformed input of a block of tiles in a forward pass: a part of the second-level cache (1 MiB and more per core),
/// through which the filters stream.
const FORWARD_BYTES: usize = 512 << 10;
/// Both transformed operands of a block of tiles that one thread sums.
const BACKWARD_BYTES: usize = 1 << 20;
/// All partial sums of the gradients.
const SUMS_BYTES: usize = 12 << 20;
/// The most partial sums: so many threads can work.
const MOST_SUMS: usize = 8;
/// Tiles of a block that all threads work on: the more, the less often the gradients are read and written.
const SHARED_TILES: usize = 160;

/// One of the three algorithms.
struct Winograd<T, const M: usize, const A: usize> {
    name: &'static str,
    nonfused: bool,
    max_error: f32,
    transforms: PhantomData<T>,
}

impl<T, const M: usize, const A: usize> fmt::Debug for Winograd<T, M, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> Winograd<T, M, A> {
    fn forward(&self, op: ConvOp, g: &ConvGeometry) -> Option<Forward<T, M, A>> {
        let (problem, direction) = match op {
            ConvOp::Forward => (Problem::forward(g, M)?, Direction::Forward),
            _ => (Problem::backward_data(g, M)?, Direction::Backward),
        };
        let tile_bytes = 4 * A * A * problem.input.channels;
        let tiles = (FORWARD_BYTES / tile_bytes).clamp(32, 128);
        let block = (tiles / problem.cols()).clamp(1, problem.rows().div_ceil(2));
        Some(Forward { transforms: PhantomData, problem, direction, block })
    }

    /// The forward pass if it is one whose filters are transformed beforehand. Without fusion they never are in memory,
    /// and a gradient's sums lie there differently for every number of samples.
    fn prepared_forward(&self, op: ConvOp, g: &ConvGeometry) -> Option<Forward<T, M, A>> {
        let is_prepared = !self.nonfused && op != ConvOp::BackwardFilter;
        is_prepared.then(|| self.forward(op, g)).flatten()
    }

    fn backward_filter(&self, g: &ConvGeometry) -> Option<BackwardFilter<T, M, A>> {
        let problem = Problem::forward(g, M)?;
        let rows = problem.rows();
        if self.nonfused {
            return Some(BackwardFilter { transforms: PhantomData, problem, block: rows, sums: 1 });
        }
        let Problem { input, output, .. } = problem;
        let gradient_bytes = 4 * A * A * input.channels * output.channels;
        let tile_bytes = 4 * A * A * (input.channels + output.channels);
        let sums = (SUMS_BYTES / gradient_bytes).clamp(1, MOST_SUMS);
        let tiles =
            if sums > 1 { (BACKWARD_BYTES / tile_bytes).clamp(64, SHARED_TILES) } else { SHARED_TILES };
        let block = (tiles / problem.cols()).clamp(1, rows);
        let sums = sums.min(rows.div_ceil(block));
        Some(BackwardFilter { transforms: PhantomData, problem, block, sums })
    }
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> CpuAlgorithm for Winograd<T, M, A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn max_error(&self) -> f32 {
        self.max_error
    }

    fn workspace_len(&self, op: ConvOp, g: &ConvGeometry, threads: usize) -> Option<usize> {
        match op {
            ConvOp::BackwardFilter if self.nonfused => Some(self.backward_filter(g)?.nonfused_len(threads)),
            ConvOp::BackwardFilter => Some(self.backward_filter(g)?.len(threads)),
            _ if self.nonfused => Some(self.forward(op, g)?.nonfused_len(threads)),
            _ => Some(self.forward(op, g)?.fused_len(threads)),
        }
    }

    fn prepared_len(&self, op: ConvOp, g: &ConvGeometry) -> usize {
        self.prepared_forward(op, g).map_or(0, |pass| pass.prepared_len())
    }

    fn prepare(&self, cpu: &Cpu, op: ConvOp, g: &ConvGeometry, filter: &[f32], workspace: &mut [f32]) {
        if let Some(pass) = self.prepared_forward(op, g) {
            pass.prepare(cpu, filter, workspace);
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
        const APPLIES: &str = "workspace_len said that the algorithm applies";
        if op == ConvOp::BackwardFilter {
            let pass = self.backward_filter(g).expect(APPLIES);
            return if self.nonfused {
                pass.run_nonfused(cpu, operands, accumulate, workspace)
            } else {
                pass.run(cpu, operands, accumulate, workspace)
            };
        }
        let pass = self.forward(op, g).expect(APPLIES);
        if self.nonfused {
            pass.run_nonfused(cpu, operands, accumulate, workspace);
        } else {
            pass.run_fused(cpu, operands, accumulate, workspace);
        }
    }
}
