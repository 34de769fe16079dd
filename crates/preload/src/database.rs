//! Measurements of earlier processes and for later ones, in the folder where the `microbatch` command has its own, which
//! are of cuDNN's engines: the two have nothing to tell each other.

use crate::shared::{lock, warn};
use crate::{driver::header, settings::Settings, signature::Signature};
use files::database::Database;
use planner::{CostTable, KernelId, Measurement};
use std::{collections::BTreeMap, collections::btree_map::Entry, ffi::c_int, sync::Mutex};

/// What is known of this convolution at these sizes; nothing, unless measurements of such ones are kept.
pub(crate) fn known(signature: &Signature, sizes: &[u32]) -> Vec<Measurement> {
    let known = with_table(signature, |_, kernel, table| {
        sizes.iter().filter_map(|&size| table.measurements(&kernel, size)).flatten().cloned().collect()
    });
    known.unwrap_or_default()
}

/// Keeps measurements of a convolution beside those of other algorithms.
pub(crate) fn keep<'m>(signature: &Signature, rows: impl Iterator<Item = &'m Measurement>) {
    with_table(signature, |database, kernel, table| {
        let mut fresh = CostTable::new(table.device.clone());
        for row in rows {
            // Impossible times, as of a clock that was set back, are nothing to keep.
            let _ = fresh.insert_some(kernel, row.micro_batch, vec![row.clone()]);
        }
        database.add(&fresh).unwrap_or_else(|error| warn(&error.to_string()));
        table.merge(fresh).unwrap_or_else(|error| warn(&error.to_string()));
    });
}

/// Works on what the database has of this GPU, read once, if the planner has a name for the convolution.
fn with_table<R>(
    signature: &Signature,
    work: impl FnOnce(&Database, KernelId, &mut CostTable) -> R,
) -> Option<R> {
    static TABLES: Mutex<BTreeMap<c_int, CostTable>> = Mutex::new(BTreeMap::new());
    let (database, kernel) = (Settings::get().database.as_ref()?, signature.kernel()?);
    let mut tables = lock(&TABLES);
    let table = match tables.entry(signature.device) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(unread) => {
            let (known, warning) = database.read(&header(signature.device)?);
            warning.iter().for_each(|text| warn(text));
            unread.insert(known)
        }
    };
    Some(work(database, kernel, table))
}
