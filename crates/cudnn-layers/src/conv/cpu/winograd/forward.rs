//! The forward pass, and backward-data as the forward pass of rotated filters.

use super::{
    analyse::{Analyse, analyse_scratch},
    filter::{TAPS, TransformFilter},
    layout::{CHANNELS, PANEL, Problem, Spectrum},
    minimal::A,
    synthesise::{Synthesise, synthesise_scratch},
};
use crate::conv::{
    ConvOp,
    cpu::{Operands, Pass, split},
};
use std::ops::Range;
use tensor::{
    Accumulate, Cpu,
    cpu::{
        SharedMut,
        block_gemm::{Left, block_gemm_ahead},
        simd::dispatch,
    },
};

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
        self.prepared_len() + threads * self.scratch_lens().iter().sum::<usize>().next_multiple_of(16)
    }

    /// The transformed filters of all groups.
    fn prepared_len(&self) -> usize {
        self.problem.groups * self.filters().len()
    }

    fn prepare(&self, cpu: &Cpu, w: &[f32], workspace: &mut [f32]) {
        let (layout, [inputs, outputs]) =
            (self.filters(), [self.problem.input.channels, self.problem.output.channels]);
        let (chunks, len) = (inputs.div_ceil(CHANNELS), inputs * outputs * TAPS);
        let prepared = workspace[..self.prepared_len()].chunks_exact_mut(layout.len());
        for (filters, w) in prepared.zip(w.chunks_exact(len)) {
            let (op, to) = (self.op, SharedMut::new(filters));
            cpu.for_each(layout.panels() * chunks, |task| {
                let (panel, first) = (task / chunks, task % chunks * CHANNELS);
                let channels = first..(first + CHANNELS).min(inputs);
                dispatch(TransformFilter { op, w, inputs, outputs, channels, layout, panel, to });
            });
        }
    }

    /// Transforms, multiplies with the transformed filters, and transforms back one block of tiles after the other, each in
    /// its thread's scratch.
    fn run(&self, cpu: &Cpu, operands: Operands<'_>, accumulate: Accumulate, workspace: &mut [f32]) {
        let ([prepared], scratch) = split(workspace, [self.prepared_len()]);
        let (to, rows) = (SharedMut::new(operands.out), self.problem.rows());
        for (group, filters) in prepared.chunks_exact(self.filters().len()).enumerate() {
            cpu.for_each_scratch(rows.div_ceil(self.block), scratch, |task, scratch| {
                let rows = task * self.block..((task + 1) * self.block).min(rows);
                self.block_of_tiles((operands.a, group, rows), filters, (to, accumulate), scratch);
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

    fn filters(&self) -> Spectrum {
        let Problem { input, output, .. } = self.problem;
        Spectrum { rows: input.channels, blocks: output.blocks(), widest: PANEL }
    }

    /// Inputs of a block of tiles: one panel, so that all channels of a tile lie side by side.
    fn inputs(&self) -> Spectrum {
        let blocks = self.problem.input.blocks();
        Spectrum { rows: self.block * self.problem.cols(), blocks, widest: blocks }
    }

    /// Products of a block of tiles with `blocks` blocks of output channels.
    fn products(&self, blocks: usize) -> Spectrum {
        Spectrum { rows: self.block * self.problem.cols(), blocks, widest: PANEL }
    }

    /// Elements of scratch for the inputs and products of a block of tiles, and for its transforms.
    fn scratch_lens(&self) -> [usize; 3] {
        let transforms =
            analyse_scratch(&self.problem, self.block).max(synthesise_scratch(&self.problem, self.block));
        [self.inputs().len(), self.products(PANEL).len(), transforms]
    }

    fn block_of_tiles(
        &self,
        (from, group, rows): (&[f32], usize, Range<usize>),
        filters: &[f32],
        (to, accumulate): (SharedMut<'_>, Accumulate),
        scratch: &mut [f32],
    ) {
        let (problem, input_layout) = (&self.problem, self.inputs());
        let ([inputs, products, scratch], _) = split(scratch, self.scratch_lens());
        dispatch(Analyse {
            problem,
            from,
            group,
            rows: rows.clone(),
            layout: input_layout,
            to: SharedMut::new(inputs),
            scratch,
        });
        let filter_layout = self.filters();
        let (tiles, terms) = (rows.len() * problem.cols(), problem.input.channels);
        for panel in 0..filter_layout.panels() {
            let blocks = filter_layout.panel_blocks(panel);
            let layout = self.products(blocks.len());
            for frequency in 0..A * A {
                let left = &inputs[input_layout.range(frequency, 0, 0..tiles)];
                let width = layout.width(0);
                block_gemm_ahead(
                    [tiles, width, terms],
                    Left::Strided { elements: left, row_stride: input_layout.width(0), step: 1 },
                    (&filters[filter_layout.range(frequency, panel, 0..terms)], width),
                    (&mut products[layout.range(frequency, 0, 0..tiles)], width),
                    Accumulate::Replace,
                    &filters[self.filters_after(frequency, panel)],
                );
            }
            dispatch(Synthesise {
                problem,
                group,
                rows: rows.clone(),
                layout,
                from: products,
                first_block: blocks.start,
                to,
                accumulate,
                scratch,
            });
        }
    }

    /// The filters that are read after those of `frequency` and `panel`.
    fn filters_after(&self, frequency: usize, panel: usize) -> Range<usize> {
        let (layout, terms) = (self.filters(), 0..self.problem.input.channels);
        if frequency + 1 < A * A {
            layout.range(frequency + 1, panel, terms)
        } else {
            layout.range(0, (panel + 1) % layout.panels(), terms)
        }
    }
}
