//! Batch normalisation on the GPU.

use super::{AffineGradients, Mapping, Running, RunningMut, Statistics};
use crate::{
    AxisExtents,
    cuda_launches::{ChannelSums, Extents, THREADS, add, grid, launch_tiles},
};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, Format, View, ViewMut,
    cuda::{Arg, Cuda, Grid, Source},
};

static SOURCE: Source = Source {
    name: "batch_norm.cu",
    text: concat!(include_str!("../common.cuh"), include_str!("batch_norm.cu")),
};

/// `CHANNEL_THREADS` of `batch_norm.cu`.
const CHANNEL_THREADS: u32 = 512;
/// Channels up to this size are read from cache the second time, and one block reads them as fast as several, if there are
/// enough channels to keep most of the GPU busy.
const CHANNEL_LEN: usize = 32 << 10;
const CHANNELS: usize = 128;

/// The grid of the kernels that do a whole channel per block, where they pay.
fn channel_grid(extents: &AxisExtents) -> Option<Grid> {
    let small = extents.inner > 1 && extents.per_index() <= CHANNEL_LEN;
    let alone = extents.per_index() <= CHANNEL_THREADS as usize * 16;
    (small && (alone || extents.axis >= CHANNELS)).then(|| grid([extents.axis as u32, 1], CHANNEL_THREADS))
}

/// `Training` of `batch_norm.cu`: addresses, of which those of what is left out are 0.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Training {
    extents: Extents,
    x: u64,
    gamma: u64,
    beta: u64,
    y: u64,
    mean: u64,
    inv_std: u64,
    running_mean: u64,
    running_variance: u64,
    running_factor: u64,
    epsilon: f32,
    fraction: f32,
    relu: i32,
    padding: u32,
}

impl Training {
    fn new(
        extents: &AxisExtents,
        x: View<'_>,
        after: &Mapping<'_>,
        y: &mut ViewMut<'_>,
        [mean, inv_std]: &mut [ViewMut<'_>; 2],
    ) -> Self {
        Self {
            extents: Extents::new(extents),
            x: address(Some(x)),
            gamma: address(after.affine.map(|affine| affine.gamma)),
            beta: address(after.affine.and_then(|affine| affine.beta)),
            y: y.address::<f32>(),
            mean: mean.address::<f32>(),
            inv_std: inv_std.address::<f32>(),
            relu: i32::from(after.relu),
            ..Zeroable::zeroed()
        }
    }

    fn arg(&self) -> Arg<'_> {
        Arg::Bytes(bytemuck::bytes_of(self))
    }
}

fn address(view: Option<View<'_>>) -> u64 {
    view.map_or(0, |view| view.address::<f32>())
}

fn address_mut(view: Option<&mut ViewMut<'_>>) -> u64 {
    view.map_or(0, |view| view.address::<f32>())
}

#[allow(clippy::too_many_arguments)]
pub(super) fn forward_training(
    cuda: &Cuda,
    extents: &AxisExtents,
    epsilon: f32,
    x: View<'_>,
    after: Mapping<'_>,
    mut y: ViewMut<'_>,
    mut saved: [ViewMut<'_>; 2],
    running: Option<RunningMut<'_>>,
) {
    if extents.is_empty() {
        return;
    }
    let mut training = Training::new(extents, x, &after, &mut y, &mut saved);
    training.epsilon = epsilon;
    if let Some(mut running) = running {
        training.running_mean = running.mean.address::<f32>();
        training.running_variance = running.variance.address::<f32>();
        training.running_factor = running.factor.address::<f32>();
        training.fraction = running.moving_average_fraction;
    }
    if let Some(grid) = channel_grid(extents) {
        // SAFETY: `forward_by_channel(Training training)`, whose addresses are of views that live to the end of this
        // function and whose lengths the contract has checked.
        return unsafe { cuda.launch(&SOURCE, "forward_by_channel", grid, &[training.arg()]) };
    }
    let cut = ChannelSums::new(cuda.multiprocessors(), extents);
    cuda.scratch(|mut scratch| {
        assert!(cut.partials_len(2) <= scratch.len(), "scratch memory for {cut:?}");
        let partials = Arg::Address(scratch.address::<u8>());
        // SAFETY: `statistics(Training training, double* partials)`; the addresses as above, and the scratch memory has
        // room for the partial sums.
        unsafe { cuda.launch(&SOURCE, "statistics", cut.grid(), &[training.arg(), partials]) };
        if cut.parts > 1 {
            let args = [training.arg(), partials, cut.parts.into()];
            // SAFETY: `statistics_finish(Training training, const double* partials, u32 parts)`, and the kernel above has
            // filled the partial sums.
            unsafe { cuda.launch(&SOURCE, "statistics_finish", cut.finish_grid(), &args) };
        }
    });
    // SAFETY: as `normalise` demands; the kernels above have written mean and deviation.
    unsafe { normalise(cuda, extents, &training) };
}

/// # Safety
/// The addresses of `training`, but for the running statistics', are those of views of the lengths that `extents` says.
unsafe fn normalise(cuda: &Cuda, extents: &AxisExtents, training: &Training) {
    // SAFETY: `normalise(Training training)`, and as the caller promises.
    unsafe { launch_tiles(cuda, &SOURCE, "normalise", extents.len(), &[training.arg()]) };
}

#[allow(clippy::too_many_arguments)]
pub(super) fn forward_inference(
    cuda: &Cuda,
    extents: &AxisExtents,
    epsilon: f32,
    x: View<'_>,
    after: Mapping<'_>,
    running: Running<'_>,
    mut y: ViewMut<'_>,
    mut saved: [ViewMut<'_>; 2],
) {
    let training = Training::new(extents, x, &after, &mut y, &mut saved);
    let args = [
        running.mean.into(),
        running.variance.into(),
        running.factor.into(),
        epsilon.into(),
        Arg::from(&mut saved[0]),
        Arg::from(&mut saved[1]),
        extents.axis.into(),
    ];
    let threads = grid([(extents.axis as u32).div_ceil(THREADS), 1], THREADS);
    // SAFETY: `running_statistics(const float* running_mean, const float* running_variance, const float* running_factor,
    // float epsilon, float* mean, float* inv_std, u64 channels)`; the contract has checked the lengths.
    unsafe { cuda.launch(&SOURCE, "running_statistics", threads, &args) };
    // SAFETY: the addresses are those of the views above, whose lengths the contract has checked.
    unsafe { normalise(cuda, extents, &training) };
}

/// `Backward` of `batch_norm.cu`: addresses, of which those of what is left out are 0.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Backward {
    extents: Extents,
    x: u64,
    dy: u64,
    mean: u64,
    inv_std: u64,
    gamma: u64,
    beta: u64,
    dx: u64,
    dgamma: u64,
    dbeta: u64,
    planes: u64,
    add: i32,
    add_gradients: i32,
    by_batch: i32,
    relu: i32,
}

impl Backward {
    fn arg(&self) -> Arg<'_> {
        Arg::Bytes(bytemuck::bytes_of(self))
    }
}

