//! Backward filter: every tap of the filter is a sum over all pixels of all samples.
//!
//! A task is a panel of output channels and a box of taps, whose sums it keeps in its scratch while it goes through the
//! samples. For each block of pixels `dy` is turned so that output channels lie side by side, and [`block_gemm`]
//! multiplies it by the image at the sums of a tap's and a pixel's offset: the transpose of the forward product, with
//! the roles of rows and steps exchanged.
//!
//! The blocks never cross a sample, and a gradient that is added to is read before the first one. So the gradient of a
//! mini-batch is the same to the last bit however the mini-batch is divided into micro-batches.

use super::filter::TapBox;
use super::patch::{PatchLayout, turn_columns};
use crate::conv::cpu::axis::{Axis, Cut, part};
use crate::conv::cpu::planes::{Signals, store};
use crate::conv::cpu::{ALIGNED_LEN, HostOut, Pass, split};
use std::ops::Range;
use tensor::cpu::{LANES, Lanes, Left, MAX_VECTORS, SharedMut, WithLanes, block_gemm, dispatch};
use tensor::{Accumulate, ConvGeometry, Cpu};

/// Pixels of a block: with up to 64 output channels it stays in the first-level cache.
const PIXELS: usize = 128;
/// Most taps of a task.
const TAPS: usize = 384;

/// Backward filter of one geometry on some number of threads.
#[derive(Debug)]
pub(super) struct FilterGradient {
    g: ConvGeometry,
    /// Panels of output channels in a group.
    panels: usize,
    patch: PatchLayout,
}

impl Pass for FilterGradient {
    fn workspace_len(&self, threads: usize) -> usize {
        threads * self.scratch().iter().sum::<usize>()
    }

    fn run(&self, cpu: &Cpu, [x, dy]: [&[f32]; 2], (out, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        let (panels, out) = (self.g.groups * self.panels, SharedMut::new(out));
        let boxes = self.patch.taps.pieces();
        cpu.for_each_scratch(panels * boxes, workspace, &|task, scratch| {
            let (panel, taps) = (task / boxes, TapBox(self.patch.taps.piece(task % boxes)));
            let group = panel / self.panels;
            let vectors = part(self.vectors(), self.panels, panel % self.panels);
            dispatch(Task { gradient: self, x, dy, group, vectors, taps, out, accumulate, scratch });
        });
    }
}

impl FilterGradient {
    pub(super) fn new(g: &ConvGeometry, threads: usize) -> Self {
        let axes = [0, 1].map(|axis| Axis::forward(g, axis));
        let (panels, taps) = divide(g, threads);
        let pixels = Cut::new([1, g.out_h(), g.out_w()], PIXELS);
        Self { g: *g, panels, patch: PatchLayout::new(axes, [g.c, g.h, g.w], pixels, taps) }
    }

    /// Vectors of output channels in a group.
    fn vectors(&self) -> usize {
        (self.g.k / self.g.groups).div_ceil(LANES)
    }

    /// Elements of a thread's scratch, for the largest panel: a patch, a block of `dy`, sums of products, and sixteen
    /// channels of these, turned.
    fn scratch(&self) -> [usize; 4] {
        let (taps, width) = (self.patch.taps.most_points(), self.vectors().div_ceil(self.panels) * LANES);
        let (patch, turned) =
            (self.patch.len.next_multiple_of(ALIGNED_LEN), taps.next_multiple_of(LANES) * LANES);
        [patch, self.patch.pixels.most_points() * width, taps * width, turned]
    }
}

/// Chooses the panels of output channels and the boxes of taps: as large as scratch allows, but so that the threads
/// finish together. Outputs are independent, so this has no influence on the result.
fn divide(g: &ConvGeometry, threads: usize) -> (usize, Cut) {
    let vectors = (g.k / g.groups).div_ceil(LANES);
    let all_taps = g.taps();
    // What turning a vector of `dy` takes, in taps it could be multiplied by.
    const TURNING: usize = 14;
    let mut best = (f64::INFINITY, 1, Cut::new([1; 3], 1));
    for (wanted, penalty) in [(MAX_VECTORS, 1.0), (2, 1.05)] {
        let panels = vectors.div_ceil(wanted);
        for boxes in all_taps.div_ceil(TAPS)..=all_taps.div_ceil(TAPS) + 16 {
            let taps = Cut::new([g.c / g.groups, g.r, g.s], all_taps.div_ceil(boxes).min(TAPS));
            let rounds = (g.groups * panels * taps.pieces()).div_ceil(threads);
            let work = vectors.div_ceil(panels) * (taps.most_points() + TURNING) * rounds;
            let cost = work as f64 * penalty;
            if cost < best.0 {
                best = (cost, panels, taps);
            }
        }
    }
    (best.1, best.2)
}

/// The gradient of a box of taps of a panel of output channels.
struct Task<'a> {
    gradient: &'a FilterGradient,
    x: &'a [f32],
    dy: &'a [f32],
    group: usize,
    /// Of output channels.
    vectors: Range<usize>,
    taps: TapBox,
    out: SharedMut<'a>,
    accumulate: Accumulate,
    scratch: &'a mut [f32],
}

impl WithLanes for Task<'_> {
    #[inline(always)]
    fn call<L: Lanes>(mut self, lanes: L) {
        let ([patch, dy, sums, turned], _) =
            split(std::mem::take(&mut self.scratch), self.gradient.scratch());
        if self.accumulate == Accumulate::Add {
            self.read(lanes, sums, turned);
        }
        self.multiply(lanes, patch, dy, sums);
        self.write(lanes, sums, turned);
    }
}

