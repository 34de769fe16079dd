//! A complete, minimal CNN training framework whose subject is the *workspace* of convolutions.
//!
//! A convolution has several algorithms, and the fast ones need scratch memory in proportion to the number of samples.
//! Give one a byte less than it wants and the library falls back to a slow one. Splitting the mini-batch into
//! *micro-batches* brings the fast algorithm back under the limit, and the mathematics of training stays the same. This
//! crate measures every algorithm, plans the split of every convolution kernel, and trains and times nets with the
//! plan.
//!
//! It is a facade: the work is done in several crates, re-exported here, each of which knows only those on its right.
//!
//! ```text
//! microbatch ──► trainer ──► cudnn_layers ────► planner
//!     │              │           └────────────► tensor
//!     │              └─────► memory, files ───► planner
//!     └────────► figures ──► memory ──────────► planner
//! ```
//!
//! What is here itself is the command: [`args`] (what the user typed, checked), `commands` (what is done),
//! `report` (what is printed of runs; of plans it is in [`figures`]), [`shapes`] (convolutions without a net),
//! [`example`] (the same for one model of `models/`).
//!
//! The words (micro-batch, kernel, configuration, plan) are explained in README, under *Words*.

pub use cudnn_layers;
pub use figures;
pub use files;
pub use memory;
pub use planner;
pub use tensor;
pub use trainer::{self, shapes};

// Its macro is for all that follow.
#[macro_use]
mod error;

pub mod args;
mod commands;
mod console;
mod device;
pub mod example;
mod models;
mod progress;
mod report;
mod stop;
mod tables;

use console::Console;
pub use error::{Error, Result};

use clap::{CommandFactory, FromArgMatches};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The whole `microbatch` command: reads the command line, does what it says, and tells how it went.
///
/// The exit code is 0 for success, 1 for what went wrong on the way, 2 for options that cannot be honoured, and 128
/// plus the signal's number for what a signal has stopped; each error is one sentence on stderr. A closed output is no
/// failure, but for a training, which has more to write than that.
pub fn main() -> ExitCode {
    start(args::Command::command(), commands::run)
}

/// Reads the command line as `command` says, and does with it what `run` does.
fn start<C: FromArgMatches>(command: clap::Command, run: impl FnOnce(C) -> Result<()>) -> ExitCode {
    console::tell_panics_in_a_sentence();
    match command.try_get_matches().and_then(|matches| C::from_arg_matches(&matches)) {
        Ok(read) => finish(run(read)),
        Err(error) => refuse(&error),
    }
}

/// The exit code of a command that ended with `result`.
fn finish(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has read enough, as `head` does.
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let what = if error.is_stop() { "stopped" } else { "error" };
            console::complain(&format!("{what}: {}", console::one_line(&error)));
            ExitCode::from(error.exit_code())
        }
    }
}

/// What clap says of a command line it refuses: of a value, its one sentence; of anything else, all it has to say.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.kind() == clap::error::ErrorKind::ValueValidation {
        console::complain(error.to_string().lines().next().unwrap_or_default());
    } else if let Err(unwritten) = error.print().and_then(|()| io::stdout().flush())
        && !error.use_stderr()
    {
        // Help, or the version: there was nothing else to do.
        return finish(Err(unwritten.into()));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
