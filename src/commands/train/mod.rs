//! `microbatch train`.

mod prepare;
mod progress;

use super::Notes;
use crate::{
    Console, Error,
    args::TrainArgs,
    console::complain,
    report::{
        BudgetReport, Header, MemoryEstimate, PlanReport, ScheduleReport, StepLine, TestLines, TrainSummary,
    },
    stop::{exit_code, stop},
};
use prepare::{Prepared, prepare};
use progress::Meter;
use serde::Serialize;
use trainer::{
    Solver, Stop, TrainError, host,
    snapshot::CopiedWeights,
    solver::{MovingAverages, TestOutput},
};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    /// With `--weights`, what was taken of them.
    weights: Option<CopiedWeights>,
    memory: MemoryEstimate,
    plan: PlanReport,
    budget: Option<BudgetReport>,
    schedule: Option<ScheduleReport>,
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
    stop: Stop,
    meter: Meter,
    averages: MovingAverages,
    steps: Vec<StepLine>,
    tests: Vec<TestLines>,
    /// The last loss.
    loss: f64,
    /// The last snapshot and its iteration; at first the one that it resumes.
    saved: Option<(u64, String)>,
    /// Whether everything is done, the tests at the end, too.
    is_complete: bool,
}

/// Trains as a solver file says: tests, displays and snapshots on the way. A signal (Ctrl-C) ends it after its iteration, or
/// between the mini-batches of a test or of `iter_size`; what is not finished then is given up. However it ends before its
/// time, it leaves a snapshot of the last finished iteration, if any are written at all: unless the loss has diverged, as
/// the weights had before, or writing is what failed.
///
/// # Errors
/// Files, nets, data and limits that do not do, a snapshot that cannot be written, a loss that is no longer a number, output
/// that cannot be written, and [`Error::Stopped`].
pub fn train(args: &TrainArgs, notes: &Notes) -> Result<(), Error> {
    let at_start = host::resident();
    let mut console = Console::new(args.run.json);
    let stop = stop()?;
    let nothing = |error: Error| error.of_training("nothing was trained");
    let prepared = prepare(args, notes, at_start, &mut console).map_err(nothing)?;
    let Prepared { solver, header, weights, memory, plan, budget, schedule, averages, _place } = prepared;
    let mini_batch = header.net.mini_batch;
    let mut training = Training::new(args, solver, (mini_batch, averages), stop, &mut console);
    let summary = training.run()?;
    let stopped = training.stopped();
    let Training { steps, tests, .. } = training;
    let report = Report { header, weights, memory, plan, budget, schedule, steps, tests, summary };
    let printed = print(&report, &mut console);
    // A terminal that closes takes the output with it: that it was asked to stop is what matters.
    stopped.map_or(printed.map_err(|error| error.of_training("the training is complete")), Err)
}

fn print(report: &Report, console: &mut Console) -> Result<(), Error> {
    let summary = &report.summary;
    console.text(format!("\n{summary}"))?;
    if let Some(peak) = report.memory.compare(summary.peak_resident) {
        console.text(format!("Peak resident memory {peak}"))?;
    }
    console.object(report)
}

impl<'a> Training<'a> {
    fn new(
        args: &TrainArgs,
        solver: Solver,
        (mini_batch, averages): (usize, MovingAverages),
        stop: Stop,
        console: &'a mut Console,
    ) -> Self {
        let first = solver.iteration();
        let meter = Meter::new(first, solver.spec().max_iter, mini_batch * solver.spec().iter_size);
        let saved = args.snapshot.as_ref().map(|path| (first, path.display().to_string()));
        let (steps, tests) = (Vec::new(), Vec::new());
        let (loss, is_complete) = (f64::NAN, false);
        Self { console, solver, first, stop, meter, averages, steps, tests, loss, saved, is_complete }
    }

    /// Trains to the end, or until it is asked to stop.
    fn run(&mut self) -> Result<TrainSummary, Error> {
        let _listening = self.stop.listen();
        let result = self.iterate();
        let result = result.or_else(|error| self.leave(error));
        self.meter.finish();
        result.map(|()| self.summary())
    }

    fn iterate(&mut self) -> Result<(), Error> {
        while !self.is_finished() && !self.stop.is_requested() {
            let iteration = self.solver.iteration();
            if self.is_test_due(iteration) && !self.test()? {
                break;
            }
            let (solver, stop) = (&mut self.solver, &self.stop);
            let Some(step) = self.meter.step(|| solver.step_unless(stop))? else { break };
            self.loss = step.smoothed_loss;
            self.meter.show(&step);
            if every(self.solver.spec().display, iteration) {
                let line = StepLine { step, images_per_s: self.meter.images_per_s() };
                self.say(&line)?;
                self.steps.push(line);
            }
            if every(self.solver.spec().snapshot.interval, self.solver.iteration()) {
                self.snapshot()?;
            }
        }
        if self.solver.spec().snapshot.after_train || !self.is_finished() {
            self.save()?;
        }
        self.is_complete = self.is_finished() && self.test()?;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.solver.iteration() >= self.solver.spec().max_iter as u64
    }

