//! The bias on the GPU.

use crate::{
    AxisExtents,
    cuda_launches::{ChannelSums, Extents, add, launch_tiles},
};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Source},
};

static SOURCE: Source =
    Source { name: "bias.cu", text: concat!(include_str!("../common.cuh"), include_str!("bias.cu")) };

pub(super) fn forward_in_place(
    cuda: &Cuda,
    extents: &AxisExtents,
    b: View<'_>,
    relu: bool,
    mut y: ViewMut<'_>,
) {
    let len = y.len();
    let extents = Extents::new(extents);
    let args = [extents.arg(), b.into(), i32::from(relu).into(), (&mut y).into()];
    // SAFETY: `bias_forward(Extents extents, const float* b, int relu, float* y)`; the contract has checked both lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "bias_forward", len, &args) };
}

pub(super) fn backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    dy: View<'_>,
    mut db: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let cut = ChannelSums::new(cuda.multiprocessors(), extents);
    let (extents, channels) = (Extents::new(extents), extents.axis);
    let add = Arg::from(add(accumulate));
    cuda.scratch(|mut scratch| {
        assert!(cut.partials_len(1) <= scratch.len(), "scratch memory for {cut:?}");
        let partials = Arg::Address(scratch.address::<u8>());
        let args = [extents.arg(), dy.into(), (&mut db).into(), add, partials];
        // SAFETY: `bias_backward(Extents extents, const float* dy, float* db, int add, double* partials)`; the contract
        // has checked the lengths, and the scratch memory has room for the partial sums.
        unsafe { cuda.launch(&SOURCE, "bias_backward", cut.grid(), &args) };
        if cut.parts > 1 {
            let args = [partials, cut.parts.into(), channels.into(), (&mut db).into(), add];
            // SAFETY: `bias_backward_finish(const double* partials, u32 parts, u64 channels, float* db, int add)`; the
            // kernel above has filled `parts` partial sums for each of the `channels` elements of `db`.
            unsafe { cuda.launch(&SOURCE, "bias_backward_finish", cut.finish_grid(), &args) };
        }
    });
}
