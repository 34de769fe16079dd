//! Moving blocks of pixels into channels on the GPU, and filters with them.

use crate::cuda_launches::{Divisor, add, launch, of_type, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::{ConvGeometry, Out, View, ViewMut, cuda::Cuda};

sources!("space_to_depth.cu");

/// `Blocks` of `space_to_depth.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Blocks {
    len: u64,
    depth: Divisor,
    width: Divisor,
    height: Divisor,
    line: Divisor,
    rows: u64,
    row_len: u64,
    down: u64,
    top: u64,
    left: u64,
}

/// Makes x' of `deep` of the x of `g`, both in NHWC.
pub(crate) fn image_to_depth(cuda: &Cuda, [g, deep]: &[ConvGeometry; 2], x: View<'_>, to: ViewMut<'_>) {
    let len = deep.x_len();
    assert_eq!((x.len(), to.len()), (g.x_len(), len), "lengths of {g:?} and {deep:?}");
    let [top, left] = g.pad;
    let [down, right] = g.stride;
    let divisor = |extent| Divisor::new(extent, len);
    let blocks = Blocks {
        len: len as u64,
        depth: divisor(deep.c),
        width: divisor(deep.w),
        height: divisor(deep.h),
        line: divisor(right * g.c),
        rows: g.h as u64,
        row_len: (g.w * g.c) as u64,
        down: down as u64,
        top: top as u64,
        left: (left * g.c) as u64,
    };
    let (place, from, to) = (of_type(&[Some(x), Some(to.as_view())]), x.numbers(), to.numbers());
    let packs = len.div_ceil(16 / x.format().dtype.bytes());
    // SAFETY: `image_to_depth(Blocks blocks, const real* x, real* to)`, a thread for each pack of 16 bytes, of which x'
    // has whole ones; the lengths were checked.
    unsafe { launch!(cuda, place, "image_to_depth", threads(packs), [&blocks, from, to]) };
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

/// Makes w' of `deep` of the filter of `g`, both in NHWC.
pub(crate) fn filter_to_depth(cuda: &Cuda, [g, deep]: &[ConvGeometry; 2], w: View<'_>, to: ViewMut<'_>) {
    let len = deep.w_len();
    assert_eq!((w.len(), to.len()), (g.w_len(), len), "lengths of {g:?} and {deep:?}");
    let (place, from, taps) = (of_type(&[Some(w), Some(to.as_view())]), w.numbers(), Taps::new(g, deep));
    // SAFETY: `filter_to_depth(Taps taps, const real* w, real* to)`, a thread for each element of `to`; the lengths
    // were checked.
    unsafe { launch!(cuda, place, "filter_to_depth", threads(len), [&taps, from, to.numbers()]) };
}

/// Makes the gradient of the filter of `g`, in single precision, of that of w' of `deep`, both in NHWC.
pub(crate) fn gradient_from_depth(
    cuda: &Cuda,
    [g, deep]: &[ConvGeometry; 2],
    dw: View<'_>,
    Out { mut to, accumulate }: Out<'_>,
) {
    let len = g.w_len();
    assert_eq!((dw.len(), to.len()), (deep.w_len(), len), "lengths of {g:?} and {deep:?}");
    let (place, from, taps) = (of_type(&[Some(dw)]), dw.numbers(), Taps::new(g, deep));
    let (to, add) = (to.address::<f32>(), add(accumulate));
    // SAFETY: `gradient_from_depth(Taps taps, const real* dw, float* to, int add)`, a thread for each element of `to`;
    // the lengths were checked.
    unsafe { launch!(cuda, place, "gradient_from_depth", threads(len), [&taps, from, to, add]) };
}