impl Task<'_> {
    fn width(&self) -> usize {
        self.vectors.len() * LANES
    }

    /// `sums[tap][channel] (+)=` the sum over the pixels of all samples.
    #[inline(always)]
    fn multiply<L: Lanes>(&self, lanes: L, patch: &mut [f32], dy: &mut [f32], sums: &mut [f32]) {
        let FilterGradient { g, patch: layout, .. } = self.gradient;
        let (width, row_len, mut mode) = (self.width(), self.taps.row_len(), self.accumulate);
        let tap_offsets: [usize; TAPS] = layout.tap_offsets(&self.taps);
        let pieces = layout.pixels.pieces();
        for block in 0..g.n * pieces {
            let (sample, [_, rows, cols]) = (block / pieces, layout.pixels.piece(block % pieces));
            self.turn(lanes, sample, [rows.clone(), cols.clone()], dy);
            let block = [sample..sample + 1, rows.clone(), cols.clone()];
            let steps: [usize; PIXELS] = layout.pixel_offsets(&block);
            let first_channel = self.group * (g.c / g.groups);
            let image = layout.open(self.x, block, (&self.taps, first_channel), patch);
            for (index, tap_row) in self.taps.rows().enumerate() {
                // This row of taps sees nothing but padding from the pixels outside of these rows.
                let inside = layout.axes[0].outputs_inside(tap_row, &rows);
                let pixels = (inside.start - rows.start) * cols.len()..(inside.end - rows.start) * cols.len();
                let rows = &tap_offsets[index * row_len..][..row_len];
                let a = Left::Gathered { elements: image, rows, steps: &steps[pixels.clone()] };
                let (dy, sums) = (&dy[pixels.start * width..], &mut sums[index * row_len * width..]);
                block_gemm([row_len, width, pixels.len()], a, dy, sums, mode, &[]);
            }
            mode = Accumulate::Add;
        }
    }

    /// Turns the pixels `rows`, `cols` of one sample of `dy`: row `pixel` of `to` holds the channels of the panel.
    #[inline(always)]
    fn turn<L: Lanes>(&self, lanes: L, sample: usize, [rows, cols]: [Range<usize>; 2], to: &mut [f32]) {
        let g = &self.gradient.g;
        let (k, plane, vectors) = (g.k / g.groups, g.out_pixels(), self.vectors.len());
        // Whole rows follow each other without a gap.
        let whole = cols.len() == g.out_w();
        let runs = if whole { 1 } else { rows.len() };
        let len = if whole { rows.len() * cols.len() } else { cols.len() };
        for vector in 0..vectors {
            let first = (self.vectors.start + vector) * LANES;
            let signals = Signals { count: LANES.min(k - first), stride: plane };
            let channel = sample * g.k + self.group * k + first;
            for run in 0..runs {
                let from = &self.dy[channel * plane + (rows.start + run) * g.out_w() + cols.start..];
                for pixel in (0..len).step_by(LANES) {
                    let pixels = LANES.min(len - pixel);
                    let block = signals.gather(lanes, &from[pixel..], pixels);
                    for (at, &v) in (run * len + pixel..).zip(&block[..pixels]) {
                        store(lanes, to, (at * vectors + vector) * LANES, v);
                    }
                }
            }
        }
    }

    /// The old gradient as the sums' first value.
    #[inline(always)]
    fn read<L: Lanes>(&self, lanes: L, sums: &mut [f32], turned: &mut [f32]) {
        let (taps, width) = (self.taps.len(), self.width());
        let room = taps.next_multiple_of(LANES);
        for vector in 0..self.vectors.len() {
            turned.fill(0.0);
            self.for_each_run(vector, |channel, tap, gradient| {
                turned[channel * room + tap..][..gradient.len()].copy_from_slice(gradient);
            });
            for tap in (0..taps).step_by(LANES) {
                let block = Signals { count: LANES, stride: room }.gather(lanes, &turned[tap..], LANES);
                for (tap, &v) in (tap..taps).zip(&block) {
                    store(lanes, sums, tap * width + vector * LANES, v);
                }
            }
        }
    }

    /// Turns the sums into the filter's gradient.
    #[inline(always)]
    fn write<L: Lanes>(&self, lanes: L, sums: &[f32], turned: &mut [f32]) {
        let (taps, width) = (self.taps.len(), self.width());
        let room = taps.next_multiple_of(LANES);
        for vector in 0..self.vectors.len() {
            turn_columns(lanes, &sums[vector * LANES..], width, taps, turned, room);
            self.for_each_run(vector, |channel, tap, gradient| {
                gradient.copy_from_slice(&turned[channel * room + tap..][..gradient.len()]);
            });
        }
    }

    /// Calls `visit` with the channel within the vector, the first tap's number and the gradient of every run of the
    /// task's taps that lie side by side in the filter.
    fn for_each_run(&self, vector: usize, mut visit: impl FnMut(usize, usize, &mut [f32])) {
        let g = &self.gradient.g;
        let per_group = g.k / g.groups;
        let first = (self.vectors.start + vector) * LANES;
        for channel in 0..LANES.min(per_group - first) {
            let out = self.group * per_group + first + channel;
            let mut tap = 0;
            for row in self.taps.rows() {
                for c in self.taps.channels() {
                    let start = ((out * (g.c / g.groups) + c) * g.r + row) * g.s;
                    let cols = self.taps.cols();
                    // SAFETY: every element of the gradient belongs to one task, and the run ends with the visit.
                    visit(channel, tap, unsafe { self.out.slice(start + cols.start..start + cols.end) });
                    tap += cols.len();
                }
            }
        }
    }
}
