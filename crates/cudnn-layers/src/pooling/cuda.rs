//! Pooling on the GPU.

use super::tap_size;
use crate::cuda_launches::{THREADS, add};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, PoolGeometry, View, ViewMut,
    cuda::{Arg, Cuda, Grid, Source},
};

static SOURCE: Source =
    Source { name: "pooling.cu", text: concat!(include_str!("../common.cuh"), include_str!("pooling.cu")) };

/// `OUTPUTS` and `PIXELS` of `pooling.cu`.
const OUTPUTS: usize = 4;
const PIXELS: usize = 8;

/// From this many taps on a window is read by a warp.
const WIDE: usize = 48;

/// Elements and threads of a launch stay below this, so that 32 bits hold an offset in bytes.
const LARGEST: usize = 1 << 30;

/// A CUDA kernel and the places it runs on: `lanes` threads for every column of every row of every plane.
#[derive(Clone, Copy)]
struct Work {
    function: &'static str,
    rows: usize,
    columns: usize,
    lanes: usize,
}

pub(super) fn forward_max(
    cuda: &Cuda,
    g: &PoolGeometry,
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut mask: Option<ViewMut<'_>>,
) {
    let taps = g.window[0] * g.window[1];
    let strips = |function| Work { rows: g.out_h().div_ceil(OUTPUTS), ..outputs(g, function, 1) };
    let work = match (g.window, g.stride) {
        ([2, 2], [2, 2]) => strips("max_pool_forward_2_2"),
        ([3, 3], [2, 2]) => strips("max_pool_forward_3_2"),
        _ if tap_size(g) > 1 => outputs(g, "max_pool_forward_wide_u32", 32),
        _ if taps >= WIDE => outputs(g, "max_pool_forward_wide_u8", 32),
        _ => outputs(g, "max_pool_forward_any", 1),
    };
    let mask = mask.as_mut().map_or(0, |mask| mask.address::<u8>());
    let [image, out, winners] = plane_bytes(g);
    let operands = [(x.address::<f32>(), image), (y.address::<f32>(), out), (mask, winners)];
    // SAFETY: `(Planes g, const float* x, float* y, Tap* mask)`, where the mask may be null; the contract has checked the
    // lengths.
    unsafe { launch(cuda, g, work, operands, None) };
}

pub(super) fn backward_max(
    cuda: &Cuda,
    g: &PoolGeometry,
    mask: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let strips = |function| Work { rows: (g.h + g.pad[0]).div_ceil(PIXELS), ..pixels(g, function) };
    let work = match (g.window, g.stride) {
        ([2, 2], [2, 2]) => strips("max_pool_backward_2_2"),
        ([3, 3], [2, 2]) => strips("max_pool_backward_3_2"),
        _ if tap_size(g) > 1 => pixels(g, "max_pool_backward_any_u32"),
        _ => pixels(g, "max_pool_backward_any_u8"),
    };
    let [image, out, winners] = plane_bytes(g);
    let operands =
        [(mask.address::<u8>(), winners), (dy.address::<f32>(), out), (dx.address::<f32>(), image)];
    // SAFETY: `(Planes g, const Tap* mask, const float* dy, float* dx, int add)`; the contract has checked the lengths. Tap
    // numbers are only compared, never used as offsets.
    unsafe { launch(cuda, g, work, operands, Some(accumulate)) };
}

pub(super) fn forward_average(cuda: &Cuda, g: &PoolGeometry, x: View<'_>, mut y: ViewMut<'_>) {
    let work = match g.window[0] * g.window[1] >= WIDE {
        true => outputs(g, "average_pool_forward_wide", 32),
        false => outputs(g, "average_pool_forward_any", 1),
    };
    let [image, out, _] = plane_bytes(g);
    // SAFETY: `(Planes g, const float* x, float* y)`; the contract has checked the lengths.
    unsafe { launch(cuda, g, work, [(x.address::<f32>(), image), (y.address::<f32>(), out)], None) };
}

pub(super) fn backward_average(
    cuda: &Cuda,
    g: &PoolGeometry,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let [image, out, _] = plane_bytes(g);
    let operands = [(dy.address::<f32>(), out), (dx.address::<f32>(), image)];
    // SAFETY: `(Planes g, const float* dy, float* dx, int add)`; the contract has checked the lengths.
    unsafe { launch(cuda, g, pixels(g, "average_pool_backward"), operands, Some(accumulate)) };
}

/// A CUDA kernel with so many threads for each output.
fn outputs(g: &PoolGeometry, function: &'static str, lanes: usize) -> Work {
    Work { function, rows: g.out_h(), columns: g.out_w(), lanes }
}

/// A CUDA kernel with a thread for each pixel.
fn pixels(g: &PoolGeometry, function: &'static str) -> Work {
    Work { function, rows: g.h, columns: g.w, lanes: 1 }
}

