//! The forward pass, and backward-data as the forward pass of rotated filters.

use super::{
    analyse::{Analyse, analyse_scratch},
    filter::{CHANNELS, Direction, TAPS, TransformFilter},
    layout::{Problem, Spectrum, take},
    minimal::Minimal,
    multiply::multiply,
    synthesise::{Synthesise, synthesise_scratch},
};
use crate::conv::cpu::Operands;
use std::{marker::PhantomData, ops::Range};
use tensor::{
    Accumulate, Cpu,
    cpu::{SharedMut, block_gemm::Left, simd::dispatch},
};

/// Blocks of the widest panel of output channels: the width of the product's register tile.
pub(super) const PANEL: usize = 3;

/// A forward pass: what it is and how it is cut.
pub(super) struct Forward<T, const M: usize, const A: usize> {
    pub(super) transforms: PhantomData<T>,
    pub(super) problem: Problem,
    pub(super) direction: Direction,
    /// Rows of tiles of one task.
    pub(super) block: usize,
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> Forward<T, M, A> {
    fn filters(&self) -> Spectrum {
        let Problem { input, output, .. } = self.problem;
        Spectrum { frequencies: A * A, rows: input.channels, blocks: output.blocks(), widest: PANEL }
    }

    /// Inputs of `rows` rows of tiles: one panel, so that all channels of a tile lie side by side.
    fn inputs(&self, rows: usize) -> Spectrum {
        let blocks = self.problem.input.blocks();
        Spectrum { frequencies: A * A, rows: rows * self.problem.cols(), blocks, widest: blocks }
    }

    /// Products of `rows` rows of tiles with `blocks` blocks of output channels.
    fn products(&self, rows: usize, blocks: usize) -> Spectrum {
        Spectrum { frequencies: A * A, rows: rows * self.problem.cols(), blocks, widest: PANEL }
    }

    fn transform_scratch(&self) -> usize {
        let Problem { input, .. } = &self.problem;
        analyse_scratch::<A, A>(&self.problem, input, self.block)
            .max(synthesise_scratch(&self.problem, self.block))
    }

    fn tasks(&self) -> usize {
        self.problem.rows().div_ceil(self.block)
    }

    fn rows(&self, task: usize) -> Range<usize> {
        task * self.block..((task + 1) * self.block).min(self.problem.rows())
    }

    fn transform_filters(&self, cpu: &Cpu, group: usize, w: &[f32], to: &SharedMut<'_>) {
        let Problem { groups, input, output, .. } = self.problem;
        let len = input.channels * output.channels * TAPS;
        debug_assert_eq!(w.len(), groups * len);
        let chunks = input.channels.div_ceil(CHANNELS);
        let layout = self.filters();
        cpu.for_each(layout.panels() * chunks, |task| {
            let first = task % chunks * CHANNELS;
            dispatch(TransformFilter::<T::Filter, A> {
                transform: PhantomData,
                direction: self.direction,
                w: &w[group * len..][..len],
                inputs: input.channels,
                outputs: output.channels,
                panel: task / chunks,
                channels: first..(first + CHANNELS).min(input.channels),
                layout,
                to,
            });
        });
    }

    fn analyse(
        &self,
        (from, group, rows): (&[f32], usize, Range<usize>),
        (layout, to, first_tile): (Spectrum, &SharedMut<'_>, usize),
        scratch: &mut [f32],
    ) {
        dispatch(Analyse::<T::Input, A, A> {
            transform: PhantomData,
            problem: &self.problem,
            images: self.problem.input,
            pad: self.problem.pad,
            from,
            group,
            rows,
            layout,
            to,
            first_tile,
            scratch,
        });
    }

    /// Elements of workspace of [`Forward::run_fused`].
    pub(super) fn fused_len(&self, threads: usize) -> usize {
        self.filters().len() + threads * self.fused_scratch().next_multiple_of(16)
    }

    fn fused_scratch(&self) -> usize {
        self.inputs(self.block).len() + self.products(self.block, PANEL).len() + self.transform_scratch()
    }

    /// Transforms, multiplies and transforms back one block of tiles after the other, each in its thread's scratch.
    pub(super) fn run_fused(
        &self,
        cpu: &Cpu,
        operands: Operands<'_>,
        accumulate: Accumulate,
        mut workspace: &mut [f32],
    ) {
        let filters = take(&mut workspace, self.filters().len());
        let out = SharedMut::new(operands.out);
        for group in 0..self.problem.groups {
            self.transform_filters(cpu, group, operands.b, &SharedMut::new(filters));
            cpu.for_each_scratch(self.tasks(), workspace, |task, scratch| {
                self.fused_block((operands.a, group, self.rows(task)), filters, (&out, accumulate), scratch);
            });
        }
    }

    fn fused_block(
        &self,
        (from, group, rows): (&[f32], usize, Range<usize>),
        filters: &[f32],
        (to, accumulate): (&SharedMut<'_>, Accumulate),
        mut scratch: &mut [f32],
    ) {
        let input_layout = self.inputs(self.block);
        let inputs = take(&mut scratch, input_layout.len());
        let products = take(&mut scratch, self.products(self.block, PANEL).len());
        self.analyse((from, group, rows.clone()), (input_layout, &SharedMut::new(inputs), 0), scratch);
        let filter_layout = self.filters();
        let (tiles, terms) = (rows.len() * self.problem.cols(), self.problem.input.channels);
        for panel in 0..filter_layout.panels() {
            let blocks = filter_layout.panel_blocks(panel);
            let layout = self.products(self.block, blocks.len());
            for frequency in 0..A * A {
                let left = &inputs[input_layout.range(frequency, 0, 0..tiles)];
                multiply(
                    [tiles, layout.width(0), terms],
                    Left { elements: left, row_stride: input_layout.width(0), step: 1 },
                    &filters[filter_layout.range(frequency, panel, 0..terms)],
                    &mut products[layout.range(frequency, 0, 0..tiles)],
                    Accumulate::Replace,
                    &filters[self.filters_after(frequency, panel)],
                );
            }
            dispatch(Synthesise::<T::Output, A, M> {
                transform: PhantomData,
                problem: &self.problem,
                group,
                rows: rows.clone(),
                layout,
                from: products,
                panel: 0,
                first_tile: 0,
                first_block: blocks.start,
                to,
                accumulate,
                scratch,
            });
        }
    }

    /// The filters that [`Forward::fused_block`] reads after those of `frequency` and `panel`.
    fn filters_after(&self, frequency: usize, panel: usize) -> Range<usize> {
        let (layout, terms) = (self.filters(), 0..self.problem.input.channels);
        if frequency + 1 < A * A {
            layout.range(frequency + 1, panel, terms)
        } else {
            layout.range(0, (panel + 1) % layout.panels(), terms)
        }
    }

    /// Elements of workspace of [`Forward::run_nonfused`].
    pub(super) fn nonfused_len(&self, threads: usize) -> usize {
        let rows = self.problem.rows();
        self.filters().len()
            + self.inputs(rows).len()
            + self.products(rows, self.problem.output.blocks()).len()
            + threads * self.transform_scratch().next_multiple_of(16)
    }

    /// Every stage for the whole micro-batch before the next one: each filter is read once.
    pub(super) fn run_nonfused(
        &self,
        cpu: &Cpu,
        operands: Operands<'_>,
        accumulate: Accumulate,
        mut workspace: &mut [f32],
    ) {
        let rows = self.problem.rows();
        let (filter_layout, input_layout) = (self.filters(), self.inputs(rows));
        let product_layout = self.products(rows, self.problem.output.blocks());
        let filters = take(&mut workspace, filter_layout.len());
        let inputs = take(&mut workspace, input_layout.len());
        let products = take(&mut workspace, product_layout.len());
        let out = SharedMut::new(operands.out);
        let (tiles, terms) = (rows * self.problem.cols(), self.problem.input.channels);
        for group in 0..self.problem.groups {
            self.transform_filters(cpu, group, operands.b, &SharedMut::new(filters));
            let shared = SharedMut::new(inputs);
            cpu.for_each_scratch(self.tasks(), workspace, |task, scratch| {
                let first_tile = task * self.block * self.problem.cols();
                self.analyse(
                    (operands.a, group, self.rows(task)),
                    (input_layout, &shared, first_tile),
                    scratch,
                );
            });
            let shared = SharedMut::new(products);
            let panels = filter_layout.panels();
            cpu.for_each(A * A * panels, |task| {
                let (frequency, panel) = (task / panels, task % panels);
                let left = &inputs[input_layout.range(frequency, 0, 0..tiles)];
                // SAFETY: every task has its own frequency and panel.
                let product = unsafe { shared.slice(product_layout.range(frequency, panel, 0..tiles)) };
                multiply(
                    [tiles, filter_layout.width(panel), terms],
                    Left { elements: left, row_stride: input_layout.width(0), step: 1 },
                    &filters[filter_layout.range(frequency, panel, 0..terms)],
                    product,
                    Accumulate::Replace,
                    &[],
                );
            });
            cpu.for_each_scratch(self.tasks() * panels, workspace, |task, scratch| {
                let (task, panel) = (task / panels, task % panels);
                dispatch(Synthesise::<T::Output, A, M> {
                    transform: PhantomData,
                    problem: &self.problem,
                    group,
                    rows: self.rows(task),
                    layout: product_layout,
                    from: products,
                    panel,
                    first_tile: task * self.block * self.problem.cols(),
                    first_block: product_layout.panel_blocks(panel).start,
                    to: &out,
                    accumulate,
                    scratch,
                });
            });
        }
    }
}
