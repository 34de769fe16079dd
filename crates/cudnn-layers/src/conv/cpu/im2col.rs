//! Products of matrices with the unrolled image in memory, as Caffe does it.
//!
//! The image becomes a matrix with a row for each tap (input channel, filter row, filter column) and a column for each
//! output pixel of the micro-batch. With `M`, the matrix of `y` or `dy` (a row for each output channel, the same columns),
//! the operations are `M = w unrolled`, `unrolled = w^T M` and `dw = M unrolled^T`: one product each, by a library of
//! matrix products. The workspace holds both matrices of one group, so it grows with the micro-batch. A 1x1 convolution
//! with stride 1 and no padding has them in its operands already, sample by sample, and needs none.

use super::axis::Axis;
use super::{CpuAlgorithm, Operands};
use crate::conv::ConvOp;
use tensor::cpu::gemm::{Matrix, gemm, gemm_single};
use tensor::{Accumulate, ConvGeometry, Cpu, geometry::elements};

/// cuDNN's `GEMM`.
#[derive(Debug)]
pub(super) struct Im2col;

impl CpuAlgorithm for Im2col {
    fn name(&self) -> &'static str {
        "GEMM"
    }

    fn max_error(&self) -> f32 {
        1e-6
    }

    fn workspace_len(&self, _: ConvOp, g: &ConvGeometry, _: usize) -> Option<usize> {
        if !is_plain(g) {
            elements(&[g.taps(), g.n, g.out_pixels()])?;
        }
        Some(unrolled_len(g) + matrix_len(g))
    }

    fn run(
        &self,
        cpu: &Cpu,
        op: ConvOp,
        g: &ConvGeometry,
        operands: Operands<'_>,
        accumulate: Accumulate,
        workspace: &mut [f32],
    ) {
        let Operands { a, b, out } = operands;
        if is_plain(g) {
            return plain(cpu, op, g, Operands { a, b, out }, accumulate);
        }
        let (unrolled, matrix) = workspace.split_at_mut(unrolled_len(g));
        let (matrix, columns) = (&mut matrix[..matrix_len(g)], g.n * g.out_pixels());
        let (c, k, taps) = (g.c / g.groups, g.k / g.groups, g.taps());
        for group in 0..g.groups {
            let filter = group * k * taps..(group + 1) * k * taps;
            let lowering = Lowering { g, axes: [0, 1].map(|axis| Axis::forward(g, axis)), first: group * c };
            match op {
                ConvOp::Forward => {
                    lowering.unroll(cpu, a, unrolled);
                    let (w, x) = (Matrix::rows(&b[filter], taps), Matrix::rows(unrolled, columns));
                    gemm(cpu, [k, columns, taps], w, x, matrix, columns, Accumulate::Replace);
                    lowering.put_matrix(cpu, group * k, matrix, out, accumulate);
                }
                ConvOp::BackwardData => {
                    lowering.take_matrix(cpu, group * k, a, matrix);
                    let (w, dy) = (Matrix::rows(&b[filter], taps).t(), Matrix::rows(matrix, columns));
                    gemm(cpu, [taps, columns, k], w, dy, unrolled, columns, Accumulate::Replace);
                    lowering.roll_up(cpu, unrolled, out, accumulate);
                }
                ConvOp::BackwardFilter => {
                    lowering.unroll(cpu, a, unrolled);
                    lowering.take_matrix(cpu, group * k, b, matrix);
                    let (dy, x) = (Matrix::rows(matrix, columns), Matrix::rows(unrolled, columns).t());
                    gemm(cpu, [k, taps, columns], dy, x, &mut out[filter], taps, accumulate);
                }
            }
        }
    }
}

/// Whether the unrolled image is the image.
fn is_plain(g: &ConvGeometry) -> bool {
    g.r * g.s == 1 && g.stride == [1, 1] && g.pad == [0, 0]
}

/// Elements of the unrolled image of a group.
fn unrolled_len(g: &ConvGeometry) -> usize {
    if is_plain(g) { 0 } else { (g.taps() * g.n * g.out_pixels()).next_multiple_of(super::ALIGNED_LEN) }
}

/// Elements of the matrix of `y` or `dy` of a group.
fn matrix_len(g: &ConvGeometry) -> usize {
    if is_plain(g) { 0 } else { g.k / g.groups * g.n * g.out_pixels() }
}

/// All operations of a 1x1 convolution, straight from the operands.
fn plain(cpu: &Cpu, op: ConvOp, g: &ConvGeometry, operands: Operands<'_>, accumulate: Accumulate) {
    let Operands { a, b, out } = operands;
    let (c, k, pixels) = (g.c / g.groups, g.k / g.groups, g.h * g.w);
    let image = |elements: &[f32], channels: usize, index: usize| index * channels * pixels..elements.len();
    if op == ConvOp::BackwardFilter {
        for (group, dw) in out.chunks_exact_mut(k * c).enumerate() {
            let mut mode = accumulate;
            for part in (group..g.n * g.groups).step_by(g.groups) {
                let x = Matrix::rows(&a[image(a, c, part)], pixels).t();
                let dy = Matrix::rows(&b[image(b, k, part)], pixels);
                gemm(cpu, [k, c, pixels], dy, x, dw, c, mode);
                mode = Accumulate::Add;
            }
        }
        return;
    }
    let (rows, terms) = if op == ConvOp::Forward { (k, c) } else { (c, k) };
    let one = |part: usize, out: &mut [f32], threads: Option<&Cpu>| {
        let w = Matrix::rows(&b[part % g.groups * k * c..], c);
        let w = if op == ConvOp::Forward { w } else { w.t() };
        let (input, extents) = (Matrix::rows(&a[image(a, terms, part)], pixels), [rows, pixels, terms]);
        match threads {
            Some(cpu) => gemm(cpu, extents, w, input, out, pixels, accumulate),
            None => gemm_single(extents, w, input, out, pixels, accumulate),
        }
    };
    if g.n * g.groups == 1 {
        one(0, out, Some(cpu));
    } else {
        cpu.for_each_chunk(out, rows * pixels, |part, out| one(part, out, None));
    }
}

