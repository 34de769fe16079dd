//! Pooling over windows of each channel: maximum or average, with padding and Caffe's rounding of the output's extents.
//!
//! * Maximum: padding never wins. Forward saves which tap of the window won (the first of several equal ones in row-major
//!   order); backward sends `dy` there. A NaN wins, of several the last one. A window of nothing but negative infinity has
//!   no winner and passes no gradient.
//! * Average: the sum divided by the number of pixels of the window inside the image *and its padding*, as in Caffe on a
//!   CPU: a window hanging over the padded edge divides by less. Backward spreads `dy` likewise and needs no data.
//!
//! Global pooling is a window of the image's extents.

mod average;
mod cuda;
mod maximum;
mod rows;
#[cfg(test)]
mod tests;

use tensor::{Accumulate, Device, PoolGeometry, View, ViewMut};

/// Elements (`f32`) of the saved winners of [`forward_max`].
///
/// Their bytes are the same on every device: for each output the number of the winning tap, counted row by row, in one byte
/// or, for windows of 256 taps and more, in a native `u32`, with all bits set where no pixel won. Every plane's winners
/// begin at an element; spare bytes at its end stay as they were.
pub fn mask_len(geometry: &PoolGeometry) -> usize {
    geometry.n * geometry.c * maximum::plane_mask_len(geometry)
}

/// `y = maximum over windows of x`; `mask`, of [`mask_len`] elements, gets the winners. It may be left out where no
/// backward pass follows.
///
/// # Panics
/// If a length does not match the geometry, as in all functions of this module.
pub fn forward_max(
    device: &Device,
    geometry: &PoolGeometry,
    x: View<'_>,
    mut y: ViewMut<'_>,
    mask: Option<ViewMut<'_>>,
) {
    check(geometry, x.len(), y.len());
    let len = mask_len(geometry);
    assert_eq!(mask.as_ref().map_or(len, ViewMut::len), len, "the length of the mask");
    match device {
        Device::Cpu(cpu) => {
            maximum::forward(cpu, geometry, x.host(), y.host(), mask.map(ViewMut::into_host));
        }
        Device::Cuda(cuda) => cuda::forward_max(cuda, geometry, x, y, mask),
    }
}

/// `dx (+)= dy` at the winners that [`forward_max`] saved in `mask`, 0 elsewhere.
pub fn backward_max(
    device: &Device,
    geometry: &PoolGeometry,
    mask: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(geometry, dx.len(), dy.len());
    assert_eq!(mask.len(), mask_len(geometry), "the length of the mask");
    match device {
        Device::Cpu(cpu) => maximum::backward(cpu, geometry, mask.host(), dy.host(), dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward_max(cuda, geometry, mask, dy, dx, accumulate),
    }
}

/// `y = average over windows of x`.
pub fn forward_average(device: &Device, geometry: &PoolGeometry, x: View<'_>, mut y: ViewMut<'_>) {
    check(geometry, x.len(), y.len());
    match device {
        Device::Cpu(cpu) => average::forward(cpu, geometry, x.host(), y.host()),
        Device::Cuda(cuda) => cuda::forward_average(cuda, geometry, x, y),
    }
}

/// `dx (+)=` the sum of `dy` over the windows that see the pixel, each divided by its number of pixels.
pub fn backward_average(
    device: &Device,
    geometry: &PoolGeometry,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(geometry, dx.len(), dy.len());
    match device {
        Device::Cpu(cpu) => average::backward(cpu, geometry, dy.host(), dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward_average(cuda, geometry, dy, dx, accumulate),
    }
}

fn check(geometry: &PoolGeometry, x: usize, y: usize) {
    assert_eq!((x, y), (geometry.x_len(), geometry.y_len()), "lengths for {geometry:?}");
}
