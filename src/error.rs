//! Why a command could not do what was asked.

use crate::{
    shapes::CsvError,
    stop::{self, SignalError},
};
use planner::{Bytes, PlanError};
use std::io;
use thiserror::Error;
use trainer::{NetError, TrainError, database::DatabaseError, prototxt, snapshot::SnapshotError};

/// Why a command failed; prints as one sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Options or environment variables that cannot be honoured, alone or together.
    #[error("{0}")]
    Usage(String),
    /// A net or solver file.
    #[error(transparent)]
    Spec(#[from] prototxt::SpecError),
    /// A net, its data or its plan.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A training.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A snapshot that is already as far as the training should go.
    #[error(
        "{snapshot} is at iteration {iteration}, and training ends at iteration {max_iter} (--max-iter moves the end)"
    )]
    Finished {
        /// The snapshot.
        snapshot: String,
        /// Its iteration.
        iteration: u64,
        /// The last iteration.
        max_iter: usize,
    },
    /// A list of convolutions.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A cost table.
    #[error("cannot use the cost table {file}: {reason}")]
    Table {
        /// The file.
        file: String,
        /// What is wrong with it, or missing in it.
        reason: String,
    },
    /// A budget of device memory that no plan keeps.
    #[error(
        "--device-memory {} is too small: the smallest budget with a plan is {}, set by {kernel}",
        budget.exact(), smallest.exact()
    )]
    Budget {
        /// The budget.
        budget: Bytes,
        /// The smallest with a plan.
        smallest: Bytes,
        /// What needs it.
        kernel: String,
    },
    /// A measurement that is missing under `--offline`.
    #[error("{0}, and --offline measures nothing: run without it, or run `microbatch profile` first")]
    Offline(PlanError),
    /// The database of measurements.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// An output file.
    #[error("cannot write {file}: {source}")]
    Write {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A kernel that does not compute what it should.
    #[error(
        "{kernel} as {configuration}, {how} its output, is about {distance:.1e} away from the exact result (relative L2 distance), and {tolerance:.1e} is allowed"
    )]
    Verification {
        /// Layer and operation.
        kernel: String,
        /// Its configuration.
        configuration: String,
        /// What it did with its output.
        how: &'static str,
        /// The distance found.
        distance: f64,
        /// The largest one allowed.
        tolerance: f64,
    },
    /// Threads that the system refuses.
    #[error(transparent)]
    Threads(#[from] tensor::ThreadError),
    /// A training that failed on the way.
    #[error("{source}; {next}")]
    Failed {
        /// What happened.
        source: Box<Error>,
        /// What was saved, and how to go on.
        next: String,
    },
    /// Something that a signal has stopped, in good order.
    #[error("{after}")]
    Stopped {
        /// How much was done, and how to go on.
        after: String,
        /// The exit code that tells of the signal.
        exit_code: u8,
    },
    /// The system does not let us wait for signals.
    #[error(transparent)]
    Signals(#[from] SignalError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// 2 for options that cannot be honoured, that of the signal for what was stopped, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Stopped { exit_code, .. } => *exit_code,
            _ if self.is_stop() => stop::exit_code().unwrap_or(1),
            _ => 1,
        }
    }

    /// Whether a signal has stopped the command, which is no error.
    pub fn is_stop(&self) -> bool {
        use NetError::Stopped;
        matches!(
            self,
            Error::Stopped { .. }
                | Error::Net(Stopped { .. })
                | Error::Train(TrainError::Net(Stopped { .. }))
        )
    }

    /// Whether the reader of our output has gone away.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The same for a training, which is not complete if its output cannot be written: `next` says how far it came.
    pub(crate) fn of_training(self, next: &str) -> Self {
        match self {
            Error::Output(_) => Error::Failed { source: Box::new(self), next: next.to_owned() },
            error => error,
        }
    }
}
