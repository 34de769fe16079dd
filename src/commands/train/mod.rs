//! `microbatch train`.

mod metrics;
mod prepare;
mod progress;
mod tensorboard;

use super::ranks::on_each;
use crate::args::{RunArgs, TrainArgs};
use crate::report::{StepLine, TestLines, TrainReport, TrainSummary};
use crate::stop::{exit_code, stop};
use crate::{Console, Error, Result, console::complain};
use metrics::Metrics;
use prepare::{Prepared, prepare};
use progress::Meter;
use std::{collections::BTreeSet, fs::canonicalize, mem, path::Path};
use trainer::snapshot::{SnapshotPlace, state_path};
use trainer::solver::{StepReport, TestOutput};
use trainer::{Group, NetError, Solver, Stop, host};

/// A training under way, and what it has said.
struct Training<'a> {
    console: &'a mut Console,
    solver: Solver,
    /// The iteration that it began at.
    first: u64,
    stop: Stop,
    meter: Meter,
    metrics: Metrics,
    place: Option<SnapshotPlace>,
    /// How many snapshots are kept, and the iterations of this training's.
    keep: (Option<usize>, BTreeSet<u64>),
    /// After how many tests without a lower loss it ends.
    patience: Option<usize>,
    has_converged: bool,
    report: TrainReport,
    loss: f64,
    /// The last snapshot and its iteration; at first the one that it resumes.
    saved: Option<(u64, String)>,
    /// Whether everything is done, the tests at the end, too.
    is_complete: bool,
}

/// Trains as a solver file says: tests, displays and snapshots on the way. A signal (Ctrl-C) ends it after its
/// iteration, or between the mini-batches of a test or of `iter_size`; what is not finished then is given up. However
/// it ends before its time, it leaves a snapshot of the last finished iteration, if any are written at all: unless the
/// weights are no numbers any more, or writing is what failed.
pub(super) fn train(args: &TrainArgs) -> Result<()> {
    on_each(&args.run, |run, group| train_rank(args, run, group))
}

fn train_rank(args: &TrainArgs, run: &RunArgs, group: &Group) -> Result<()> {
    let mut console = Console::of_rank(group.leads(), run.json);
    let stop = stop()?;
    if !group.leads() {
        let mut solver = match prepare(args, run, group, &mut console) {
            // It was stopped while it measured, in good order.
            Err(Error::Rank(_)) if group.has_ended() => return Ok(()),
            prepared => prepared?.solver,
        };
        // Signals are for the first rank to hear, which says when to end.
        let _listening = stop.listen();
        return Ok(solver.follow()?);
    }
    let nothing = |error: Error| error.of_training("nothing was trained");
    let prepared = prepare(args, run, group, &mut console).map_err(nothing)?;
    let Prepared { solver, report, place, snapshot } = prepared;
    let (first, spec) = (solver.iteration(), solver.spec());
    let metrics = Metrics::open(args, (&report, &solver), snapshot.as_deref()).map_err(nothing)?;
    let images = solver.execution().nets()[0].mini_batch() * spec.iter_size * spec.share.ranks;
    let memory = report.memory.expected_peak.unwrap_or(report.memory.report.arena);
    let meter = Meter::new(first, spec.max_iter, images, memory.to_string());
    // Another training's are left alone.
    let own = canonicalize(state_path(&spec.snapshot.prefix, first)).ok();
    let is_own = own.is_some() && own == snapshot.as_ref().and_then(|path| canonicalize(path).ok());
    let earlier = place.as_ref().filter(|_| is_own && args.keep.is_some()).map(|place| place.earlier(first));
    let mut training = Training {
        console: &mut console,
        solver,
        first,
        stop,
        meter,
        metrics,
        place,
        keep: (args.keep, earlier.unwrap_or_default()),
        patience: args.patience,
        has_converged: false,
        report,
        loss: f64::NAN,
        saved: snapshot.map(|path| (first, path)),
        is_complete: false,
    };
    let summary = training.run()?;
    let stopped = training.stopped();
    let printed = print(training.report, summary, training.console);
    match stopped {
        // A terminal that closes takes the output with it: that it was asked to stop is what matters.
        Some(stopped) => Err(stopped),
        None => printed.map_err(|error| error.of_training("the training is complete")),
    }
}

fn print(report: TrainReport, summary: TrainSummary, console: &mut Console) -> Result<()> {
    console.text(format!("\n{summary}"))?;
    if let Some(peak) = report.memory.compare(summary.peak_resident) {
        console.text(format!("Peak resident memory {peak}"))?;
    }
    console.object(&TrainReport { summary: Some(summary), ..report })
}

