//! The gradient of the filters: `G^T [sum over tiles of (B^T x B) (A dy A^T)] G`, the exact adjoint of forward.
//!
//! Both operands of the whole micro-batch are transformed; then each task sums the gradients of a panel of output
//! channels and a slice of input channels at the points, and transforms them as soon as they are summed: they never
//! leave its caches. A form that works on blocks of tiles, with partial sums, needs less workspace, and is nowhere
//! faster than implicit GEMM.

use super::analyse::{analyse, analyse_scratch};
use super::filter::{FilterGradient, Part, TAPS};
use super::layout::{PANEL, Problem, SLICE, Spectrum, slice_channels, slice_layout, slice_rows};
use super::minimal::{A, Input, M, OutputAdjoint};
use crate::conv::cpu::{HostOut, Pass, split};
use std::ops::Range;
use tensor::cpu::{LANES, Left, SharedMut, block_gemm, dispatch};
use tensor::{Accumulate, Cpu};

/// Tiles whose products are summed in registers before the sums go to memory: 16 channels and a panel of so many tiles
/// stay in the first-level cache.
const TERMS: usize = 160;

/// A backward-filter pass in tiles of 4 x 4.
#[derive(Debug)]
pub(super) struct BackwardFilter {
    pub(super) problem: Problem,
}

impl Pass for BackwardFilter {
    fn workspace_len(&self, threads: usize) -> usize {
        let Problem { input, output, .. } = &self.problem;
        let transforms =
            analyse_scratch::<A>(&self.problem, input, 1).max(analyse_scratch::<M>(&self.problem, output, 1));
        let scratch = slice_layout(input.channels, PANEL).len().max(transforms);
        self.inputs().len() + self.outputs().len() + threads * scratch.next_multiple_of(LANES)
    }

    fn run(&self, cpu: &Cpu, [x, dy]: [&[f32]; 2], (dw, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        let ([inputs, outputs], workspace) = split(workspace, [self.inputs().len(), self.outputs().len()]);
        let (problem, dw, panels) = (&self.problem, SharedMut::new(dw), self.outputs().panels());
        let slices = Spectrum { widest: SLICE / LANES, ..self.inputs() };
        for group in 0..problem.groups {
            let shared = [&mut *inputs, &mut *outputs].map(SharedMut::new);
            // Both operands, by rows of tiles.
            cpu.for_each_scratch(2 * problem.rows(), workspace, &|task, scratch| {
                let row = task / 2;
                let (place, tile) = ((group, row..row + 1), row * problem.cols());
                if task % 2 == 0 {
                    let (x, to) = ((problem.input, problem.pad, x), (self.inputs(), &shared[0], tile));
                    analyse::<Input, A>(problem, x, place, to, scratch);
                } else {
                    let (dy, to) = ((problem.output, [0, 0], dy), (self.outputs(), &shared[1], tile));
                    analyse::<OutputAdjoint, M>(problem, dy, place, to, scratch);
                }
            });
            cpu.for_each_scratch(panels * slices.panels(), workspace, &|task, sums| {
                let (panel, slice) = (task / slices.panels(), slices.panel_blocks(task % slices.panels()));
                self.gradients((group, panel, slice), (inputs, outputs), (&dw, accumulate), sums);
            });
        }
    }
}

impl BackwardFilter {
    /// `x` of all tiles, in panels of sixteen channels: the left operand, read down its columns.
    fn inputs(&self) -> Spectrum {
        let rows = self.problem.rows() * self.problem.cols();
        Spectrum { rows, blocks: self.problem.input.blocks(), widest: 1 }
    }

    /// `dy` of all tiles.
    fn outputs(&self) -> Spectrum {
        Spectrum { blocks: self.problem.output.blocks(), widest: PANEL, ..self.inputs() }
    }

    /// The gradients of a panel of output channels and a slice of blocks of input channels.
    fn gradients(
        &self,
        (group, panel, slice): (usize, usize, Range<usize>),
        operands: (&[f32], &[f32]),
        (dw, accumulate): (&SharedMut<'_>, Accumulate),
        sums: &mut [f32],
    ) {
        let (inputs, outputs) = (self.problem.input.channels, self.problem.output.channels);
        let blocks = self.outputs().panel_blocks(panel);
        let channels = slice_channels(slice.clone(), inputs);
        let layout = slice_layout(inputs, blocks.len());
        for frequency in 0..A * A {
            let sums = &mut sums[layout.range(frequency, 0, 0..channels.len())];
            self.multiply((frequency, panel), slice.clone(), operands, sums);
        }
        for (channels, row) in slice_rows(&channels) {
            dispatch(FilterGradient {
                part: Part { inputs, outputs, blocks: blocks.clone(), channels, layout, panel: 0, row },
                from: sums,
                dw,
                start: group * inputs * outputs * TAPS,
                accumulate,
            });
        }
    }

    /// The products at one frequency of `blocks` of input channels with a panel of output channels, over all tiles.
    fn multiply(
        &self,
        (frequency, panel): (usize, usize),
        blocks: Range<usize>,
        (inputs, outputs): (&[f32], &[f32]),
        sums: &mut [f32],
    ) {
        let (input_layout, output_layout) = (self.inputs(), self.outputs());
        let (channels, width) = (self.problem.input.channels, output_layout.width(panel));
        for start in (0..input_layout.rows).step_by(TERMS) {
            let terms = start..(start + TERMS).min(input_layout.rows);
            let accumulate = if start == 0 { Accumulate::Replace } else { Accumulate::Add };
            let right = &outputs[output_layout.range(frequency, panel, terms.clone())];
            for (block, sums) in blocks.clone().zip(sums.chunks_mut(LANES * width)) {
                let rows = LANES.min(channels - block * LANES);
                let left = &inputs[input_layout.range(frequency, block, terms.clone())];
                let left = Left::Strided { elements: left, row_stride: 1, step: LANES };
                block_gemm([rows, width, terms.len()], left, right, sums, accumulate, &[]);
            }
        }
    }
}
