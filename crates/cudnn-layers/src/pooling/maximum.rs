//! Maximum pooling on the CPU.

use super::rows::{self, Band, Walk};
use crate::cpu_loops::{for_each_run, for_each_run_with, items_per_task};
use tensor::cpu::simd::{LANES, Lanes, WithLanes, dispatch};
use tensor::{Accumulate, Cpu, PoolGeometry};

/// The number of the winning tap as it is saved.
trait Tap: bytemuck::Pod + Send + Sync {
    /// No tap won.
    const NONE: Self;
    fn new(tap: u32) -> Self;
    fn index(self) -> usize;
}

impl Tap for u8 {
    const NONE: u8 = u8::MAX;
    #[inline(always)]
    fn new(tap: u32) -> u8 {
        tap as u8
    }
    #[inline(always)]
    fn index(self) -> usize {
        self.into()
    }
}

impl Tap for u32 {
    const NONE: u32 = u32::MAX;
    #[inline(always)]
    fn new(tap: u32) -> u32 {
        tap
    }
    #[inline(always)]
    fn index(self) -> usize {
        self as usize
    }
}

/// Whether taps fit a byte, [`Tap::NONE`] included.
pub(super) fn fits_byte(g: &PoolGeometry) -> bool {
    g.window[0] * g.window[1] < 256
}

pub(super) fn forward(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32], mask: Option<&mut [u8]>) {
    match mask {
        Some(mask) if fits_byte(g) => forward_saving(cpu, g, x, y, mask),
        Some(mask) => forward_saving::<u32>(cpu, g, x, y, bytemuck::cast_slice_mut(mask)),
        None => for_each_run(
            cpu,
            g.n * g.c,
            items_per_task(g.h * g.w),
            [y],
            #[inline(always)]
            |planes, [y]| {
                let x = x[planes.start * g.h * g.w..].chunks_exact(g.h * g.w);
                let y = y.chunks_exact_mut(g.out_h() * g.out_w());
                forward_planes::<u8>(g, x.zip(y).map(|(x, y)| (x, y, &mut [] as &mut [u8])));
            },
        ),
    }
}

fn forward_saving<T: Tap>(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32], mask: &mut [T]) {
    let outputs = g.out_h() * g.out_w();
    for_each_run_with(
        cpu,
        g.n * g.c,
        items_per_task(g.h * g.w),
        ([y], mask),
        #[inline(always)]
        |planes, [y], mask| {
            let x = x[planes.start * g.h * g.w..].chunks_exact(g.h * g.w);
            let out = y.chunks_exact_mut(outputs).zip(mask.chunks_exact_mut(outputs));
            forward_planes(g, x.zip(out).map(|(x, (y, mask))| (x, y, mask)));
        },
    );
}

/// Planes that follow each other; an empty `mask` saves nothing.
#[inline(always)]
fn forward_planes<'a, T: Tap>(
    g: &PoolGeometry,
    planes: impl Iterator<Item = (&'a [f32], &'a mut [f32], &'a mut [T])>,
) {
    let walk = Walk::new(g, f32::NEG_INFINITY).and_then(|walk| Some((walk.starts()?, walk)));
    let Some((starts, mut walk)) = walk else {
        planes.for_each(|(x, y, mask)| forward_directly(g, x, y, mask));
        return;
    };
    let starts = &starts[..g.window[0] * g.window[1]];
    for (x, y, mask) in planes {
        for band in walk.bands() {
            walk.fill(x, &band);
            dispatch(Maxima { walk: &walk, starts, band: &band, y, mask });
        }
    }
}

/// The maxima of a band, whose pixels `walk` holds, and the numbers of the taps that won.
struct Maxima<'a, T> {
    walk: &'a Walk,
    starts: &'a [usize],
    band: &'a Band,
    y: &'a mut [f32],
    mask: &'a mut [T],
}

impl<T: Tap> WithLanes for Maxima<'_, T> {
    type Output = ();
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let (pitch, out_w) = (self.walk.pitch, self.walk.out_w());
        let mut taps = [0.0; rows::OUTPUTS];
        for (row, first) in self.band.rows.clone().zip((0..).step_by(pitch)) {
            let outputs = row * out_w..(row + 1) * out_w;
            let pixels = &self.walk.pixels[first..];
            maxima::<T, L>(lanes, pixels, self.starts, &mut self.y[outputs.clone()], &mut taps);
            if !self.mask.is_empty() {
                let winners = self.mask[outputs].iter_mut().zip(&taps);
                winners.for_each(|(winner, &tap)| *winner = T::new(tap.to_bits()));
            }
        }
    }
}

