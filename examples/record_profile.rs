//! Records what convolutions cost on this machine's GPU, and runs plans made from it.
//!
//! `cargo run --release --example record_profile -- alexnet:256 resnet18:128 --out data/profiles/my-gpu --run 64MiB`
//! measures the convolution kernels of these nets at these mini-batches in FP32 and TF32, writes one cost table per net,
//! and then runs all convolutions of one iteration as planned under the limit, undivided and divided.

use clap::Parser;
use cudnn_layers::conv::cuda::{CudaProfiler, CudaRunner};
use cudnn_layers::conv::{ProfileOptions, operand_lens, profile::geometry};
use cudnn_layers::raw::Cudnn;
use planner::{
    BatchSizePolicy, Bytes, Configuration, CostTable, DeviceHeader, Kernel, Math, Measurement, Plan,
    PlanOptions, plan,
};
use std::{error::Error, path::PathBuf, process::ExitCode, time::Duration, time::Instant};
use tensor::cuda::{CudaDevices, DEVICE_ALIGNMENT, DeviceArena, DeviceLease, Event, probe};
use tensor::{Access, Accumulate, Device, Span};
use trainer::layers::{BuildOptions, SyntheticData};
use trainer::{
    Net,
    spec::{NetSpec, Phase},
};

type Failure = Box<dyn Error + Send + Sync>;

/// Record what convolutions cost on this machine's GPU
#[derive(Parser)]
struct Args {
    /// Nets of `models/` with their mini-batches, such as alexnet:256
    #[arg(required = true)]
    nets: Vec<String>,
    /// Where the nets are
    #[arg(long, default_value = "models")]
    models: PathBuf,
    /// Micro-batch sizes to measure: undivided, powerOfTwo or all
    #[arg(long, default_value = "powerOfTwo")]
    policy: BatchSizePolicy,
    /// Arithmetic allowed: fp32, tf32 or both
    #[arg(long, default_value = "both")]
    math: String,
    /// Folder for one cost table per net
    #[arg(long)]
    out: Option<PathBuf>,
    /// Run the plans under these workspace limits per kernel
    #[arg(long)]
    run: Vec<Bytes>,
    /// Only algorithms of at most this accuracy class in these plans
    #[arg(long)]
    max_error: Option<f32>,
    /// Iterations of every timed run
    #[arg(long, default_value_t = 20)]
    iterations: usize,
    /// Milliseconds of timed calls in each measurement
    #[arg(long, default_value_t = 2.0)]
    at_least_ms: f64,
    /// Date, for the tables' header
    #[arg(long, default_value = "")]
    date: String,
}

