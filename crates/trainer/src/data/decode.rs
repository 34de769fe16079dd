//! JPEG and PNG files to planar bytes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor, Seek};
use std::path::Path;

use image::{DynamicImage, ImageFormat, ImageReader};

use super::Sample;
use super::jpeg::is_complete;
use super::resize::Resizer;

/// Caffe takes its images from OpenCV, whose channel order is blue, green, red.
const BGR_OF_RGB: [usize; 3] = [2, 1, 0];

/// How images are decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoding {
    /// Three channels, or one.
    pub(super) is_color: bool,
    /// Height and width to resize to.
    pub(super) size: Option<[usize; 2]>,
}

/// Decodes a file into the pixels and the shape of `sample`; an error is the reason, without the file's name.
pub(super) fn decode_into(path: &Path, decoding: Decoding, sample: &mut Sample) -> Result<(), String> {
    let bytes = fs::read(path).map_err(unreadable)?;
    let reader = guess(Cursor::new(&bytes))?;
    if reader.format() == Some(ImageFormat::Jpeg) && !is_complete(&bytes) {
        return Err("the JPEG image is truncated".to_owned());
    }
    let image = reader.decode().map_err(|error| one_line(&error.to_string()))?;
    let from = [image.height() as usize, image.width() as usize];
    if from.contains(&0) {
        return Err("the image has no pixels".to_owned());
    }
    let to = decoding.size.unwrap_or(from);
    let (interleaved, order) = interleave(image, decoding.is_color);
    sample.make_room(order.len() * to[0] * to[1]).map_err(|error| error.to_string())?;
    sample.pixels.clear();
    Resizer::default().interleaved(&interleaved, from, order, to, &mut sample.pixels);
    sample.shape = [order.len(), to[0], to[1]];
    Ok(())
}

/// Height and width of an image, from its header.
pub(super) fn dimensions(path: &Path) -> Result<[usize; 2], String> {
    let file = File::open(path).map_err(unreadable)?;
    let reader = guess(BufReader::new(file))?;
    let (width, height) = reader.into_dimensions().map_err(|error| one_line(&error.to_string()))?;
    Ok([height as usize, width as usize])
}

/// The format is told by the content: photo collections are full of JPEG files named `.png`.
fn guess<R: BufRead + Seek>(reader: R) -> Result<ImageReader<R>, String> {
    let reader = ImageReader::new(reader).with_guessed_format().map_err(unreadable)?;
    match reader.format() {
        Some(ImageFormat::Jpeg | ImageFormat::Png) => Ok(reader),
        _ => Err("the file is neither JPEG nor PNG".to_owned()),
    }
}

fn unreadable(error: std::io::Error) -> String {
    format!("cannot read the image: {error}")
}

fn interleave(image: DynamicImage, is_color: bool) -> (Vec<u8>, &'static [usize]) {
    match image {
        DynamicImage::ImageLuma8(grey) if !is_color => (grey.into_raw(), &[0]),
        image if is_color => (image.into_rgb8().into_raw(), &BGR_OF_RGB),
        image => (image.into_rgb8().pixels().map(|pixel| luma(pixel.0)).collect(), &[0]),
    }
}

/// Grey by the weights of ITU-R BT.601, rounded as OpenCV (hence Caffe) does; grey stays as it is, for they add up to 1.
fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 4899 + u32::from(g) * 9617 + u32::from(b) * 1868 + (1 << 13)) >> 14) as u8
}

/// Decoders put several lines into some messages; an error of ours is one sentence.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    format!("cannot decode the image: {}", words.join(" "))
}