/// One row of maxima and of the numbers of the taps that won, which are passed through as the bits of floats. The run of
/// a tap is `pixels[start..]`.
#[inline(always)]
fn maxima<T: Tap, L: Lanes>(lanes: L, pixels: &[f32], starts: &[usize], y: &mut [f32], taps: &mut [f32]) {
    let label = |tap: usize| lanes.splat(f32::from_bits(tap as u32));
    let (to_taps, _) = taps.as_chunks_mut::<LANES>();
    for (index, (y, taps)) in y.chunks_mut(LANES).zip(to_taps).enumerate() {
        let mut best = [lanes.splat(f32::NEG_INFINITY), label(T::NONE.index())];
        let pixels = &pixels[index * LANES..];
        for (tap, &start) in starts.iter().enumerate() {
            let pixel: &[f32; LANES] = pixels[start..start + LANES].try_into().expect("16 elements");
            best = lanes.larger(best, [lanes.load(pixel), label(tap)]);
        }
        match <&mut [f32; LANES]>::try_from(&mut *y) {
            Ok(y) => lanes.store(y, best[0]),
            Err(_) => y.copy_from_slice(&lanes.to_array(best[0])[..y.len()]),
        }
        lanes.store(taps, best[1]);
    }
}

/// Larger wins, and so does a NaN, which then stays.
#[inline(always)]
fn beats(pixel: f32, best: f32) -> bool {
    pixel > best || pixel.is_nan()
}

/// For windows or strides too wide for [`rows`].
fn forward_directly<T: Tap>(g: &PoolGeometry, x: &[f32], y: &mut [f32], mask: &mut [T]) {
    let out_w = g.out_w();
    for (index, y) in y.iter_mut().enumerate() {
        let (row, column) = (index / out_w, index % out_w);
        let (mut best, mut winner) = (f32::NEG_INFINITY, T::NONE);
        let columns = rows::pixels(g, 1, g.w, column);
        for image_row in rows::pixels(g, 0, g.h, row) {
            let r = image_row + g.pad[0] - row * g.stride[0];
            let first_tap = r * g.window[1] + columns.start + g.pad[1] - column * g.stride[1];
            for (tap, &pixel) in (first_tap..).zip(&x[image_row * g.w..][columns.clone()]) {
                if beats(pixel, best) {
                    best = pixel;
                    winner = T::new(tap as u32); // a geometry has fewer than 2^31 taps
                }
            }
        }
        *y = best;
        if let Some(mask) = mask.get_mut(index) {
            *mask = winner;
        }
    }
}

pub(super) fn backward(
    cpu: &Cpu,
    g: &PoolGeometry,
    mask: &[u8],
    dy: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    let outputs = g.out_h() * g.out_w();
    let offset = |tap: usize| tap / g.window[1] * g.w + tap % g.window[1];
    // Where a tap lies relative to its window's first pixel; far outside for no tap.
    const NOWHERE: usize = usize::MAX / 2;
    let mut offsets = [NOWHERE; 256];
    (0..g.window[0] * g.window[1]).zip(&mut offsets[..255]).for_each(|(tap, to)| *to = offset(tap));
    for_each_run(
        cpu,
        g.n * g.c,
        items_per_task(g.h * g.w),
        [dx],
        #[inline(always)]
        |planes, [dx]| {
            for (plane, dx) in planes.zip(dx.chunks_exact_mut(g.h * g.w)) {
                if accumulate == Accumulate::Replace {
                    dx.fill(0.0);
                }
                let all = plane * outputs..(plane + 1) * outputs;
                let dy = &dy[all.clone()];
                if fits_byte(g) {
                    scatter(g, &mask[all], dy, dx, |tap: u8| offsets[usize::from(tap)]);
                } else {
                    let mask: &[u32] = bytemuck::cast_slice(mask);
                    let far = |tap: u32| if tap == u32::NONE { NOWHERE } else { offset(tap.index()) };
                    scatter(g, &mask[all], dy, dx, far);
                }
            }
        },
    );
}

/// Adds every `dy` to the pixel that won. No winner lands outside the plane and is skipped.
#[inline(always)]
fn scatter<T: Tap>(g: &PoolGeometry, mask: &[T], dy: &[f32], dx: &mut [f32], offset: impl Fn(T) -> usize) {
    let out_w = g.out_w();
    let corner = g.pad[0] * g.w + g.pad[1];
    for (row, (dy, mask)) in dy.chunks_exact(out_w).zip(mask.chunks(out_w)).enumerate() {
        let mut window = (row * g.stride[0] * g.w).wrapping_sub(corner);
        for (&dy, &tap) in dy.iter().zip(mask) {
            if let Some(dx) = dx.get_mut(window.wrapping_add(offset(tap))) {
                *dx += dy;
            }
            window = window.wrapping_add(g.stride[1]);
        }
    }
}
