//! The gradient of the filters: `G^T [sum over tiles of (B^T x B) (A dy A^T)] G`, the exact adjoint of the forward pass.

use super::{
    analyse::{Analyse, analyse_scratch},
    filter::{CHANNELS, FilterGradient, Part, TAPS},
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

/// A backward-filter pass.
pub(super) struct BackwardFilter<T, const M: usize, const A: usize> {
    pub(super) transforms: PhantomData<T>,
    pub(super) problem: Problem,
    /// Rows of tiles of one block.
    pub(super) block: usize,
    /// Partial sums of the gradients. With several, each is one task's, in its thread's caches from the transforms to
    /// the products. With one, for gradients too large to have more of, blocks of tiles follow one another, and threads
    /// share the transforms by rows of tiles and the products by frequency and panel. Either way every sum has one order.
    pub(super) sums: usize,
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> BackwardFilter<T, M, A> {
    pub(super) fn gradients(&self) -> Spectrum {
        let Problem { input, output, .. } = self.problem;
        Spectrum { frequencies: A * A, rows: input.channels, blocks: output.blocks(), widest: PANEL }
    }

    /// `x` of a block of tiles, in panels of sixteen channels: the left operand, read down its columns.
    pub(super) fn inputs(&self) -> Spectrum {
        let rows = self.block * self.problem.cols();
        Spectrum { frequencies: A * A, rows, blocks: self.problem.input.blocks(), widest: 1 }
    }

    /// `dy` of a block of tiles.
    pub(super) fn outputs(&self) -> Spectrum {
        let rows = self.block * self.problem.cols();
        Spectrum { frequencies: A * A, rows, blocks: self.problem.output.blocks(), widest: PANEL }
    }

    /// Transformed operands of one block.
    pub(super) fn operands_len(&self) -> usize {
        self.inputs().len() + self.outputs().len()
    }

    /// Scratch of the transforms of `rows` rows of tiles.
    pub(super) fn scratch(&self, rows: usize) -> usize {
        let Problem { input, output, .. } = &self.problem;
        analyse_scratch::<A, A>(&self.problem, input, rows).max(analyse_scratch::<M, A>(
            &self.problem,
            output,
            rows,
        ))
    }

    /// Elements of workspace.
    pub(super) fn len(&self, threads: usize) -> usize {
        let sums = self.sums * self.gradients().len();
        if self.sums > 1 {
            sums + threads * (self.operands_len() + self.scratch(self.block)).next_multiple_of(LANES)
        } else {
            sums + self.operands_len() + threads * self.scratch(1).next_multiple_of(LANES)
        }
    }

    pub(super) fn run(
        &self,
        cpu: &Cpu,
        operands: Operands<'_>,
        accumulate: Accumulate,
        mut workspace: &mut [f32],
    ) {
        let gradients = take(&mut workspace, self.sums * self.gradients().len());
        let dw = SharedMut::new(operands.out);
        for group in 0..self.problem.groups {
            let pair = (operands.a, operands.b);
            if self.sums > 1 {
                self.sum_apart(cpu, group, pair, gradients, workspace);
            } else {
                self.sum_together(cpu, group, pair, gradients, workspace);
            }
            self.store_all(cpu, group, gradients, (&dw, accumulate));
        }
    }

    fn blocks(&self) -> usize {
        self.problem.rows().div_ceil(self.block)
    }

    fn rows(&self, block: usize) -> Range<usize> {
        block * self.block..((block + 1) * self.block).min(self.problem.rows())
    }

    /// One task for each partial sum.
    fn sum_apart(
        &self,
        cpu: &Cpu,
        group: usize,
        (x, dy): (&[f32], &[f32]),
        gradients: &mut [f32],
        workspace: &mut [f32],
    ) {
        let len = self.gradients().len();
        let gradients = SharedMut::new(gradients);
        cpu.for_each_scratch(self.sums, workspace, |task, mut scratch| {
            let inputs = take(&mut scratch, self.inputs().len());
            let outputs = take(&mut scratch, self.outputs().len());
            // SAFETY: every task has its own partial sum.
            let sum = SharedMut::new(unsafe { gradients.slice(task * len..(task + 1) * len) });
            let first = task * self.blocks() / self.sums;
            for block in first..(task + 1) * self.blocks() / self.sums {
                let rows = self.rows(block);
                self.transform_x(x, group, (rows.clone(), 0), &SharedMut::new(inputs), scratch);
                self.transform_dy(dy, group, (rows.clone(), 0), &SharedMut::new(outputs), scratch);
                let accumulate = if block == first { Accumulate::Replace } else { Accumulate::Add };
                for product in 0..self.products() {
                    let tiles = rows.len() * self.problem.cols();
                    self.add_product(product, (inputs, outputs, tiles), (&sum, accumulate));
                }
            }
        });
    }

    /// All threads on one block after the other.
    fn sum_together(
        &self,
        cpu: &Cpu,
        group: usize,
        (x, dy): (&[f32], &[f32]),
        gradients: &mut [f32],
        mut workspace: &mut [f32],
    ) {
        let inputs = take(&mut workspace, self.inputs().len());
        let outputs = take(&mut workspace, self.outputs().len());
        let gradients = SharedMut::new(gradients);
        for block in 0..self.blocks() {
            let rows = self.rows(block);
            self.transform_together(cpu, group, (x, dy), rows.clone(), [inputs, outputs], workspace);
            let accumulate = if block == 0 { Accumulate::Replace } else { Accumulate::Add };
            cpu.for_each(self.products(), |product| {
                let tiles = rows.len() * self.problem.cols();
                self.add_product(product, (inputs, outputs, tiles), (&gradients, accumulate));
            });
        }
    }

    /// All threads on both transforms of a block.
    pub(super) fn transform_together(
        &self,
        cpu: &Cpu,
        group: usize,
        (x, dy): (&[f32], &[f32]),
        rows: Range<usize>,
        to: [&mut [f32]; 2],
        workspace: &mut [f32],
    ) {
        let [inputs, outputs] = to.map(SharedMut::new);
        cpu.for_each_scratch(2 * rows.len(), workspace, |task, scratch| {
            let (place, row) = (task / 2, rows.start + task / 2);
            if task % 2 == 0 {
                self.transform_x(x, group, (row..row + 1, place), &inputs, scratch);
            } else {
                self.transform_dy(dy, group, (row..row + 1, place), &outputs, scratch);
            }
        });
    }

    fn transform_x(
        &self,
        x: &[f32],
        group: usize,
        rows: (Range<usize>, usize),
        to: &SharedMut<'_>,
        scratch: &mut [f32],
    ) {
        let Problem { input, pad, .. } = self.problem;
        self.analyse::<T::Input, A>((input, pad, x), group, rows, (self.inputs(), to), scratch);
    }

    fn transform_dy(
        &self,
        dy: &[f32],
        group: usize,
        rows: (Range<usize>, usize),
        to: &SharedMut<'_>,
        scratch: &mut [f32],
    ) {
        let images = (self.problem.output, [0, 0], dy);
        self.analyse::<T::OutputAdjoint, M>(images, group, rows, (self.outputs(), to), scratch);
    }

    /// Transforms rows of tiles, the first into row `place` of a block.
    fn analyse<F: Transform<IN, A>, const IN: usize>(
        &self,
        (images, pad, from): (Images, [usize; 2], &[f32]),
        group: usize,
        (rows, place): (Range<usize>, usize),
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
            rows,
            layout,
            to,
            first_tile: place * self.problem.cols(),
            scratch,
        });
    }

    /// How many products [`BackwardFilter::add_product`] numbers: frequencies times panels.
    fn products(&self) -> usize {
        A * A * self.gradients().panels()
    }

    /// Adds one product of a block of tiles to the gradients at the points.
    fn add_product(
        &self,
        product: usize,
        operands: (&[f32], &[f32], usize),
        (gradients, accumulate): (&SharedMut<'_>, Accumulate),
    ) {
        let layout = self.gradients();
        let (frequency, panel) = (product / layout.panels(), product % layout.panels());
        // SAFETY: every product has its own frequency and panel.
        let sums = unsafe { gradients.slice(layout.range(frequency, panel, 0..layout.rows)) };
        self.multiply((frequency, panel), 0..self.inputs().blocks, operands, (sums, accumulate));
    }

    /// Adds the products at one frequency of `blocks` of input channels with a panel of output channels to `sums`, summed
    /// over the first `tiles` of a block.
    pub(super) fn multiply(
        &self,
        (frequency, panel): (usize, usize),
        blocks: Range<usize>,
        (inputs, outputs, tiles): (&[f32], &[f32], usize),
        (sums, accumulate): (&mut [f32], Accumulate),
    ) {
        let (input_layout, output_layout) = (self.inputs(), self.outputs());
        let (channels, width) = (self.problem.input.channels, output_layout.width(panel));
        for start in (0..tiles).step_by(TERMS) {
            let terms = start..(start + TERMS).min(tiles);
            let accumulate = if start == 0 { accumulate } else { Accumulate::Add };
            let right = &outputs[output_layout.range(frequency, panel, terms.clone())];
            for (block, sums) in blocks.clone().zip(sums.chunks_mut(LANES * width)) {
                let rows = LANES.min(channels - block * LANES);
                let left = &inputs[input_layout.range(frequency, block, terms.clone())];
                let left = Left { elements: left, row_stride: 1, step: LANES };
                multiply([rows, width, terms.len()], left, right, sums, accumulate, &[]);
            }
        }
    }

    /// Gradients at the points to gradients of the filters of a group.
    fn store_all(&self, cpu: &Cpu, group: usize, gradients: &[f32], dw: (&SharedMut<'_>, Accumulate)) {
        let (layout, inputs) = (self.gradients(), self.problem.input.channels);
        let chunks = inputs.div_ceil(CHANNELS);
        cpu.for_each(layout.panels() * chunks, |task| {
            let (panel, first) = (task / chunks, task % chunks * CHANNELS);
            let part = (layout.panel_blocks(panel), first..(first + CHANNELS).min(inputs));
            self.store(group, part, (layout, panel, first), gradients, dw);
        });
    }

    /// Gradients at the points, a panel of `layout`, to those of `blocks` of output channels and some input `channels`.
    pub(super) fn store(
        &self,
        group: usize,
        (blocks, channels): (Range<usize>, Range<usize>),
        (layout, panel, row): (Spectrum, usize, usize),
        from: &[f32],
        (dw, accumulate): (&SharedMut<'_>, Accumulate),
    ) {
        let (inputs, outputs) = (self.problem.input.channels, self.problem.output.channels);
        dispatch(FilterGradient::<T::FilterAdjoint, A> {
            transform: PhantomData,
            part: Part { inputs, outputs, blocks, channels, layout, panel, row },
            from,
            dw,
            start: group * inputs * outputs * TAPS,
            accumulate,
        });
    }
}
