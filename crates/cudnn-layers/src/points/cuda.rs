//! Pixels that a stride leaves, and sums of what is computed for each sample, in NCHW and single precision.

use crate::cuda_launches::{Divisor, add, launch, source, threads};
use bytemuck::{Pod, Zeroable};
use tensor::{ConvGeometry, Out, View, ViewMut, cuda::Cuda};

source!("points.cu");

/// `Seen` of `points.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Seen {
    len: u64,
    width: Divisor,
    height: Divisor,
    stride: [u64; 2],
    plane: [u64; 2],
}

impl Seen {
    /// What filters of 1x1 without padding see of the x of `g`, if both are as long as they must be.
    fn new(g: &ConvGeometry, seen: usize, x: usize) -> Self {
        let (rows, columns) = (g.out_h(), g.out_w());
        let len = g.n * g.c * rows * columns;
        assert_eq!((seen, x), (len, g.x_len()), "lengths of {g:?}");
        Self {
            len: len as u64,
            width: Divisor::new(columns, len),
            height: Divisor::new(rows, len),
            stride: g.stride.map(|step| step as u64),
            plane: [g.h, g.w].map(|extent| extent as u64),
        }
    }
}

/// Makes of the x of `g` the pixels that filters of 1x1 without padding see.
pub(crate) fn gather_seen(cuda: &Cuda, g: &ConvGeometry, x: View<'_>, mut to: ViewMut<'_>) {
    let (seen, grid) = (Seen::new(g, to.len(), x.len()), threads(to.len()));
    let (from, to) = (x.address::<f32>(), to.address::<f32>());
    // SAFETY: `gather_seen(Seen seen, const float* x, float* to)`, a thread for each element of `to`; the lengths were
    // checked.
    unsafe { launch!(cuda, "gather_seen", grid, [&seen, from, to]) };
}

/// Brings a gradient with respect to these pixels into that of x, where all others have none.
pub(crate) fn scatter_seen(
    cuda: &Cuda,
    g: &ConvGeometry,
    from: View<'_>,
    Out { to: mut dx, accumulate }: Out<'_>,
) {
    let (seen, grid) = (Seen::new(g, from.len(), dx.len()), threads(from.len()));
    let (from, to) = (from.address::<f32>(), dx.address::<f32>());
    // SAFETY: `scatter_seen(Seen seen, const float* from, float* dx, int add)`, a thread for each element of `from`;
    // the lengths were checked.
    unsafe { launch!(cuda, "scatter_seen", grid, [&seen, from, to, add(accumulate)]) };
}

/// Adds up `terms`, each as long as the sum.
pub(crate) fn sum_terms(cuda: &Cuda, terms: View<'_>, Out { mut to, accumulate }: Out<'_>) {
    let (len, grid) = (to.len(), threads(to.len()));
    assert!(terms.len().is_multiple_of(len), "{} elements in terms of {len}", terms.len());
    let (count, from) = ((terms.len() / len) as u64, terms.address::<f32>());
    let (len, to) = (len as u64, to.address::<f32>());
    // SAFETY: `sum_terms(u64 len, u64 terms, const float* from, float* to, int add)`, a thread for each element of
    // `to`; the lengths were checked.
    unsafe { launch!(cuda, "sum_terms", grid, [len, count, from, to, add(accumulate)]) };
}
