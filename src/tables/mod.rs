//! Cost tables, in files or as part of the command, packed by gzip or not.

mod shipped;

pub(crate) use shipped::{SHIPPED, Shipped};

use crate::Error;
use planner::{Bytes, CostTable, Math};
use std::{io::Read, path::Path};
use trainer::data::open_unpacked;

/// Largest cost table, unpacked: a hundred times the largest that was recorded.
const MOST_TABLE: Bytes = Bytes::mib(256);

/// A device that `--device` names and that is not here: its measurements are.
#[derive(Clone, Copy)]
pub(crate) enum RecordedDevice<'a> {
    /// Those in a file.
    File(&'a Path),
    /// Those that are part of the command.
    Shipped(&'static Shipped),
}

impl<'a> RecordedDevice<'a> {
    /// The one that `--device` names, if it names one.
    pub(crate) fn named(name: &'a str) -> Option<Self> {
        let file = name.strip_prefix("recorded:").map(|file| Self::File(Path::new(file)));
        file.or_else(|| Shipped::find(name).map(Self::Shipped))
    }

    /// Its measurements, of a shipped device those in this arithmetic, and where they stand.
    pub(crate) fn read(self, math: Math) -> Result<(CostTable, String), Error> {
        match self {
            Self::Shipped(shipped) => {
                Ok((shipped.table(math), format!("the tables of {} in this program", shipped.name)))
            }
            Self::File(file) if file.as_os_str().is_empty() => {
                Err(usage!("--device recorded: names no cost table; --device recorded:FILE does"))
            }
            Self::File(file) => Ok((read_table(file)?, file.display().to_string())),
        }
    }

    /// Whether it is a GPU. What cannot be read is refused when it is planned with.
    pub(crate) fn is_gpu(self) -> bool {
        match self {
            Self::File(file) => read_table(file).ok().is_none_or(|table| is_of_gpu(&table)),
            Self::Shipped(_) => true,
        }
    }
}

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
