//! What the command does, one file for each subcommand.

mod batch;
mod budget;
mod devices;
mod draw;
mod export;
mod figures;
mod init;
mod inputs;
mod list;
mod model;
mod origin;
mod plan;
mod plot;
mod predict;
mod profile;
mod ranks;
mod render;
mod run;
mod setup;
mod shell;
mod test;
mod time;
mod train;
mod tune;

use crate::Result;
use crate::args::{Command, DataCommand};

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Time(args) => time::time(&args),
        Command::Train(args) => train::train(&args),
        Command::Test(args) => test::test(&args),
        Command::Predict(args) => predict::predict(&args),
        Command::Plot { logs, out, seconds } => plot::plot(&logs, &out, seconds),
        Command::Plan(args) => plan::plan(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Figures(args) => figures::figures(&args),
        Command::Export(args) => export::export(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Init(args) => init::init(&args),
        Command::Data(DataCommand::Render(args)) => render::render(&args),
        Command::Run(args) => run::run(&args),
        Command::Devices { json } => devices::devices(json),
        Command::Model { depth, .. } => model::vgg(depth),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { command } => shell::man(&command),
    }
}
