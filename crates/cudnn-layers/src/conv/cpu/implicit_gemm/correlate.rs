//! Forward and backward data: correlations of an image with a filter, pixel by pixel.
//!
//! A task is a block of output pixels and up to 64 output channels. It goes through the taps in boxes of about a
//! hundred: the box of the image is copied with its padding (where there is any), the box of the filter turned so that
//! output channels lie side by side, and [`block_gemm`] adds their product to the task's sums. The unrolled image
//! exists as addresses only. At the end the sums, channels side by side, are turned into images.

use super::filter::{FilterLayout, TapBox};
use super::patch::{PatchLayout, turn_columns};
use crate::conv::cpu::axis::{Axis, Cut, part};
use crate::conv::cpu::{ALIGNED_LEN, HostOut, Pass, split};
use crate::{conv::ConvOp, cpu_loops::put};
use std::ops::Range;
use tensor::cpu::{LANES, Lanes, Left, MAX_VECTORS, SharedMut, WithLanes, block_gemm, dispatch};
use tensor::{Accumulate, ConvGeometry, Cpu};

/// Pixels of a task: enough that turning a box of the filter costs little beside its use, so that to turn the filter
/// once for all tasks would gain nothing.
const PIXELS: usize = 768;
/// Fewer where there are many threads, whose tasks together have no more than so many, to bound the workspace, or where
/// threads would have fewer than so many tasks each; but never fewer than these.
const PIXELS_OF_ALL: usize = 16 * PIXELS;
const TASKS: usize = 4;
const LEAST_PIXELS: usize = 192;
/// Taps of a box: its 64 output channels then take 32 KiB, which stay in the first-level cache.
const TAPS: usize = 128;

/// Most phases: far more than any filter but a hostile one has.
const MOST_PHASES: usize = 1 << 12;

/// Forward or backward data of one geometry.
#[derive(Debug)]
pub(super) struct Correlation {
    /// The independent parts: one of a forward pass, one for each pair of residues modulo the strides of backward data
    /// that taps meet.
    phases: Vec<Phase>,
    /// Whether there are pixels of backward data that no tap meets.
    leaves_pixels: bool,
}

impl Correlation {
    /// `None` for more phases than anyone wants to run one after the other.
    pub(super) fn new(op: ConvOp, g: &ConvGeometry, threads: usize) -> Option<Self> {
        let [rows, cols] = [0, 1].map(|axis| match op {
            ConvOp::Forward => vec![Axis::forward(g, axis)],
            _ => Axis::backward(g, axis),
        });
        if rows.len() * cols.len() > MOST_PHASES {
            return None;
        }
        let pairs = rows.iter().flat_map(|&row| cols.iter().map(move |&col| [row, col]));
        let phases: Vec<Phase> = pairs.map(|axes| Phase::new(op, g, axes, threads)).collect();
        let residues = g.stride[0].min(g.h) * g.stride[1].min(g.w);
        let leaves_pixels = op != ConvOp::Forward && phases.len() < residues;
        Some(Self { phases, leaves_pixels })
    }
}

impl Pass for Correlation {
    fn workspace_len(&self, threads: usize) -> usize {
        let scratch = self.phases.iter().map(|phase| phase.scratch().iter().sum::<usize>()).max();
        threads * scratch.unwrap_or(0)
    }

