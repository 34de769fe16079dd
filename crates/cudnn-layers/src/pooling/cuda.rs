//! Pooling on the GPU.

use super::tap_size;
use crate::cuda_launches::{Divisor, add, source, threads};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, PoolGeometry, View, ViewMut,
    cuda::{Arg, Cuda},
};

source!("pooling.cu");

/// `PIXELS` of `pooling.cu`.
const PIXELS: usize = 8;

/// Elements and threads of a launch stay below this, so that 32 bits count them.
const LARGEST: usize = 1 << 30;

pub(super) fn forward_max(
    cuda: &Cuda,
    g: &PoolGeometry,
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut mask: Option<ViewMut<'_>>,
) {
    let function = if tap_size(g) == 1 { "max_pool_forward_u8" } else { "max_pool_forward_u32" };
    let mask = mask.as_mut().map_or(0, |mask| mask.address::<u8>());
    let [image, out, winners] = plane_bytes(g);
    let operands = [(x.address::<f32>(), image), (y.address::<f32>(), out), (mask, winners)];
    // SAFETY: `(Planes g, const float* x, float* y, Tap* mask)`, where the mask may be null; the contract has checked the
    // lengths.
    unsafe { launch(cuda, g, function, [g.out_h(), g.out_w()], operands, None) };
}

pub(super) fn backward_max(
    cuda: &Cuda,
    g: &PoolGeometry,
    mask: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let strips = (g.h + g.pad[0]).div_ceil(PIXELS);
    let (function, rows) = match (g.window, g.stride) {
        ([2, 2], [2, 2]) => ("max_pool_backward_2_2", strips),
        ([3, 3], [2, 2]) => ("max_pool_backward_3_2", strips),
        ([3, 3], [1, 1]) => ("max_pool_backward_3_1", strips),
        _ if tap_size(g) == 1 => ("max_pool_backward_u8", g.h),
        _ => ("max_pool_backward_u32", g.h),
    };
    let [image, out, winners] = plane_bytes(g);
    let operands =
        [(mask.address::<u8>(), winners), (dy.address::<f32>(), out), (dx.address::<f32>(), image)];
    // SAFETY: `(Planes g, const Tap* mask, const float* dy, float* dx, int add)`; the contract has checked the lengths. Tap
    // numbers are only compared, never used as offsets.
    unsafe { launch(cuda, g, function, [rows, g.w], operands, Some(accumulate)) };
}

pub(super) fn forward_average(cuda: &Cuda, g: &PoolGeometry, x: View<'_>, mut y: ViewMut<'_>) {
    let [image, out, _] = plane_bytes(g);
    let operands = [(x.address::<f32>(), image), (y.address::<f32>(), out)];
    // SAFETY: `(Planes g, const float* x, float* y)`; the contract has checked the lengths.
    unsafe { launch(cuda, g, "average_pool_forward", [g.out_h(), g.out_w()], operands, None) };
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
    unsafe { launch(cuda, g, "average_pool_backward", [g.h, g.w], operands, Some(accumulate)) };
}

/// Bytes of a plane of the image, of outputs and of winners.
fn plane_bytes(g: &PoolGeometry) -> [usize; 3] {
    let (image, outputs) = (g.h * g.w, g.out_h() * g.out_w());
    [image * size_of::<f32>(), outputs * size_of::<f32>(), outputs * tap_size(g)]
}

/// Launches `function` with a thread for each of so many rows and columns of every plane, for as many planes at a time as
/// 32-bit arithmetic allows. The operands are addresses, 0 for none, and bytes of a plane.
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
    function: &'static str,
    [rows, columns]: [usize; 2],
    operands: [(u64, usize); OPERANDS],
    accumulate: Option<Accumulate>,
) {
    let elements = (g.h * g.w).max(g.out_h() * g.out_w());
    assert!(elements < LARGEST, "a plane of {elements} elements is more than pooling on a GPU can take");
    let (all, step) = (g.n * g.c, LARGEST / elements.max(1));
    for first in (0..all).step_by(step) {
        let planes = step.min(all - first);
        let fields = Planes::new(g, planes, [rows, columns]);
        let mut args = vec![Arg::from(&fields)];
        let offset =
            |address: u64, bytes: usize| if address == 0 { 0 } else { address + (first * bytes) as u64 };
        args.extend(operands.map(|(address, bytes)| Arg::Address(offset(address, bytes))));
        args.extend(accumulate.map(|accumulate| Arg::from(add(accumulate))));
        // SAFETY: the caller's promise; operands begin at plane `first`, and the CUDA kernel looks at `planes` planes only.
        unsafe { cuda.launch(&SOURCE, function, threads(planes * rows * columns), &args) };
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
    padding: u32,
    columns: Divisor,
    rows: Divisor,
    by_stride: [Divisor; 2],
}

impl Planes {
    fn new(g: &PoolGeometry, planes: usize, [rows, columns]: [usize; 2]) -> Self {
        let pair = |pair: [usize; 2]| pair.map(|extent| extent as i32);
        let divisor = |divisor| Divisor::new(divisor, 1 << 31);
        Self {
            planes: planes as i32,
            image: pair([g.h, g.w]),
            out: pair([g.out_h(), g.out_w()]),
            window: pair(g.window),
            stride: pair(g.stride),
            pad: pair(g.pad),
            padding: 0,
            columns: divisor(columns),
            rows: divisor(rows),
            by_stride: g.stride.map(divisor),
        }
    }
}
