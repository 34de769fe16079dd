//! The CPU's convolution algorithms.

mod axis;
mod fft;
mod im2col;
mod implicit_gemm;
mod planes;
mod winograd;

use super::{ConvOp, Convolver, Facts, Result};
use planner::Bytes;
use std::{fmt, sync::Arc};
use tensor::{ALIGNMENT, Accumulate, ConvGeometry, Cpu, Format, Out, Space, View, ViewMut};

/// Workspaces are cut at multiples of this many elements.
const ALIGNED_LEN: usize = ALIGNMENT / size_of::<f32>();

/// One algorithm on one operation and geometry, of which it holds all that it derives. Lengths are in elements.
trait Pass: fmt::Debug + Send + Sync {
    /// The workspace that [`Pass::run`] needs on so many threads: no other memory of it grows with the operands.
    fn workspace_len(&self, threads: usize) -> usize;

    /// As [`Facts::prepared`].
    fn prepared_len(&self) -> usize {
        0
    }

    /// As [`Convolver::prepare`].
    fn prepare(&self, _cpu: &Cpu, _filter: &[f32], _workspace: &mut [f32]) {}

    /// As [`Convolver::run`]. The workspace is aligned to a cache line, and may be larger than needed.
    fn run(&self, cpu: &Cpu, operands: [&[f32]; 2], out: HostOut<'_>, workspace: &mut [f32]);
}

/// `y`, `dx` or `dw`, and whether to replace it.
type HostOut<'a> = (&'a mut [f32], Accumulate);

/// Makes an algorithm ready for an operation, a geometry and a number of threads, if it applies.
type MakePass = fn(ConvOp, &ConvGeometry, usize) -> Option<Box<dyn Pass>>;

/// Every algorithm: its name, its accuracy class, and how it is made ready. The first applies to nearly everything.
const ALGORITHMS: [(&str, f32, MakePass); 6] = [
    // A few hundred KiB of workspace for each thread, whatever the mini-batch.
    ("IMPLICIT_GEMM", 1e-6, implicit_gemm::pass),
    ("GEMM", 1e-6, |op, g, _| im2col::pass(op, g)),
    // Fewest multiplications.
    ("WINOGRAD_4X4", 5e-6, |op, g, _| winograd::fused(op, g)),
    // Transformed filters never leave the caches.
    ("WINOGRAD_4X4_NONFUSED", 5e-6, |op, g, _| winograd::nonfused(op, g)),
    ("FFT_TILING", 1e-6, |op, g, _| fft::pass(op, g, 32)),
    // Less waste on small images.
    ("FFT_TILING_16", 1e-6, |op, g, _| fft::pass(op, g, 16)),
];

/// The algorithms that apply; with a `name`, the one of that name.
pub(super) fn convolvers(
    cpu: &Cpu,
    op: ConvOp,
    geometry: ConvGeometry,
    name: Option<&str>,
) -> Vec<Arc<dyn Convolver>> {
    let wanted = ALGORITHMS.into_iter().filter(|(own, ..)| name.is_none_or(|name| name == *own));
    let ready = wanted.filter_map(|(name, max_error, make)| {
        let pass = make(op, &geometry, cpu.threads())?;
        let bytes = |len| Bytes(Space::of::<f32>(len).bytes() as u64);
        let [workspace, prepared] = [pass.workspace_len(cpu.threads()), pass.prepared_len()].map(bytes);
        let (name, deterministic) = (name.to_owned(), true);
        let facts = Facts { name, geometry, workspace, prepared, max_error, deterministic };
        Some(Arc::new(CpuConvolver { facts, cpu: cpu.clone(), pass }) as Arc<dyn Convolver>)
    });
    ready.collect()
}

/// A pass and the threads it runs on.
#[derive(Debug)]
struct CpuConvolver {
    facts: Facts,
    cpu: Cpu,
    pass: Box<dyn Pass>,
}

impl Convolver for CpuConvolver {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prepare(&self, filter: View<'_>, workspace: ViewMut<'_>) {
        if self.pass.prepared_len() > 0 {
            self.pass.prepare(&self.cpu, filter.host(), workspace.tagged(Format::F32).into_host());
        }
    }

    fn run(&self, [a, b]: [View<'_>; 2], out: Out<'_>, workspace: ViewMut<'_>) -> Result<()> {
        let workspace = workspace.tagged(Format::F32).into_host();
        self.pass.run(&self.cpu, [a.host(), b.host()], out.into_host(), workspace);
        Ok(())
    }
}

/// Cuts parts of these lengths off the beginning of `memory`; the last part returned is the rest.
fn split<const N: usize>(mut memory: &mut [f32], lens: [usize; N]) -> ([&mut [f32]; N], &mut [f32]) {
    let parts =
        lens.map(|len| memory.split_off_mut(..len).expect("a workspace of the length that was asked for"));
    (parts, memory)
}