    fn run(&self, cpu: &Cpu, operands: [&[f32]; 2], (out, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        if accumulate == Accumulate::Replace && self.leaves_pixels {
            cpu.for_each_chunk(out, 1 << 14, &|_, chunk| chunk.fill(0.0));
        }
        let ([input, filter], out) = (operands, SharedMut::new(out));
        for phase in &self.phases {
            let (panels, _) = phase.panels();
            // A group of the filter is a run of `k`, whichever of the two channels that is.
            let filter_len = phase.filter.out_channels * phase.in_channels * phase.filter.plane;
            let bands = phase.patch.pixels.pieces();
            cpu.for_each_scratch(phase.groups * panels * bands, workspace, &|task, scratch| {
                let (panel, band) = (task / bands, phase.patch.pixels.piece(task % bands));
                let group = panel / panels;
                let vectors = part(phase.filter.out_channels.div_ceil(LANES), panels, panel % panels);
                let filter = &filter[group * filter_len..][..filter_len];
                dispatch(Task { phase, input, filter, group, vectors, band, out, accumulate, scratch });
            });
        }
    }
}

/// One correlation: `groups` times `in_channels` of the input to `out_channels` of the output.
#[derive(Debug)]
struct Phase {
    groups: usize,
    in_channels: usize,
    /// Height and width of the output's image.
    out_image: [usize; 2],
    filter: FilterLayout,
    patch: PatchLayout,
}

impl Phase {
    fn new(op: ConvOp, g: &ConvGeometry, axes: [Axis; 2], threads: usize) -> Self {
        let (plane, [c, k]) = (g.r * g.s, [g.c / g.groups, g.k / g.groups]);
        let [x_image, y_image] = [[g.c, g.h, g.w], [g.k, g.out_h(), g.out_w()]];
        let (in_channels, image, [_, out_image @ ..], out_channels, [out_stride, in_stride]) = match op {
            ConvOp::Forward => (c, x_image, y_image, k, [c * plane, plane]),
            _ => (k, y_image, x_image, c, [plane, c * plane]),
        };
        let filter = FilterLayout { out_channels, out_stride, in_stride, plane, row: g.s };
        let panels = g.groups * out_channels.div_ceil(MAX_VECTORS * LANES);
        let per_task = g.n * axes[0].outputs * axes[1].outputs * panels / (TASKS * threads);
        let most_pixels = per_task.min(PIXELS_OF_ALL / threads).clamp(LEAST_PIXELS, PIXELS);
        let pixels = Cut::new([g.n, axes[0].outputs, axes[1].outputs], most_pixels);
        let taps = Cut::new([in_channels, axes[0].taps, axes[1].taps], TAPS);
        let patch = PatchLayout::new(axes, image, pixels, taps);
        Self { groups: g.groups, in_channels, out_image, filter, patch }
    }

    /// Panels of output channels, and the vectors in the largest.
    fn panels(&self) -> (usize, usize) {
        let vectors = self.filter.out_channels.div_ceil(LANES);
        let panels = vectors.div_ceil(MAX_VECTORS);
        (panels, vectors.div_ceil(panels))
    }

    /// Elements of a thread's scratch: a patch, the filter's box, sums of products, and sixteen channels of these, turned.
    fn scratch(&self) -> [usize; 4] {
        let align = |len: usize| len.next_multiple_of(ALIGNED_LEN);
        let PatchLayout { pixels, taps, len, .. } = &self.patch;
        let (width, pixels) = (self.panels().1 * LANES, pixels.most_points());
        [align(*len), taps.most_points() * width, pixels * width, align(pixels) * LANES]
    }
}

/// A panel of output channels of a block of output pixels (samples, rows, columns).
struct Task<'a> {
    phase: &'a Phase,
    input: &'a [f32],
    /// Of the group.
    filter: &'a [f32],
    group: usize,
    /// Of output channels.
    vectors: Range<usize>,
    band: [Range<usize>; 3],
    out: SharedMut<'a>,
    accumulate: Accumulate,
    scratch: &'a mut [f32],
}

impl WithLanes for Task<'_> {
    #[inline(always)]
    fn call<L: Lanes>(mut self, lanes: L) {
        let ([patch, weights, sums, turned], _) =
            split(std::mem::take(&mut self.scratch), self.phase.scratch());
        self.multiply(lanes, patch, weights, sums);
        self.write(lanes, sums, turned);
    }
}