impl Training<'_> {
    /// Trains to the end, or until it is asked to stop.
    fn run(&mut self) -> Result<TrainSummary> {
        let _listening = self.stop.listen();
        let result = self.iterate().or_else(|error| self.leave(error));
        self.meter.bar.finish_and_clear();
        result.map(|()| self.summary())
    }

    fn iterate(&mut self) -> Result<()> {
        while !self.is_finished() && !self.stop.is_requested() {
            let iteration = self.solver.iteration();
            if self.is_test_due(iteration) && (!self.test()? || self.has_converged) {
                break;
            }
            let (solver, stop) = (&mut self.solver, &self.stop);
            let Some(step) = self.meter.step(|| solver.step_unless(stop))? else { break };
            self.loss = step.smoothed_loss;
            self.show(step)?;
            if every(self.solver.spec().snapshot.interval, self.solver.iteration()) {
                self.snapshot()?;
            }
        }
        if self.solver.spec().snapshot.after_train || !self.is_finished() {
            self.save()?;
        }
        // What has converged was found by the last test.
        self.is_complete = self.has_converged || (self.is_finished() && self.test()?);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.has_converged || self.solver.iteration() >= self.solver.spec().max_iter as u64
    }

    /// Shows an iteration, on the bar and where it is displayed.
    fn show(&mut self, step: StepReport) -> Result<()> {
        let is_displayed = every(self.solver.spec().display, step.iteration);
        let epoch = self.solver.epoch();
        let is_seen = is_displayed || !self.meter.bar.is_hidden();
        let outputs = if is_seen { self.solver.outputs()? } else { Vec::new() };
        self.meter.show(&step, epoch, &outputs);
        if is_displayed {
            let recent = mem::take(&mut self.meter.recent);
            let (images_per_s, seconds) = (self.meter.speed(recent), self.meter.all.1.as_secs_f64());
            let line = StepLine { step, images_per_s, seconds, epoch, outputs };
            // What is written stays, even if nobody reads any more.
            self.metrics.step(&line)?;
            self.say(&line)?;
            // Only a report at the end has them: otherwise memory would grow as long as it trains.
            if self.console.json {
                self.report.steps.push(line);
            }
        }
        Ok(())
    }

    /// Writes a snapshot, if any are to be written, and this iteration's is not on disk yet.
    fn save(&mut self) -> Result<()> {
        let is_new = self.solver.iteration() > self.first && !self.is_saved();
        if is_new && self.solver.spec().snapshot.is_wanted() { self.snapshot() } else { Ok(()) }
    }

    fn is_saved(&self) -> bool {
        self.saved.as_ref().is_some_and(|(saved, _)| *saved == self.solver.iteration())
    }

    /// Saves what was done before `error`, and says so. Nothing is left to be said where it was asked to stop, and only
    /// its last words were not read.
    fn leave(&mut self, error: Error) -> Result<()> {
        let has_diverged = matches!(error, Error::Net(NetError::Diverged { .. }));
        if has_diverged {
            // What is saved now may be spoiled already: nothing else goes for it.
            self.keep.0 = None;
        }
        let unsaved = match &error {
            Error::Snapshot(_) => None,
            _ if has_diverged && !self.solver.is_finite() => None,
            // What cannot be said of a snapshot does not undo it.
            _ => self.save().err().filter(|_| !self.is_saved()),
        };
        if self.stop.is_requested() && unsaved.is_none() && matches!(error, Error::Output(_)) {
            return Ok(());
        }
        let next = match unsaved {
            None if has_diverged && self.is_saved() && !self.is_finished() => {
                let path = self.saved.as_ref().map_or("", |(_, path)| path);
                format!(
                    "what {path} holds may be spoiled already: an earlier snapshot and a lower --base-lr are the way on"
                )
            }
            Some(unsaved) => format!("{unsaved}; {}", self.next()),
            None => self.next(),
        };
        Err(Error::Refused(format!("{error}; {next}")))
    }

    /// What there is to say of a training that was stopped before its end.
    fn stopped(&self) -> Option<Error> {
        exit_code().filter(|_| !self.is_complete)?;
        let (iteration, max_iter) = (self.solver.iteration(), self.solver.spec().max_iter);
        Some(Error::Stopped(format!("after {iteration} of {max_iter} iterations; {}", self.next())))
    }

    /// How to resume.
    fn next(&self) -> String {
        match self.saved.as_ref().filter(|(_, path)| Path::new(path).exists()) {
            _ if self.is_finished() && (self.is_saved() || !self.solver.spec().snapshot.is_wanted()) => {
                "only the tests at its end are missing".to_owned()
            }
            Some((_, path)) if self.is_saved() => format!("--snapshot {path} resumes from there"),
            Some((saved, path)) => format!("--snapshot {path} resumes from iteration {saved}"),
            None if !self.solver.spec().snapshot.is_wanted() => "no snapshot was to be written".to_owned(),
            None if self.solver.iteration() == self.first => "there was nothing new to save".to_owned(),
            None => "there is no snapshot to resume from".to_owned(),
        }
    }

    fn is_test_due(&self, iteration: u64) -> bool {
        let spec = self.solver.spec();
        every(spec.test_interval, iteration) && (iteration > 0 || spec.test_initialization)
    }

    /// Runs all tests and prints their outputs; says whether it got to the end.
    fn test(&mut self) -> Result<bool> {
        if !self.console.json {
            self.report.tests.clear();
        }
        for net in 0..self.solver.spec().tests.len() {
            let (bar, all) = (&self.meter.bar, self.solver.spec().tests[net].iterations);
            let show = |number| bar.set_message(format!("testing {}/{all}", number + 1));
            let Some(outputs) = self.solver.test(net, &self.stop, show)? else { return Ok(false) };
            let (iteration, seconds) = (self.solver.iteration(), self.meter.all.1.as_secs_f64());
            let lines = TestLines { iteration, seconds, net, outputs };
            self.metrics.test(&lines)?;
            self.say(&lines)?;
            self.report.tests.push(lines);
        }
        self.judge()?;
        Ok(true)
    }

    /// Takes note of how good the tests just made were, by their losses.
    fn judge(&mut self) -> Result<()> {
        let iteration = self.solver.iteration();
        let tests = self.report.tests.iter().rev().take_while(|test| test.iteration == iteration);
        let outputs: Vec<&TestOutput> =
            tests.flat_map(|test| &test.outputs).filter(|output| output.loss_weight != 0.0).collect();
        let loss = outputs.iter().map(|output| output.loss()).sum::<f64>();
        if outputs.is_empty() || self.keep.0.is_none() && self.patience.is_none() {
            return Ok(());
        }
        // Before it is judged: a training that resumes there makes this test again.
        if self.keep.0.is_some() && iteration > 0 && self.solver.is_best(loss) {
            self.save()?;
        }
        let since = self.solver.judge(loss);
        // Where no test was due, none is made again: what lies there still names the best before.
        if self.is_test_due(iteration) {
            self.remove_old();
        }
        if self.patience.is_some_and(|patience| since >= patience as u64) && !self.is_finished() {
            let best = self.solver.best().unwrap_or(0);
            self.has_converged = true;
            self.say(&format!(
                "No test has found a lower loss than that of iteration {best} in {}",
                figures::counted(since as usize, "test")
            ))?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        let path = self.solver.snapshot().map_err(Error::Snapshot)?.display().to_string();
        let iteration = self.solver.iteration();
        self.saved = Some((iteration, path.clone()));
        self.keep.1.insert(iteration);
        self.metrics.snapshot(iteration, self.meter.all.1.as_secs_f64(), &path)?;
        self.say(&format!("Snapshotting solver state to {path}"))?;
        self.remove_old();
        Ok(())
    }

    /// Removes this training's snapshots but the last ones and the best.
    fn remove_old(&mut self) {
        let (keep, written) = &mut self.keep;
        let (Some(keep), Some(place)) = (*keep, &self.place) else { return };
        let best = self.solver.best();
        let old: Vec<u64> = written.iter().rev().skip(keep).copied().filter(|&at| Some(at) != best).collect();
        for iteration in old {
            written.remove(&iteration);
            if let Err(error) = place.remove(iteration) {
                self.meter.bar.suspend(|| complain(&format!("warning: {error}")));
            }
        }
    }

    fn say(&mut self, line: &impl std::fmt::Display) -> Result<()> {
        self.meter.bar.suspend(|| self.console.text(line))
    }

    fn summary(&self) -> TrainSummary {
        let tests = &self.report.tests;
        let iterations = self.solver.iteration();
        let outputs = tests.iter().filter(|test| test.iteration == iterations).flat_map(|test| &test.outputs);
        let written = self.saved.as_ref().filter(|(iteration, _)| *iteration > self.first);
        TrainSummary {
            iterations,
            max_iter: self.solver.spec().max_iter,
            loss: self.loss,
            seconds: self.meter.all.1.as_secs_f64(),
            images_per_s: self.meter.speed(self.meter.all),
            accuracies: outputs.filter(|output| output.loss_weight == 0.0).cloned().collect(),
            snapshot: written.map(|(_, path)| path.clone()),
            peak_resident: host::peak_resident(),
        }
    }
}

/// Whether something that happens every `interval` iterations (0: never) happens at `iteration`.
fn every(interval: usize, iteration: u64) -> bool {
    interval > 0 && iteration.is_multiple_of(interval as u64)
}
