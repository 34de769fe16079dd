//! The examples: the command with one model of `models/` and defaults that suit the device.

use crate::args::{NetArgs, PlanArgs, RunArgs, TimeArgs, TrainArgs};
use crate::{Error, commands, start};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

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

    fn run(self, command: ExampleCommand) -> Result<(), Error> {
        match command {
            ExampleCommand::Time(mut args) => {
                let notes = self.defaults(&mut args.net, &mut args.run);
                commands::time(&args, &notes)
            }
            ExampleCommand::Plan(args) if args.shapes.is_given() => commands::plan(&args, &[]),
            ExampleCommand::Plan(mut args) => {
                let notes = self.defaults(&mut args.net, &mut args.run);
                commands::plan(&args, &notes)
            }
            ExampleCommand::Train(args) => self.train(args),
        }
    }

    /// Trains on synthetic images: with labels that mean nothing there is nothing to test or worth keeping.
    fn train(self, mut args: TrainArgs) -> Result<(), Error> {
        args.solver.get_or_insert_with(|| self.name.into());
        let mut notes = self.batch(&mut args.batch, &args.run);
        args.run.synthetic.get_or_insert(None);
        let iterations = *args.max_iter.get_or_insert(self.train_iterations);
        args.no_test = true;
        args.no_snapshot = args.snapshot_prefix.is_none();
        notes.push(format!(
            "{iterations} iterations on synthetic images, untested; `microbatch train --solver {}` trains on real ones",
            self.name
        ));
        commands::train(&args, &notes)
    }

    fn defaults(self, net: &mut NetArgs, run: &mut RunArgs) -> Vec<String> {
        net.model.get_or_insert_with(|| self.name.into());
        run.synthetic.get_or_insert(None);
        self.batch(&mut net.batch, run)
    }

    /// Chooses the mini-batch for a CPU if the user has not, and says so. A GPU gets that of the file.
    fn batch<B: From<usize>>(self, batch: &mut Option<B>, run: &RunArgs) -> Vec<String> {
        if batch.is_some() || run.on_gpu() {
            return Vec::new();
        }
        *batch = Some(self.mini_batch.into());
        vec![format!(
            "mini-batch {}, the default on a CPU (the paper's suits a GPU); --batch N overrides it",
            self.mini_batch
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        ExampleCommand::command().debug_assert();
    }

    /// A CPU's mini-batch is no default for what a GPU's table predicts.
    #[test]
    fn only_a_cpu_gets_the_small_mini_batch() {
        let example = Example { name: "resnet18", mini_batch: 16, train_iterations: 1 };
        let chosen = |device: &str| {
            let command = ExampleCommand::try_parse_from(["resnet18", "plan", "--device", device]).unwrap();
            let ExampleCommand::Plan(mut args) = command else { unreachable!("plan was asked for") };
            let notes = example.defaults(&mut args.net, &mut args.run);
            (args.net.batch, notes.len())
        };
        assert_eq!(chosen("cpu"), (Some(16.into()), 1));
        let tables =
            concat!("recorded:", env!("CARGO_MANIFEST_DIR"), "/data/profiles/nvidia-h200/resnet18-128-");
        for table in ["all-fp32.jsonl.gz", "powerOfTwo.jsonl"] {
            assert_eq!(chosen(&format!("{tables}{table}")), (None, 0), "{table}");
        }
        let table = tempfile::NamedTempFile::new().unwrap();
        let header = planner::DeviceHeader { threads: "2".to_owned(), ..Default::default() };
        std::fs::write(table.path(), planner::CostTable::new(header).to_json_lines()).unwrap();
        assert_eq!(chosen(&format!("recorded:{}", table.path().display())), (Some(16.into()), 1));
    }
}