impl Task<'_> {
    /// `sums[pixel][channel]` of the task; pixels are numbered by row, then sample, then column.
    #[inline(always)]
    fn multiply<L: Lanes>(&self, lanes: L, patch: &mut [f32], weights: &mut [f32], sums: &mut [f32]) {
        let (phase, width) = (self.phase, self.vectors.len() * LANES);
        let pixel_offsets: [usize; PIXELS] = phase.patch.pixel_offsets(&self.band);
        let first_channel = self.group * phase.in_channels;
        for index in 0..phase.patch.taps.pieces() {
            let taps = TapBox(phase.patch.taps.piece(index));
            let step_offsets: [usize; TAPS] = phase.patch.tap_offsets(&taps);
            let image = phase.patch.open(self.input, self.band.clone(), (&taps, first_channel), patch);
            let channel_range = (self.vectors.start * LANES, self.vectors.len());
            phase.filter.pack(lanes, self.filter, &phase.patch.axes, &taps, channel_range, weights);
            let mode = if index == 0 { Accumulate::Replace } else { Accumulate::Add };
            let mut rows = self.band[1].clone();
            while let Some(start) = rows.next() {
                // Rows of pixels that skip the same taps are one product.
                let inside = phase.patch.axes[0].taps_inside(start, &taps.rows());
                while rows.start < rows.end
                    && phase.patch.axes[0].taps_inside(rows.start, &taps.rows()) == inside
                {
                    rows.start += 1;
                }
                let per_row = self.band[0].len() * self.band[2].len();
                let pixels =
                    (start - self.band[1].start) * per_row..(rows.start - self.band[1].start) * per_row;
                let first = taps.rows().start;
                let steps = (inside.start - first) * taps.row_len()..(inside.end - first) * taps.row_len();
                let (rows, terms) = (&pixel_offsets[pixels.clone()], &step_offsets[steps.clone()]);
                let a = Left::Gathered { elements: image, rows, steps: terms };
                let (weights, sums) = (&weights[steps.start * width..], &mut sums[pixels.start * width..]);
                block_gemm([rows.len(), width, terms.len()], a, weights, sums, mode, &[]);
            }
        }
    }

    /// Turns the sums into rows of the output's images.
    #[inline(always)]
    fn write<L: Lanes>(&self, lanes: L, sums: &[f32], turned: &mut [f32]) {
        let pixels: usize = self.band.iter().map(Range::len).product();
        let (width, room) = (self.vectors.len() * LANES, pixels.next_multiple_of(LANES));
        for (index, vector) in self.vectors.clone().enumerate() {
            turn_columns(lanes, &sums[index * LANES..], width, pixels, turned, room);
            let channels = LANES.min(self.phase.filter.out_channels - vector * LANES);
            for (channel, values) in turned.chunks_exact(room).enumerate().take(channels) {
                self.write_channel(vector * LANES + channel, &values[..pixels]);
            }
        }
    }

    /// Writes the pixels of one output channel (numbered in its group).
    fn write_channel(&self, channel: usize, values: &[f32]) {
        let (phase, [samples, rows, cols]) = (self.phase, &self.band);
        let channel = self.group * phase.filter.out_channels + channel;
        let [h, w] = phase.out_image;
        let [vertical, horizontal] = &phase.patch.axes;
        let places = rows.clone().flat_map(|row| samples.clone().map(move |sample| (row, sample)));
        for ((row, sample), values) in places.zip(values.chunks_exact(cols.len())) {
            let plane = (sample * phase.filter.out_channels * phase.groups + channel) * h * w;
            let start = plane + (vertical.out_start + vertical.out_step * row) * w + horizontal.out_start;
            let ends = [cols.start, cols.end - 1].map(|col| start + horizontal.out_step * col);
            // SAFETY: of one phase, no other task writes between the first and the last pixel of this row.
            let to = unsafe { self.out.slice(ends[0]..ends[1] + 1) };
            match horizontal.out_step {
                1 => to.iter_mut().zip(values).for_each(|(to, &value)| put(self.accumulate, to, value)),
                step => {
                    let to = to.iter_mut().step_by(step);
                    to.zip(values).for_each(|(to, &value)| put(self.accumulate, to, value));
                }
            }
        }
    }
}
