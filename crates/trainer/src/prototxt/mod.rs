//! Protocol-buffer text format, the notation of Caffe's net and solver files.
//!
//! [`parse`] needs no schema: it turns a text into a [`Message`], a list of named [`Field`]s in the order of the
//! file, each with the line it stands on. What the fields mean is decided by [`crate::spec`], which reads those it
//! knows; all others become a [`Warning`].

mod error;
mod message;
mod parser;
mod reader;
mod string;
#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use error::Result;
pub use error::{Location, SpecError, Warning, collapsed};
pub use message::{Field, FieldValue, Message};
pub(crate) use reader::{FromField, Reader, SourceFile, choices, defaults, interpret};
pub(crate) use string::quoted;

/// Parses `text`; `file` is only used to say where an error is.
///
/// # Errors
/// The first place at which the text is not text format, with file and line.
pub fn parse(file: &str, text: &str) -> Result<Message> {
    parser::Parser::new(file, text).document()
}

/// Reads and parses the file at `path`.
///
/// # Errors
/// The file cannot be read, is not UTF-8 but for comments, or is not text format.
pub fn read(path: &Path) -> Result<Message> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| SpecError::unreadable(&file, &error))?;
    let text = String::from_utf8_lossy(&bytes);
    // A comment may have any encoding.
    let is_bad =
        |line: &str| line.split('#').next().is_some_and(|said| said.contains(char::REPLACEMENT_CHARACTER));
    match text.lines().position(is_bad) {
        None => parse(&file, &text),
        Some(line) => {
            let line = format_args!("{file}:{}", line + 1);
            Err(SpecError::at(line, "the text is not valid UTF-8, so this is not a text-format file"))
        }
    }
}
