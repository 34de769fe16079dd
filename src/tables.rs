//! Cost tables in files, packed by gzip or not.

use crate::Error;
use planner::{Bytes, CostTable};
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
};
use trainer::data::open_unpacked;

/// Largest cost table, unpacked: a hundred times the largest that was recorded.
const MOST_TABLE: Bytes = Bytes::mib(256);

/// Most bytes of a table's first line.
const MOST_HEADER: u64 = 1 << 16;

/// Reads a cost table.
pub(crate) fn read_table(file: &Path) -> Result<CostTable, Error> {
    let refused = |reason: String| Error::table(file.display(), reason);
    let mut bytes = Vec::new();
    let read = open_unpacked(file).and_then(|file| file.take(MOST_TABLE.0 + 1).read_to_end(&mut bytes));
    if read.map_err(|error| refused(error.to_string()))? as u64 > MOST_TABLE.0 {
        return Err(refused(format!("it is larger than {MOST_TABLE}, which no cost table is")));
    }
    CostTable::from_json_lines(&String::from_utf8_lossy(&bytes)).map_err(|error| refused(error.to_string()))
}

/// Whether `table` was measured on a GPU: only a CPU's header tells its threads.
pub(crate) fn is_of_gpu(table: &CostTable) -> bool {
    table.device.threads.is_empty()
}

/// Whether the cost table in `file` was measured on a GPU, by its first line, the header. What cannot be read is refused
/// when the whole table is.
pub(crate) fn recorded_on_gpu(file: &Path) -> bool {
    let header = || -> Option<CostTable> {
        let mut line = String::new();
        BufReader::new(open_unpacked(file).ok()?).take(MOST_HEADER).read_line(&mut line).ok()?;
        CostTable::from_json_lines(&line).ok()
    };
    header().is_none_or(|table| is_of_gpu(&table))
}
