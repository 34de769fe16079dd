//! TensorBoard's event files: records with checksums, each a protobuf message `Event`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{path::Path, process};
use trainer::protobuf::Writer;

/// A file of events.
pub(super) struct Board {
    file: File,
}

impl Board {
    /// A new file in `folder`, of a training that begins at iteration `first`: later ones in older files do not count.
    pub(super) fn create(folder: &Path, first: u64) -> io::Result<Self> {
        let name = format!("events.out.tfevents.{}.{}.microbatch", now() as u64, process::id());
        fs::create_dir_all(folder)?;
        let mut board = Self { file: File::create_new(folder.join(name))? };
        board.event(0, 3, "brain.Event:2")?;
        // session_log { status: START }
        board.event(first, 7, Writer::default().number(1, 1))?;
        Ok(board)
    }

    /// Writes the number `value` of a curve.
    pub(super) fn scalar(&mut self, tag: &str, step: u64, value: f32) -> io::Result<()> {
        self.event(step, 5, summary(tag, value))
    }

    /// Event { 1 wall_time, 2 step, .. }
    fn event(&mut self, step: u64, field: u64, what: impl AsRef<[u8]>) -> io::Result<()> {
        let event = Writer::default().double(1, now()).number(2, step as i64).bytes(field, what);
        self.file.write_all(&record(event.as_ref()))
    }
}

/// Summary { 1 value { 1 tag, 2 simple_value } }
fn summary(tag: &str, value: f32) -> Writer {
    Writer::default().bytes(1, Writer::default().bytes(1, tag).float(2, value))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Length, its checksum, data, their checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u64).to_le_bytes();
    [&len, &masked_crc(&len)[..], data, &masked_crc(data)].concat()
}

/// CRC-32C, turned and moved as in all files of records: a checksum of data that hold checksums would be weak.
fn masked_crc(data: &[u8]) -> [u8; 4] {
    let crc = !data.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, B.4: CRC-32C of 32 zeros is 8a9136aa, of 32 ones 62a8ab43; masked by hand.
        let unmasked = |bytes: [u8; 4]| u32::from_le_bytes(bytes).wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(unmasked(masked_crc(&[0; 32])), 0x8a91_36aa);
        assert_eq!(unmasked(masked_crc(&[0xff; 32])), 0x62a8_ab43);
    }

    /// The bytes that TensorFlow's own writer has for this number.
    #[test]
    fn a_number_is_a_summary_in_a_record() {
        let expected = b"\x0a\x0a\x0a\x03abc\x15\x00\x00\x80\x3f";
        assert_eq!(summary("abc", 1.0).as_ref(), expected);
        let framed = record(b"abc");
        assert_eq!(
            (framed.len(), &framed[..8], &framed[12..15]),
            (8 + 4 + 3 + 4, &[3, 0, 0, 0, 0, 0, 0, 0][..], &b"abc"[..])
        );
        assert_eq!(framed[8..12], masked_crc(&framed[..8]));
        assert_eq!(framed[15..], masked_crc(b"abc"));
    }
}
