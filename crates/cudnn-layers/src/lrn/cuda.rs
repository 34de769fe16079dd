//! Local response normalisation on the GPU.

use super::Neighbourhood;
use crate::cuda_launches::{Extents, add, launch, of_type, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::{Out, View, ViewMut, cuda::Cuda};

sources!("lrn.cu");

pub(super) fn forward(cuda: &Cuda, near: &Neighbourhood, x: View<'_>, y: ViewMut<'_>, scale: ViewMut<'_>) {
    let (grid, lrn, extents) = (threads(x.len()), Constants::new(near), Extents::new(&near.extents));
    let place = of_type(&[Some(x), Some(y.as_view())]);
    let (from, to, scale) = (x.numbers(), y.numbers(), &mut { scale });
    // SAFETY: `(Lrn lrn, Extents e, const real* x, real* y, float* scale)`; the contract has checked the lengths.
    unsafe { launch!(cuda, place, "lrn_forward", grid, [&lrn, &extents, from, to, scale]) };
}

pub(super) fn backward(cuda: &Cuda, near: &Neighbourhood, [x, scale, dy]: [View<'_>; 3], dx: Out<'_>) {
    let (grid, lrn, extents) = (threads(x.len()), Constants::new(near), Extents::new(&near.extents));
    let (add, place) = (add(dx.accumulate), of_type(&[Some(x), Some(dy), Some(dx.to.as_view())]));
    let (from, gradient, to) = (x.numbers(), dy.numbers(), dx.to.numbers());
    // SAFETY: `(Lrn lrn, Extents e, const real* x, const float* scale, const real* dy, real* dx, int add)`; the
    // contract has checked the lengths.
    unsafe { launch!(cuda, place, "lrn_backward", grid, [&lrn, &extents, from, scale, gradient, to, add]) };
}

/// `Lrn` of `lrn.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Constants {
    constant: f32,
    beta: f32,
    factors: [f32; 2],
    half: [i32; 2],
}

impl Constants {
    fn new(&Neighbourhood { half, constant, beta, factors, .. }: &Neighbourhood) -> Self {
        Self { constant, beta, factors, half: half.map(|half| half as i32) }
    }
}
