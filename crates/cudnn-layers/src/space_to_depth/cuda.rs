//! Moving blocks of pixels into channels on the GPU, and filters with them.

use crate::cuda_launches::{add, launch, of_type, sources, threads};
use tensor::{Accumulate, ConvGeometry, View, ViewMut, cuda::Cuda};

sources!("space_to_depth.cu");

/// `Depth` of `space_to_depth.cu`.
fn extents([g, deep]: &[ConvGeometry; 2]) -> [u32; 15] {
    let ([down, right], [top, left]) = (g.stride, g.pad);
    let all = [g.c, g.h, g.w, g.k, g.r, g.s, down, right, top, left, deep.c, deep.h, deep.w, deep.r, deep.s];
    all.map(|extent| u32::try_from(extent).expect("cuDNN takes extents of 32 bits"))
}

/// Makes x' of x, both in NHWC, of the first and the second of the geometries.
///
/// # Panics
/// If an operand has another length, as for the others.
pub(crate) fn image_to_depth(cuda: &Cuda, geometries: &[ConvGeometry; 2], x: View<'_>, to: ViewMut<'_>) {
    let [g, deep] = geometries;
    assert_eq!((x.len(), to.len()), (g.x_len(), deep.x_len()), "lengths for {geometries:?}");
    let (place, from, len) = (of_type(&[Some(x), Some(to.as_view())]), x.numbers(), to.len() as u64);
    let packs = threads(to.len().div_ceil(16 / x.format().dtype.bytes()));
    // SAFETY: `image_to_depth(Depth e, u64 len, const real* x, real* to)`, a thread for each pack of 16 bytes, of which
    // x' has whole ones; the lengths were checked.
    unsafe { launch!(cuda, place, "image_to_depth", packs, [&extents(geometries), len, from, to.numbers()]) };
}

/// Makes w', in NHWC, of a filter in single precision and NCHW.
pub(crate) fn filter_to_depth(cuda: &Cuda, geometries: &[ConvGeometry; 2], w: View<'_>, to: ViewMut<'_>) {
    let [g, deep] = geometries;
    assert_eq!((w.len(), to.len()), (g.w_len(), deep.w_len()), "lengths for {geometries:?}");
    let (place, from, grid) = (of_type(&[Some(to.as_view())]), w.address::<f32>(), threads(to.len()));
    // SAFETY: `filter_to_depth(Depth e, const float* w, real* to)`, a thread for each element of `to`; the lengths were checked.
    unsafe { launch!(cuda, place, "filter_to_depth", grid, [&extents(geometries), from, to.numbers()]) };
}

/// Makes the gradient of the filter of that of w'.
pub(crate) fn gradient_from_depth(
    cuda: &Cuda,
    geometries: &[ConvGeometry; 2],
    dw: View<'_>,
    mut to: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let [g, deep] = geometries;
    assert_eq!((dw.len(), to.len()), (deep.w_len(), g.w_len()), "lengths for {geometries:?}");
    let (place, from, grid) = (of_type(&[Some(dw)]), dw.numbers(), threads(to.len()));
    let (to, add) = (to.address::<f32>(), add(accumulate));
    // SAFETY: `gradient_from_depth(Depth e, const real* dw, float* to, int add)`, a thread for each element of `to`; the
    // lengths were checked.
    unsafe { launch!(cuda, place, "gradient_from_depth", grid, [&extents(geometries), from, to, add]) };
}
