//! Local response normalisation on the GPU.

use super::Neighbourhood;
use crate::cuda_launches::{Extents, add, launch, source, threads};
use bytemuck::{Pod, Zeroable};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

source!("lrn.cu");

pub(super) fn forward(
    cuda: &Cuda,
    near: &Neighbourhood,
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut scale: ViewMut<'_>,
) {
    let (grid, lrn, extents) =
        (threads(near.extents.len()), Constants::new(near), Extents::new(&near.extents));
    // SAFETY: `lrn_forward(Lrn lrn, Extents e, const float* x, float* y, float* scale)`; the contract has checked the lengths.
    unsafe { launch!(cuda, "lrn_forward", grid, [&lrn, &extents, x, &mut y, &mut scale]) };
}

pub(super) fn backward(
    cuda: &Cuda,
    near: &Neighbourhood,
    x: View<'_>,
    scale: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (grid, lrn, extents) =
        (threads(near.extents.len()), Constants::new(near), Extents::new(&near.extents));
    let add = add(accumulate);
    // SAFETY: `lrn_backward(Lrn lrn, Extents e, const float* x, const float* scale, const float* dy, float* dx, int add)`;
    // the contract has checked the lengths.
    unsafe { launch!(cuda, "lrn_backward", grid, [&lrn, &extents, x, scale, dy, &mut dx, add]) };
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
    fn new(near: &Neighbourhood) -> Self {
        let &Neighbourhood { half, constant, beta, factors, .. } = near;
        Self { constant, beta, factors, half: half.map(|half| half as i32) }
    }
}
