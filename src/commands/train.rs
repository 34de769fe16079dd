//! `microbatch train`.

mod progress;

use super::{
    Notes,
    setup::{check_memory, synthetic, warn},
};
use crate::{
    Console, Error,
    args::{DEFAULT_SEED, Environment, TrainArgs, required},
    device::DeviceReport,
    process,
    progress::ProfileBar,
    report::{Header, MemoryEstimate, NetReport, PlanReport, StepLine, TestLines, TrainSummary},
};
use cudnn_layers::conv::ProfileOptions;
use planner::Bytes;
use progress::Meter;
use serde::Serialize;
use std::{
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use trainer::{
    Prepared, Solver, TrainOptions,
    snapshot::load_solver_state,
    spec::{NetSpec, SolverSpec},
};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    memory: MemoryEstimate,
    plan: PlanReport,
    steps: Vec<StepLine>,
    tests: Vec<TestLines>,
    summary: TrainSummary,
}

/// A training under way, and what it has said.
struct Training<'a> {
    console: &'a mut Console,
    solver: Solver,
    meter: Meter,
    steps: Vec<StepLine>,
    tests: Vec<TestLines>,
}

/// Trains as a solver file says: tests, displays and snapshots on the way.
///
/// # Errors
/// Files, nets, data and limits that do not do, a snapshot that cannot be written, and a loss that is no longer a number.
pub fn train(args: &TrainArgs, notes: &Notes) -> Result<(), Error> {
    let at_start = process::resident();
    let mut console = Console::new(args.run.json);
    let (prepared, header) = prepare(args, notes, &mut console)?;
    let (memory, plan) = announce(&prepared, at_start, &mut console)?;

    let mut solver = prepared.start();
    start_from(args, &mut solver)?;
    let first = solver.iteration();
    let meter = Meter::new(first, solver.spec().max_iter, header.net.mini_batch * solver.spec().iter_size);
    let mut training =
        Training { console: &mut console, solver, meter, steps: Vec::new(), tests: Vec::new() };
    let summary = training.run()?;
    let Training { steps, tests, .. } = training;
    console.text(format!("\n{summary}"))?;
    if let (Some(peak), Some(expected)) = (summary.peak_resident_bytes, memory.expected_peak_bytes) {
        console.text(format!("Peak resident memory {}, expected {}", Bytes(peak), Bytes(expected)))?;
    }
    console.object(&Report { header, memory, plan, steps, tests, summary })
}

/// Reads the solver, builds and plans its nets, and prints the header.
fn prepare(args: &TrainArgs, notes: &Notes, console: &mut Console) -> Result<(Prepared, Header), Error> {
    let plan = args.planning.options(&Environment::of_process())?;
    let device = args.run.device()?;
    let spec = solver_spec(args)?;
    let net = spec.train_net.load()?.for_state(&spec.train_state);
    let mut warnings = warn(console, &spec.warnings);
    warnings.extend(warn(console, &net.warnings));
    let options = TrainOptions {
        device: device.clone(),
        plan,
        profile: ProfileOptions::default(),
        records: args.planning.database.records(&Environment::of_process())?,
        synthetic: synthetic(&args.run, &net),
        mini_batch: args.batch,
        seed: seed(args),
    };
    let (start, mut bar) = (Instant::now(), ProfileBar::default());
    let prepared = Prepared::new(spec, &options, |progress| bar.show(progress))?;
    let seconds = start.elapsed().as_secs_f64();
    warnings.extend(prepared.warnings().iter().inspect(|warning| console.warn(warning)).cloned());
    let header = header(args, notes, (&net, &prepared), DeviceReport::new(&device), warnings);
    console.text(&header)?;
    console.text(format!(
        "  prepared    in {seconds:.1} s: nets built, kernels measured, planned and laid out"
    ))?;
    Ok((prepared, header))
}

fn header(
    args: &TrainArgs,
    notes: &Notes,
    (spec, prepared): (&NetSpec, &Prepared),
    device: DeviceReport,
    warnings: Vec<String>,
) -> Header {
    let mut notes = notes.0.clone();
    notes.push(format!("seed {}", prepared.seed()));
    let kernels = prepared.plans()[0].kernels.len();
    let net = NetReport::new(spec, prepared.net(), kernels, args.run.synthetic.is_some());
    Header { command: "train", device: Some(device), recorded: None, net, warnings, notes }
}

/// Prints the plan's policies and the memory of the run, and refuses what the machine cannot hold.
fn announce(
    prepared: &Prepared,
    at_start: Option<Bytes>,
    console: &mut Console,
) -> Result<(MemoryEstimate, PlanReport), Error> {
    check_memory(prepared.memory().arena)?;
    let plan = PlanReport::new(&prepared.plans()[0], &[]);
    let memory = MemoryEstimate::new(prepared.memory(), at_start);
    console.text(format!("  plan        {}", plan.policies()))?;
    if !plan.kernels.is_empty() {
        console.text(format!("              {}", plan.totals()))?;
    }
    console.text(format!("{memory}\n"))?;
    Ok((memory, plan))
}

