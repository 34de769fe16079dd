//! Maximum pooling on the CPU.
//!
//! With a stride of 2, neighbouring outputs read every second pixel. So the rows of pixels under a row of windows are
//! first dealt out into *phases*, by column modulo the stride (even pixels, odd pixels). Then one tap of the windows of
//! all outputs of a row is one contiguous run of one phase, and padding is a matter of what the phases are filled with.

use super::{add_to_planes, pixels, plane_lens};
use crate::cpu_loops::{for_each_run_with, inlined, items_per_task, rectified};
use crate::pooling::tap_size;
use tensor::cpu::{LANES, Lanes, WithLanes, dispatch};
use tensor::{Cpu, Out, PoolGeometry, View, ViewMut};

/// The number of no tap: no pixel won.
const NONE: u32 = u32::MAX;
/// Pixels under a row of windows: a part of a first-level cache.
const ROOM: usize = 6144;
/// The most taps of a window whose runs are kept in a list.
const MOST_TAPS: usize = 255;

pub(crate) fn forward_max(
    cpu: &Cpu,
    g: &PoolGeometry,
    x: View<'_>,
    (bias, relu): (Option<View<'_>>, bool),
    y: ViewMut<'_>,
    mask: Option<ViewMut<'_>>,
) {
    let ([image, outputs], bias) = (plane_lens(g), bias.map(|bias| bias.host::<f32>()));
    let (x, mask) = (x.host(), mask.map(ViewMut::into_host).unwrap_or_default());
    let mask_len = if mask.is_empty() { 0 } else { outputs * tap_size(g) };
    inlined!(
        for_each_run_with(cpu, g.n * g.c, items_per_task(image), ([y.into_host()], mask)),
        |planes, [y], mask| {
            let mut phases = Phases::new(g);
            for (index, (plane, y)) in planes.zip(y.chunks_exact_mut(outputs)).enumerate() {
                let x = &x[plane * image..(plane + 1) * image];
                let mask = &mut mask[index * mask_len..(index + 1) * mask_len];
                let bias = bias.map_or(-0.0, |bias| bias[plane % g.c]); // adding -0 changes nothing
                match &mut phases {
                    Some(phases) => dispatch(Maxima { g, phases, x, bias, y, mask }),
                    None => forward_directly(g, x, bias, y, mask),
                }
                if relu {
                    rectify(y, mask);
                }
            }
        }
    );
}

/// Passes the maxima of a plane through a ReLU: what it makes 0 has no winner.
#[inline(always)]
fn rectify(y: &mut [f32], mask: &mut [u8]) {
    let tap_size = mask.len() / y.len().max(1);
    for (index, y) in y.iter_mut().enumerate().filter(|(_, y)| y.is_nan() || **y <= 0.0) {
        *y = rectified(true, *y);
        mask[index * tap_size..][..tap_size].fill(u8::MAX);
    }
}

/// Saves the winners of the outputs from `first` on, if they are wanted: `tap_size` bytes each.
#[inline(always)]
fn save(g: &PoolGeometry, mask: &mut [u8], first: usize, taps: &[u32]) {
    if mask.is_empty() {
    } else if tap_size(g) == 1 {
        mask[first..].iter_mut().zip(taps).for_each(|(to, &tap)| *to = tap as u8);
    } else {
        let taps: &[u8] = bytemuck::cast_slice(taps);
        mask[first * size_of::<u32>()..][..taps.len()].copy_from_slice(taps);
    }
}

/// The pixels under a row of windows.
struct Phases {
    /// Elements of a phase.
    pitch: usize,
    /// Phase `j` of pixel row `r` begins at `(r * stride + j) * pitch`. Left and right of the image there is padding,
    /// which nothing overwrites.
    pixels: [f32; ROOM],
    /// Where the run of each tap, in row-major order, begins.
    starts: [usize; MOST_TAPS],
}

impl Phases {
    /// `None` for windows, strides or images too large for the room.
    #[inline(always)]
    fn new(g: &PoolGeometry) -> Option<Self> {
        let ([height, width], stride) = (g.window, g.stride[1]);
        let pitch = g.out_w().next_multiple_of(LANES) + (width - 1) / stride;
        let fits = [height, width, stride, pitch].iter().all(|&extent| extent <= ROOM);
        if !fits || height * width > MOST_TAPS || height * stride * pitch > ROOM {
            return None;
        }
        let mut starts = [0; MOST_TAPS];
        for (tap, start) in starts[..height * width].iter_mut().enumerate() {
            let (r, s) = (tap / width, tap % width);
            *start = (r * stride + s % stride) * pitch + s / stride;
        }
        Some(Self { pitch, pixels: [f32::NEG_INFINITY; ROOM], starts })
    }

    /// Deals out the pixels under the windows of a row of outputs, each with the bias.
    #[inline(always)]
    fn fill(&mut self, g: &PoolGeometry, x: &[f32], bias: f32, out_row: usize) {
        let (stride, pad) = (g.stride[1], g.pad[1]);
        let width = g.w.min((self.pitch * stride).saturating_sub(pad));
        for (r, phases) in self.pixels.chunks_exact_mut(stride * self.pitch).take(g.window[0]).enumerate() {
            match (out_row * g.stride[0] + r).checked_sub(g.pad[0]).filter(|&row| row < g.h) {
                Some(row) => deal(stride, &x[row * g.w..][..width], bias, pad, phases, self.pitch),
                None => phases.fill(f32::NEG_INFINITY),
            }
        }
    }
}

/// Pixel `c` of the row goes to column `(pad + c) / stride` of phase `(pad + c) % stride`.
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

/// The maxima of a plane and the numbers of the taps that won.
struct Maxima<'a> {
    g: &'a PoolGeometry,
    phases: &'a mut Phases,
    x: &'a [f32],
    bias: f32,
    y: &'a mut [f32],
    mask: &'a mut [u8],
}