/// What backward reads.
pub(super) struct Inputs<'a> {
    pub(super) statistics: Statistics,
    pub(super) x: View<'a>,
    pub(super) dy: View<'a>,
    pub(super) saved: [View<'a>; 2],
    pub(super) after: Mapping<'a>,
}

pub(super) fn backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    inputs: &Inputs<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
    mut gradients: Option<AffineGradients<'_>>,
) {
    let add_gradients = gradients.as_ref().map_or(0, |gradients| add(gradients.accumulate));
    let mut backward = Backward {
        extents: Extents::new(extents),
        x: address(Some(inputs.x)),
        dy: address(Some(inputs.dy)),
        mean: address(Some(inputs.saved[0])),
        inv_std: address(Some(inputs.saved[1])),
        gamma: address(inputs.after.affine.map(|affine| affine.gamma)),
        beta: address(inputs.after.affine.and_then(|affine| affine.beta)),
        dx: dx.address::<f32>(),
        dgamma: address_mut(gradients.as_mut().map(|gradients| &mut gradients.dgamma)),
        dbeta: address_mut(gradients.as_mut().and_then(|gradients| gradients.dbeta.as_mut())),
        add: add(accumulate),
        add_gradients,
        by_batch: i32::from(inputs.statistics == Statistics::Batch),
        relu: i32::from(inputs.after.relu),
        planes: 0,
    };
    if let Some(grid) = channel_grid(extents) {
        // SAFETY: `backward_by_channel(Backward backward)`, whose addresses are of views that live to the end of this
        // function and whose lengths the contract has checked.
        return unsafe { cuda.launch(&SOURCE, "backward_by_channel", grid, &[backward.arg()]) };
    }
    let cut = ChannelSums::new(cuda.multiprocessors(), extents);
    cuda.scratch(|mut scratch| {
        // The planes of all channels, two elements each, and partial sums behind them.
        backward.planes = scratch.take(Format::F32, 2 * extents.axis).address::<f32>();
        assert!(cut.partials_len(2) <= scratch.len(), "scratch memory for {cut:?}");
        let partials = Arg::Address(scratch.address::<u8>());
        // SAFETY: `backward_sums(Backward backward, double* partials)`; the addresses as above, and the scratch memory has
        // room for planes and partial sums.
        unsafe { cuda.launch(&SOURCE, "backward_sums", cut.grid(), &[backward.arg(), partials]) };
        if cut.parts > 1 {
            let args = [backward.arg(), partials, cut.parts.into()];
            // SAFETY: `backward_sums_finish(Backward backward, const double* partials, u32 parts)`, and the kernel above
            // has filled the partial sums.
            unsafe { cuda.launch(&SOURCE, "backward_sums_finish", cut.finish_grid(), &args) };
        }
        // SAFETY: `backward_map(Backward backward)`; the kernels above have filled the planes.
        unsafe { launch_tiles(cuda, &SOURCE, "backward_map", extents.len(), &[backward.arg()]) };
    });
}
