//! Why a command could not do what was asked.

use crate::stop;
use files::database::DatabaseError;
use std::io;
use thiserror::Error;
use trainer::{NetError, group::RankError, prototxt};

/// [`Error::Usage`] with a formatted sentence.
macro_rules! usage {
    ($($sentence:tt)*) => { $crate::Error::Usage(format!($($sentence)*)) };
}

/// Returns [`Error::Usage`] with a formatted sentence where a condition is met.
macro_rules! refuse_if {
    ($is_met:expr, $($sentence:tt)*) => { if $is_met { return Err(usage!($($sentence)*)); } };
}

/// What a command comes to, which fails with an [`Error`](enum@Error) unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

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
    /// A net, its data, its plan, its weights or its training; images that cannot be read, found or drawn.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Ranks that do not find each other.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// A training's snapshot that could not be written, which is not to be tried again.
    #[error(transparent)]
    Snapshot(NetError),
    /// A file that cannot be used or written, a budget that no plan keeps, a kernel that does not compute right, a
    /// training that failed on the way, with what was saved and how to resume.
    #[error("{0}")]
    Refused(String),
    /// The database of measurements.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Threads that the system refuses.
    #[error(transparent)]
    Threads(#[from] tensor::ThreadError),
    /// Something that a signal has stopped, in good order: how much was done, and how to resume.
    #[error("{0}")]
    Stopped(String),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// 2 for options that cannot be honoured, that of the signal for what was stopped, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            _ if self.is_stop() => stop::exit_code().unwrap_or(1),
            _ => 1,
        }
    }

    /// Whether a signal has stopped the command, which is no error.
    pub fn is_stop(&self) -> bool {
        matches!(self, Error::Stopped(_) | Error::Net(NetError::Stopped { .. }))
    }

    /// The error of a training, which is not complete if its output cannot be written: `next` says how far it came.
    pub(crate) fn of_training(self, next: &str) -> Self {
        match self {
            Error::Output(_) => Error::Refused(format!("{self}; {next}")),
            error => error,
        }
    }
}
