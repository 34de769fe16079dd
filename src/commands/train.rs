//! `microbatch train`.

mod averages;
mod prepare;
mod progress;

use super::Notes;
use crate::{
    Console, Error,
    args::TrainArgs,
    console::complain,
    process,
    report::{Header, MemoryEstimate, OutputReport, PlanReport, StepLine, TestLines, TrainSummary},
    stop::StopRequest,
};
use averages::MovingAverages;
use prepare::{announce, prepare, start_from};
use progress::Meter;
use serde::Serialize;
use trainer::Solver;

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
    /// The iteration that it began at.
    first: u64,
    stop: StopRequest,
    meter: Meter,
    averages: MovingAverages,
    steps: Vec<StepLine>,
    tests: Vec<TestLines>,
}

/// Trains as a solver file says: tests, displays and snapshots on the way. A signal (Ctrl-C) ends it after the iteration
/// that it comes in, with a snapshot if any are written at all.
///
/// # Errors
/// Files, nets, data and limits that do not do, a snapshot that cannot be written, a loss that is no longer a number, and
/// [`Error::Stopped`].
pub fn train(args: &TrainArgs, notes: &Notes) -> Result<(), Error> {
    let at_start = process::resident();
    let mut console = Console::new(args.run.json);
    let (prepared, header, averages) = prepare(args, notes, &mut console)?;
    let (memory, plan) = announce(args, &prepared, at_start, &mut console)?;

    let mut solver = prepared.start()?;
    start_from(args, &mut solver)?;
    let first = solver.iteration();
    let meter = Meter::new(first, solver.spec().max_iter, header.net.mini_batch * solver.spec().iter_size);
    let stop = StopRequest::listen().map_err(Error::Signals)?;
    let (steps, tests) = (Vec::new(), Vec::new());
    let mut training = Training { console: &mut console, solver, first, stop, meter, averages, steps, tests };
    let summary = training.run()?;
    let stopped = training.stopped(&summary);
    let Training { steps, tests, .. } = training;
    console.text(format!("\n{summary}"))?;
    if let Some(peak) = memory.compare(summary.peak_resident_bytes) {
        console.text(format!("Peak resident memory {peak}"))?;
    }
    console.object(&Report { header, memory, plan, steps, tests, summary })?;
    stopped.map_or(Ok(()), Err)
}

impl Training<'_> {
    fn run(&mut self) -> Result<TrainSummary, Error> {
        let mut loss = f64::NAN;
        let mut snapshot = None;
        while !self.is_finished() && self.stop.exit_code().is_none() {
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
        if self.is_last_snapshot_due() {
            snapshot = Some(self.snapshot()?);
        }
        if self.is_finished() {
            self.test()?;
        }
        self.meter.finish();
        Ok(self.summary(loss, snapshot))
    }

    fn is_finished(&self) -> bool {
        self.solver.iteration() >= self.solver.spec().max_iter as u64
    }

    /// Whether the state at the end is not on disk yet, but should be: as the solver says, and where the end comes early,
    /// if there are to be any snapshots.
    fn is_last_snapshot_due(&self) -> bool {
        let (snapshot, iteration) = (&self.solver.spec().snapshot, self.solver.iteration());
        let wanted = snapshot.after_train || (!self.is_finished() && snapshot.interval > 0);
        wanted && iteration > self.first && !every(snapshot.interval, iteration)
    }

    /// What there is to say of a training that was stopped before its end.
    fn stopped(&self, summary: &TrainSummary) -> Option<Error> {
        let exit_code = self.stop.exit_code().filter(|_| !self.is_finished())?;
        let next = match &summary.snapshot {
            Some(path) => format!("--snapshot {path} goes on from there"),
            None if summary.iterations == self.first => "there was nothing new to save".to_owned(),
            None => "no snapshot was asked for".to_owned(),
        };
        let (iteration, max_iter) = (summary.iterations, self.solver.spec().max_iter);
        Some(Error::Stopped { iteration, max_iter, next, exit_code })
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
            self.explain(&lines);
            self.tests.push(lines);
        }
        Ok(())
    }

    /// Says on stderr why a test's loss may be far above that of training.
    fn explain(&mut self, test: &TestLines) {
        let loss = test.outputs.iter().map(OutputReport::loss).sum();
        let train = self.steps.last().map_or(f64::NAN, |step| step.loss);
        if let Some(hint) = self.averages.hint(test.iteration, train, loss) {
            self.meter.suspend(|| complain(&format!("hint: {hint}")));
        }
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
            max_iter: self.solver.spec().max_iter,
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
