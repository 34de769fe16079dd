//! The gradient of the filters: `G^T [sum over tiles of (B^T x B) (A dy A^T)] G`, the exact adjoint of the forward pass.

use super::{
    analyse::{Analyse, analyse_scratch},
    filter::{CHANNELS, FilterGradient, TAPS},
    forward::PANEL,
    layout::{Images, Problem, Spectrum, take},
    minimal::{Minimal, Transform},
    multiply::multiply,
};
use crate::conv::cpu::Operands;
use std::{marker::PhantomData, ops::Range};
use tensor::{
    Accumulate, Cpu,
    cpu::{
        SharedMut,
        block_gemm::Left,
        simd::{LANES, dispatch},
    },
};

/// Tiles whose products are summed in registers before the sums go to memory: 16 channels and a panel of so many tiles
/// stay in the first-level cache.
const TERMS: usize = 160;

/// A backward-filter pass. Blocks of tiles follow one another; within one, threads share the transforms by rows of tiles
/// and the products by frequency and panel, so every sum has one order.
pub(super) struct BackwardFilter<T, const M: usize, const A: usize> {
    pub(super) transforms: PhantomData<T>,
    pub(super) problem: Problem,
    /// Rows of tiles of one block.
    pub(super) block: usize,
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> BackwardFilter<T, M, A> {
    fn gradients(&self) -> Spectrum {
        let Problem { input, output, .. } = self.problem;
        Spectrum { frequencies: A * A, rows: input.channels, blocks: output.blocks(), widest: PANEL }
    }

    /// `x` of a block of tiles, in panels of sixteen channels: the left operand, read down its columns.
    fn inputs(&self) -> Spectrum {
        let rows = self.block * self.problem.cols();
        Spectrum { frequencies: A * A, rows, blocks: self.problem.input.blocks(), widest: 1 }
    }

    /// `dy` of a block of tiles.
    fn outputs(&self) -> Spectrum {
        let rows = self.block * self.problem.cols();
        Spectrum { frequencies: A * A, rows, blocks: self.problem.output.blocks(), widest: PANEL }
    }

    fn scratch(&self) -> usize {
        let Problem { input, output, .. } = &self.problem;
        analyse_scratch::<A, A>(&self.problem, input, 1)
            .max(analyse_scratch::<M, A>(&self.problem, output, 1))
            .next_multiple_of(LANES)
    }

    /// Elements of workspace.
    pub(super) fn len(&self, threads: usize) -> usize {
        self.gradients().len() + self.inputs().len() + self.outputs().len() + threads * self.scratch()
    }

    pub(super) fn run(
        &self,
        cpu: &Cpu,
        operands: Operands<'_>,
        accumulate: Accumulate,
        mut workspace: &mut [f32],
    ) {
        let gradients = take(&mut workspace, self.gradients().len());
        let inputs = take(&mut workspace, self.inputs().len());
        let outputs = take(&mut workspace, self.outputs().len());
        let dw = SharedMut::new(operands.out);
        for group in 0..self.problem.groups {
            let all = self.problem.rows();
            for start in (0..all).step_by(self.block) {
                let rows = start..(start + self.block).min(all);
                let (x, dy) = ((operands.a, &mut *inputs), (operands.b, &mut *outputs));
                self.transform(cpu, group, rows.clone(), x, dy, workspace);
                let accumulate = if start == 0 { Accumulate::Replace } else { Accumulate::Add };
                self.multiply(
                    cpu,
                    rows.len() * self.problem.cols(),
                    inputs,
                    outputs,
                    (gradients, accumulate),
                );
            }
            self.store(cpu, group, gradients, (&dw, accumulate));
        }
    }

    /// Both operands of a block of tiles to the points.
    fn transform(
        &self,
        cpu: &Cpu,
        group: usize,
        rows: Range<usize>,
        (x, inputs): (&[f32], &mut [f32]),
        (dy, outputs): (&[f32], &mut [f32]),
        scratch: &mut [f32],
    ) {
        let Problem { input, output, pad, .. } = self.problem;
        let (inputs, outputs) = (SharedMut::new(inputs), SharedMut::new(outputs));
        cpu.for_each_scratch(2 * rows.len(), scratch, |task, scratch| {
            let (row, place) = (rows.start + task / 2, task / 2);
            if task % 2 == 0 {
                let to = (self.inputs(), &inputs);
                self.analyse::<T::Input, A>((input, pad, x), group, (row, place), to, scratch);
            } else {
                let to = (self.outputs(), &outputs);
                self.analyse::<T::OutputAdjoint, M>((output, [0, 0], dy), group, (row, place), to, scratch);
            }
        });
    }

    /// Transforms one row of tiles into place `place` of the block.
    fn analyse<F: Transform<IN, A>, const IN: usize>(
        &self,
        (images, pad, from): (Images, [usize; 2], &[f32]),
        group: usize,
        (row, place): (usize, usize),
        (layout, to): (Spectrum, &SharedMut<'_>),
        scratch: &mut [f32],
    ) {
        dispatch(Analyse::<F, IN, A> {
            transform: PhantomData,
            problem: &self.problem,
            images,
            pad,
            from,
            group,
            rows: row..row + 1,
            layout,
            to,
            first_tile: place * self.problem.cols(),
            scratch,
        });
    }

    /// Adds the products of a block of tiles to the gradients at the points.
    fn multiply(
        &self,
        cpu: &Cpu,
        tiles: usize,
        inputs: &[f32],
        outputs: &[f32],
        (gradients, accumulate): (&mut [f32], Accumulate),
    ) {
        let (layout, input_layout, output_layout) = (self.gradients(), self.inputs(), self.outputs());
        let (panels, channels) = (layout.panels(), self.problem.input.channels);
        let gradients = SharedMut::new(gradients);
        cpu.for_each(layout.frequencies * panels, |task| {
            let (frequency, panel) = (task / panels, task % panels);
            for start in (0..tiles).step_by(TERMS) {
                let terms = start..(start + TERMS).min(tiles);
                let accumulate = if start == 0 { accumulate } else { Accumulate::Add };
                let right = &outputs[output_layout.range(frequency, panel, terms.clone())];
                for block in 0..input_layout.blocks {
                    let rows = block * LANES..((block + 1) * LANES).min(channels);
                    let left = &inputs[input_layout.range(frequency, block, terms.clone())];
                    // SAFETY: every task has its own frequency and panel.
                    let out = unsafe { gradients.slice(layout.range(frequency, panel, rows.clone())) };
                    let left = Left { elements: left, row_stride: 1, step: LANES };
                    multiply([rows.len(), layout.width(panel), terms.len()], left, right, out, accumulate);
                }
            }
        });
    }

    /// Gradients at the points to gradients of the filters of a group.
    fn store(
        &self,
        cpu: &Cpu,
        group: usize,
        gradients: &[f32],
        (dw, accumulate): (&SharedMut<'_>, Accumulate),
    ) {
        let Problem { input, output, .. } = self.problem;
        let chunks = input.channels.div_ceil(CHANNELS);
        let layout = self.gradients();
        cpu.for_each(layout.panels() * chunks, |task| {
            let first = task % chunks * CHANNELS;
            dispatch(FilterGradient::<T::FilterAdjoint, A> {
                transform: PhantomData,
                inputs: input.channels,
                outputs: output.channels,
                panel: task / chunks,
                channels: first..(first + CHANNELS).min(input.channels),
                layout,
                from: gradients,
                dw,
                start: group * input.channels * output.channels * TAPS,
                accumulate,
            });
        });
    }
}
