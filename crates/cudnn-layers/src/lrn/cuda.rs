//! Local response normalisation on the GPU.

use super::{Lrn, Region};
use crate::{
    AxisExtents,
    cuda_launches::{Divisor, Extents, THREADS, add},
};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Grid, Source},
};

static SOURCE: Source =
    Source { name: "lrn.cu", text: concat!(include_str!("../common.cuh"), include_str!("lrn.cu")) };

/// Fewest channels of a segment: every segment reads `size - 1` channels of its neighbours once more.
const SEGMENT: usize = 16;
/// Threads per multiprocessor that keep memory busy: two times as many as run at once.
const WANTED_THREADS: usize = 4096;

pub(super) fn forward(
    cuda: &Cuda,
    lrn: &Lrn,
    shape: [usize; 4],
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut scale: ViewMut<'_>,
) {
    let names = ["lrn_across_forward_5", "lrn_across_forward", "lrn_within_forward"];
    let operands = [Arg::from(x), Arg::from(&mut y), Arg::from(&mut scale)];
    // SAFETY: the parameters behind the geometry are `(const float* x, float* y, float* scale)`; the contract has checked
    // the lengths.
    unsafe { launch(cuda, lrn, shape, names, &operands) };
}

#[allow(clippy::too_many_arguments)]
pub(super) fn backward(
    cuda: &Cuda,
    lrn: &Lrn,
    shape: [usize; 4],
    x: View<'_>,
    scale: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let names = ["lrn_across_backward_5", "lrn_across_backward", "lrn_within_backward"];
    let operands =
        [Arg::from(x), Arg::from(scale), Arg::from(dy), Arg::from(&mut dx), Arg::from(add(accumulate))];
    // SAFETY: the parameters behind the geometry are `(const float* x, const float* scale, const float* dy, float* dx, int
    // add)`; the contract has checked the lengths.
    unsafe { launch(cuda, lrn, shape, names, &operands) };
}

/// Launches the kernel for a size of 5 and a beta of 0.75, for others, or for the neighbourhood within a channel.
///
/// # Safety
/// `operands` are the kernels' parameters behind the geometry, and have the elements of `shape`.
unsafe fn launch(
    cuda: &Cuda,
    lrn: &Lrn,
    shape: [usize; 4],
    [fixed, across, within]: [&'static str; 3],
    operands: &[Arg<'_>],
) {
    let constants = Constants::new(lrn);
    let constants = Arg::Bytes(bytemuck::bytes_of(&constants));
    let len = shape.iter().product::<usize>();
    if len == 0 {
        return;
    }
    let mut args = [constants; 9];
    match lrn.region {
        Region::AcrossChannels => {
            let extents = super::channels(shape);
            let segments = segments(cuda.multiprocessors(), &extents);
            let function = if lrn.size == 5 && lrn.beta == 0.75 { fixed } else { across };
            let blocks = blocks(extents.per_index()) * segments;
            let extents = Extents::new(&extents);
            args[1..3].copy_from_slice(&[extents.arg(), segments.into()]);
            args[3..3 + operands.len()].copy_from_slice(operands);
            // SAFETY: `(Lrn lrn, Extents e, u32 segments, ...)`, and the caller's promise. There are `segments` blocks for
            // each run of pixels.
            unsafe {
                cuda.launch(&SOURCE, function, Grid::line(blocks, THREADS), &args[..3 + operands.len()])
            };
        }
        Region::WithinChannel => {
            let [n, c, h, w] = shape;
            let [height, width] = [h, w].map(|extent| Divisor::new(extent, len));
            let [height, width] = [&height, &width].map(|divisor| Arg::Bytes(bytemuck::bytes_of(divisor)));
            args[1..4].copy_from_slice(&[(n * c).into(), height, width]);
            args[4..4 + operands.len()].copy_from_slice(operands);
            // SAFETY: `(Lrn lrn, u64 planes, Divisor height, Divisor width, ...)`, and the caller's promise.
            unsafe {
                cuda.launch(&SOURCE, within, Grid::line(blocks(len), THREADS), &args[..4 + operands.len()])
            };
        }
    }
}

/// Blocks with a thread for each of `threads` places.
fn blocks(threads: usize) -> u32 {
    u32::try_from(threads.div_ceil(THREADS as usize)).expect("no GPU has 4 TiB of memory")
}

/// Into how many segments channels are cut, where there are not enough pixels for a thread each.
fn segments(multiprocessors: u32, extents: &AxisExtents) -> u32 {
    let wanted = (WANTED_THREADS * multiprocessors as usize).div_ceil(extents.per_index());
    wanted.min(extents.axis / SEGMENT).clamp(1, 256) as u32
}

/// `Lrn` of `lrn.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Constants {
    constant: f32,
    beta: f32,
    forward_factor: f32,
    backward_factor: f32,
    size: i32,
}

impl Constants {
    fn new(lrn: &Lrn) -> Self {
        let &Lrn { region, size, alpha, beta, k } = lrn;
        let (constant, count) = match region {
            Region::AcrossChannels => (k, size as f32),
            Region::WithinChannel => (1.0, (size * size) as f32),
        };
        let backward_factor = 2.0 * alpha * beta / count;
        Self { constant, beta, forward_factor: alpha / count, backward_factor, size: size as i32 }
    }
}
