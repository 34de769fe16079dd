//! Local response normalisation: `y = x * scale^-beta`.
//!
//! * Across channels: `scale = k + alpha / size * sum of x^2` over `size` neighbouring channels of the same pixel.
//! * Within a channel: `scale = 1 + alpha / size^2 * sum of x^2` over `size x size` neighbouring pixels, zeros outside.
//!
//! `size` is odd. Backward computes `scale` again from the bottom data, so that nothing is kept for it:
//! `dx = dy * scale^-beta - 2 alpha beta / count * x * sum of dy * x * scale^(-beta - 1)` over the same neighbourhood,
//! where `count` is `size` or its square.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use crate::AxisExtents;
use tensor::{AxisOrder, Device, Format, Out, Space, TensorType, View, ViewMut};

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

/// A normalisation as both regions see it: of planes of rows and columns, around each element of which some rows and
/// columns are summed. Across channels a sample is a plane, a channel a row and a pixel a column.
#[derive(Clone, Copy, Debug)]
struct Neighbourhood {
    /// Planes, rows and columns.
    extents: AxisExtents,
    /// Neighbouring rows and columns on either side.
    half: [usize; 2],
    constant: f32,
    beta: f32,
    /// What the sums are multiplied by: in `scale`, and in the gradient.
    factors: [f32; 2],
    is_five: bool,
}

impl Lrn {
    /// Whether it is across five channels, as in every published net: these cost less to sum at every use than to keep.
    fn is_five(&self) -> bool {
        self.region == Region::AcrossChannels && self.size == 5
    }
}

impl Neighbourhood {
    /// # Panics
    /// If a length does not match the shape, or the size is not supported; within a channel, if the order is not NCHW.
    fn new<const N: usize>(lrn: &Lrn, [n, c, h, w]: [usize; 4], blobs: [View<'_>; N]) -> Self {
        let &Lrn { region, size, alpha, beta, k } = lrn;
        assert!(size % 2 == 1 && size <= MAX_SIZE, "a neighbourhood of {size}");
        let lens = blobs.map(|blob| blob.len());
        assert_eq!(lens, [n * c * h * w; N], "lengths for the shape {:?}", [n, c, h, w]);
        let images = TensorType::new(&[n, c, h, w], blobs[0].format());
        let AxisExtents { outer: samples, inner: pixels, .. } = AxisExtents::new(&images, 1);
        let (outer, axis, inner, columns, constant) = match region {
            Region::AcrossChannels => (samples, c, pixels, 1, k),
            Region::WithinChannel => {
                assert_eq!(images.format().layout, AxisOrder::Nchw, "planes lie together");
                (n * c, h, w, size, 1.0)
            }
        };
        let count = (size * columns) as f32;
        Self {
            extents: AxisExtents { outer, axis, inner },
            half: [size / 2, columns / 2],
            constant,
            beta,
            factors: [alpha / count, 2.0 * alpha * beta / count],
            is_five: lrn.is_five(),
        }
    }
}

/// What backward needs beside its operands: across five channels nothing, else `scale`, an element for each of `x`.
pub fn scratch(lrn: &Lrn, len: usize) -> Space {
    if lrn.is_five() { Space::NONE } else { Space::of::<f32>(len) }
}

/// Computes `y`. The shape is `[n, c, h, w]`; across channels, the order of all blobs is that of `x`.
///
/// # Panics
/// If `size` is even or above [`MAX_SIZE`], as in [`backward`].
pub fn forward(device: &Device, lrn: &Lrn, shape: [usize; 4], x: View<'_>, y: ViewMut<'_>) {
    let near = Neighbourhood::new(lrn, shape, [x, y.as_view()]);
    on_device!(device, forward(&near, x, y));
}

/// `dx (+)= ...` (see the module), with [`scratch`].
pub fn backward(
    device: &Device,
    lrn: &Lrn,
    shape: [usize; 4],
    [x, dy]: [View<'_>; 2],
    dx: Out<'_>,
    mut scratch: ViewMut<'_>,
) {
    let near = Neighbourhood::new(lrn, shape, [x, dy, dx.to.as_view()]);
    let scale = (!near.is_five).then(|| scratch.take(Format::F32, x.len()));
    on_device!(device, backward(&near, [x, dy], dx, scale));
}
