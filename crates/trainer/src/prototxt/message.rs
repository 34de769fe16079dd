//! The parsed form of a text-format file.

use std::fmt;

/// A message: its fields in the order of the file. A repeated field is several fields of one name.
#[derive(Debug, Clone, PartialEq, Default)]
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
