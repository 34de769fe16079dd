//! `microbatch plan --list`: what was recorded of a device.

use crate::tables::{Shipped, is_recorded, read_recorded, words};
use crate::{Console, Result, args::PlanArgs};
use cudnn_layers::conv::format;
use figures::{Recorded, Table};
use planner::{KernelId, Measurement};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn list(args: &PlanArgs, console: &mut Console) -> Result<()> {
    let (device, names) = (&args.run.device, Shipped::names());
    let needs = "it needs --device recorded:FILE or one of";
    refuse_if!(!is_recorded(device), "--list lists what was recorded: {needs} {names}");
    let (table, file) = read_recorded(device, args.run.math, &args.run.formats())?;
    let mut kernels: BTreeMap<&KernelId, Vec<&Measurement>> = BTreeMap::new();
    table.iter().for_each(|(id, _, rows)| kernels.entry(id).or_default().extend(rows));
    let mut lines = Table::new(["op", "shape", "feature maps", ">sizes", ">up to", ">algorithms"]);
    for (id @ KernelId { op, shape, math, .. }, rows) in kernels {
        let sizes: BTreeSet<u32> = rows.iter().map(|row| row.micro_batch).collect();
        let algorithms: BTreeSet<&str> = rows.iter().map(|row| row.algorithm.as_str()).collect();
        let largest = sizes.last().map_or(0, |&size| size as usize);
        let numbers = [sizes.len(), largest, algorithms.len()].map(|number| number.to_string());
        lines.row([op.to_string(), shape.to_string(), words(*math, format(id))].into_iter().chain(numbers));
    }
    let recorded = Recorded { file, device: table.device.clone() };
    console.text(&recorded)?;
    console.text(&lines)?;
    console.object(&json!({ "recorded": recorded, "kernels": lines }))
}
