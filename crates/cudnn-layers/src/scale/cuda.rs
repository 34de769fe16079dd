//! The per-channel factor on the GPU.

use super::{Affine, AffineGradients};
use crate::{
    AxisExtents,
    cuda_launches::{ChannelSums, Extents, add, launch_tiles},
};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Source},
};

static SOURCE: Source =
    Source { name: "scale.cu", text: concat!(include_str!("../common.cuh"), include_str!("scale.cu")) };

/// In place without an `x`.
pub(super) fn forward(
    cuda: &Cuda,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    mut y: ViewMut<'_>,
) {
    let len = y.len();
    let extents = Extents::new(extents);
    let relu = i32::from(relu).into();
    let args = [extents.arg(), affine.gamma.into(), affine.beta.into(), relu, x.into(), (&mut y).into()];
    // SAFETY: `scale_forward(Extents extents, const float* gamma, const float* beta, int relu, const float* x, float* y)`;
    // the contract has checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "scale_forward", len, &args) };
}

pub(super) fn backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    gamma: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let len = dx.len();
    let extents = Extents::new(extents);
    let args = [extents.arg(), gamma.into(), dy.into(), (&mut dx).into(), add(accumulate).into()];
    // SAFETY: `scale_backward(Extents extents, const float* gamma, const float* dy, float* dx, int add)`; the contract has
    // checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "scale_backward", len, &args) };
}

pub(super) fn backward_affine(
    cuda: &Cuda,
    extents: &AxisExtents,
    x: View<'_>,
    dy: View<'_>,
    mut gradients: AffineGradients<'_>,
) {
    let cut = ChannelSums::new(cuda.multiprocessors(), extents);
    let (extents, channels) = (Extents::new(extents), extents.axis);
    let add = Arg::from(add(gradients.accumulate));
    let dgamma = Arg::from(&mut gradients.dgamma);
    let dbeta = Arg::from(gradients.dbeta.as_mut());
    cuda.scratch(|mut scratch| {
        assert!(cut.partials_len(2) <= scratch.len(), "scratch memory for {cut:?}");
        let partials = Arg::Address(scratch.address::<u8>());
        let args = [extents.arg(), x.into(), dy.into(), dgamma, dbeta, add, partials];
        // SAFETY: `scale_backward_affine(Extents extents, const float* x, const float* dy, float* dgamma, float* dbeta,
        // int add, double* partials)`; the contract has checked the lengths, and the scratch memory has room for the
        // partial sums.
        unsafe { cuda.launch(&SOURCE, "scale_backward_affine", cut.grid(), &args) };
        if cut.parts > 1 {
            let args = [partials, cut.parts.into(), channels.into(), dgamma, dbeta, add];
            // SAFETY: `scale_backward_affine_finish(const double* partials, u32 parts, u64 channels, float* dgamma,
            // float* dbeta, int add)`; the kernel above has filled the partial sums of all channels.
            unsafe { cuda.launch(&SOURCE, "scale_backward_affine_finish", cut.finish_grid(), &args) };
        }
    });
}
