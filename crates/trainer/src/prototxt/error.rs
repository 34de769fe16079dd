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

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Why a net, a solver or a list was refused: one sentence that starts with the file, and the line if one is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

impl SpecError {
    /// What is wrong at `place`, a file or a line of one, and what was expected.
    pub fn at(place: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self(format!("{place}: {message}"))
    }

    pub(crate) fn unreadable(file: &str, error: &io::Error) -> Self {
        Self::at(file, format!("cannot be read: {error}"))
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
