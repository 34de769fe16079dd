//! Pooling on the GPU.

use super::tap_size;
use crate::cuda_launches::{Divisor, add, numbers, of_type, sources, threads};
use bytemuck::{Pod, Zeroable, bytes_of};
use tensor::{Accumulate, AxisOrder, Out, PoolGeometry, View, ViewMut, cuda::Cuda};

sources!("pooling.cu");

/// `ROWS` and `COLUMNS` of `max_backward_tile` of `pooling.cu`, for single channels and for packs of them.
const TILES: [[usize; 2]; 2] = [[8, 1], [2, 2]];

pub(super) fn forward_max(
    cuda: &Cuda,
    g: &PoolGeometry,
    x: View<'_>,
    (bias, relu): (Option<View<'_>>, bool),
    y: ViewMut<'_>,
    mask: ViewMut<'_>,
) {
    let function = match g.window {
        [2, 2] => "max_pool_forward_2",
        [3, 3] => "max_pool_forward_3",
        _ if tap_size(g) == 1 => "max_pool_forward_u8",
        _ => "max_pool_forward_u32",
    };
    let operands = [x.numbers(), numbers(bias), y.numbers(), mask.address::<u8>()];
    // SAFETY: `(Planes g, const real* x, const float* bias, real* y, Tap* mask)`, where bias may be null; the contract
    // has checked the lengths.
    unsafe { launch(cuda, g, [x, y.as_view()], operands, |_| (function, outputs(g)), (relu, None)) };
}

pub(super) fn backward_max(cuda: &Cuda, g: &PoolGeometry, mask: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let kernel = |pack: usize| {
        let [rows, columns] = TILES[usize::from(pack > 1)];
        let padded_columns = if columns > 1 { g.w + g.pad[1] } else { g.w };
        let tiles = [(g.h + g.pad[0]).div_ceil(rows), padded_columns.div_ceil(columns)];
        match (g.window, g.stride) {
            ([2, 2], [2, 2]) => ("max_pool_backward_2_2", tiles),
            ([3, 3], [2, 2]) => ("max_pool_backward_3_2", tiles),
            ([3, 3], [1, 1]) => ("max_pool_backward_3_1", tiles),
            _ if tap_size(g) == 1 => ("max_pool_backward_u8", [g.h, g.w]),
            _ => ("max_pool_backward_u32", [g.h, g.w]),
        }
    };
    let operands = [mask.address::<u8>(), dy.numbers(), dx.to.numbers()];
    // SAFETY: `(Planes g, const Tap* mask, const real* dy, real* dx, int add)`; the contract has checked the lengths.
    // Tap numbers are only compared, never used as offsets.
    unsafe { launch(cuda, g, [dx.to.as_view(), dy], operands, kernel, (false, Some(dx.accumulate))) };
}

pub(super) fn forward_average(cuda: &Cuda, g: &PoolGeometry, x: View<'_>, y: ViewMut<'_>) {
    let (operands, kernel) = ([x.numbers(), y.numbers()], ("average_pool_forward", outputs(g)));
    // SAFETY: `(Planes g, const real* x, real* y)`; the contract has checked the lengths.
    unsafe { launch(cuda, g, [x, y.as_view()], operands, |_| kernel, (false, None)) };
}

pub(super) fn backward_average(cuda: &Cuda, g: &PoolGeometry, dy: View<'_>, dx: Out<'_>) {
    let (operands, kernel) = ([dy.numbers(), dx.to.numbers()], ("average_pool_backward", [g.h, g.w]));
    // SAFETY: `(Planes g, const real* dy, real* dx, int add)`; the contract has checked the lengths.
    unsafe { launch(cuda, g, [dx.to.as_view(), dy], operands, |_| kernel, (false, Some(dx.accumulate))) };
}

fn outputs(g: &PoolGeometry) -> [usize; 2] {
    [g.out_h(), g.out_w()]
}

/// Launches a CUDA kernel: `kernel(channels of a thread)` is its name, and how many rows and columns of every plane
/// have a thread (in NHWC: of every channel of every sample, or pack of them). The image says in which order planes
/// are; outputs of one pixel lie alike in both.
///
/// # Safety
/// The CUDA kernel's parameters are `Planes`, the operands, and `int add` where `accumulate` is given. The operands
/// have as many planes as `g`, and those that are written are exclusively ours.
///
/// # Panics
/// If a single plane has more elements than 32 bits can count.
unsafe fn launch<const OPERANDS: usize>(
    cuda: &Cuda,
    g: &PoolGeometry,
    [image, out]: [View<'_>; 2],
    operands: [u64; OPERANDS],
    kernel: impl FnOnce(usize) -> (&'static str, [usize; 2]),
    (relu, accumulate): (bool, Option<Accumulate>),
) {
    // Channels that lie side by side in a plane: in NHWC all, and else one.
    let (order, channels) = if image.format().layout == AxisOrder::Nhwc { (1, g.c) } else { (0, 1) };
    let elements = (g.h * g.w).max(g.out_h() * g.out_w()) * channels;
    assert!(elements < 1 << 30, "a plane of {elements} elements is more than pooling on a GPU can take");
    // Channels that a thread has: those that 16 bytes hold, where there is nothing but whole packs of them.
    let pack = 16 / image.format().dtype.bytes();
    let in_packs = order == 1 && channels.is_multiple_of(pack);
    let aligned = operands.iter().all(|address| address.is_multiple_of(32));
    let pack = if in_packs && aligned { pack } else { 1 };
    let (function, [rows, columns]) = kernel(pack);
    let place = of_type(&[Some(image), Some(out)]) + order;
    let (planes, packs) = (g.n * g.c / channels.max(1), channels / pack);
    let count = planes * rows * columns * packs;
    let pair = |pair: [usize; 2]| pair.map(|extent| extent as i32);
    let divisor = |divisor| Divisor::new(divisor, count.max(1 << 31));
    let fields = Planes {
        planes: planes as u64,
        image: pair([g.h, g.w]),
        out: pair(outputs(g)),
        window: pair(g.window),
        stride: pair(g.stride),
        pad: pair(g.pad),
        relu: relu.into(),
        packs: i32::from(pack > 1),
        columns: divisor(columns * packs),
        rows: divisor(rows),
        by_stride: g.stride.map(divisor),
        channels: divisor(if channels > 1 { packs } else { g.c }),
    };
    let (operands, add) = (operands.iter().map(bytes_of), accumulate.map(add));
    let args: Vec<&[u8]> =
        [bytes_of(&fields)].into_iter().chain(operands).chain(add.as_ref().map(bytes_of)).collect();
    // SAFETY: the caller's promise.
    unsafe { cuda.launch(&SOURCES[place], function, threads(count), &args) };
}

/// `Planes` of `pooling.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Planes {
    planes: u64,
    image: [i32; 2],
    out: [i32; 2],
    window: [i32; 2],
    stride: [i32; 2],
    pad: [i32; 2],
    relu: i32,
    packs: i32,
    columns: Divisor,
    rows: Divisor,
    by_stride: [Divisor; 2],
    channels: Divisor,
}
