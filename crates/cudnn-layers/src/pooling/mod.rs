//! Pooling over windows of each channel: maximum or average, with padding and Caffe's rounding of the output's extents.
//!
//! * Maximum: padding never wins. Forward saves which tap of the window won (the first of several equal ones in
//!   row-major order); backward sends `dy` there. A NaN wins, of several the last one (in BF16 the last pixel may count
//!   as it). A window of nothing but negative infinity has no winner and passes no gradient. With a ReLU behind, a
//!   maximum that it makes 0 has no winner either: backward needs neither a pass through it nor its output.
//! * Average: the sum divided by the number of pixels of the window inside the image *and its padding*, as in Caffe on
//!   a CPU: a window hanging over the padded edge divides by less. Backward spreads `dy` likewise and needs no data.
//!
//! Global pooling is a window of the image's extents.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Device, Format, Out, PoolGeometry, Space, View, ViewMut};

/// The saved winners of [`forward_max`].
///
/// Their bytes are the same on every device: for each output the number of the winning tap, counted row by row, in one
/// byte or, for windows of 256 taps and more, in a native `u32`, with all bits set where no pixel won.
pub fn mask(geometry: &PoolGeometry) -> Space {
    let len = geometry.y_len();
    if tap_size(geometry) == 1 { Space::of::<u8>(len) } else { Space::of::<u32>(len) }
}

/// Bytes of a saved winner's number, that of no winner included.
fn tap_size(geometry: &PoolGeometry) -> usize {
    if geometry.window[0] * geometry.window[1] < 256 { 1 } else { 4 }
}

/// `y = maximum over windows of x`, each pixel with the `bias` of its channel, which in BF16 only the largest gets,
/// with `relu` rectified; `winners` gets what [`mask`] says.
pub fn forward_max(
    device: &Device,
    geometry: &PoolGeometry,
    x: View<'_>,
    (bias, relu): (Option<View<'_>>, bool),
    y: ViewMut<'_>,
    mut winners: ViewMut<'_>,
) {
    check(geometry, x.len(), y.len());
    assert!(bias.is_none_or(|bias| bias.len() == geometry.c), "one bias per channel");
    let winners = winners.take(Format::U8, mask(geometry).bytes());
    on_device!(device, forward_max(geometry, x, (bias, relu), y, winners));
}

/// `dx (+)= dy` at the `winners` that [`forward_max`] saved, 0 elsewhere.
pub fn backward_max(device: &Device, g: &PoolGeometry, mut winners: View<'_>, dy: View<'_>, dx: Out<'_>) {
    check(g, dx.to.len(), dy.len());
    on_device!(device, backward_max(g, winners.take(Format::U8, mask(g).bytes()), dy, dx));
}

/// `y = average over windows of x`.
pub fn forward_average(device: &Device, geometry: &PoolGeometry, x: View<'_>, y: ViewMut<'_>) {
    check(geometry, x.len(), y.len());
    on_device!(device, forward_average(geometry, x, y));
}

/// `dx (+)=` the sum of `dy` over the windows that see the pixel, each divided by its number of pixels.
pub fn backward_average(device: &Device, geometry: &PoolGeometry, dy: View<'_>, dx: Out<'_>) {
    check(geometry, dx.to.len(), dy.len());
    on_device!(device, backward_average(geometry, dy, dx));
}

fn check(geometry: &PoolGeometry, x: usize, y: usize) {
    assert_eq!((x, y), (geometry.x_len(), geometry.y_len()), "lengths for {geometry:?}");
}
