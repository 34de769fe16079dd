//! Products of matrices by a library: of the operands themselves, or with the gradient of the unrolled image in memory,
//! as Caffe does it.
//!
//! A 1x1 convolution without padding is a product of its operands, sample by sample. With strides, forward and backward
//! filter, it is one of the pixels that are read, which the workspace holds for the whole micro-batch. Any other
//! backward-data pass is `unrolled = w^T M`, where `M` is the matrix of `dy` with a row for each output channel and a
//! column for each output pixel of the micro-batch; `unrolled` has a row for each tap (input channel, filter row, filter
//! column), all of which are added to the pixels that they were read from. With strides the other algorithms have few taps
//! for each pixel there. The workspace holds both matrices of one group, so it grows with the micro-batch.

use super::{HostOut, Pass, axis::Axis, split};
use crate::conv::ConvOp;
use tensor::cpu::{Matrix, gemm};
use tensor::{Accumulate, ConvGeometry, Cpu, geometry::elements};

/// cuDNN's `GEMM`.
pub(super) fn pass(op: ConvOp, g: &ConvGeometry) -> Option<Box<dyn Pass>> {
    elements(&[g.taps(), g.n, g.out_pixels(), g.groups])?;
    if g.r * g.s == 1 && g.pad == [0, 0] && (op != ConvOp::BackwardData || g.stride == [1, 1]) {
        return Some(Box::new(Plain { op, g: *g }));
    }
    (op == ConvOp::BackwardData).then(|| Box::new(RollUp { g: *g }) as Box<dyn Pass>)
}

/// All operations of a 1x1 convolution.
#[derive(Debug)]
struct Plain {
    op: ConvOp,
    g: ConvGeometry,
}

impl Pass for Plain {
    fn workspace_len(&self, _: usize) -> usize {
        if self.g.stride == [1, 1] { 0 } else { self.g.n * self.g.c * self.g.out_pixels() }
    }

    fn run(&self, cpu: &Cpu, [a, b]: [&[f32]; 2], out: HostOut<'_>, workspace: &mut [f32]) {
        let operands = [self.read(cpu, a, workspace), b];
        match self.op {
            ConvOp::BackwardFilter => self.filter_gradient(cpu, operands, out),
            _ => self.images(cpu, operands, out),
        }
    }
}

impl Plain {
    /// Input and output channels of a group, and pixels.
    fn extents(&self) -> [usize; 3] {
        [self.g.c / self.g.groups, self.g.k / self.g.groups, self.g.out_pixels()]
    }

    /// The pixels of `x` that are read: all of them, or, with strides, some, which are put into the workspace.
    fn read<'a>(&self, cpu: &Cpu, x: &'a [f32], workspace: &'a mut [f32]) -> &'a [f32] {
        let (g, [down, right]) = (&self.g, self.g.stride);
        if [down, right] == [1, 1] {
            return x;
        }
        let pixels = &mut workspace[..g.n * g.c * g.out_pixels()];
        cpu.for_each_chunk(pixels, g.out_pixels(), &|plane, to| {
            for (row, to) in to.chunks_exact_mut(g.out_w()).enumerate() {
                let from = x[(plane * g.h + row * down) * g.w..].iter().step_by(right);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        });
        pixels
    }

    /// A task's output channels do not follow from the number of threads: the library rounds by a product's extents.
    fn filter_gradient(&self, cpu: &Cpu, [a, b]: [&[f32]; 2], (out, accumulate): HostOut<'_>) {
        let (g, [c, k, pixels]) = (&self.g, self.extents());
        let share = (k / 2).clamp(32, 128);
        for (group, dw) in out.chunks_exact_mut(k * c).enumerate() {
            cpu.for_each_chunk(dw, share * c, &|task, dw| {
                let mut mode = accumulate;
                for part in (group..g.n * g.groups).step_by(g.groups) {
                    let x = Matrix::rows(&a[part * c * pixels..], pixels).t();
                    let dy = Matrix::rows(&b[(part * k + task * share) * pixels..], pixels);
                    gemm(None, [dw.len() / c, c, pixels], dy, x, dw, mode);
                    mode = Accumulate::Add;
                }
            });
        }
    }

    fn images(&self, cpu: &Cpu, [a, b]: [&[f32]; 2], (out, accumulate): HostOut<'_>) {
        let (g, [c, k, pixels]) = (&self.g, self.extents());
        let is_forward = self.op == ConvOp::Forward;
        let (rows, terms) = if is_forward { (k, c) } else { (c, k) };
        let one = |part: usize, out: &mut [f32], threads: Option<&Cpu>| {
            let w = Matrix::rows(&b[part % g.groups * k * c..], c);
            let w = if is_forward { w } else { w.t() };
            let input = Matrix::rows(&a[part * terms * pixels..], pixels);
            gemm(threads, [rows, pixels, terms], w, input, out, accumulate);
        };
        if g.n * g.groups == 1 {
            one(0, out, Some(cpu));
        } else {
            cpu.for_each_chunk(out, rows * pixels, &|part, out| one(part, out, None));
        }
    }
}

/// Backward data: the gradient of the unrolled image, rolled up.
#[derive(Debug)]
struct RollUp {
    g: ConvGeometry,
}

impl Pass for RollUp {
    fn workspace_len(&self, _: usize) -> usize {
        self.lens().iter().sum()
    }

