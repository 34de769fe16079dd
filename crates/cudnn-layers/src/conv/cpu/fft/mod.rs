//! Convolution through Fourier transforms of tiles (cuDNN's FFT tiling).
//!
//! A convolution of images is a product of spectra, frequency by frequency, so a filter of R x S taps costs as much as
//! one of 1 x 1 there. Images are cut into tiles of T x T that overlap by the filter, so that the circular convolution of
//! a tile is the wanted one on T - R + 1 by T - S + 1 pixels. Sixteen channels are transformed at once, one per lane; at
//! each frequency the channels are summed by a complex matrix product.
//!
//! Four stages, and between them what the workspace holds:
//!
//! 1. tiles -> spectra, T^2 floats for T^2 pixels and channel (real input: half the frequencies suffice);
//!    filters -> spectra of their R *rows* only, T R floats, once for all micro-batches;
//! 2. per column of the spectra: filters' columns -> spectra in cache, products, columns transformed back -> row spectra
//!    of the result;
//! 3. row spectra of the result -> result.
//!
//! A spectrum of all filters, 41 times the filter at T = 32 and 5 x 5 taps, never exists: a task makes the piece it needs
//! in its own cache, once per 64 tiles. That is cheaper than writing it to memory and reading it back. What grows with
//! the micro-batch is the spectra of the images.

mod bins;
mod filter;
mod image;
mod lanes;
mod multiply;
mod plan;
mod product;
#[cfg(test)]
mod tests;
mod transform;

use super::{super::ConvOp, CpuAlgorithm, Operands};
use filter::{AnalyseFilter, SynthesiseFilter};
use image::{Analyse, Synthesise};
use multiply::Multiply;
use plan::{Images, Plan, Right};
use tensor::{
    Accumulate, ConvGeometry, Cpu,
    cpu::{SharedMut, simd::dispatch},
};

/// Convolution by Fourier transforms of tiles of `T` x `T`; see the [module](self).
///
/// For stride 1, dilation 1 and filters up to half a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct FftTiling<const T: usize>;

/// Tiles of 32 x 32.
pub(super) const FFT_TILING: FftTiling<32> = FftTiling;

/// Tiles of 16 x 16: less waste on small images.
pub(super) const FFT_TILING_16: FftTiling<16> = FftTiling;

impl<const T: usize> CpuAlgorithm for FftTiling<T> {
    fn name(&self) -> &'static str {
        if T == 32 { "FFT_TILING" } else { "FFT_TILING_16" }
    }

    fn max_error(&self) -> f32 {
        1e-6
    }

    fn workspace_len(&self, op: ConvOp, geometry: &ConvGeometry, threads: usize) -> Option<usize> {
        Some(Plan::new(op, geometry, T)?.regions(threads).iter().sum())
    }

    fn prepared_len(&self, op: ConvOp, geometry: &ConvGeometry) -> usize {
        Plan::new(op, geometry, T).map_or(0, |plan| plan.prepared_len())
    }

    fn prepare(&self, cpu: &Cpu, op: ConvOp, geometry: &ConvGeometry, filter: &[f32], workspace: &mut [f32]) {
        let plan = Plan::new(op, geometry, T).expect(APPLIES);
        if let Right::Filter = &plan.right {
            let [right, _, _, scratch] = regions(&plan, cpu.threads(), workspace);
            analyse_filter(cpu, &plan, filter, right, scratch);
        }
    }

    fn run(
        &self,
        cpu: &Cpu,
        op: ConvOp,
        geometry: &ConvGeometry,
        operands: Operands<'_>,
        accumulate: Accumulate,
        workspace: &mut [f32],
    ) {
        let plan = Plan::new(op, geometry, T).expect(APPLIES);
        let [right, left, result, scratch] = regions(&plan, cpu.threads(), workspace);
        let Operands { a, b, out } = operands;
        match &plan.right {
            Right::Filter => analyse(cpu, &plan, &plan.left, a, left, scratch),
            Right::Images(images) => {
                analyse(cpu, &plan, &plan.left, b, left, scratch);
                analyse(cpu, &plan, images, a, right, scratch);
            }
        }
        multiply(cpu, &plan, left, right, result, scratch);
        synthesise(cpu, &plan, result, out, accumulate, scratch);
    }
}

/// Whoever calls an algorithm has asked how much workspace it needs.
const APPLIES: &str = "called only where `workspace_len` says that it applies";

/// The parts of the workspace, as [`Plan::regions`] says.
fn regions<'a>(plan: &Plan, threads: usize, mut workspace: &'a mut [f32]) -> [&'a mut [f32]; 4] {
    assert_eq!(workspace.as_ptr().align_offset(64), 0, "a workspace begins at a cache line");
    plan.regions(threads).map(|len| {
        let (region, rest) = std::mem::take(&mut workspace).split_at_mut(len);
        workspace = rest;
        region
    })
}

fn analyse(
    cpu: &Cpu,
    plan: &Plan,
    images: &Images,
    elements: &[f32],
    spectra: &mut [f32],
    scratch: &mut [f32],
) {
    let spectra = SharedMut::new(spectra);
    cpu.for_each_scratch(Analyse::tasks(plan, images), scratch, |index, scratch| {
        dispatch(Analyse { plan, images, elements, spectra, index, scratch });
    });
}

fn analyse_filter(cpu: &Cpu, plan: &Plan, filter: &[f32], spectra: &mut [f32], scratch: &mut [f32]) {
    let spectra = SharedMut::new(spectra);
    cpu.for_each_scratch(AnalyseFilter::tasks(plan), scratch, |index, scratch| {
        dispatch(AnalyseFilter { plan, filter, spectra, index, scratch });
    });
}

fn multiply(cpu: &Cpu, plan: &Plan, left: &[f32], right: &[f32], result: &mut [f32], scratch: &mut [f32]) {
    let result = SharedMut::new(result);
    cpu.for_each_scratch(Multiply::tasks(plan), scratch, |index, scratch| {
        dispatch(Multiply { plan, left, right, result, index, scratch });
    });
}

fn synthesise(
    cpu: &Cpu,
    plan: &Plan,
    rows: &[f32],
    out: &mut [f32],
    accumulate: Accumulate,
    scratch: &mut [f32],
) {
    let out = SharedMut::new(out);
    if plan.op == ConvOp::BackwardFilter {
        cpu.for_each_scratch(SynthesiseFilter::tasks(plan), scratch, |index, scratch| {
            dispatch(SynthesiseFilter { plan, rows, out, accumulate, index, scratch });
        });
    } else {
        cpu.for_each(Synthesise::tasks(plan), |index| {
            dispatch(Synthesise { plan, rows, out, accumulate, index });
        });
    }
}
