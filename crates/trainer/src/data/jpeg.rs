//! Whether a JPEG file is all there. The decoder does not say: it paints what is missing in grey.

const MARKER: u8 = 0xff;
const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: u8 = 0xd9;

/// True if the segments and scans of a JPEG file follow each other up to the marker that ends the image. (ITU-T T.81,
/// B.1)
///
/// To look for that marker from the end of the file would not do: the thumbnails within photos have one too, and some
/// cameras append data.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    ends(bytes).is_some()
}

/// The position behind the end of the image.
fn ends(bytes: &[u8]) -> Option<usize> {
    let mut at = 2; // the marker that starts the image
    loop {
        // Decoders skip stray bytes between segments, and any number of fill bytes may stand before a marker.
        at += bytes.get(at..)?.iter().position(|&byte| byte == MARKER)?;
        at += bytes[at..].iter().position(|&byte| byte != MARKER)?;
        let marker = bytes[at];
        at += 1;
        if marker == END_OF_IMAGE {
            return Some(at);
        }
        at += usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        if marker == START_OF_SCAN {
            at += scan_len(bytes.get(at..)?)?;
        }
    }
}

/// Length of the compressed data up to the next marker that is not a part of them: 0xff00 stands for a byte 0xff, and
/// 0xffd0 to 0xffd7 are points to restart at.
fn scan_len(data: &[u8]) -> Option<usize> {
    data.windows(2).position(|pair| pair[0] == MARKER && !matches!(pair[1], 0x00 | 0xd0..=0xd7 | MARKER))
}

#[cfg(test)]
mod tests {
    use image::RgbImage;
    use image::codecs::jpeg::JpegEncoder;

    use super::is_complete;

    #[test]
    fn no_truncation_is_complete() {
        let mut bytes = Vec::new();
        let image =
            RgbImage::from_fn(40, 30, |x, y| image::Rgb([(x * y) as u8, (5 * x) as u8, (7 * y) as u8]));
        JpegEncoder::new(&mut bytes).encode_image(&image).unwrap();
        assert!(is_complete(&bytes));
        for length in 0..bytes.len() {
            assert!(!is_complete(&bytes[..length]), "length {length}");
        }
        assert!(is_complete(&[&bytes[..], b"appended by a camera"].concat()));
    }
}
