//! Convolution through Fourier transforms of tiles (cuDNN's FFT tiling).
//!
//! A convolution of images is a product of spectra, frequency by frequency, so a filter of R x S taps costs as much as
//! one of 1 x 1 there. Images are cut into tiles of T x T that overlap by the filter, so that the circular convolution
//! of a tile is the wanted one on T - R + 1 by T - S + 1 pixels. Sixteen channels are transformed at once, one per
//! lane; at each frequency the channels are summed by a complex matrix product.
//!
//! Four stages, and between them what the workspace holds:
//!
//! 1. tiles -> spectra, T^2 floats for T^2 pixels and channel (real input: half the frequencies suffice);
//!    filters -> spectra of their R *rows* only, T R floats, once for all micro-batches;
//! 2. per column of the spectra: filters' columns -> spectra in cache, products, columns transformed back -> row
//!    spectra of the result;
//! 3. row spectra of the result -> result.
//!
//! A spectrum of all filters, 41 times the filter at T = 32 and 5 x 5 taps, never exists: a task makes the piece it
//! needs in its own cache, once per 64 tiles. That is cheaper than writing it to memory and reading it back. What grows
//! with the micro-batch is the spectra of the images.

mod bins;
mod filter;
mod image;
mod multiply;
mod product;
#[cfg(test)]
mod tests;
mod tiling;
mod transform;

use super::{HostOut, Pass, split};
use crate::conv::ConvOp;
use filter::AnalyseFilter;
use image::{Analyse, Synthesise};
use multiply::Multiply;
use tensor::cpu::{SharedMut, dispatch};
use tensor::{ConvGeometry, Cpu};
use tiling::{Images, Tiling};

/// Convolution by Fourier transforms of tiles of `t` x `t` (16 or 32): stride 1, dilation 1, filters up to half a tile.
pub(super) fn pass(op: ConvOp, g: &ConvGeometry, t: usize) -> Option<Box<dyn Pass>> {
    Some(Box::new(Tiling::new(op, g, t)?))
}

impl Pass for Tiling {
    fn workspace_len(&self, threads: usize) -> usize {
        self.regions().iter().sum::<usize>() + threads * self.scratch_len()
    }

    /// The row spectra of filters depend on nothing else.
    fn prepared_len(&self) -> usize {
        if self.right.is_none() { self.regions()[0] } else { 0 }
    }

    fn prepare(&self, cpu: &Cpu, filter: &[f32], workspace: &mut [f32]) {
        let ([spectra, ..], scratch) = self.cut(workspace);
        let spectra = SharedMut::new(spectra);
        cpu.for_each_scratch(AnalyseFilter::tasks(self), scratch, &|index, scratch| {
            dispatch(AnalyseFilter { tiling: self, filter, spectra, index, scratch });
        });
    }

    fn run(&self, cpu: &Cpu, [a, b]: [&[f32]; 2], (out, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        let ([right, left, result], scratch) = self.cut(workspace);
        match &self.right {
            None => self.analyse(cpu, &self.left, a, left, scratch),
            Some(images) => {
                self.analyse(cpu, &self.left, b, left, scratch);
                self.analyse(cpu, images, a, right, scratch);
            }
        }
        let (left, right, products) = (&*left, &*right, SharedMut::new(result));
        cpu.for_each_scratch(Multiply::tasks(self), scratch, &|index, scratch| {
            dispatch(Multiply { tiling: self, left, right, result: products, index, scratch });
        });
        let (rows, out) = (&*result, SharedMut::new(out));
        let tasks = match self.op {
            ConvOp::BackwardFilter => self.geometry.k,
            _ => self.blocks_of_all(self.extents[2]),
        };
        cpu.for_each(tasks, |index| dispatch(Synthesise { tiling: self, rows, out, accumulate, index }));
    }
}

impl Tiling {
    /// The parts of the workspace, as [`Tiling::regions`] says, and the threads' scratch.
    fn cut<'a>(&self, workspace: &'a mut [f32]) -> ([&'a mut [f32]; 3], &'a mut [f32]) {
        assert_eq!(workspace.as_ptr().align_offset(64), 0, "a workspace begins at a cache line");
        split(workspace, self.regions())
    }

    fn analyse(&self, cpu: &Cpu, images: &Images, values: &[f32], spectra: &mut [f32], scratch: &mut [f32]) {
        let spectra = SharedMut::new(spectra);
        cpu.for_each_scratch(self.blocks_of_all(images.blocks()), scratch, &|index, scratch| {
            dispatch(Analyse { tiling: self, images, elements: values, spectra, index, scratch });
        });
    }

    /// Blocks of channels of all samples, if a group has so many.
    fn blocks_of_all(&self, of_group: usize) -> usize {
        self.geometry.n * self.geometry.groups * of_group
    }
}
