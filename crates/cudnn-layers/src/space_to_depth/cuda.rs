//! Moving blocks of pixels into channels on the GPU, and filters with them.

use crate::cuda_launches::{Divisor, add, launch, of_type, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::{AxisOrder, ConvGeometry, Out, View, ViewMut, cuda::Cuda};

sources!("space_to_depth.cu");

/// `Blocks` of `space_to_depth.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Blocks {
    len: u64,
    divisors: [Divisor; 6],
    extents: [u64; 5],
}

/// A convolution and the one with blocks of pixels as channels, both with operands in this order, on this GPU.
pub(crate) type Deepened<'a> = (&'a Cuda, &'a [ConvGeometry; 2], AxisOrder);

/// The place in `SOURCES` of what is for this blob.
fn place(blob: View<'_>, order: AxisOrder) -> usize {
    of_type(&[Some(blob)]) + usize::from(order == AxisOrder::Nhwc)
}

/// Makes x' of x.
pub(crate) fn image_to_depth((cuda, [g, deep], order): Deepened<'_>, x: View<'_>, to: ViewMut<'_>) {
    let len = deep.x_len();
    assert_eq!((x.len(), to.len()), (g.x_len(), len), "lengths of {g:?} and {deep:?}");
    let [top, left] = g.pad;
    let [down, right] = g.stride;
    let blocks = Blocks {
        len: len as u64,
        divisors: [deep.c, deep.w, deep.h, down, g.c, right * g.c].map(|extent| Divisor::new(extent, len)),
        extents: [right, g.h, g.w, top, left].map(|extent| extent as u64),
    };
    let (place, from, to) = (place(x, order), x.numbers(), to.numbers());
    let threads = threads(match order {
        AxisOrder::Nchw => len / right,
        AxisOrder::Nhwc => len.div_ceil(16 / x.format().dtype.bytes()),
    });
    // SAFETY: `image_to_depth(Blocks blocks, const real* x, real* to)`, a thread for `right` elements of x', in NHWC
    // for each pack of 16 bytes, of which x' has whole ones; the lengths were checked.
    unsafe { launch!(cuda, place, "image_to_depth", threads, [&blocks, from, to]) };
}

/// `Taps` of `space_to_depth.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Taps {
    filter: [u32; 4],
    deep: [u32; 4],
    stride: [u32; 2],
}

impl Taps {
    fn new(g: &ConvGeometry, deep: &ConvGeometry) -> Self {
        let extent = |extent: usize| u32::try_from(extent).expect("extents of filters fit in 32 bits");
        let filter = [g.k, g.c, g.r, g.s].map(extent);
        Self { filter, deep: [deep.k, deep.r, deep.s, deep.c].map(extent), stride: g.stride.map(extent) }
    }
}

/// Makes w' of w.
pub(crate) fn filter_to_depth((cuda, [g, deep], order): Deepened<'_>, w: View<'_>, to: ViewMut<'_>) {
    let len = deep.w_len();
    assert_eq!((w.len(), to.len()), (g.w_len(), len), "lengths of {g:?} and {deep:?}");
    let (place, from, taps) = (place(w, order), w.numbers(), Taps::new(g, deep));
    // SAFETY: `filter_to_depth(Taps taps, const real* w, real* to)`, a thread for each element of `to`; the lengths
    // were checked.
    unsafe { launch!(cuda, place, "filter_to_depth", threads(len), [&taps, from, to.numbers()]) };
}

/// Makes the gradient of w, in single precision, of that of w'.
pub(crate) fn gradient_from_depth((cuda, [g, deep], order): Deepened<'_>, dw: View<'_>, out: Out<'_>) {
    let Out { mut to, accumulate } = out;
    let len = g.w_len();
    assert_eq!((dw.len(), to.len()), (deep.w_len(), len), "lengths of {g:?} and {deep:?}");
    let (place, from, taps) = (place(dw, order), dw.numbers(), Taps::new(g, deep));
    let (to, add) = (to.address::<f32>(), add(accumulate));
    // SAFETY: `gradient_from_depth(Taps taps, const real* dw, float* to, int add)`, a thread for each element of `to`;
    // the lengths were checked.
    unsafe { launch!(cuda, place, "gradient_from_depth", threads(len), [&taps, from, to, add]) };
}
