//! Pooling on the GPU.

use super::tap_size;
use crate::cuda_launches::{Divisor, add, numbers, of_type, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::cuda::{Arg, Cuda};
use tensor::{Accumulate, AxisOrder, Out, PoolGeometry, View, ViewMut};

sources!("pooling.cu");

/// `PIXELS` of `pooling.cu`, for single channels and for packs of them.
const PIXELS: [usize; 2] = [8, 2];

/// Elements and threads of a launch stay below this, so that 32 bits count them.
const LARGEST: usize = 1 << 30;

pub(super) fn forward_max(
    cuda: &Cuda,
    g: &PoolGeometry,
    x: View<'_>,
    (bias, relu): (Option<View<'_>>, bool),
    y: ViewMut<'_>,
    mut mask: Option<ViewMut<'_>>,
) {
    let function = if tap_size(g) == 1 { "max_pool_forward_u8" } else { "max_pool_forward_u32" };
    let mask = mask.as_mut().map_or(0, |mask| mask.address::<u8>());
    let [image, out, winners] = plane_bytes(g, x);
    let operands = [(x.numbers(), image), (numbers(bias), 0), (y.numbers(), out), (mask, winners)];
    let launch = Launch { relu, ..Launch::new(g, [x, y.as_view()]) };
    // SAFETY: `(Planes g, const real* x, const float* bias, real* y, Tap* mask)`, where bias and mask may be null; the
    // contract has checked the lengths.
    unsafe { launch.over(cuda, function, [g.out_h(), g.out_w()], operands, None) };
}

pub(super) fn backward_max(cuda: &Cuda, g: &PoolGeometry, mask: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let Out { to: dx, accumulate } = dx;
    let [image, out, winners] = plane_bytes(g, dx.as_view());
    let operands = [(mask.address::<u8>(), winners), (dy.numbers(), out), (dx.numbers(), image)];
    let launch = Launch::new(g, [dx.as_view(), dy]);
    let strips = (g.h + g.pad[0]).div_ceil(PIXELS[usize::from(launch.pack(&operands) > 1)]);
    let (function, rows) = match (g.window, g.stride) {
        ([2, 2], [2, 2]) => ("max_pool_backward_2_2", strips),
        ([3, 3], [2, 2]) => ("max_pool_backward_3_2", strips),
        ([3, 3], [1, 1]) => ("max_pool_backward_3_1", strips),
        _ if tap_size(g) == 1 => ("max_pool_backward_u8", g.h),
        _ => ("max_pool_backward_u32", g.h),
    };
    // SAFETY: `(Planes g, const Tap* mask, const real* dy, real* dx, int add)`; the contract has checked the lengths.
    // Tap numbers are only compared, never used as offsets.
    unsafe { launch.over(cuda, function, [rows, g.w], operands, Some(accumulate)) };
}

pub(super) fn forward_average(cuda: &Cuda, g: &PoolGeometry, x: View<'_>, y: ViewMut<'_>) {
    let [image, out, _] = plane_bytes(g, x);
    let operands = [(x.numbers(), image), (y.numbers(), out)];
    let launch = Launch::new(g, [x, y.as_view()]);
    // SAFETY: `(Planes g, const real* x, real* y)`; the contract has checked the lengths.
    unsafe { launch.over(cuda, "average_pool_forward", [g.out_h(), g.out_w()], operands, None) };
}

pub(super) fn backward_average(cuda: &Cuda, g: &PoolGeometry, dy: View<'_>, dx: Out<'_>) {
    let Out { to: dx, accumulate } = dx;
    let [image, out, _] = plane_bytes(g, dx.as_view());
    let operands = [(dy.numbers(), out), (dx.numbers(), image)];
    let launch = Launch::new(g, [dx.as_view(), dy]);
    // SAFETY: `(Planes g, const real* dy, real* dx, int add)`; the contract has checked the lengths.
    unsafe { launch.over(cuda, "average_pool_backward", [g.h, g.w], operands, Some(accumulate)) };
}

/// Channels that lie side by side in a plane: in NHWC all. The image says so; outputs of one pixel lie alike in both
/// orders.
fn channels(g: &PoolGeometry, image: View<'_>) -> usize {
    if image.format().layout == AxisOrder::Nhwc { g.c } else { 1 }
}

/// Bytes of a plane of the image, of outputs and of winners.
fn plane_bytes(g: &PoolGeometry, image: View<'_>) -> [usize; 3] {
    let (channels, size) = (channels(g, image), image.format().dtype.bytes());
    let (pixels, outputs) = (g.h * g.w * channels, g.out_h() * g.out_w() * channels);
    [pixels * size, outputs * size, outputs * tap_size(g)]
}

/// What is common to the launches of one operation, of this image and these outputs.
struct Launch<'a> {
    g: &'a PoolGeometry,
    blobs: [View<'a>; 2],
    relu: bool,
}

impl<'a> Launch<'a> {
    fn new(g: &'a PoolGeometry, blobs: [View<'a>; 2]) -> Self {
        Self { g, blobs, relu: false }
    }

    /// How many planes are done at a time, so that 32 bits count their elements.
    ///
    /// # Panics
    /// If a single plane is too large for that.
    fn planes_at_once(&self) -> usize {
        let g = self.g;
        let elements = (g.h * g.w).max(g.out_h() * g.out_w()) * channels(g, self.blobs[0]);
        assert!(elements < LARGEST, "a plane of {elements} elements is more than pooling on a GPU can take");
        LARGEST / elements.max(1)
    }

    /// Channels that a thread has: those that 16 bytes hold, where there is nothing but whole packs of them.
    fn pack<const OPERANDS: usize>(&self, operands: &[(u64, usize); OPERANDS]) -> usize {
        let (channels, pack) = (channels(self.g, self.blobs[0]), 16 / self.blobs[0].format().dtype.bytes());
        let at_once = self.g.n <= self.planes_at_once();
        let aligned = operands.iter().all(|(address, _)| address.is_multiple_of(32));
        if channels > 1 && channels.is_multiple_of(pack) && at_once && aligned { pack } else { 1 }
    }

    /// Launches `function` with a thread for each of so many rows and columns of every plane (in NHWC: of every channel
    /// of every sample, or pack of them), for as many planes at a time as 32-bit arithmetic allows. The operands are
    /// addresses, 0 for none, and bytes of a plane.
    ///
    /// # Safety
    /// The CUDA kernel's parameters are `Planes`, the operands, and `int add` where `accumulate` is given. The operands
    /// have as many planes as `g`, and those that are written are exclusively ours.
    unsafe fn over<const OPERANDS: usize>(
        &self,
        cuda: &Cuda,
        function: &'static str,
        [rows, columns]: [usize; 2],
        operands: [(u64, usize); OPERANDS],
        accumulate: Option<Accumulate>,
    ) {
        let (g, channels, pack) = (self.g, channels(self.g, self.blobs[0]), self.pack(&operands));
        let order = usize::from(self.blobs[0].format().layout == AxisOrder::Nhwc);
        let source = &SOURCES[of_type(&self.blobs.map(Some)) + order];
        let (packs, all, step) = (channels / pack, g.n * g.c / channels.max(1), self.planes_at_once());
        for first in (0..all).step_by(step) {
            let planes = step.min(all - first);
            let of_launch =
                Planes::new(g, planes, [rows, columns * packs, if order == 1 { packs } else { g.c }]);
            let (relu, channel) = (self.relu.into(), (first % g.c) as i32);
            let fields = Planes { relu, packs: i32::from(pack > 1), channel, ..of_launch };
            let mut args = vec![Arg::from(&fields)];
            let offset =
                |address: u64, bytes: usize| if address == 0 { 0 } else { address + (first * bytes) as u64 };
            args.extend(operands.map(|(address, bytes)| Arg::Address(offset(address, bytes))));
            args.extend(accumulate.map(|accumulate| Arg::from(add(accumulate))));
            // SAFETY: the caller's promise; operands begin at plane `first`, and the CUDA kernel looks at `planes`
            // planes only.
            unsafe { cuda.launch(source, function, threads(planes * rows * columns * packs), &args) };
        }
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
    relu: i32,
    packs: i32,
    channel: i32,
    columns: Divisor,
    rows: Divisor,
    by_stride: [Divisor; 2],
    channels: Divisor,
}

impl Planes {
    fn new(g: &PoolGeometry, planes: usize, [rows, columns, channels]: [usize; 3]) -> Self {
        let pair = |pair: [usize; 2]| pair.map(|extent| extent as i32);
        let divisor = |divisor| Divisor::new(divisor, 1 << 31);
        Self {
            planes: planes as i32,
            image: pair([g.h, g.w]),
            out: pair([g.out_h(), g.out_w()]),
            window: pair(g.window),
            stride: pair(g.stride),
            pad: pair(g.pad),
            relu: 0,
            packs: 0,
            channel: 0,
            columns: divisor(columns),
            rows: divisor(rows),
            by_stride: g.stride.map(divisor),
            channels: divisor(channels),
        }
    }
}