fn main() -> ExitCode {
    match record(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record(args: &Args) -> Result<(), Failure> {
    let gpus = probe()?;
    let cudnn = Cudnn::new(&gpus.open(0)?)?;
    let header = header(&gpus, &cudnn, args);
    println!("{}; {}", header.name, header.library_version);
    let options = ProfileOptions {
        repeats: 5,
        at_least: Duration::from_secs_f64(args.at_least_ms / 1e3),
        ..ProfileOptions::default()
    };
    let mut profiler = CudaProfiler::new(cudnn, options)?;
    for net in &args.nets {
        let (name, mini_batch) =
            net.split_once(':').ok_or("a net is NAME:MINI_BATCH, such as alexnet:256")?;
        let kernels = kernels(args, name, mini_batch.parse()?)?;
        let mut table = CostTable::new(header.clone());
        for math in maths(&args.math)? {
            let kernels = in_math(&kernels, math);
            let (start, before) = (Instant::now(), table.len());
            table.profile(&kernels, args.policy, &mut profiler, |_| ())?;
            let (pairs, seconds) = (table.len() - before, start.elapsed().as_secs_f64());
            println!("\n{name} {math}: {pairs} (kernel, micro-batch) pairs measured in {seconds:.1} s");
            profiler.release();
            for &limit in &args.run {
                compare(profiler.cudnn(), &kernels, &table, limit, args)?;
            }
        }
        if let Some(folder) = &args.out {
            let file = folder.join(format!("{name}-{mini_batch}-{}.jsonl", args.policy));
            let lines = small(&table)?.to_json_lines();
            std::fs::write(&file, lines).map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    Ok(())
}

fn header(gpus: &CudaDevices, cudnn: &Cudnn, args: &Args) -> DeviceHeader {
    let driver = gpus.driver.as_deref().unwrap_or("of unknown version");
    let mut command = vec!["record_profile".to_owned()];
    command.extend(std::env::args().skip(1));
    DeviceHeader {
        name: cudnn.cuda().info().to_string(),
        library_version: format!("cuDNN {}, CUDA {}, driver {driver}", cudnn.version(), gpus.cuda),
        date: args.date.clone(),
        command: command.join(" "),
        ..DeviceHeader::default()
    }
}

/// The kernels of one training iteration of a net.
fn kernels(args: &Args, name: &str, mini_batch: usize) -> Result<Vec<Kernel>, Failure> {
    let mut spec = NetSpec::load(&args.models.join(name).join("net.prototxt"))?.for_phase(Phase::Train);
    spec.set_mini_batch(mini_batch);
    let synthetic = Some(SyntheticData { shape: None, classes: 1000 });
    let build = BuildOptions { device: Device::cpu(), seed: 1, synthetic };
    Ok(Net::new(&spec, &build, true)?.kernels())
}

fn maths(text: &str) -> Result<Vec<Math>, Failure> {
    match text {
        "fp32" => Ok(vec![Math::Fp32]),
        "tf32" => Ok(vec![Math::Tf32]),
        "both" => Ok(vec![Math::Fp32, Math::Tf32]),
        _ => Err(format!("--math {text:?} is none of fp32, tf32 and both").into()),
    }
}

fn in_math(kernels: &[Kernel], math: Math) -> Vec<Kernel> {
    let in_math = |kernel: &Kernel| {
        let mut kernel = kernel.clone();
        kernel.id.math = math;
        kernel
    };
    kernels.iter().map(in_math).collect()
}

/// The table as it is shipped: times to four digits, and without rows that no plan would use, because another one of the
/// same size is at least as good in everything.
fn small(table: &CostTable) -> Result<CostTable, Failure> {
    let mut small = CostTable::new(table.device.clone());
    for (kernel, micro_batch, rows) in table.iter() {
        let mut kept: Vec<Measurement> = Vec::new();
        let mut sorted = rows.to_vec();
        sorted.sort_by(|a, b| a.time_ms.total_cmp(&b.time_ms).then(a.workspace.cmp(&b.workspace)));
        for row in sorted {
            let beaten = |by: &Measurement| {
                by.workspace <= row.workspace
                    && by.max_error <= row.max_error
                    && by.deterministic >= row.deterministic
            };
            if !kept.iter().any(beaten) {
                kept.push(Measurement { time_ms: four_digits(row.time_ms), ..row });
            }
        }
        small.insert(*kernel, micro_batch, kept)?;
    }
    Ok(small)
}

fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number as it was printed")
}

/// Plans undivided and divided, runs both, and prints what was predicted and what was measured.
fn compare(
    cudnn: &Cudnn,
    kernels: &[Kernel],
    table: &CostTable,
    limit: Bytes,
    args: &Args,
) -> Result<(), Failure> {
    let math = kernels[0].id.math;
    println!("\n{math}, at most {limit} of workspace per kernel, {} iterations:", args.iterations);
    let mut tables = vec![("", table.clone())];
    if math == Math::Tf32 {
        // What a framework gets that switches TF32 on for all of cuDNN: no algorithm in FP32 that has a form in TF32.
        tables.push((" (TF32 wherever there is a form of it)", only_tf32(table)?));
    }
    for (which, table) in &tables {
        let max_error = args.max_error;
        let planned = |batch_size_policy| {
            plan(
                kernels,
                table,
                &PlanOptions { batch_size_policy, limit, max_error, ..PlanOptions::default() },
            )
        };
        let plans = [planned(BatchSizePolicy::Undivided)?, planned(args.policy)?];
        let measured = [run(cudnn, &plans[0], args.iterations)?, run(cudnn, &plans[1], args.iterations)?];
        let [before, after] = &measured;
        for (index, kernel) in plans[1].kernels.iter().enumerate() {
            let undivided = &plans[0].kernels[index];
            println!(
                "  {:28} {:.4} -> {:.4} ms (predicted {:.4} -> {:.4})  {} -> {}",
                kernel.kernel.to_string(),
                before[index],
                after[index],
                undivided.time_ms(),
                kernel.time_ms(),
                undivided.configuration,
                kernel.configuration,
            );
        }
        let [before, after]: [f64; 2] = measured.map(|times| times.iter().sum());
        println!(
            "  total{which}: {before:.3} -> {after:.3} ms, {:.3}x (predicted {:.3} -> {:.3} ms, {:.3}x)",
            before / after,
            plans[0].time_ms,
            plans[1].time_ms,
            plans[0].time_ms / plans[1].time_ms,
        );
    }
    Ok(())
}

/// Without the rows of algorithms that TF32 has a form of.
fn only_tf32(table: &CostTable) -> Result<CostTable, Failure> {
    let mut only = CostTable::new(table.device.clone());
    for (kernel, micro_batch, rows) in table.iter() {
        let has_other = |row: &&Measurement| {
            let in_tf32 = format!("{}_TF32", row.algorithm);
            rows.iter().any(|other| other.algorithm.as_str() == in_tf32)
        };
        only.insert(*kernel, micro_batch, rows.iter().filter(|row| !has_other(row)).cloned().collect())?;
    }
    Ok(only)
}

/// Runs all kernels of a plan one after the other, again and again, and returns the median time of each in milliseconds.
fn run(cudnn: &Cudnn, plan: &Plan, iterations: usize) -> Result<Vec<f64>, Failure> {
    let ready = |kernel: &Kernel, configuration: &Configuration| {
        let geometry = geometry(&kernel.id.shape, kernel.mini_batch);
        CudaRunner::new(cudnn, kernel.id.op, geometry, configuration)
    };
    let runners = plan.kernels.iter().map(|planned| ready(&planned.kernel, &planned.configuration));
    let runners = runners.collect::<Result<Vec<_>, _>>()?;
    let mut end = runners.iter().map(CudaRunner::workspace_len).max().unwrap_or(0);
    let place = |runner: &CudaRunner| {
        operand_lens(runner.op(), runner.geometry()).map(|len| {
            let offset = end.next_multiple_of(DEVICE_ALIGNMENT);
            end = offset + len;
            Span { offset, len }
        })
    };
    let spans: Vec<[Span; 3]> = runners.iter().map(place).collect();
    let mut arena = DeviceArena::new(cudnn.cuda(), end)?;
    arena.repeat(Span { offset: 0, len: end }, &tensor::testing::random(1 << 20, 1))?;
    let events = (0..=runners.len()).map(|_| cudnn.cuda().event()).collect::<Result<Vec<Event>, _>>()?;
    let mut times = vec![Vec::with_capacity(iterations); runners.len()];
    for iteration in 0..iterations + 2 {
        events[0].record()?;
        for ((runner, spans), event) in runners.iter().zip(&spans).zip(&events[1..]) {
            step(cudnn, runner, spans, &mut arena)?;
            event.record()?;
        }
        // The first two warm up.
        if iteration >= 2 {
            for (times, pair) in times.iter_mut().zip(events.windows(2)) {
                times.push(pair[0].elapsed_ms(&pair[1])?);
            }
        }
    }
    Ok(times.into_iter().map(median).collect())
}

fn step(
    cudnn: &Cudnn,
    runner: &CudaRunner,
    &[a, b, out]: &[Span; 3],
    arena: &mut DeviceArena,
) -> Result<(), Failure> {
    let workspace = Span { offset: 0, len: runner.workspace_len() };
    let requests = [(a, Access::Read), (b, Access::Read), (out, Access::Write), (workspace, Access::Write)];
    let leases = <[DeviceLease<'_>; 4]>::try_from(arena.lease(&requests)?).expect("four requests");
    let [DeviceLease::Read(a), DeviceLease::Read(b), DeviceLease::Write(out), DeviceLease::Write(workspace)] =
        leases
    else {
        unreachable!("leases come in the order of the requests")
    };
    Ok(runner.run(cudnn, [a, b], out, Accumulate::Replace, workspace)?)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
