//! JPEG and PNG files to planar bytes.

use super::{Sample, jpeg::is_complete};
use files::read_regular;
use std::{io::Cursor, path::Path};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

/// Most bytes of decoded pixels: a few more in a header make a file of nothing else.
pub(super) const MOST_BYTES: usize = 512 << 20;

/// Decodes a file into pixels and shape of `sample`, of three channels or one; an error is the reason, without the
/// file's name.
pub(super) fn decode_into(path: &Path, is_color: bool, sample: &mut Sample) -> Result<(), String> {
    let bytes = read_regular(path).map_err(unreadable)?;
    let file = File::open(&bytes)?;
    let ([height, width], channels) = (file.size(), file.decode(sample)?);
    // The vector keeps its memory from image to image.
    let wanted = if is_color { 3 } else { 1 };
    sample.make_room(wanted.max(channels) * height * width).map_err(|error| error.to_string())?;
    rearrange(&mut sample.pixels, channels, is_color);
    sample.pixels.truncate(wanted * height * width);
    (sample.shape, sample.is_rgb) = ([wanted, height, width], is_color);
    Ok(())
}

/// Makes pixels of `channels` values (grey, or red, green and blue, and perhaps transparency, which is ignored) such of
/// three or of one.
fn rearrange(pixels: &mut [u8], channels: usize, is_color: bool) {
    match (is_color, channels) {
        (true, 3) | (false, 1) => {}
        (true, 1 | 2) => {
            // From the end on, where pixels grow into.
            for at in (0..pixels.len() / 3).rev() {
                let grey = pixels[at * channels];
                pixels[3 * at..][..3].fill(grey);
            }
        }
        (true, _) => (0..pixels.len() / channels)
            .for_each(|at| pixels.copy_within(at * channels..at * channels + 3, 3 * at)),
        (false, 2) => (0..pixels.len() / 2).for_each(|at| pixels[at] = pixels[2 * at]),
        (false, _) => (0..pixels.len() / channels).for_each(|at| pixels[at] = luma(&pixels[at * channels..])),
    }
}

/// Height and width of an image, from its header.
///
/// # Errors
/// In a sentence without the file's name: it cannot be read, is neither JPEG nor PNG, or is a JPEG file cut short.
pub fn dimensions(path: &Path) -> Result<[usize; 2], String> {
    let bytes = read_regular(path).map_err(unreadable)?;
    Ok(File::open(&bytes)?.size())
}

/// A file whose header has been read.
enum File<'a> {
    Jpeg { bytes: &'a [u8], size: [usize; 2], space: ColorSpace },
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
}

/// Not strict: that would refuse files with stray bytes between segments, and still not notice all that are truncated.
fn jpeg_options() -> DecoderOptions {
    let options = DecoderOptions::default().set_strict_mode(false);
    options.set_max_width(usize::MAX).set_max_height(usize::MAX)
}

impl<'a> File<'a> {
    /// The format is told by the content: photo collections are full of JPEG files named `.png`.
    fn open(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            if !is_complete(bytes) {
                return Err("the JPEG image is truncated".to_owned());
            }
            let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), jpeg_options());
            decoder.decode_headers().map_err(undecodable)?;
            let (width, height) = decoder.dimensions().unwrap_or_default();
            let is_kept =
                |space: &ColorSpace| matches!(space, ColorSpace::Luma | ColorSpace::LumaA | ColorSpace::RGBA);
            let space = decoder.input_colorspace().filter(is_kept).unwrap_or(ColorSpace::RGB);
            Ok(Self::Jpeg { bytes, size: [height, width], space })
        } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            let limits = png::Limits { bytes: MOST_BYTES };
            let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
            decoder.set_transformations(png::Transformations::EXPAND);
            Ok(Self::Png(Box::new(decoder.read_info().map_err(undecodable)?)))
        } else {
            Err("the file is neither JPEG nor PNG".to_owned())
        }
    }

    fn size(&self) -> [usize; 2] {
        match self {
            Self::Jpeg { size, .. } => *size,
            Self::Png(reader) => [reader.info().height as usize, reader.info().width as usize],
        }
    }

    /// Decodes into the pixels of `sample`, and returns how many values each has: grey or red, green, blue, and perhaps
    /// transparency.
    fn decode(self, sample: &mut Sample) -> Result<usize, String> {
        let size = self.size();
        let (channels, bits) = match &self {
            Self::Jpeg { space, .. } => (space.num_components(), 8),
            Self::Png(reader) => {
                let (color, depth) = reader.output_color_type();
                (color.samples(), depth as usize)
            }
        };
        let len = size.iter().try_fold(channels * bits.div_ceil(8), |len, &side| len.checked_mul(side));
        let len = match len {
            Some(0) => return Err("the image has no pixels".to_owned()),
            Some(len @ ..=MOST_BYTES) => len,
            _ => return Err(format!("the image of {}x{} pixels is too large", size[1], size[0])),
        };
        sample.make_room(len).map_err(|error| error.to_string())?;
        let pixels = &mut sample.pixels;
        match self {
            Self::Jpeg { bytes: file, space, .. } => {
                let options = jpeg_options().jpeg_set_out_colorspace(space);
                let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
                decoder.decode_into(pixels).map_err(undecodable)?;
            }
            Self::Png(mut reader) => {
                reader.next_frame(pixels).map_err(undecodable)?;
            }
        }
        if bits == 16 {
            for at in 0..len / 2 {
                let sample = u16::from_be_bytes([pixels[2 * at], pixels[2 * at + 1]]);
                // The nearest of the 256 values.
                pixels[at] = ((u32::from(sample) + 128) / 257) as u8;
            }
        }
        Ok(channels)
    }
}

/// Grey by the weights of ITU-R BT.601, rounded as OpenCV (hence Caffe) does; grey stays as it is, for they add up to
/// 1.
fn luma(rgb: &[u8]) -> u8 {
    ((u32::from(rgb[0]) * 4899 + u32::from(rgb[1]) * 9617 + u32::from(rgb[2]) * 1868 + (1 << 13)) >> 14) as u8
}

fn unreadable(error: std::io::Error) -> String {
    format!("cannot read the image: {error}")
}

/// Decoders put several lines into some messages; an error of ours is one sentence.
fn undecodable(error: impl std::fmt::Display) -> String {
    let message = error.to_string();
    let words: Vec<&str> = message.split_whitespace().collect();
    format!("cannot decode the image: {}", words.join(" "))
}
