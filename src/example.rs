//! The examples: the command with one model of `models/` and defaults that suit the device.

use crate::args::{Command, PlanArgs, RunArgs, TimeArgs, TrainArgs};
use crate::{Result, commands, start};
use clap::{CommandFactory, Parser};
use std::{path::PathBuf, process::ExitCode};

/// One model, and what its example does unless it is told otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The model's name, and the example's.
    pub name: &'static str,
    /// Samples per mini-batch: few enough for a processor. The files have the papers' numbers, for GPUs.
    pub mini_batch: usize,
    /// Iterations of `train`.
    pub train_iterations: usize,
}

#[derive(Parser)]
#[command(version, about = "Time, train or plan one of the models", long_about = None)]
enum ExampleCommand {
    /// Time the net layer by layer, and show what every convolution got and why
    Time(TimeArgs),
    /// Train the net on synthetic images, to see how fast it goes
    Train(TrainArgs),
    /// Plan the convolutions of the net without running it
    Plan(PlanArgs),
}

impl Example {
    /// Reads the command line and does what it says; the exit code is that of [`crate::main`].
    pub fn main(self) -> ExitCode {
        start(ExampleCommand::command().name(self.name), |command| self.run(command))
    }

    fn run(self, command: ExampleCommand) -> Result<()> {
        commands::run(match command {
            ExampleCommand::Time(mut args) => {
                self.defaults(&mut args.net.model, &mut args.run);
                Command::Time(args)
            }
            ExampleCommand::Plan(mut args) => {
                self.defaults(&mut args.net.model, &mut args.run);
                Command::Plan(args)
            }
            ExampleCommand::Train(args) => Command::Train(self.training(args)),
        })
    }

    /// On synthetic images: with labels that mean nothing there is nothing to test or worth keeping.
    fn training(self, mut args: TrainArgs) -> TrainArgs {
        self.defaults(&mut args.solver, &mut args.run);
        let iterations = *args.max_iter.get_or_insert(self.train_iterations);
        args.no_test = true;
        args.no_snapshot = args.snapshot_prefix.is_none();
        args.run.notes.push(format!(
            "{iterations} iterations on synthetic images, untested; `microbatch train --solver {}` trains on real ones",
            self.name
        ));
        args
    }

    /// The model's net or solver, and a mini-batch for a CPU. A GPU gets that of the file.
    pub(crate) fn defaults(self, file: &mut Option<PathBuf>, run: &mut RunArgs) {
        file.get_or_insert_with(|| self.name.into());
        run.synthetic.get_or_insert(None);
        run.cpu_batch = Some(self.mini_batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        ExampleCommand::command().debug_assert();
    }
}
