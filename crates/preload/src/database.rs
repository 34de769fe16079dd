//! Measurements of earlier processes and for later ones: a database of cost tables, that of the `microbatch` command.

use crate::{
    driver::header,
    settings::Settings,
    shared::{lock, warn},
    signature::Signature,
};
use files::database::Database;
use planner::{CostTable, Dtype, Kernel, Layout, Measurement};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::c_int,
    slice,
    sync::Mutex,
};

/// What is known of this convolution at each of these sizes of the batch-size policy, and whether that is everything
/// that is worth it; nothing, unless measurements of such ones are kept.
pub(crate) fn known(signature: &Signature, sizes: &[u32]) -> BTreeMap<u32, (Vec<Measurement>, bool)> {
    let known = with_table(signature, |_, kernel, table| {
        let missing = table.missing(slice::from_ref(kernel), Settings::get().policy);
        let at = |&size: &u32| {
            let rows = table.measurements(&kernel.id, size).unwrap_or_default();
            (size, (rows.to_vec(), missing.iter().all(|&(_, missing)| missing != size)))
        };
        sizes.iter().map(at).collect()
    });
    known.unwrap_or_default()
}

/// Keeps measurements of a convolution beside those of other algorithms.
pub(crate) fn keep(signature: &Signature, rows: Vec<Measurement>) {
    with_table(signature, |database, kernel, table| {
        let mut fresh = CostTable::new(table.device.clone());
        for row in rows {
            // Impossible times, as of a clock that was set back, are nothing to keep.
            let _ = fresh.insert_some(kernel.id, row.micro_batch, vec![row]);
        }
        database.add(&fresh).unwrap_or_else(|error| warn(&error.to_string()));
        table.merge(fresh).unwrap_or_else(|error| warn(&error.to_string()));
    });
}

/// Works on what the database has of this GPU, read once, if the planner has a name for the convolution.
fn with_table<R>(
    signature: &Signature,
    work: impl FnOnce(&Database, &Kernel, &mut CostTable) -> R,
) -> Option<R> {
    static TABLES: Mutex<BTreeMap<(c_int, bool), CostTable>> = Mutex::new(BTreeMap::new());
    let (database, kernel) = (Settings::get().database.as_ref()?, signature.kernel()?);
    // In other formats the command has no use for the algorithms of the legacy API: they are a library of their own.
    let is_of_command = (kernel.id.dtype, kernel.id.layout) == (Dtype::F32, Layout::Nchw);
    let mut tables = lock(&TABLES);
    let table = match tables.entry((signature.device, is_of_command)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(unread) => {
            let algorithms = if is_of_command { "with engines and cuBLAS" } else { "by its legacy API" };
            let device = header(signature.device, algorithms)?;
            let known = database.read(&device).map_err(|error| warn(&error.to_string()));
            let known = known.inspect(|known| known.warning.iter().for_each(|text| warn(text)));
            unread.insert(known.map_or_else(|()| CostTable::new(device), |known| known.table))
        }
    };
    Some(work(database, &kernel, table))
}
