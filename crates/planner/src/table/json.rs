//! Cost tables as JSON lines: a header, then one line per kernel and size, so that tables can be compared, appended to
//! and shipped as text.

use super::cost_table::{CostTable, DeviceHeader, Group};
use crate::model::{KernelId, Measurement, Unusable};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Number of the format, in the header of every table.
const FORMAT: u32 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    cost_table: u32,
    device: DeviceHeader,
}

/// Every other line.
#[derive(Clone, Serialize, Deserialize)]
struct Line {
    kernel: KernelId,
    micro_batch: u32,
    measurements: Vec<Measurement>,
    /// There may be more algorithms: an earlier version did not measure all that `all` asks for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

impl CostTable {
    /// The table as JSON lines, in a fixed order.
    pub fn to_json_lines(&self) -> String {
        let mut lines = json(&Header { cost_table: FORMAT, device: self.device.clone() });
        for (&kernel, micro_batch, group) in self.groups() {
            let Group { rows: measurements, is_partial: partial } = group.clone();
            lines += &json(&Line { kernel, micro_batch, measurements, partial });
        }
        lines
    }

    /// Reads what [`to_json_lines`](CostTable::to_json_lines) wrote. Empty lines are skipped; of two lines about the
    /// same kernel and size the later one counts, or of two that have some of its algorithms only the later time of
    /// each, so that a table may be corrected by appending.
    ///
    /// # Errors
    /// With the number of the line that is broken, not a header, of another format, or impossible.
    pub fn from_json_lines(text: &str) -> Result<Self, CostTableError> {
        let (table, skipped) = Self::from_json_lines_lenient(text)?;
        skipped.into_iter().next().map_or(Ok(table), Err)
    }

    /// As [`from_json_lines`](CostTable::from_json_lines), but skips lines that are broken or impossible, as a crash
    /// may leave them, and says which and why.
    ///
    /// # Errors
    /// When the header is broken or of another format: the device is unknown then.
    pub fn from_json_lines_lenient(text: &str) -> Result<(Self, Vec<CostTableError>), CostTableError> {
        let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut lines = numbered.filter(|(_, line)| !line.trim().is_empty());
        let missing = || CostTableError { line: 1, reason: "the header is missing".into() };
        let (number, first) = lines.next().ok_or_else(missing)?;
        let header: Header = parse(number, first)?;
        if header.cost_table != FORMAT {
            let reason = format!("format {} is unknown, this version reads {FORMAT}", header.cost_table);
            return Err(CostTableError { line: number, reason });
        }
        let (mut table, mut skipped) = (Self::new(header.device), Vec::new());
        for (line, text) in lines {
            let invalid = |error: Unusable| CostTableError { line, reason: error.to_string() };
            let inserted = parse(line, text).and_then(|line: Line| {
                let Line { kernel, micro_batch, measurements: rows, partial: is_partial } = line;
                table.store(kernel, micro_batch, Group { rows, is_partial }).map_err(invalid)
            });
            skipped.extend(inserted.err());
        }
        Ok((table, skipped))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data with text keys is always valid JSON") + "\n"
}

fn parse<T: DeserializeOwned>(line: usize, text: &str) -> Result<T, CostTableError> {
    serde_json::from_str(text).map_err(|error| {
        // serde_json sees one line only: its own "line 1" would mislead.
        let message = error.to_string();
        let what = message.split(" at line ").next().unwrap_or_default();
        CostTableError { line, reason: format!("{what} (column {})", error.column()) }
    })
}

/// A cost table that cannot be read.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("cost table, line {line}: {reason}")]
pub struct CostTableError {
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}
