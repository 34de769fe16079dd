//! Protocol-buffer text format, the notation of Caffe's net and solver files.
//!
//! [`parse`] needs no schema: it turns a text into a [`Message`], a list of named [`Field`]s in the order of the
//! file, each with the line it stands on. What the fields mean is decided by [`crate::spec`], which reads those it
//! knows; all others become a [`Warning`].

mod parser;
mod reader;
#[cfg(test)]
mod tests;

use std::{fmt, io, path::Path, sync::Arc};

pub use parser::parse;
pub(crate) use parser::quoted;
pub(crate) use reader::{FromField, Reader, SourceFile, choices, defaults, interpret};

/// A message: its fields in the order of the file. A repeated field is several fields of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Line on which the message opens, counted from 1.
    pub line: usize,
    /// The fields; a list `name: [1, 2]` has become two fields.
    pub fields: Vec<Field>,
}

/// `name: value` or `name { … }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The field's name.
    pub name: String,
    /// The line of the name, counted from 1.
    pub line: usize,
    /// What stands after it.
    pub value: FieldValue,
}

/// The value of a [`Field`]. Without a schema `1` may be an integer, a real number or a boolean: its reader decides.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// `{ … }` or `< … >`
    Message(Message),
    /// `"…"`, with escapes resolved and adjacent strings joined
    String(String),
    /// A bare word or a number, as it stands
    Word(String),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(_) => f.write_str("a message"),
            Self::String(text) => write!(f, "{text:?}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// The text of the file at `path`.
///
/// # Errors
/// The file cannot be read, or is not UTF-8 but for comments.
pub fn read(path: &Path) -> Result<String> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| SpecError::unreadable(&file, &error))?;
    let text = String::from_utf8_lossy(&bytes);
    // A comment may have any encoding.
    let is_bad =
        |line: &str| line.split('#').next().is_some_and(|said| said.contains(char::REPLACEMENT_CHARACTER));
    match text.lines().position(is_bad) {
        None => Ok(text.into_owned()),
        Some(line) => {
            let line = format_args!("{file}:{}", line + 1);
            Err(SpecError::at(line, "the text is not valid UTF-8, so this is not a text-format file"))
        }
    }
}

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
