//! Maximum pooling on the CPU.

use super::rows::{self, Band, Walk};
use crate::cpu_loops::{for_each_run, items_per_task};
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

/// Elements of the mask of one plane, so that every plane's winners begin at an element.
pub(super) fn plane_mask_len(g: &PoolGeometry) -> usize {
    let outputs = g.out_h() * g.out_w();
    if fits_byte(g) { outputs.div_ceil(4) } else { outputs }
}

pub(super) fn forward(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32], mask: Option<&mut [f32]>) {
    match mask {
        Some(mask) if fits_byte(g) => forward_saving::<u8>(cpu, g, x, y, mask),
        Some(mask) => forward_saving::<u32>(cpu, g, x, y, mask),
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

fn forward_saving<T: Tap>(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32], mask: &mut [f32]) {
    let mask_len = plane_mask_len(g);
    for_each_run(
        cpu,
        g.n * g.c,
        items_per_task(g.h * g.w),
        [y, mask],
        #[inline(always)]
        |planes, [y, mask]| {
            let x = x[planes.start * g.h * g.w..].chunks_exact(g.h * g.w);
            let out = y.chunks_exact_mut(g.out_h() * g.out_w()).zip(mask.chunks_exact_mut(mask_len));
            let planes = x.zip(out).map(|(x, (y, mask))| (x, y, bytemuck::cast_slice_mut(mask)));
            forward_planes::<T>(g, planes);
        },
    );
}

/// Planes that follow each other; an empty `mask` saves nothing.
#[inline(always)]
fn forward_planes<'a, T: Tap>(
    g: &PoolGeometry,
    planes: impl Iterator<Item = (&'a [f32], &'a mut [f32], &'a mut [T])>,
) {
    let Some(mut walk) = Walk::new(g, f32::NEG_INFINITY) else {
        planes.for_each(|(x, y, mask)| forward_directly(g, x, y, mask));
        return;
    };
    let (mut best, mut taps) = ([0.0; rows::OUTPUTS], [0; rows::OUTPUTS]);
    for (x, y, mask) in planes {
        for band in walk.bands() {
            let len = walk.len(&band);
            forward_band::<T>(&mut walk, x, &band, (&mut best[..len], &mut taps[..len]));
            let (out_w, pitch) = (g.out_w(), walk.pitch);
            for (row, (best, taps)) in band.rows.zip(best.chunks_exact(pitch).zip(taps.chunks_exact(pitch))) {
                y[row * out_w..(row + 1) * out_w].copy_from_slice(&best[..out_w]);
                if !mask.is_empty() {
                    let mask = &mut mask[row * out_w..(row + 1) * out_w];
                    mask.iter_mut().zip(taps).for_each(|(mask, &tap)| *mask = T::new(tap));
                }
            }
        }
    }
}

/// The maxima of a band and the numbers of the taps that won.
#[inline(always)]
fn forward_band<T: Tap>(walk: &mut Walk, x: &[f32], band: &Band, (best, taps): (&mut [f32], &mut [u32])) {
    best.fill(f32::NEG_INFINITY);
    taps.fill(T::NONE.index() as u32);
    walk.for_each_tap(
        x,
        band,
        #[inline(always)]
        |tap, pixels| {
            for ((best, winner), &pixel) in best.iter_mut().zip(&mut *taps).zip(pixels) {
                let wins = beats(pixel, *best);
                *best = if wins { pixel } else { *best };
                *winner = if wins { tap as u32 } else { *winner };
            }
        },
    );
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
        for (r, image_row) in rows::image_rows(g, row) {
            for s in 0..g.window[1] {
                let position = (column * g.stride[1] + s).wrapping_sub(g.pad[1]);
                if position < g.w && beats(x[image_row * g.w + position], best) {
                    best = x[image_row * g.w + position];
                    winner = T::new((r * g.window[1] + s) as u32);
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
    mask: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    let outputs = g.out_h() * g.out_w();
    let mask_len = plane_mask_len(g);
    let offset = |tap: usize| tap / g.window[1] * g.w + tap % g.window[1];
    // Where a tap lies relative to its window's first pixel; far outside for no tap.
    let mut offsets = [usize::MAX / 2; 256];
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
                let dy = &dy[plane * outputs..(plane + 1) * outputs];
                let mask = &mask[plane * mask_len..(plane + 1) * mask_len];
                if fits_byte(g) {
                    let mask: &[u8] = bytemuck::cast_slice(mask);
                    scatter(g, mask, dy, dx, |tap: u8| offsets[usize::from(tap)]);
                } else {
                    scatter(g, bytemuck::cast_slice(mask), dy, dx, |tap: u32| offset(tap.index()));
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
