//! Local response normalisation: `y = x * scale^-beta`.
//!
//! * Across channels: `scale = k + alpha / size * sum of x^2` over `size` neighbouring channels of the same pixel.
//! * Within a channel: `scale = 1 + alpha / size^2 * sum of x^2` over `size x size` neighbouring pixels, zeros outside.
//!
//! `size` is odd. Backward needs the bottom data and `scale`, which forward saves:
//! `dx = dy * scale^-beta - 2 alpha beta / count * x * sum of dy * x * scale^(-beta - 1)` over the same neighbourhood, where
//! `count` is `size` or its square.

mod across;
mod cuda;
mod power;
#[cfg(test)]
mod tests;
mod within;

use crate::AxisExtents;
use tensor::{Accumulate, Device, Format, Space, View, ViewMut};

/// The neighbourhood whose squares are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// Neighbouring channels.
    AcrossChannels,
    /// Neighbouring pixels.
    WithinChannel,
}

/// The constants of a local response normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lrn {
    /// What is a neighbour.
    pub region: Region,
    /// Extent of the neighbourhood; odd.
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
    /// Constant term across channels; within a channel it is 1, as in Caffe.
    pub k: f32,
}

/// The largest supported neighbourhood: a block of rows this high still lies in the first-level cache.
pub const MAX_SIZE: usize = 255;

/// What forward saves for backward: `scale`, an element for each of `x`.
pub fn saved(len: usize) -> Space {
    Space::of::<f32>(len)
}

/// Computes `y` and saves `scale` ([`saved`]). The shape is `[n, c, h, w]`.
///
/// # Panics
/// If a length does not match the shape, or `size` is even or above [`MAX_SIZE`], as in [`backward`].
pub fn forward(
    device: &Device,
    lrn: &Lrn,
    shape: [usize; 4],
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut saved: ViewMut<'_>,
) {
    check(lrn, shape, [x.len(), y.len()]);
    let mut scale = saved.take(Format::F32, x.len());
    match device {
        Device::Cpu(cpu) => {
            let out = [y.host(), scale.host()];
            match lrn.region {
                Region::AcrossChannels => across::forward(cpu, lrn, &channels(shape), x.host(), out),
                Region::WithinChannel => within::forward(cpu, lrn, shape, x.host(), out),
            }
        }
        Device::Cuda(cuda) => cuda::forward(cuda, lrn, shape, x, y, scale),
    }
}

/// `dx (+)= ...` (see the module).
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &Device,
    lrn: &Lrn,
    shape: [usize; 4],
    x: View<'_>,
    mut saved: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(lrn, shape, [x.len(), dy.len(), dx.len()]);
    let scale = saved.take(Format::F32, x.len());
    match device {
        Device::Cpu(cpu) => {
            let inputs = [x.host(), scale.host(), dy.host()];
            match lrn.region {
                Region::AcrossChannels => {
                    across::backward(cpu, lrn, &channels(shape), inputs, dx.host(), accumulate);
                }
                Region::WithinChannel => within::backward(cpu, lrn, shape, inputs, dx.host(), accumulate),
            }
        }
        Device::Cuda(cuda) => cuda::backward(cuda, lrn, shape, x, scale, dy, dx, accumulate),
    }
}

fn channels([n, c, h, w]: [usize; 4]) -> AxisExtents {
    AxisExtents { outer: n, axis: c, inner: h * w }
}

fn check<const N: usize>(lrn: &Lrn, shape: [usize; 4], lens: [usize; N]) {
    assert!(lrn.size % 2 == 1 && lrn.size <= MAX_SIZE, "a neighbourhood of {}", lrn.size);
    assert_eq!(lens, [shape.iter().product::<usize>(); N], "lengths for the shape {shape:?}");
}
