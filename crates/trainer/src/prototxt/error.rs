//! Where something is wrong in a file, and what.

use std::{fmt, io, sync::Arc};

/// A line of a file; prints as `file:line`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file as the user named it.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: usize,
}

impl Location {
    /// Line `line` of `file`.
    pub fn new(file: impl Into<Arc<str>>, line: usize) -> Self {
        Self { file: file.into(), line }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Why a net or solver file was refused. Every variant prints as one sentence that starts with the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The file could not be read at all.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file as the user named it.
        file: String,
        /// What the operating system said.
        reason: String,
    },
    /// A line of the file is wrong.
    #[error("{location}: {message}")]
    At {
        /// The offending line.
        location: Location,
        /// What is wrong with it, and what was expected.
        message: String,
    },
}

impl SpecError {
    /// An error in the line `location`.
    pub fn at(location: Location, message: impl Into<String>) -> Self {
        Self::At { location, message: message.into() }
    }

    pub(crate) fn unreadable(file: &str, error: &io::Error) -> Self {
        Self::Unreadable { file: file.to_owned(), reason: error.to_string() }
    }
}

/// A value, or why there is none.
pub(crate) type Result<T, E = SpecError> = std::result::Result<T, E>;

/// Something in a file that has no effect here; prints as `file:line: sentence`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The line it stands on.
    pub location: Location,
    /// What it is about, such as `layer 'conv1'`, which the message names.
    pub owner: String,
    /// What is ignored, and why.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// One line for warnings that say the same of several owners: the first of them, and how many follow.
pub fn collapsed(warnings: &[Warning]) -> Vec<String> {
    let mut groups: Vec<(String, &Warning, usize)> = Vec::new();
    for warning in warnings {
        let said = warning.message.replacen(&warning.owner, "", 1);
        match groups.iter_mut().find(|(known, ..)| *known == said) {
            Some((_, _, more)) => *more += 1,
            None => groups.push((said, warning, 0)),
        }
    }
    let lines = groups.into_iter().map(|(_, first, more)| match more {
        0 => first.to_string(),
        more => format!("{first} … and {more} more like it"),
    });
    lines.collect()
}