/// The solver file, with what the command line says in its place.
fn solver_spec(args: &TrainArgs) -> Result<SolverSpec, Error> {
    let mut spec = SolverSpec::load(required(&args.solver, "--solver")?)?;
    spec.max_iter = args.max_iter.unwrap_or(spec.max_iter);
    spec.random_seed = args.run.seed.or(snapshot_seed(args)?).or(spec.random_seed);
    if args.no_test {
        spec.tests.clear();
    }
    if args.no_snapshot {
        spec.snapshot.interval = 0;
        spec.snapshot.after_train = false;
    }
    if let Some(prefix) = &args.snapshot_prefix {
        spec.snapshot.prefix.clone_from(prefix);
    }
    if spec.snapshot.interval > 0 || spec.snapshot.after_train {
        make_folder(&spec.snapshot.prefix)?;
    }
    Ok(spec)
}

/// A training that goes on draws what it would have drawn.
fn snapshot_seed(args: &TrainArgs) -> Result<Option<u64>, Error> {
    let Some(snapshot) = &args.snapshot else { return Ok(None) };
    let (state, _) = load_solver_state(snapshot)?;
    Ok(Some(state.random_seed))
}

/// Makes the folder of the snapshots now: that it cannot be made should not come out at the end of a training.
fn make_folder(prefix: &Path) -> Result<(), Error> {
    let Some(folder) = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let error = |source| Error::Folder { folder: folder.display().to_string(), source };
    std::fs::create_dir_all(folder).map_err(error)
}

/// The seed where the solver file has none: Caffe draws another one for each run.
fn seed(args: &TrainArgs) -> u64 {
    let clock =
        || SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| u64::from(time.subsec_nanos()));
    args.run.seed.or_else(clock).unwrap_or(DEFAULT_SEED)
}

fn start_from(args: &TrainArgs, solver: &mut Solver) -> Result<(), Error> {
    if let Some(weights) = &args.weights {
        solver.load_weights(weights)?;
    }
    let Some(snapshot) = &args.snapshot else { return Ok(()) };
    solver.restore(snapshot)?;
    let (iteration, max_iter) = (solver.iteration(), solver.spec().max_iter);
    if iteration >= max_iter as u64 {
        return Err(Error::Finished { snapshot: snapshot.display().to_string(), iteration, max_iter });
    }
    Ok(())
}

impl Training<'_> {
    fn run(&mut self) -> Result<TrainSummary, Error> {
        let mut loss = f64::NAN;
        let mut snapshot = None;
        while self.solver.iteration() < self.solver.spec().max_iter as u64 {
            let iteration = self.solver.iteration();
            if self.is_test_due(iteration) {
                self.test()?;
            }
            let step = self.meter.step(|| self.solver.step())?;
            loss = step.smoothed_loss;
            self.meter.show(&step);
            if every(self.solver.spec().display, iteration) {
                let line = StepLine::new(&step, self.meter.images_per_s());
                self.say(&line)?;
                self.steps.push(line);
            }
            if every(self.solver.spec().snapshot.interval, self.solver.iteration()) {
                snapshot = Some(self.snapshot()?);
            }
        }
        if self.solver.spec().snapshot.after_train
            && !every(self.solver.spec().snapshot.interval, self.solver.iteration())
        {
            snapshot = Some(self.snapshot()?);
        }
        self.test()?;
        self.meter.finish();
        Ok(self.summary(loss, snapshot))
    }

    fn is_test_due(&self, iteration: u64) -> bool {
        let spec = self.solver.spec();
        every(spec.test_interval, iteration) && (iteration > 0 || spec.test_initialization)
    }

    /// Runs all tests and prints their outputs.
    fn test(&mut self) -> Result<(), Error> {
        for net in 0..self.solver.spec().tests.len() {
            let outputs = self.meter.pause(|| self.solver.test(net))?;
            let outputs = outputs.into_iter().map(Into::into).collect();
            let lines = TestLines { iteration: self.solver.iteration(), net, outputs };
            self.say(&lines)?;
            self.tests.push(lines);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<String, Error> {
        let path = self.solver.snapshot()?.display().to_string();
        self.say(&format!("Snapshotting solver state to {path}"))?;
        Ok(path)
    }

    fn say(&mut self, line: &impl std::fmt::Display) -> Result<(), Error> {
        let console = &mut *self.console;
        self.meter.suspend(|| console.text(line))
    }

    fn summary(&self, loss: f64, snapshot: Option<String>) -> TrainSummary {
        let last = self.tests.last().map_or(0, |test| test.iteration);
        let outputs = self.tests.iter().filter(|test| test.iteration == last).flat_map(|test| &test.outputs);
        TrainSummary {
            iterations: self.solver.iteration(),
            loss,
            seconds: self.meter.seconds(),
            images_per_s: self.meter.mean_images_per_s(),
            accuracies: outputs.filter(|output| output.loss_weight == 0.0).cloned().collect(),
            snapshot,
            peak_resident_bytes: process::peak_resident().map(|bytes| bytes.0),
        }
    }
}

/// Whether something that happens every `interval` iterations (0: never) happens at `iteration`.
fn every(interval: usize, iteration: u64) -> bool {
    interval > 0 && iteration.is_multiple_of(interval as u64)
}