/// Bytes of a plane of the image, of outputs and of winners.
fn plane_bytes(g: &PoolGeometry) -> [usize; 3] {
    let (image, outputs) = (g.h * g.w, g.out_h() * g.out_w());
    [image * size_of::<f32>(), outputs * size_of::<f32>(), outputs * tap_size(g)]
}

/// Launches `work` for as many planes at a time as 32-bit arithmetic allows. The operands are addresses, 0 for none, and
/// bytes of a plane.
///
/// # Safety
/// The CUDA kernel's parameters are `Planes`, the operands, and `int add` where `accumulate` is given. The operands have
/// as many planes as `g`, and those that are written are exclusively ours.
///
/// # Panics
/// If a single plane is too large for that.
unsafe fn launch<const OPERANDS: usize>(
    cuda: &Cuda,
    g: &PoolGeometry,
    work: Work,
    operands: [(u64, usize); OPERANDS],
    accumulate: Option<Accumulate>,
) {
    let Work { function, rows, columns, lanes } = work;
    let elements = (g.h * g.w).max(g.out_h() * g.out_w());
    let per_plane = elements.max(rows * columns * lanes);
    assert!(per_plane < LARGEST, "a plane of {elements} elements is more than pooling on a GPU can take");
    let (all, step) = (g.n * g.c, LARGEST / per_plane.max(1));
    for first in (0..all).step_by(step) {
        let planes = step.min(all - first);
        let fields = Planes::new(g, planes, [rows, columns]);
        let mut args = vec![Arg::of(&fields)];
        let offset =
            |address: u64, bytes: usize| if address == 0 { 0 } else { address + (first * bytes) as u64 };
        args.extend(operands.map(|(address, bytes)| Arg::Address(offset(address, bytes))));
        args.extend(accumulate.map(|accumulate| Arg::from(add(accumulate))));
        let blocks = (planes * rows * columns * lanes).div_ceil(THREADS as usize);
        // SAFETY: the caller's promise; operands begin at plane `first`, and the CUDA kernel looks at `planes` planes only.
        unsafe { cuda.launch(&SOURCE, function, Grid::line(blocks as u32, THREADS), &args) };
    }
}

/// `Planes` of `pooling.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Planes {
    planes: i32,
    image: [i32; 2],
    out: [i32; 2],
    window: [i32; 2],
    stride: [i32; 2],
    pad: [i32; 2],
    columns: Division,
    rows: Division,
    by_window: Division,
    by_stride: [Division; 2],
}

impl Planes {
    fn new(g: &PoolGeometry, planes: usize, [rows, columns]: [usize; 2]) -> Self {
        let pair = |pair: [usize; 2]| pair.map(|extent| extent as i32);
        Self {
            planes: planes as i32,
            image: pair([g.h, g.w]),
            out: pair([g.out_h(), g.out_w()]),
            window: pair(g.window),
            stride: pair(g.stride),
            pad: pair(g.pad),
            columns: Division::by(columns),
            rows: Division::by(rows),
            by_window: Division::by(g.window[1]),
            by_stride: g.stride.map(Division::by),
        }
    }
}

/// `Division` of `pooling.cu`: the quotient of a dividend below 2^31 is its product with `multiplier`, shifted. With `2^s`
/// the first power of two that is no smaller than the divisor, the multiplier is `2^(31 + s) / divisor` rounded up, which
/// makes no difference for dividends below 2^31 (Granlund and Montgomery 1994, theorem 4.2).
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
struct Division {
    divisor: u32,
    multiplier: u32,
    shift: u32,
}

impl Division {
    fn by(divisor: usize) -> Self {
        let divisor = u32::try_from(divisor).ok().filter(|divisor| (1..1 << 31).contains(divisor));
        let divisor = divisor.expect("an extent of a plane that is small enough to be launched");
        let shift = 31 + divisor.next_power_of_two().trailing_zeros();
        Self { divisor, multiplier: (1u64 << shift).div_ceil(divisor.into()) as u32, shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn multiplication_divides() {
        let mut rng = tensor::rng::stream(1, 0);
        for round in 0..100_000 {
            let bits = rng.random_range(1..32);
            let divisor = if round < 300 { round + 1 } else { rng.random_range(1..1usize << bits) };
            let Division { multiplier, shift, .. } = Division::by(divisor);
            let multiple = rng.random_range(0..1usize << 31) / divisor * divisor;
            for dividend in [multiple, multiple.saturating_sub(1), (1 << 31) - 1] {
                let quotient = (dividend as u64 * u64::from(multiplier)) >> shift;
                assert_eq!(quotient, (dividend / divisor) as u64, "{dividend} / {divisor}");
            }
        }
    }
}