    /// Writes a snapshot, if any are to be written, and this iteration's is not on disk yet.
    fn save(&mut self) -> Result<(), Error> {
        let saved = self.saved.as_ref().map_or(self.first, |(iteration, _)| *iteration);
        let is_new = self.solver.iteration() > saved;
        if is_new && self.solver.spec().snapshot.is_wanted() { self.snapshot() } else { Ok(()) }
    }

    /// Saves what was done before `error`, and says so. Nothing is left to be said where it was asked to stop, and only its
    /// last words were not read.
    fn leave(&mut self, error: Error) -> Result<(), Error> {
        let unsaved = match &error {
            Error::Train(TrainError::Diverged { .. }) | Error::Snapshot(_) => None,
            // Output that cannot be written does not undo the snapshot.
            _ => self.save().err().filter(|error| !matches!(error, Error::Output(_))),
        };
        if self.stop.is_requested() && unsaved.is_none() && matches!(error, Error::Output(_)) {
            return Ok(());
        }
        let next = match unsaved {
            Some(unsaved) => format!("{unsaved}; {}", self.next()),
            None => self.next(),
        };
        Err(Error::Failed { source: Box::new(error), next })
    }

    /// What there is to say of a training that was stopped before its end.
    fn stopped(&self) -> Option<Error> {
        let exit_code = exit_code().filter(|_| !self.is_complete)?;
        let (iteration, max_iter) = (self.solver.iteration(), self.solver.spec().max_iter);
        let after = format!("after {iteration} of {max_iter} iterations; {}", self.next());
        Some(Error::Stopped { after, exit_code })
    }

    /// How to resume.
    fn next(&self) -> String {
        let iteration = self.solver.iteration();
        match &self.saved {
            _ if self.is_finished() => "only the tests at its end are missing".to_owned(),
            Some((saved, path)) if *saved == iteration => format!("--snapshot {path} resumes from there"),
            Some((saved, path)) => format!("--snapshot {path} resumes from iteration {saved}"),
            None if !self.solver.spec().snapshot.is_wanted() => "no snapshot was to be written".to_owned(),
            None if iteration == self.first => "there was nothing new to save".to_owned(),
            None => "there is no snapshot to resume from".to_owned(),
        }
    }

    fn is_test_due(&self, iteration: u64) -> bool {
        let spec = self.solver.spec();
        every(spec.test_interval, iteration) && (iteration > 0 || spec.test_initialization)
    }

    /// Runs all tests and prints their outputs; says whether it got to the end.
    fn test(&mut self) -> Result<bool, Error> {
        for net in 0..self.solver.spec().tests.len() {
            let (solver, stop) = (&mut self.solver, &self.stop);
            let Some(outputs) = self.meter.pause(|| solver.test_unless(net, stop))? else { return Ok(false) };
            let lines = TestLines { iteration: self.solver.iteration(), net, outputs };
            self.say(&lines)?;
            self.explain(&lines);
            self.tests.push(lines);
        }
        Ok(true)
    }

    /// Says on stderr why a test's loss may be far above that of training.
    fn explain(&mut self, test: &TestLines) {
        let loss = test.outputs.iter().map(TestOutput::loss).sum();
        let train = self.steps.last().map_or(f64::NAN, |line| line.step.smoothed_loss);
        if let Some(hint) = self.averages.hint(test.iteration, train, loss) {
            self.meter.suspend(|| complain(&format!("hint: {hint}")));
        }
    }

    fn snapshot(&mut self) -> Result<(), Error> {
        let path = self.solver.snapshot()?.display().to_string();
        self.saved = Some((self.solver.iteration(), path.clone()));
        self.say(&format!("Snapshotting solver state to {path}"))
    }

    fn say(&mut self, line: &impl std::fmt::Display) -> Result<(), Error> {
        let console = &mut *self.console;
        self.meter.suspend(|| console.text(line))
    }

    fn summary(&self) -> TrainSummary {
        let last = self.tests.last().map_or(0, |test| test.iteration);
        let outputs = self.tests.iter().filter(|test| test.iteration == last).flat_map(|test| &test.outputs);
        let written = self.saved.iter().filter(|(iteration, _)| *iteration > self.first);
        TrainSummary {
            iterations: self.solver.iteration(),
            max_iter: self.solver.spec().max_iter,
            loss: self.loss,
            seconds: self.meter.seconds(),
            images_per_s: self.meter.mean_images_per_s(),
            accuracies: outputs.filter(|output| output.loss_weight == 0.0).cloned().collect(),
            snapshot: written.map(|(_, path)| path.clone()).next(),
            peak_resident: host::peak_resident(),
        }
    }
}

/// Whether something that happens every `interval` iterations (0: never) happens at `iteration`.
fn every(interval: usize, iteration: u64) -> bool {
    interval > 0 && iteration.is_multiple_of(interval as u64)
}