/// The passage between images and matrices for one group, whose first input channel is `first`.
struct Lowering<'a> {
    g: &'a ConvGeometry,
    axes: [Axis; 2],
    first: usize,
}

impl Lowering<'_> {
    /// `unrolled[c, r, s][n, p, q]` from `x`.
    fn unroll(&self, cpu: &Cpu, x: &[f32], unrolled: &mut [f32]) {
        let g = self.g;
        let (plane, pixels) = (g.r * g.s, g.out_pixels());
        let unrolled = &mut unrolled[..g.taps() * g.n * pixels];
        cpu.for_each_chunk(unrolled, g.n * pixels, |row, to| {
            let (channel, tap) = (self.first + row / plane, row % plane);
            for (sample, to) in to.chunks_exact_mut(pixels).enumerate() {
                let from = &x[(sample * g.c + channel) * g.h * g.w..][..g.h * g.w];
                self.unroll_plane(from, [tap / g.s, tap % g.s], to);
            }
        });
    }

    /// The input of every output pixel for one tap of one plane.
    fn unroll_plane(&self, from: &[f32], [r, s]: [usize; 2], to: &mut [f32]) {
        let [vertical, horizontal] = &self.axes;
        let cols = horizontal.outputs_inside(s, &(0..horizontal.outputs));
        let rows = vertical.outputs_inside(r, &(0..vertical.outputs));
        for (p, to) in to.chunks_exact_mut(horizontal.outputs).enumerate() {
            if !rows.contains(&p) || cols.is_empty() {
                to.fill(0.0);
                continue;
            }
            to[..cols.start].fill(0.0);
            to[cols.end..].fill(0.0);
            let start = vertical.input(p, r) as usize * self.g.w + horizontal.input(cols.start, s) as usize;
            let to = &mut to[cols.clone()];
            match horizontal.in_step {
                1 => to.copy_from_slice(&from[start..start + to.len()]),
                step => {
                    to.iter_mut().zip(from[start..].iter().step_by(step)).for_each(|(to, from)| *to = *from)
                }
            }
        }
    }

    /// `dx` (or plus) the sum of everything in the unrolled image that was read from each pixel.
    fn roll_up(&self, cpu: &Cpu, unrolled: &[f32], dx: &mut [f32], accumulate: Accumulate) {
        let g = self.g;
        let (image, pixels, channels) = (g.h * g.w, g.out_pixels(), g.c / g.groups);
        cpu.for_each_chunk(dx, image, |plane, to| {
            let (sample, channel) = (plane / g.c, plane % g.c);
            if !(self.first..self.first + channels).contains(&channel) {
                return;
            }
            if accumulate == Accumulate::Replace {
                to.fill(0.0);
            }
            for tap in 0..g.r * g.s {
                let row = (channel - self.first) * g.r * g.s + tap;
                let from = &unrolled[(row * g.n + sample) * pixels..][..pixels];
                self.roll_up_plane(from, [tap / g.s, tap % g.s], to);
            }
        });
    }

    fn roll_up_plane(&self, from: &[f32], [r, s]: [usize; 2], to: &mut [f32]) {
        let [vertical, horizontal] = &self.axes;
        let cols = horizontal.outputs_inside(s, &(0..horizontal.outputs));
        if cols.is_empty() {
            return;
        }
        for p in vertical.outputs_inside(r, &(0..vertical.outputs)) {
            let start = vertical.input(p, r) as usize * self.g.w + horizontal.input(cols.start, s) as usize;
            let from = &from[p * horizontal.outputs..][cols.clone()];
            match horizontal.in_step {
                1 => to[start..].iter_mut().zip(from).for_each(|(to, from)| *to += from),
                step => to[start..].iter_mut().step_by(step).zip(from).for_each(|(to, from)| *to += from),
            }
        }
    }

    /// `matrix[k][n, p, q]` from `dy`, channels from `first_k` on.
    fn take_matrix(&self, cpu: &Cpu, first_k: usize, dy: &[f32], matrix: &mut [f32]) {
        let (g, pixels) = (self.g, self.g.out_pixels());
        cpu.for_each_chunk(matrix, pixels, |part, to| {
            let (k, sample) = (first_k + part / g.n, part % g.n);
            to.copy_from_slice(&dy[(sample * g.k + k) * pixels..][..pixels]);
        });
    }

    /// `y` (or plus) `matrix[k][n, p, q]`, channels from `first_k` on.
    fn put_matrix(&self, cpu: &Cpu, first_k: usize, matrix: &[f32], y: &mut [f32], accumulate: Accumulate) {
        let (g, pixels) = (self.g, self.g.out_pixels());
        cpu.for_each_chunk(y, pixels, |plane, to| {
            let (sample, k) = (plane / g.k, plane % g.k);
            if !(first_k..first_k + g.k / g.groups).contains(&k) {
                return;
            }
            let from = &matrix[((k - first_k) * g.n + sample) * pixels..][..pixels];
            match accumulate {
                Accumulate::Replace => to.copy_from_slice(from),
                Accumulate::Add => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
            }
        });
    }
}
