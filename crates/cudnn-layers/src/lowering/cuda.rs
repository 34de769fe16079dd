//! Images as matrices and back, and sums of what is computed for each sample, in NCHW and single precision.

use crate::cuda_launches::{Divisor, add, launch, sources, threads};
use tensor::{ConvGeometry, Out, View, ViewMut, cuda::Cuda};

sources!("lowering.cu");

/// `Lowering` of `lowering.cu`.
fn lowering(g: &ConvGeometry) -> [[i32; 2]; 6] {
    let extent = |extent: usize| i32::try_from(extent).expect("padded images have extents of 31 bits");
    [[g.h, g.w], [g.r, g.s], [g.out_h(), g.out_w()], g.pad, g.stride, g.dilation].map(|pair| pair.map(extent))
}

fn lowered_len(g: &ConvGeometry) -> usize {
    g.n * g.c * g.r * g.s * g.out_h() * g.out_w()
}

/// For every sample of x, the matrix of channels and taps of the filter times pixels of y.
///
/// # Panics
/// If a padded image has an extent of more than 31 bits.
pub(crate) fn im2col(cuda: &Cuda, g: &ConvGeometry, x: View<'_>, to: ViewMut<'_>) {
    assert_eq!((x.len(), to.len()), (g.x_len(), lowered_len(g)), "lengths of {g:?}");
    let len = to.len() / (g.r * g.s);
    let [height, width] = [g.out_h(), g.out_w()].map(|extent| Divisor::new(extent, len));
    let (l, x, to) = (lowering(g), x.address::<f32>(), to.address::<f32>());
    // SAFETY: `im2col(u64 len, Divisor height, Divisor width, Lowering l, const float* x, float* to)`, a thread for
    // each channel and pixel of y; the lengths were checked.
    unsafe { launch!(cuda, 0, "im2col", threads(len), [len, height, width, l, x, to]) };
}

/// The gradient of x from that of the matrices.
///
/// # Panics
/// As [`im2col`].
pub(crate) fn col2im(cuda: &Cuda, g: &ConvGeometry, from: View<'_>, Out { to: dx, accumulate }: Out<'_>) {
    assert_eq!((from.len(), dx.len()), (lowered_len(g), g.x_len()), "lengths of {g:?}");
    let len = dx.len();
    let [height, width] = [g.h, g.w].map(|extent| Divisor::new(extent, len));
    let (l, from, dx) = (lowering(g), from.address::<f32>(), dx.address::<f32>());
    // SAFETY: `col2im(u64 len, Divisor height, Divisor width, Lowering l, const float* from, float* dx, int add)`, a
    // thread for each element of `dx`; the lengths were checked.
    unsafe { launch!(cuda, 0, "col2im", threads(len), [len, height, width, l, from, dx, add(accumulate)]) };
}

/// Adds up `terms`, each as long as the sum.
pub(crate) fn sum_terms(cuda: &Cuda, terms: View<'_>, Out { to, accumulate }: Out<'_>) {
    let (len, grid) = (to.len(), threads(to.len()));
    assert!(terms.len().is_multiple_of(len), "{} elements in terms of {len}", terms.len());
    let (count, terms, to) = (terms.len() / len, terms.address::<f32>(), to.address::<f32>());
    // SAFETY: `sum_terms(u64 len, u64 terms, const float* from, float* to, int add)`, a thread for each element of
    // `to`; the lengths were checked.
    unsafe { launch!(cuda, 0, "sum_terms", grid, [len, count, terms, to, add(accumulate)]) };
}
