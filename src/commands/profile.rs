//! `microbatch profile`.

use super::draw::{check, write};
use super::inputs::{net_kernels, net_spec, refuse, warn};
use super::origin::profiling;
use super::plan::{convolutions, largest, shape_kernels};
use crate::{Console, Result, args::ProfileArgs, progress, stop::stop, tables::read_table};
use cudnn_layers::conv::ProfileOptions;
use figures::ProfilingReport;
use planner::{BatchSizePolicy, Bytes, CostTable, DeviceHeader, Kernel, PlanOptions};
use serde::Serialize;
use std::path::PathBuf;
use tensor::Device;
use trainer::host::check_memory;
use trainer::planning::{Planning, Records};

#[derive(Serialize)]
struct Report {
    command: &'static str,
    device: DeviceHeader,
    kernels: usize,
    #[serde(flatten)]
    profiling: ProfilingReport,
    out: Option<PathBuf>,
}

/// Measures what a policy needs of a net's convolutions, or others, for later runs; or takes in measurements.
pub(super) fn profile(args: &ProfileArgs) -> Result<()> {
    let mut console = Console::new(args.run.json);
    let records = args.measuring.records()?;
    if !args.merge.is_empty() {
        return merge(&args.merge, &records, &mut console);
    }
    refuse_if!(
        args.policy == BatchSizePolicy::Adaptive,
        "--policy adaptive measures what a limit asks for; `microbatch plan` does that as it plans"
    );
    refuse([(records.offline, "--offline")], "`profile`, which measures")?;
    let device = args.run.device()?;
    let records = args.measuring.records_of(&device)?;
    let kernels = kernels(args, &device, &console)?;
    check_memory(&device, [largest(&kernels), Bytes::ZERO], None)?;
    let every_algorithm = args.every_algorithm;
    let options = ProfileOptions { repeats: 5, every_algorithm, ..ProfileOptions::on(&device) };
    let mut planning = Planning::new(&device, options).with(records, stop()?);
    // What is measured for later must have where to go.
    match &planning.records.database {
        Some(database) => database.try_adding(&planning.table.device)?,
        None if args.out.is_some() => {}
        None => {
            return Err(usage!("there is neither a database nor --out FILE, so that nothing would be kept"));
        }
    }
    check(&args.out, args.net.model.iter().chain(&args.shapes.csv))?;
    let device = planning.table.device.clone();
    console.text(format!("microbatch profile: {} kernels, {}", kernels.len(), args.policy))?;
    console.text(format!("  device      {}, {}", device.name, device.library_version))?;
    let result = planning.profile_sizes(&kernels, args.policy, progress::measuring());
    planning.warning.take().iter().for_each(|warning| console.warn(warning));
    result?;
    planning.unstored.take().map_or(Ok(()), Err)?;
    let options = PlanOptions { batch_size_policy: args.policy, ..PlanOptions::default() };
    let profiling = profiling(&planning, &kernels, &options);
    console.text(&profiling)?;
    if let Some(file) = &args.out {
        let mut shipped = planning.table.of_kernels(&kernels).thinned(every_algorithm);
        shipped.device.date = args.date.clone();
        write(file, shipped.to_json_lines().into_bytes())?;
        console.text(format!("  written     {}", file.display()))?;
    }
    let out = args.out.clone();
    console.object(&Report { command: "profile", device, kernels: kernels.len(), profiling, out })
}

/// The kernels to measure, in the arithmetic that is asked for.
fn kernels(args: &ProfileArgs, device: &Device, console: &Console) -> Result<Vec<Kernel>> {
    // A processor has one order, whatever `--layout auto` may find.
    let known = if matches!(device, Device::Cuda(_)) { usize::MAX } else { 1 };
    let formats = args.run.formats().into_iter().take(known);
    if let Some((_, convolutions)) = convolutions(&args.shapes, &args.net)? {
        let (ops, math) = (&args.shapes.op, args.run.math);
        return Ok(formats.flat_map(|format| shape_kernels(&convolutions, ops, format, math)).collect());
    }
    let mut spec = net_spec(&args.net)?;
    warn(console, &spec.warnings);
    args.net.samples()?.into_iter().for_each(|samples| spec.set_mini_batch(samples));
    Ok(formats.map(|format| net_kernels(&args.run, &spec, format)).collect::<Result<Vec<_>>>()?.concat())
}

/// Takes cost tables into the database.
fn merge(files: &[PathBuf], records: &Records, console: &mut Console) -> Result<()> {
    let Some(database) = &records.database else {
        return Err(usage!("--merge needs a database, and there is none"));
    };
    // All are read before anything is written.
    let tables: Vec<CostTable> = files.iter().map(|file| read_table(file)).collect::<Result<_, _>>()?;
    tables.iter().try_for_each(|table| database.add(table))?;
    let pairs: usize = tables.iter().map(CostTable::len).sum();
    console.text(format!("{pairs} (kernel, micro-batch) pairs put into {}", database.folder().display()))?;
    console.object(&serde_json::json!({ "command": "profile", "merged": pairs }))
}
