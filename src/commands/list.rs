//! `microbatch plan --list`: what was recorded of a device.

use crate::{
    Console, Error,
    args::PlanArgs,
    report::Recorded,
    tables::{RecordedDevice, SHIPPED},
};
use figures::Table;
use planner::{CostTable, KernelId};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Serialize)]
struct Report {
    recorded: Recorded,
    kernels: Vec<RecordedKernel>,
}

/// A kernel, and how much of it was measured.
#[derive(Serialize)]
struct RecordedKernel {
    kernel: KernelId,
    /// How many micro-batch sizes.
    sizes: usize,
    largest: u32,
    algorithms: BTreeSet<String>,
}

/// Lists the kernels that were recorded of the device that `args` names.
pub(super) fn list(args: &PlanArgs, console: &mut Console) -> Result<(), Error> {
    let Some(device) = RecordedDevice::named(&args.run.device) else {
        let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
        let names = names.join(", ");
        let reason =
            format!("--list lists what was recorded: it needs --device recorded:FILE or one of {names}");
        return Err(Error::Usage(reason));
    };
    let (table, file) = device.read(args.run.math)?;
    let report =
        Report { recorded: Recorded { file, device: table.device.clone() }, kernels: kernels(&table) };
    console.text(&report.recorded)?;
    let mut lines = Table::new(["op", "shape", "math", ">sizes", ">up to", ">algorithms"]);
    for RecordedKernel { kernel, sizes, largest, algorithms } in &report.kernels {
        let numbers = [*sizes, *largest as usize, algorithms.len()].map(|number| number.to_string());
        let words = [kernel.op.to_string(), kernel.shape.to_string(), kernel.math.to_string()];
        lines.row(words.into_iter().chain(numbers));
    }
    console.text(&lines)?;
    console.object(&report)
}

fn kernels(table: &CostTable) -> Vec<RecordedKernel> {
    let mut kernels: Vec<RecordedKernel> = Vec::new();
    for (&kernel, size, rows) in table.iter() {
        if kernels.last().is_none_or(|last| last.kernel != kernel) {
            kernels.push(RecordedKernel { kernel, sizes: 0, largest: 0, algorithms: BTreeSet::new() });
        }
        let last = kernels.last_mut().expect("there is one now");
        last.sizes += 1;
        last.largest = last.largest.max(size);
        last.algorithms.extend(rows.iter().map(|row| row.algorithm.to_string()));
    }
    kernels
}
