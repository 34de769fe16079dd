//! Pooling on the CPU, plane by plane.
//!
//! With a stride of 2, the maxima of neighbouring windows are of every second pixel. So the rows of pixels under a row
//! of windows are first dealt out into *phases*, by column modulo the stride (even pixels, odd pixels). Then one tap of
//! the windows of all outputs of a row is one contiguous run of one phase, and padding is a matter of what the phases
//! are filled with.

use super::tap_size;
use crate::AxisExtents;
use crate::cpu_loops::{for_each_plane, for_each_run, for_each_run_with, inlined, items_per_task, rectified};
use std::{array, ops::Range};
use tensor::cpu::LANES;
use tensor::{Accumulate, Cpu, Out, PoolGeometry, View, ViewMut};

/// The number of no tap: no pixel won.
const NONE: u32 = u32::MAX;
/// Pixels under a row of windows: a part of a first-level cache.
const ROOM: usize = 6144;

/// Maxima of neighbouring windows, and the numbers of the taps that won.
type Maxima = ([f32; LANES], [u32; LANES]);

pub(super) fn forward_max(
    cpu: &Cpu,
    g: &PoolGeometry,
    x: View<'_>,
    (bias, relu): (Option<View<'_>>, bool),
    y: ViewMut<'_>,
    mask: ViewMut<'_>,
) {
    let ([image, outputs], out_w, tap_size) = (plane_lens(g), g.out_w(), tap_size(g));
    let (x, bias) = (x.host::<f32>(), bias.map(|bias| bias.host::<f32>()));
    let out = ([y.into_host()], mask.into_host::<u8>());
    inlined!(for_each_run_with(cpu, g.n * g.c, items_per_task(image), out), |planes, [y], mask| {
        let (phases, mut room) = (Phases::new(g), [f32::NEG_INFINITY; ROOM]);
        let mut masks = mask.chunks_exact_mut(out_w * tap_size);
        for (plane, y) in planes.zip(y.chunks_exact_mut(outputs)) {
            let x = &x[plane * image..][..image];
            let bias = bias.map_or(-0.0, |bias| bias[plane % g.c]); // adding -0 changes nothing
            for (row, (y, mask)) in y.chunks_exact_mut(out_w).zip(&mut masks).enumerate() {
                if let Some(phases) = &phases {
                    phases.fill(g, x, bias, row, &mut room);
                }
                for (column, y) in (0..).step_by(LANES).zip(y.chunks_mut(LANES)) {
                    let (best, mut winners) = match &phases {
                        Some(phases) => phases.maxima(g, &room[column..]),
                        None => maxima(g, x, bias, row, column..column + y.len()),
                    };
                    y.iter_mut().zip(best).for_each(|(y, best)| *y = rectified(relu, best));
                    for (winner, best) in winners.iter_mut().zip(best) {
                        // What a ReLU makes 0 has no winner.
                        let stopped = relu && (best <= 0.0 || best.is_nan());
                        *winner = if stopped { NONE } else { *winner };
                    }
                    let mask = &mut mask[column * tap_size..];
                    if tap_size == 1 {
                        mask.iter_mut().zip(winners).for_each(|(to, tap)| *to = tap as u8);
                    } else {
                        let taps = mask.as_chunks_mut().0.iter_mut();
                        taps.zip(winners).for_each(|(to, tap)| *to = tap.to_ne_bytes());
                    }
                }
            }
        }
    });
}

/// How the pixels under a row of windows lie in their room.
struct Phases {
    /// From one phase to the next: phase `j` of pixel row `r` begins at `(r * stride + j) * pitch`. Left and right of
    /// the image there is padding, which nothing overwrites.
    pitch: usize,
    stride: usize,
}

impl Phases {
    /// `None` for windows, strides or images too large for the room.
    #[inline(always)]
    fn new(g: &PoolGeometry) -> Option<Self> {
        let ([height, width], stride) = (g.window, g.stride[1]);
        let pitch = g.out_w().next_multiple_of(LANES) + (width - 1) / stride;
        let fits = [height, width, stride, pitch].iter().all(|&extent| extent <= ROOM);
        (fits && height * stride * pitch <= ROOM).then_some(Self { pitch, stride })
    }

    /// Deals out the pixels under the windows of a row of outputs, each with the bias.
    #[inline(always)]
    fn fill(&self, g: &PoolGeometry, x: &[f32], bias: f32, out_row: usize, room: &mut [f32; ROOM]) {
        let (stride, pad) = (self.stride, g.pad[1]);
        let width = g.w.min((self.pitch * stride).saturating_sub(pad));
        for (r, phases) in room.chunks_exact_mut(stride * self.pitch).take(g.window[0]).enumerate() {
            match (out_row * g.stride[0] + r).checked_sub(g.pad[0]).filter(|&row| row < g.h) {
                Some(row) => deal(stride, &x[row * g.w..][..width], bias, pad, phases, self.pitch),
                None => phases.fill(f32::NEG_INFINITY),
            }
        }
    }

    /// The maxima of sixteen windows, the first of which begins with `room`.
    #[inline(always)]
    fn maxima(&self, g: &PoolGeometry, room: &[f32]) -> Maxima {
        let (mut best, mut winners, mut tap) = ([f32::NEG_INFINITY; LANES], [NONE; LANES], 0);
        for row in room.chunks(self.stride * self.pitch).take(g.window[0]) {
            let (mut phase, mut start) = (0, 0);
            for _ in 0..g.window[1] {
                let pixels = &row[phase * self.pitch + start..][..LANES];
                for ((best, winner), &pixel) in best.iter_mut().zip(&mut winners).zip(pixels) {
                    let wins = pixel > *best || pixel.is_nan();
                    *best = if wins { pixel } else { *best };
                    *winner = if wins { tap } else { *winner };
                }
                tap += 1;
                phase += 1;
                if phase == self.stride {
                    (phase, start) = (0, start + 1);
                }
            }
        }
        (best, winners)
    }
}

/// Pixel `c` of the row, with the bias, goes to column `(pad + c) / stride` of phase `(pad + c) % stride`.
#[inline(always)]
fn deal(stride: usize, row: &[f32], bias: f32, pad: usize, phases: &mut [f32], pitch: usize) {
    match stride {
        1 => phases[pad..].iter_mut().zip(row).for_each(|(to, pixel)| *to = pixel + bias),
        2 => {
            let (first, second) = phases.split_at_mut(pitch);
            let (even, odd) = if pad.is_multiple_of(2) {
                (&mut first[pad / 2..], &mut second[pad / 2..])
            } else {
                (&mut second[pad / 2..], &mut first[pad / 2 + 1..])
            };
            let (pairs, last) = row.as_chunks();
            for ((even, odd), pair) in even.iter_mut().zip(odd).zip(pairs) {
                [*even, *odd] = pair.map(|pixel| pixel + bias);
            }
            last.iter().for_each(|&pixel| even[pairs.len()] = pixel + bias);
        }
        _ => {
            for (column, &pixel) in (pad..).zip(row) {
                phases[column % stride * pitch + column / stride] = pixel + bias;
            }
        }
    }
}

/// For windows, strides or images too large for [`Phases`].
fn maxima(g: &PoolGeometry, x: &[f32], bias: f32, row: usize, outputs: Range<usize>) -> Maxima {
    let (mut best, mut winners) = ([f32::NEG_INFINITY; LANES], [NONE; LANES]);
    for (lane, column) in outputs.enumerate() {
        let columns = pixels(g, 1, column);
        for image_row in pixels(g, 0, row) {
            let r = image_row + g.pad[0] - row * g.stride[0];
            let first_tap = r * g.window[1] + columns.start + g.pad[1] - column * g.stride[1];
            for (tap, pixel) in (first_tap..).zip(&x[image_row * g.w..][columns.clone()]) {
                let pixel = pixel + bias;
                if pixel > best[lane] || pixel.is_nan() {
                    (best[lane], winners[lane]) = (pixel, tap as u32); // a geometry has fewer than 2^31 taps
                }
            }
        }
    }
    (best, winners)
}

pub(super) fn backward_max(cpu: &Cpu, g: &PoolGeometry, mask: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let (mask, dy) = (mask.host::<u8>(), dy.host::<f32>());
    let ([_, outputs], tap_size, out_w) = (plane_lens(g), tap_size(g), g.out_w());
    // Where a tap lies relative to its window's first pixel; far outside for no tap, which is skipped.
    let offset = |tap: u32| match (tap, tap as usize) {
        (NONE, _) => usize::MAX / 2,
        (_, tap) => tap / g.window[1] * g.w + tap % g.window[1],
    };
    let offsets: [usize; 256] = array::from_fn(|tap| offset(if tap == 255 { NONE } else { tap as u32 }));
    inlined!(add_to_planes(cpu, g, dx), |plane, dx| {
        let dy = &dy[plane * outputs..][..outputs];
        let mut taps = mask[plane * outputs * tap_size..].chunks_exact(tap_size);
        for (row, dy) in dy.chunks_exact(out_w).enumerate() {
            let mut window = (row * g.stride[0] * g.w).wrapping_sub(g.pad[0] * g.w + g.pad[1]);
            for (&dy, tap) in dy.iter().zip(&mut taps) {
                let offset = match *tap {
                    [tap] => offsets[usize::from(tap)],
                    _ => offset(u32::from_ne_bytes(tap.try_into().expect("four bytes"))),
                };
                if let Some(dx) = dx.get_mut(window.wrapping_add(offset)) {
                    *dx += dy;
                }
                window = window.wrapping_add(g.stride[1]);
            }
        }
    });
}

pub(super) fn forward_average(cpu: &Cpu, g: &PoolGeometry, x: View<'_>, y: ViewMut<'_>) {
    let ([image, outputs], out_w, x) = (plane_lens(g), g.out_w(), x.host::<f32>());
    inlined!(for_each_run(cpu, g.n * g.c, items_per_task(image), [y.into_host()]), |planes, [y]| {
        for (plane, y) in planes.zip(y.chunks_exact_mut(outputs)) {
            let x = &x[plane * image..][..image];
            for (index, y) in y.iter_mut().enumerate() {
                let (row, column) = (index / out_w, index % out_w);
                let mut total = 0.0;
                for image_row in pixels(g, 0, row) {
                    let pixels = &x[image_row * g.w..][pixels(g, 1, column)];
                    total += pixels.iter().map(|&pixel| f64::from(pixel)).sum::<f64>();
                }
                *y = total as f32 / size(g, row, column);
            }
        }
    });
}

/// What the sum under window `(row, column)` is divided by: its pixels, padding included.
#[inline(always)]
fn size(g: &PoolGeometry, row: usize, column: usize) -> f32 {
    let height = g.window[0].min(g.h + 2 * g.pad[0] - row * g.stride[0]);
    (height * g.window[1].min(g.w + 2 * g.pad[1] - column * g.stride[1])) as f32
}

/// Adds every `dy`, divided by its window's number of pixels, to the pixels under its window.
pub(super) fn backward_average(cpu: &Cpu, g: &PoolGeometry, dy: View<'_>, dx: Out<'_>) {
    let ([_, outputs], out_w, dy) = (plane_lens(g), g.out_w(), dy.host::<f32>());
    inlined!(add_to_planes(cpu, g, dx), |plane, dx| {
        for (index, &dy) in dy[plane * outputs..][..outputs].iter().enumerate() {
            let (row, column) = (index / out_w, index % out_w);
            let share = dy / size(g, row, column);
            for image_row in pixels(g, 0, row) {
                let pixels = &mut dx[image_row * g.w..][pixels(g, 1, column)];
                pixels.iter_mut().for_each(|dx| *dx += share);
            }
        }
    });
}

/// Elements of a plane of the image, and of one of outputs.
fn plane_lens(g: &PoolGeometry) -> [usize; 2] {
    [g.h * g.w, g.out_h() * g.out_w()]
}

/// Calls `body(plane, its elements)` for every plane of gradients of images, to which it adds, vectorised.
fn add_to_planes(cpu: &Cpu, g: &PoolGeometry, dx: Out<'_>, body: impl Fn(usize, &mut [f32]) + Sync) {
    let (dx, accumulate) = dx.into_host();
    let planes = AxisExtents { outer: 1, axis: g.n * g.c, inner: g.h * g.w };
    inlined!(for_each_plane(cpu, &planes, dx), |plane, _, dx| {
        if accumulate == Accumulate::Replace {
            dx.fill(0.0);
        }
        body(plane, dx);
    });
}

/// Pixels of the image under the window of output `index` along one axis.
#[inline(always)]
fn pixels(g: &PoolGeometry, axis: usize, index: usize) -> Range<usize> {
    let start = index * g.stride[axis];
    let end = (start + g.window[axis]).saturating_sub(g.pad[axis]).min([g.h, g.w][axis]);
    start.saturating_sub(g.pad[axis]).min(end)..end
}
