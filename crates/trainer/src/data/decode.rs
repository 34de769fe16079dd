//! JPEG and PNG files to bytes (row, column, channel).

use super::{Sample, make_room};
use files::read_regular;
use std::{io::Cursor, path::Path};
use zune_jpeg::{JpegDecoder, zune_core::bytestream::ZCursor, zune_core::options::DecoderOptions};

/// Most bytes of decoded pixels: a few more in a header make a file of nothing else.
pub(super) const MOST_BYTES: usize = 512 << 20;

/// Decodes a file into pixels and shape of `sample`, of three channels or one; an error does not name the file.
pub(super) fn decode_into(path: &Path, is_color: bool, sample: &mut Sample) -> Result<(), String> {
    let bytes = read_regular(path).map_err(unreadable)?;
    let (file, [channels, height, width]) = File::open(&bytes)?;
    let len = channels.checked_mul(height).and_then(|len| len.checked_mul(width));
    match len {
        Some(0) => return Err("the image has no pixels".to_owned()),
        Some(len @ ..=MOST_BYTES) => make_room(&mut sample.pixels, len).map_err(|error| error.to_string())?,
        _ => return Err(format!("the image of {width}x{height} pixels is too large")),
    }
    match file {
        File::Jpeg(mut decoder) => decoder.decode_into(&mut sample.pixels).map_err(undecodable)?,
        File::Png(mut reader) => reader.next_frame(&mut sample.pixels).map(drop).map_err(undecodable)?,
    }
    let wanted = if is_color { 3 } else { 1 };
    if channels != wanted {
        // Grey, or red, green and blue; and perhaps transparency, which is ignored.
        let channel = |at| if channels < 3 { 0 } else { at };
        let rgb = sample.pixels.chunks_exact(channels).map(|pixel| [0, 1, 2].map(|at| pixel[channel(at)]));
        sample.pixels = match is_color {
            true => rgb.flatten().collect(),
            false => rgb.map(luma).collect(),
        };
    }
    sample.shape = [wanted, height, width];
    Ok(())
}

/// Height and width of an image, from its header.
///
/// # Errors
/// In a sentence without the file's name: it cannot be read, is neither JPEG nor PNG, or is cut short.
pub fn dimensions(path: &Path) -> Result<[usize; 2], String> {
    let bytes = read_regular(path).map_err(unreadable)?;
    let (_, [_, height, width]) = File::open(&bytes)?;
    Ok([height, width])
}

/// A file whose header has been read.
enum File<'a> {
    Jpeg(Box<JpegDecoder<ZCursor<&'a [u8]>>>),
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
}

impl<'a> File<'a> {
    /// Opens it and tells its channels, height and width. The format is told by the content: photo collections are full
    /// of JPEG files named `.png`.
    fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 3]), String> {
        if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            if !is_complete(bytes) {
                return Err("the JPEG image is truncated".to_owned());
            }
            // Not strict: that would refuse files with stray bytes between segments.
            let options = DecoderOptions::default().set_strict_mode(false);
            let options = options.set_max_width(usize::MAX).set_max_height(usize::MAX);
            let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
            decoder.decode_headers().map_err(undecodable)?;
            if decoder.info().is_some_and(|info| ![1, 3, 4].contains(&info.components)) {
                return Err("the JPEG image has neither 1, 3 nor 4 components".to_owned());
            }
            let (width, height) = decoder.dimensions().unwrap_or_default();
            Ok((Self::Jpeg(Box::new(decoder)), [3, height, width]))
        } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            if !bytes.windows(4).rev().any(|name| name == b"IEND") {
                return Err("the PNG image is truncated".to_owned());
            }
            let limits = png::Limits { bytes: MOST_BYTES };
            let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
            decoder.set_transformations(png::Transformations::normalize_to_color8());
            let reader = decoder.read_info().map_err(undecodable)?;
            let [height, width] = [reader.info().height, reader.info().width].map(|side| side as usize);
            let channels = reader.output_color_type().0.samples();
            Ok((Self::Png(Box::new(reader)), [channels, height, width]))
        } else {
            Err("the file is neither JPEG nor PNG".to_owned())
        }
    }
}

/// Whether a JPEG's end marker stands behind its first scan: decoders paint what is missing in grey. (ITU-T T.81, B.1)
///
/// To look for that marker from the end would not do: thumbnails within photos have one, and some cameras append data.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    scans(bytes).is_some_and(|scans| scans.windows(2).any(|pair| pair == [0xff, 0xd9]))
}

/// What follows the segments before the first scan.
fn scans(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(2..)?;
    loop {
        // Decoders skip stray bytes between segments, and any number of fill bytes may stand before a marker.
        rest = &rest[rest.iter().position(|&byte| byte == 0xff)?..];
        rest = &rest[rest.iter().position(|&byte| byte != 0xff)?..];
        if rest[0] == 0xda {
            return Some(rest);
        }
        rest = rest.get(1 + usize::from(u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]))..)?;
    }
}

/// Grey by the weights of ITU-R BT.601, which add up to 1, so that grey stays; rounded as OpenCV (hence Caffe) does.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 4899 + u32::from(green) * 9617 + u32::from(blue) * 1868 + (1 << 13)) >> 14) as u8
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
