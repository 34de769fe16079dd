//! The whole micro-batch at the points, and of the filters only as many as stay in a thread's caches.
//!
//! With many channels and few tiles the transformed filters are by far the largest operand (four times the filters),
//! and writing them to memory and reading them back would take as long as the products. So each task transforms the
//! filters it multiplies by, slice after slice.

use super::layout::{PANEL, SLICE, Spectrum, slice_channels, slice_layout, slice_rows};
use super::minimal::{A, Input};
use super::{analyse::analyse, forward::Forward, synthesise::Synthesise};
use crate::conv::cpu::{HostOut, Pass, split};
use tensor::cpu::{LANES, Left, SharedMut, block_gemm, dispatch};
use tensor::{Accumulate, Cpu};

/// A forward pass in this form.
#[derive(Debug)]
pub(super) struct Nonfused(pub(super) Forward);

impl Pass for Nonfused {
    fn workspace_len(&self, threads: usize) -> usize {
        let scratch = slice_layout(self.0.problem.input.channels, PANEL).len();
        self.0.whole_lens().iter().sum::<usize>()
            + threads * scratch.max(self.0.transform_scratch()).next_multiple_of(LANES)
    }

    /// Every stage for the whole micro-batch before the next one: each filter is transformed and read once.
    fn run(&self, cpu: &Cpu, [a, b]: [&[f32]; 2], (out, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        let (pass, problem) = (&self.0, &self.0.problem);
        let (input_layout, layout) = (pass.sliced_inputs(), pass.all_products());
        let ([inputs, products], workspace) = split(workspace, pass.whole_lens());
        let (out, panels) = (SharedMut::new(out), layout.panels());
        for group in 0..problem.groups {
            let shared = SharedMut::new(inputs);
            cpu.for_each_scratch(pass.tasks(), workspace, &|task, scratch| {
                let to = (input_layout, &shared, task * pass.block * problem.cols());
                let x = (problem.input, problem.pad, a);
                analyse::<Input, A>(problem, x, (group, pass.rows(task)), to, scratch);
            });
            let shared = SharedMut::new(products);
            cpu.for_each_scratch(panels, workspace, &|panel, scratch| {
                pass.multiply_panel((b, group, panel), inputs, (layout, &shared), scratch);
            });
            cpu.for_each_scratch(pass.tasks() * panels, workspace, &|task, scratch| {
                let (task, panel) = (task / panels, task % panels);
                dispatch(Synthesise {
                    problem,
                    group,
                    rows: pass.rows(task),
                    layout,
                    from: products,
                    panel,
                    first_tile: task * pass.block * problem.cols(),
                    first_block: layout.panel_blocks(panel).start,
                    to: &out,
                    accumulate,
                    scratch,
                });
            });
        }
    }
}

impl Forward {
    /// Inputs of all tiles, a panel for each slice.
    fn sliced_inputs(&self) -> Spectrum {
        Spectrum { widest: SLICE / LANES, ..self.inputs(self.problem.rows()) }
    }

    fn all_products(&self) -> Spectrum {
        self.products(self.problem.rows(), self.problem.output.blocks())
    }

    /// Elements of both.
    fn whole_lens(&self) -> [usize; 2] {
        [self.sliced_inputs().len(), self.all_products().len()]
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
        let filter_layout = slice_layout(channels, blocks.len());
        for index in 0..input_layout.panels() {
            let slice = slice_channels(input_layout.panel_blocks(index), channels);
            let filters = SharedMut::new(&mut *scratch);
            for (channels, row) in slice_rows(&slice) {
                let part = (blocks.clone(), channels);
                self.transform_filters((w, group), part, (filter_layout, 0, row), &filters);
            }
            let accumulate = if slice.start == 0 { Accumulate::Replace } else { Accumulate::Add };
            for frequency in 0..A * A {
                let elements = &inputs[input_layout.range(frequency, index, 0..tiles)];
                let left = Left::Strided { elements, row_stride: input_layout.width(index), step: 1 };
                let right = &scratch[filter_layout.range(frequency, 0, 0..slice.len())];
                // SAFETY: every task has its own panel.
                let product = unsafe { products.slice(layout.range(frequency, panel, 0..tiles)) };
                let extents = [tiles, layout.width(panel), slice.len()];
                block_gemm(extents, left, right, product, accumulate, &[]);
            }
        }
    }
}
