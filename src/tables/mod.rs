//! Cost tables, in files or as part of the command, packed by gzip or not.

mod shipped;

pub(crate) use shipped::{SHIPPED, Shipped};

use crate::{Error, Result};
use cudnn_layers::conv::format;
use planner::{Bytes, CostTable, Math};
use std::{collections::BTreeSet, io::Read, path::Path};
use tensor::Format;
use trainer::data::open_unpacked;

/// Largest cost table, unpacked: a hundred times the largest that was recorded.
const MOST_TABLE: Bytes = Bytes::mib(256);

/// Whether `--device` names a device that is not here: its measurements are, in a file or as part of the command.
pub(crate) fn is_recorded(name: &str) -> bool {
    name.starts_with("recorded:") || Shipped::find(name).is_some()
}

/// The measurements of such a device, of a shipped one those in this arithmetic and these formats, and where they stand.
/// Refused if none are in these formats.
pub(crate) fn read_recorded(name: &str, math: Math, formats: &[Format]) -> Result<(CostTable, String)> {
    let (table, from, there): (_, _, BTreeSet<String>) = if let Some(shipped) = Shipped::find(name) {
        let there = shipped.tables.iter().map(|table| table.0.to_owned());
        let from = format!("the tables of {} in this program", shipped.name);
        (shipped.table(math, formats), from, there.collect())
    } else {
        let file = name.strip_prefix("recorded:").unwrap_or_default();
        refuse_if!(file.is_empty(), "--device recorded: names no cost table; --device recorded:FILE does");
        let table = read_table(Path::new(file))?;
        let there = table.iter().map(|(id, ..)| words(id.math, format(id))).collect();
        (table, file.to_owned(), there)
    };
    refuse_if!(there.is_empty(), "there are no measurements in {from}");
    if table.iter().any(|(id, ..)| formats.contains(&format(id))) {
        return Ok((table, from));
    }
    let wanted: Vec<String> = formats.iter().map(|&format| words(math, format)).collect();
    let (wanted, there) = (wanted.join(" or "), Vec::from_iter(there).join(", "));
    Err(usage!("there are measurements of {there} only in {from}, and none of {wanted}"))
}

/// What feature maps are, for people: `TF32 in NHWC`. In BF16 there is no choice of arithmetic.
pub(crate) fn words(math: Math, format: Format) -> String {
    format.to_string().replace("FP32", &math.to_string())
}

pub(crate) fn read_table(file: &Path) -> Result<CostTable> {
    let refused =
        |reason: String| Error::Refused(format!("cannot use the cost table {}: {reason}", file.display()));
    let mut bytes = Vec::new();
    let read = open_unpacked(file).and_then(|file| file.take(MOST_TABLE.0 + 1).read_to_end(&mut bytes));
    if read.map_err(|error| refused(error.to_string()))? as u64 > MOST_TABLE.0 {
        return Err(refused(format!("it is larger than {MOST_TABLE}, which no cost table is")));
    }
    CostTable::from_json_lines(&String::from_utf8_lossy(&bytes)).map_err(|error| refused(error.to_string()))
}
