//! Bilinear resizing of bytes by `fast_image_resize`, in integers: the result is the same on every processor.

use super::{decode::MOST_BYTES, make_room};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

/// Pixels in the order row, column, channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels<'a> {
    pub(super) bytes: &'a [u8],
    /// Height and width, neither of which is 0.
    pub(super) size: [usize; 2],
    pub(super) channels: usize,
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) top: usize,
    pub(super) left: usize,
    /// Height and width.
    pub(super) size: [usize; 2],
}

impl Region {
    pub(super) fn whole(size: [usize; 2]) -> Self {
        Self { top: 0, left: 0, size }
    }

    /// The middle of an image of `size` that is `inner` high and wide, rounded to the top and the left.
    pub(super) fn centre(size: [usize; 2], inner: [usize; 2]) -> Self {
        Self { top: (size[0] - inner[0]) / 2, left: (size[1] - inner[1]) / 2, size: inner }
    }
}

/// Between the two nearest pixels in each direction, as OpenCV does and hence Caffe: no others are seen.
pub(super) const NEAREST2: ResizeAlg = ResizeAlg::Interpolation(FilterType::Bilinear);
/// Shrinking averages over all of the source, with triangular weights, as Pillow does and hence torchvision.
pub(super) const AVERAGING: ResizeAlg = ResizeAlg::Convolution(FilterType::Bilinear);

/// Whether an image of `size` can be resized to `to`.
///
/// # Errors
/// In a sentence: that would take more memory than any image may.
pub(super) fn check(size: [usize; 2], to: [usize; 2], channels: usize) -> Result<(), String> {
    // One direction after the other: the image between is as wide as the source and as high as the result.
    let most = size[1].max(to[1]).saturating_mul(to[0]).saturating_mul(channels);
    if size == to || most <= MOST_BYTES {
        return Ok(());
    }
    let [[h, w], [to_h, to_w]] = [size, to];
    Err(format!("an image of {h}x{w} pixels is too large if it is resized to {to_h}x{to_w}"))
}

/// Resizes `region` of `from` to `to`, which replaces the contents of `into`.
///
/// # Errors
/// In a sentence: neither one channel nor three, or there is not the memory.
pub(super) fn resize(
    resizer: &mut Resizer,
    from: Pixels<'_>,
    region: Region,
    (to, sampling): ([usize; 2], ResizeAlg),
    into: &mut Vec<u8>,
) -> Result<(), String> {
    let Pixels { bytes, size, channels } = from;
    check(size, to, channels)?;
    make_room(into, to[0] * to[1] * channels).map_err(|error| error.to_string())?;
    let [left, top, width, height] =
        [region.left, region.top, region.size[1], region.size[0]].map(|place| place as f64);
    let options = ResizeOptions::new().resize_alg(sampling).crop(left, top, width, height).use_alpha(false);
    match channels {
        1 => resize_pixels::<U8>(resizer, (bytes, size), (into, to), &options),
        3 => resize_pixels::<U8x3>(resizer, (bytes, size), (into, to), &options),
        _ => Err(format!("an image of {channels} channels cannot be resized")),
    }
}

/// For one kind of pixels: the library's function for all would be compiled for thirteen.
fn resize_pixels<P: PixelTrait>(
    resizer: &mut Resizer,
    (from, from_size): (&[u8], [usize; 2]),
    (into, size): (&mut [u8], [usize; 2]),
    options: &ResizeOptions,
) -> Result<(), String> {
    let [from_size, size] =
        [from_size, size].map(|size| size.map(|side| u32::try_from(side).unwrap_or(u32::MAX)));
    let source = TypedImageRef::<P>::from_buffer(from_size[1], from_size[0], from);
    let result = TypedImage::<P>::from_buffer(size[1], size[0], into);
    let (source, mut result) = (source.map_err(|e| e.to_string())?, result.map_err(|e| e.to_string())?);
    resizer.resize_typed(&source, &mut result, options).map_err(|error| error.to_string())
}
