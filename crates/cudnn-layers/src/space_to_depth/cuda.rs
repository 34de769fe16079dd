//! Moving blocks of pixels into channels on the GPU, and filters with them.

use crate::cuda_launches::{Divisor, THREADS, add, launch, of_type, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::cuda::{Cuda, Grid};
use tensor::{AxisOrder, ConvGeometry, Out, View, ViewMut};

sources!("space_to_depth.cu");

/// `Blocks` of `space_to_depth.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Blocks {
    len: u64,
    divisors: [Divisor; 5],
    extents: [u64; 5],
}

impl Blocks {
    fn new(g: &ConvGeometry, deep: &ConvGeometry, [x, to]: [View<'_>; 2]) -> Self {
        let len = deep.x_len();
        assert_eq!((x.len(), to.len()), (g.x_len(), len), "lengths of {g:?} and {deep:?}");
        let ([top, left], [down, right]) = (g.pad, g.stride);
        Self {
            len: len as u64,
            divisors: [deep.w, deep.h, down, right, g.c].map(|extent| Divisor::new(extent, len)),
            extents: [deep.c, g.h, g.w, top, left].map(|extent| extent as u64),
        }
    }
}

/// A convolution and the one with blocks of pixels as channels, both with operands in this order, on this GPU.
pub(crate) type Deepened<'a> = (&'a Cuda, &'a [ConvGeometry; 2], AxisOrder);

/// The place in `SOURCES` of what is for this blob.
fn place(blob: View<'_>, order: AxisOrder) -> usize {
    of_type(&[Some(blob)]) + usize::from(order == AxisOrder::Nhwc)
}

/// Makes x' of x, in NCHW.
pub(crate) fn image_to_depth((cuda, [g, deep], _): Deepened<'_>, x: View<'_>, to: ViewMut<'_>) {
    let blocks = Blocks::new(g, deep, [x, to.as_view()]);
    let (place, threads) = (of_type(&[Some(x)]), threads(to.len() / g.stride[1]));
    // SAFETY: `image_to_depth(Blocks blocks, const real* x, real* to)`, a thread for `right` elements of x'; the
    // lengths were checked.
    unsafe { launch!(cuda, place, "image_to_depth", threads, [blocks, x.numbers(), to.numbers()]) };
}

pub(super) fn images_to_blocks(cuda: &Cuda, g: &ConvGeometry, x: View<'_>, to: ViewMut<'_>) {
    let deep = g.in_memory();
    let blocks = Blocks::new(&g.in_packs(0), &deep, [x, to.as_view()]);
    let columns = deep.w.div_ceil(THREADS as usize / g.stride[1]);
    let extent = |extent: usize| u32::try_from(extent).expect("extents of images fit in 32 bits");
    let grid = Grid { blocks: [extent(g.n * deep.h), extent(columns), 1], threads: THREADS, at_once: false };
    let (place, from, to) = (place(to.as_view(), AxisOrder::Nhwc), x.address::<f32>(), to.numbers());
    // SAFETY: `images_to_blocks(Blocks blocks, const float* x, real* to)`, whose blocks have a row of x' each, or as
    // much of it as they have threads for columns of x, at most 4 channels and rows; the lengths were checked.
    unsafe { launch!(cuda, place, "images_to_blocks", grid, [blocks, from, to]) };
}

/// `Taps` of `space_to_depth.cu`.
fn taps(g: &ConvGeometry, deep: &ConvGeometry) -> [u32; 10] {
    let [down, right] = g.stride;
    [g.k, g.c, g.r, g.s, deep.k, deep.r, deep.s, deep.c, down, right]
        .map(|extent| u32::try_from(extent).expect("extents of filters fit in 32 bits"))
}

/// Makes w' of w.
pub(crate) fn filter_to_depth((cuda, [g, deep], order): Deepened<'_>, w: View<'_>, to: ViewMut<'_>) {
    let len = deep.w_len();
    assert_eq!((w.len(), to.len()), (g.w_len(), len), "lengths of {g:?} and {deep:?}");
    let (place, from, taps) = (place(w, order), w.numbers(), taps(g, deep));
    // SAFETY: `filter_to_depth(Taps taps, const real* w, real* to)`, a thread for each element of `to`; the lengths
    // were checked.
    unsafe { launch!(cuda, place, "filter_to_depth", threads(len), [taps, from, to.numbers()]) };
}

/// Makes the gradient of w, in single precision, of that of w'.
pub(crate) fn gradient_from_depth((cuda, [g, deep], order): Deepened<'_>, dw: View<'_>, out: Out<'_>) {
    let len = g.w_len();
    assert_eq!((dw.len(), out.to.len()), (deep.w_len(), len), "lengths of {g:?} and {deep:?}");
    let (place, from, taps) = (place(dw, order), dw.numbers(), taps(g, deep));
    let (to, add) = (out.to.address::<f32>(), add(out.accumulate));
    // SAFETY: `gradient_from_depth(Taps taps, const real* dw, float* to, int add)`, a thread for each element of `to`;
    // the lengths were checked.
    unsafe { launch!(cuda, place, "gradient_from_depth", threads(len), [taps, from, to, add]) };
}