    fn run(&self, cpu: &Cpu, [dy, w]: [&[f32]; 2], (out, accumulate): HostOut<'_>, workspace: &mut [f32]) {
        let (g, pixels) = (&self.g, self.g.out_pixels());
        let (k, taps, columns) = (g.k / g.groups, g.taps(), g.n * pixels);
        let ([unrolled, matrix], _) = split(workspace, self.lens());
        for group in 0..g.groups {
            // `matrix[k][n, p, q]`.
            cpu.for_each_chunk(matrix, pixels, &|part, to| {
                let (channel, sample) = (group * k + part / g.n, part % g.n);
                to.copy_from_slice(&dy[(sample * g.k + channel) * pixels..][..pixels]);
            });
            let w = Matrix::rows(&w[group * k * taps..][..k * taps], taps).t();
            let dy = Matrix::rows(matrix, columns);
            gemm(Some(cpu), [taps, columns, k], w, dy, unrolled, Accumulate::Replace);
            self.roll_up(cpu, group, unrolled, out, accumulate);
        }
    }
}

impl RollUp {
    /// Elements of the unrolled image and of the matrix of `dy`, of one group.
    fn lens(&self) -> [usize; 2] {
        let (g, columns) = (&self.g, self.g.n * self.g.out_pixels());
        [(g.taps() * columns).next_multiple_of(super::ALIGNED_LEN), g.k / g.groups * columns]
    }

    /// `dx` of a group is, or is increased by, the sum of all in the unrolled image that was read from each pixel.
    fn roll_up(&self, cpu: &Cpu, group: usize, unrolled: &[f32], dx: &mut [f32], accumulate: Accumulate) {
        let (g, axes) = (&self.g, [0, 1].map(|axis| Axis::forward(&self.g, axis)));
        let (pixels, channels) = (g.out_pixels(), g.c / g.groups);
        cpu.for_each_chunk(dx, g.h * g.w, &|plane, to| {
            let (sample, channel) = (plane / g.c, plane % g.c);
            if channel / channels != group {
                return;
            }
            if accumulate == Accumulate::Replace {
                to.fill(0.0);
            }
            for tap in 0..g.r * g.s {
                let row = channel % channels * g.r * g.s + tap;
                let from = &unrolled[(row * g.n + sample) * pixels..][..pixels];
                self.roll_up_plane(&axes, from, [tap / g.s, tap % g.s], to);
            }
        });
    }

    /// Adds what one tap read to the pixels of a plane.
    fn roll_up_plane(&self, axes: &[Axis; 2], from: &[f32], [r, s]: [usize; 2], to: &mut [f32]) {
        let [vertical, horizontal] = axes;
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
}