impl WithLanes for Maxima<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let Self { g, phases, x, bias, y, mask } = self;
        let taps = g.window[0] * g.window[1];
        for (row, y) in y.chunks_exact_mut(g.out_w()).enumerate() {
            phases.fill(g, x, bias, row);
            let starts = &phases.starts[..taps];
            for (column, y) in (0..).step_by(LANES).zip(y.chunks_mut(LANES)) {
                let [best, winners] = maxima(lanes, &phases.pixels[column..], starts);
                y.copy_from_slice(&best[..y.len()]);
                save(g, mask, row * g.out_w() + column, &winners.map(f32::to_bits)[..y.len()]);
            }
        }
    }
}

/// Sixteen maxima and the numbers of the taps that won, as the bits of floats. The run of a tap is `pixels[start..]`.
#[inline(always)]
fn maxima<L: Lanes>(lanes: L, pixels: &[f32], starts: &[usize]) -> [[f32; LANES]; 2] {
    let label = |tap: u32| lanes.splat(f32::from_bits(tap));
    let mut best = [lanes.splat(f32::NEG_INFINITY), label(NONE)];
    for (tap, &start) in (0..).zip(starts) {
        let pixel: &[f32; LANES] = pixels[start..start + LANES].try_into().expect("16 elements");
        best = lanes.larger(best, [lanes.load(pixel), label(tap)]);
    }
    best.map(|best| lanes.to_array(best))
}

/// For windows, strides or images too large for [`Phases`].
fn forward_directly(g: &PoolGeometry, x: &[f32], bias: f32, y: &mut [f32], mask: &mut [u8]) {
    let out_w = g.out_w();
    for (index, y) in y.iter_mut().enumerate() {
        let (row, column) = (index / out_w, index % out_w);
        let (mut best, mut winner, columns) = (f32::NEG_INFINITY, NONE, pixels(g, 1, column));
        for image_row in pixels(g, 0, row) {
            let r = image_row + g.pad[0] - row * g.stride[0];
            let first_tap = r * g.window[1] + columns.start + g.pad[1] - column * g.stride[1];
            for (tap, pixel) in
                (first_tap..).zip(x[image_row * g.w..][columns.clone()].iter().map(|x| x + bias))
            {
                if pixel > best || pixel.is_nan() {
                    (best, winner) = (pixel, tap as u32); // a geometry has fewer than 2^31 taps
                }
            }
        }
        *y = best;
        save(g, mask, index, &[winner]);
    }
}

pub(crate) fn backward_max(cpu: &Cpu, g: &PoolGeometry, mask: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let (mask, dy): (&[u8], &[f32]) = (mask.host(), dy.host());
    let ([_, outputs], tap_size) = (plane_lens(g), tap_size(g));
    let offset = |tap: usize| tap / g.window[1] * g.w + tap % g.window[1];
    // Where a tap lies relative to its window's first pixel; far outside for no tap.
    const NOWHERE: usize = usize::MAX / 2;
    let mut offsets = [NOWHERE; 256];
    (0..g.window[0] * g.window[1]).zip(&mut offsets[..255]).for_each(|(tap, to)| *to = offset(tap));
    let far = |tap: &[u8; 4]| match u32::from_ne_bytes(*tap) {
        NONE => NOWHERE,
        tap => offset(tap as usize),
    };
    inlined!(add_to_planes(cpu, g, dx), |plane, dx| {
        let dy = &dy[plane * outputs..(plane + 1) * outputs];
        let mask = &mask[plane * outputs * tap_size..][..outputs * tap_size];
        match tap_size {
            1 => scatter(g, mask, dy, dx, |&tap| offsets[usize::from(tap)]),
            _ => scatter(g, mask.as_chunks().0, dy, dx, far),
        }
    });
}

/// Adds every `dy` to the pixel that won. No winner lands outside the plane and is skipped.
#[inline(always)]
fn scatter<T>(g: &PoolGeometry, mask: &[T], dy: &[f32], dx: &mut [f32], offset: impl Fn(&T) -> usize) {
    let out_w = g.out_w();
    let corner = g.pad[0] * g.w + g.pad[1];
    for (row, (dy, mask)) in dy.chunks_exact(out_w).zip(mask.chunks(out_w)).enumerate() {
        let mut window = (row * g.stride[0] * g.w).wrapping_sub(corner);
        for (&dy, tap) in dy.iter().zip(mask) {
            if let Some(dx) = dx.get_mut(window.wrapping_add(offset(tap))) {
                *dx += dy;
            }
            window = window.wrapping_add(g.stride[1]);
        }
    }
}
