//! The forward pass, and backward-data as the forward pass of rotated filters.

use super::analyse::{analyse, analyse_scratch};
use super::filter::{Part, TAPS, TransformFilter};
use super::layout::{CHANNELS, PANEL, Problem, Spectrum};
use super::minimal::{A, Input};
use super::synthesise::{Synthesise, synthesise_scratch};
use crate::conv::ConvOp;
use crate::conv::cpu::{HostOut, Pass, split};
use std::ops::Range;
use tensor::cpu::{LANES, Left, SharedMut, block_gemm, dispatch};
use tensor::{Accumulate, Cpu};

/// Transformed input of a block of tiles: a part of the second-level cache (1 MiB and more per core), through which the
/// filters stream.
const BLOCK_BYTES: usize = 512 << 10;
/// A forward pass, or backward data as one: what it is and how it is cut.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) problem: Problem,
    pub(super) op: ConvOp,
    /// Rows of tiles of one task.
    pub(super) block: usize,
}

impl Pass for Forward {
    fn workspace_len(&self, threads: usize) -> usize {
        let block = self.inputs(self.block).len() + self.products(self.block, PANEL).len();
        self.prepared_len() + threads * (block + self.transform_scratch()).next_multiple_of(LANES)
    }

    /// The transformed filters of all groups.
    fn prepared_len(&self) -> usize {
        self.problem.groups * self.filters().len()
    }

    fn prepare(&self, cpu: &Cpu, w: &[f32], workspace: &mut [f32]) {
        let (layout, inputs) = (self.filters(), self.problem.input.channels);
        let chunks = inputs.div_ceil(CHANNELS);
        let prepared = &mut workspace[..self.prepared_len()];
        for (group, filters) in prepared.chunks_exact_mut(layout.len()).enumerate() {
            let to = SharedMut::new(filters);
            cpu.for_each(layout.panels() * chunks, |task| {
                let (panel, first) = (task / chunks, task % chunks * CHANNELS);
                let part = (layout.panel_blocks(panel), first..(first + CHANNELS).min(inputs));
                self.transform_filters((w, group), part, (layout, panel, first), &to);
            });
        }
    }

    /// Transforms, multiplies with the transformed filters, and transforms back one block of tiles after the other,
    /// each in its thread's scratch.
    fn run(&self, cpu: &Cpu, [a, _]: [&[f32]; 2], (out, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        let ([prepared], scratch) = split(workspace, [self.prepared_len()]);
        let out = SharedMut::new(out);
        for (group, filters) in prepared.chunks_exact(self.filters().len()).enumerate() {
            cpu.for_each_scratch(self.tasks(), scratch, &|task, scratch| {
                self.fused_block((a, group, self.rows(task)), filters, (&out, accumulate), scratch);
            });
        }
    }
}

impl Forward {
    pub(super) fn new(op: ConvOp, problem: Problem) -> Self {
        let tile_bytes = 4 * A * A * problem.input.channels;
        let tiles = (BLOCK_BYTES / tile_bytes).clamp(32, 128);
        let block = (tiles / problem.cols()).clamp(1, problem.rows().div_ceil(2));
        Self { problem, op, block }
    }

    pub(super) fn filters(&self) -> Spectrum {
        let Problem { input, output, .. } = self.problem;
        Spectrum { rows: input.channels, blocks: output.blocks(), widest: PANEL }
    }

    /// Inputs of `rows` rows of tiles: one panel, so that all channels of a tile lie side by side.
    pub(super) fn inputs(&self, rows: usize) -> Spectrum {
        let blocks = self.problem.input.blocks();
        Spectrum { rows: rows * self.problem.cols(), blocks, widest: blocks }
    }

    /// Products of `rows` rows of tiles with `blocks` blocks of output channels.
    pub(super) fn products(&self, rows: usize, blocks: usize) -> Spectrum {
        Spectrum { rows: rows * self.problem.cols(), blocks, widest: PANEL }
    }

    pub(super) fn transform_scratch(&self) -> usize {
        let Problem { input, .. } = &self.problem;
        analyse_scratch::<A>(&self.problem, input, self.block)
            .max(synthesise_scratch(&self.problem, self.block))
    }

    pub(super) fn tasks(&self) -> usize {
        self.problem.rows().div_ceil(self.block)
    }

    pub(super) fn rows(&self, task: usize) -> Range<usize> {
        task * self.block..((task + 1) * self.block).min(self.problem.rows())
    }

    /// Transforms the filters of `blocks` of output channels and some input `channels` into a panel of `layout`.
    pub(super) fn transform_filters(
        &self,
        (w, group): (&[f32], usize),
        (blocks, channels): (Range<usize>, Range<usize>),
        (layout, panel, row): (Spectrum, usize, usize),
        to: &SharedMut<'_>,
    ) {
        let (inputs, outputs) = (self.problem.input.channels, self.problem.output.channels);
        let len = inputs * outputs * TAPS;
        dispatch(TransformFilter {
            op: self.op,
            w: &w[group * len..][..len],
            part: Part { inputs, outputs, blocks, channels, layout, panel, row },
            to,
        });
    }

    fn fused_block(
        &self,
        (from, group, rows): (&[f32], usize, Range<usize>),
        filters: &[f32],
        (to, accumulate): (&SharedMut<'_>, Accumulate),
        scratch: &mut [f32],
    ) {
        let input_layout = self.inputs(self.block);
        let lens = [input_layout.len(), self.products(self.block, PANEL).len()];
        let ([inputs, products], scratch) = split(scratch, lens);
        let Problem { input, pad, .. } = self.problem;
        let (place, shared) = ((group, rows.clone()), SharedMut::new(&mut *inputs));
        analyse::<Input, A>(&self.problem, (input, pad, from), place, (input_layout, &shared, 0), scratch);
        let filter_layout = self.filters();
        let (tiles, terms) = (rows.len() * self.problem.cols(), self.problem.input.channels);
        for panel in 0..filter_layout.panels() {
            let blocks = filter_layout.panel_blocks(panel);
            let layout = self.products(self.block, blocks.len());
            for frequency in 0..A * A {
                let elements = &inputs[input_layout.range(frequency, 0, 0..tiles)];
                let left = Left::Strided { elements, row_stride: input_layout.width(0), step: 1 };
                let right = &filters[filter_layout.range(frequency, panel, 0..terms)];
                let product = &mut products[layout.range(frequency, 0, 0..tiles)];
                let (extents, next) = ([tiles, layout.width(0), terms], self.filters_after(frequency, panel));
                block_gemm(extents, left, right, product, Accumulate::Replace, &filters[next]);
            }
            dispatch(Synthesise {
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
        let (layout, next) = (self.filters(), panel * A * A + frequency + 1);
        let panel = next / (A * A) % layout.panels();
        layout.range(next % (A * A), panel, 0..self.problem.input.channels)
    }
}
