//! The whole micro-batch at the points, and of the filters only as many as stay in a thread's caches.
//!
//! With many channels and few tiles the transformed filters are by far the largest operand (four times the filters), and
//! writing them to memory and reading them back would take as long as the products. So each task transforms the filters it
//! multiplies by, slice after slice; in backward filter it transforms its gradients as soon as they are summed.

use super::{
    backward_filter::BackwardFilter,
    filter::CHANNELS,
    forward::{Forward, PANEL},
    layout::{Spectrum, take},
    minimal::Minimal,
    multiply::multiply,
    synthesise::Synthesise,
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

/// Input channels of a slice of the filters.
const SLICE: usize = 64;

/// A slice of the filters of `blocks` blocks of output channels, or its gradients.
fn slice_layout(frequencies: usize, inputs: usize, blocks: usize) -> Spectrum {
    Spectrum { frequencies, rows: SLICE.min(inputs), blocks, widest: PANEL }
}

/// The channels, of `inputs` in all, that some blocks hold.
fn channels_of(blocks: Range<usize>, inputs: usize) -> Range<usize> {
    blocks.start * LANES..(blocks.end * LANES).min(inputs)
}

/// Runs of [`CHANNELS`] channels of a slice, each with its first row in the slice's layout.
fn rows_of(slice: &Range<usize>) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
    let (start, end) = (slice.start, slice.end);
    (start..end).step_by(CHANNELS).map(move |first| (first..(first + CHANNELS).min(end), first - start))
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> Forward<T, M, A> {
    /// Inputs of all tiles, a panel for each slice.
    fn sliced_inputs(&self) -> Spectrum {
        Spectrum { widest: SLICE / LANES, ..self.inputs(self.problem.rows()) }
    }

    /// Elements of workspace of [`Forward::run_nonfused`].
    pub(super) fn nonfused_len(&self, threads: usize) -> usize {
        let (rows, inputs) = (self.problem.rows(), self.problem.input.channels);
        let scratch = slice_layout(A * A, inputs, PANEL).len().max(self.transform_scratch());
        self.sliced_inputs().len()
            + self.products(rows, self.problem.output.blocks()).len()
            + threads * scratch.next_multiple_of(LANES)
    }

    /// Every stage for the whole micro-batch before the next one: each filter is transformed and read once.
    pub(super) fn run_nonfused(
        &self,
        cpu: &Cpu,
        operands: Operands<'_>,
        accumulate: Accumulate,
        mut workspace: &mut [f32],
    ) {
        let rows = self.problem.rows();
        let input_layout = self.sliced_inputs();
        let layout = self.products(rows, self.problem.output.blocks());
        let inputs = take(&mut workspace, input_layout.len());
        let products = take(&mut workspace, layout.len());
        let (out, panels) = (SharedMut::new(operands.out), layout.panels());
        for group in 0..self.problem.groups {
            let shared = SharedMut::new(inputs);
            cpu.for_each_scratch(self.tasks(), workspace, |task, scratch| {
                let to = (input_layout, &shared, task * self.block * self.problem.cols());
                self.analyse((operands.a, group, self.rows(task)), to, scratch);
            });
            let shared = SharedMut::new(products);
            cpu.for_each_scratch(panels, workspace, |panel, scratch| {
                self.multiply_panel((operands.b, group, panel), inputs, (layout, &shared), scratch);
            });
            cpu.for_each_scratch(self.tasks() * panels, workspace, |task, scratch| {
                let (task, panel) = (task / panels, task % panels);
                dispatch(Synthesise::<T::Output, A, M> {
                    transform: PhantomData,
                    problem: &self.problem,
                    group,
                    rows: self.rows(task),
                    layout,
                    from: products,
                    panel,
                    first_tile: task * self.block * self.problem.cols(),
                    first_block: layout.panel_blocks(panel).start,
                    to: &out,
                    accumulate,
                    scratch,
                });
            });
        }
    }

    /// The products of all tiles with a panel of output channels.
    fn multiply_panel(
        &self,
        (w, group, panel): (&[f32], usize, usize),
        inputs: &[f32],
        (layout, products): (Spectrum, &SharedMut<'_>),
        scratch: &mut [f32],
    ) {
        let (channels, tiles) = (self.problem.input.channels, layout.rows);
        let (input_layout, blocks) = (self.sliced_inputs(), layout.panel_blocks(panel));
        let filter_layout = slice_layout(A * A, channels, blocks.len());
        for index in 0..input_layout.panels() {
            let slice = channels_of(input_layout.panel_blocks(index), channels);
            let filters = SharedMut::new(&mut *scratch);
            for (channels, row) in rows_of(&slice) {
                let part = (blocks.clone(), channels);
                self.transform_filters((w, group), part, (filter_layout, 0, row), &filters);
            }
            let accumulate = if slice.start == 0 { Accumulate::Replace } else { Accumulate::Add };
            for frequency in 0..A * A {
                let left = &inputs[input_layout.range(frequency, index, 0..tiles)];
                // SAFETY: every task has its own panel.
                let product = unsafe { products.slice(layout.range(frequency, panel, 0..tiles)) };
                multiply(
                    [tiles, layout.width(panel), slice.len()],
                    Left { elements: left, row_stride: input_layout.width(index), step: 1 },
                    &scratch[filter_layout.range(frequency, 0, 0..slice.len())],
                    product,
                    accumulate,
                    &[],
                );
            }
        }
    }
}

impl<T: Minimal<M, A>, const M: usize, const A: usize> BackwardFilter<T, M, A> {
    /// Elements of workspace of [`BackwardFilter::run_nonfused`].
    pub(super) fn nonfused_len(&self, threads: usize) -> usize {
        let slice = slice_layout(A * A, self.problem.input.channels, PANEL).len();
        self.operands_len() + threads * slice.max(self.scratch(1)).next_multiple_of(LANES)
    }

    /// Both operands of all tiles, which must be one block; then the gradients, slice after slice.
    pub(super) fn run_nonfused(
        &self,
        cpu: &Cpu,
        operands: Operands<'_>,
        accumulate: Accumulate,
        mut workspace: &mut [f32],
    ) {
        let inputs = take(&mut workspace, self.inputs().len());
        let outputs = take(&mut workspace, self.outputs().len());
        let (dw, panels) = (SharedMut::new(operands.out), self.outputs().panels());
        let slices = Spectrum { widest: SLICE / LANES, ..self.inputs() };
        for group in 0..self.problem.groups {
            let (pair, rows) = ((operands.a, operands.b), 0..self.problem.rows());
            self.transform_together(cpu, group, pair, rows, [&mut *inputs, &mut *outputs], workspace);
            cpu.for_each_scratch(panels * slices.panels(), workspace, |task, sums| {
                let (panel, slice) = (task / slices.panels(), slices.panel_blocks(task % slices.panels()));
                self.gradients_of_slice((group, panel, slice), (inputs, outputs), (&dw, accumulate), sums);
            });
        }
    }

    /// The gradients of a panel of output channels and a slice of blocks of input channels.
    fn gradients_of_slice(
        &self,
        (group, panel, slice): (usize, usize, Range<usize>),
        (inputs, outputs): (&[f32], &[f32]),
        dw: (&SharedMut<'_>, Accumulate),
        sums: &mut [f32],
    ) {
        let blocks = self.outputs().panel_blocks(panel);
        let channels = channels_of(slice.clone(), self.problem.input.channels);
        let layout = slice_layout(A * A, self.problem.input.channels, blocks.len());
        let sums = &mut sums[..layout.len()];
        for frequency in 0..A * A {
            let sum = &mut sums[layout.range(frequency, 0, 0..channels.len())];
            let operands = (inputs, outputs, self.outputs().rows);
            self.multiply((frequency, panel), slice.clone(), operands, (sum, Accumulate::Replace));
        }
        for (channels, row) in rows_of(&channels) {
            self.store(group, (blocks.clone(), channels), (layout, 0, row), sums, dw);
        }
    }
}
