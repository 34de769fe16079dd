//! Typed access to the fields of a message.

use std::cell::RefCell;
use std::sync::Arc;

use super::parser::non_finite;
use super::{Error, Field, Location, Message, Value, Warning};

/// The file being read and the warnings collected from it so far.
pub(crate) struct Source {
    file: Arc<str>,
    warnings: RefCell<Vec<Warning>>,
}

impl Source {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.into(), warnings: RefCell::default() }
    }

    pub(crate) fn location(&self, line: usize) -> Location {
        Location { file: self.file.clone(), line }
    }

    pub(crate) fn warn(&self, line: usize, owner: &str, message: String) {
        let (location, owner) = (self.location(line), owner.to_owned());
        self.warnings.borrow_mut().push(Warning { location, owner, message });
    }

    /// The warnings in the order of the file.
    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        let mut warnings = self.warnings.into_inner();
        warnings.sort_by_key(|warning| warning.location.line);
        warnings
    }
}

/// A type that a field's value can be read as.
pub(crate) trait FieldValue: Sized {
    /// What the error says was expected.
    const EXPECTED: &'static str;
    fn from_value(value: &Value) -> Option<Self>;
}

impl FieldValue for f32 {
    const EXPECTED: &'static str = "a number";
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(*number as f32),
            // By way of f64, as protobuf does.
            Value::Real(number) => Some(*number as f32),
            Value::Word(word) => non_finite(word).map(|number| number as f32),
            _ => None,
        }
    }
}

impl FieldValue for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Word(word) => match word.as_str() {
                "true" | "True" | "t" => Some(true),
                "false" | "False" | "f" => Some(false),
                _ => None,
            },
            Value::Integer(0) => Some(false),
            Value::Integer(1) => Some(true),
            _ => None,
        }
    }
}

impl FieldValue for String {
    const EXPECTED: &'static str = "a string in quotes";
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FieldValue for i64 {
    const EXPECTED: &'static str = "an integer";
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Self::try_from(*number).ok(),
            _ => None,
        }
    }
}

impl FieldValue for i32 {
    const EXPECTED: &'static str = "a 32-bit integer";
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

/// Sizes and counts. Caffe's are 32-bit, too, and its blobs have no more than 2³¹ - 1 elements.
impl FieldValue for usize {
    const EXPECTED: &'static str = "an integer from 0 to 2147483647";
    fn from_value(value: &Value) -> Option<Self> {
        i32::from_value(value)?.try_into().ok()
    }
}

/// Hands out the fields of one message and remembers which were asked for. When it is dropped, every field that
/// nobody asked for becomes a warning.
pub(crate) struct Reader<'s> {
    source: &'s Source,
    fields: &'s [Field],
    /// Line on which the message opens; that of its parent if it is absent.
    line: usize,
    /// Whose fields these are, for messages: `layer 'conv1'`.
    owner: String,
    /// Names of the messages between the owner and here, each with a dot behind it: `convolution_param.`
    path: String,
    known: Vec<bool>,
}

impl<'s> Reader<'s> {
    pub(crate) fn new(source: &'s Source, message: &'s Message, owner: String) -> Self {
        let Message { line, ref fields } = *message;
        Self { source, fields, line, owner, path: String::new(), known: vec![false; fields.len()] }
    }

    pub(crate) fn source(&self) -> &'s Source {
        self.source
    }

    pub(crate) fn location(&self) -> Location {
        self.source.location(self.line)
    }

    /// All fields of this name.
    pub(crate) fn fields(&mut self, name: &str) -> Vec<&'s Field> {
        let mut found = Vec::new();
        for (field, known) in self.fields.iter().zip(&mut self.known) {
            if field.name == name {
                *known = true;
                found.push(field);
            }
        }
        found
    }

    /// The only field of this name, if there is one.
    fn field(&mut self, name: &str) -> Result<Option<&'s Field>, Error> {
        match self.fields(name)[..] {
            [] => Ok(None),
            [field] => Ok(Some(field)),
            [first, second, ..] => {
                let message = format!("'{}' was already given in line {}", self.full(name), first.line);
                Err(self.error(second.line, message))
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// Fields that are known and rightly without effect here.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.fields(name);
        }
    }

    pub(crate) fn get<T: FieldValue>(&mut self, name: &str) -> Result<Option<T>, Error> {
        self.field(name)?.map(|field| self.convert(field)).transpose()
    }

    pub(crate) fn get_or<T: FieldValue>(&mut self, name: &str, default: T) -> Result<T, Error> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    pub(crate) fn require<T: FieldValue>(&mut self, name: &str) -> Result<T, Error> {
        self.get(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn list<T: FieldValue>(&mut self, name: &str) -> Result<Vec<T>, Error> {
        self.fields(name).into_iter().map(|field| self.convert(field)).collect()
    }

    /// An integer of at least 1.
    pub(crate) fn positive(&mut self, name: &str) -> Result<Option<usize>, Error> {
        let value = self.get(name)?;
        self.check(name, value != Some(0), "at least 1")?;
        Ok(value)
    }

    /// An enum value, given as its name (or, as old files do, in quotes), out of `choices`.
    pub(crate) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, Error> {
        let Some(field) = self.field(name)? else { return Ok(None) };
        if let Value::Word(word) | Value::String(word) = &field.value
            && let Some((_, choice)) = choices.iter().find(|(name, _)| name == word)
        {
            return Ok(Some(*choice));
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let message = format!("{} is {}, expected {}", self.full(name), field.value, one_of(&names));
        Err(self.error(field.line, message))
    }

    /// The message in the field `name`; empty where the field is absent, so that its defaults apply.
    pub(crate) fn message(&mut self, name: &str) -> Result<Reader<'s>, Error> {
        Ok(self.optional_message(name)?.unwrap_or_else(|| Reader {
            source: self.source,
            fields: &[],
            line: self.line,
            owner: self.owner.clone(),
            path: format!("{}{name}.", self.path),
            known: Vec::new(),
        }))
    }

    pub(crate) fn optional_message(&mut self, name: &str) -> Result<Option<Reader<'s>>, Error> {
        self.field(name)?.map(|field| self.inner(field)).transpose()
    }

    pub(crate) fn messages(&mut self, name: &str) -> Result<Vec<Reader<'s>>, Error> {
        self.fields(name).into_iter().map(|field| self.inner(field)).collect()
    }

    /// Fails at the line of the field `name` unless its value `holds`; `must` says what the value has to be.
    pub(crate) fn check(&self, name: &str, holds: bool, must: &str) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(self.reject(name, must)) }
    }

    /// The field `name` has a value it cannot have; `must` says what it has to be.
    pub(crate) fn reject(&self, name: &str, must: &str) -> Error {
        match self.fields.iter().rev().find(|field| field.name == name) {
            Some(field) => {
                let message = format!("{} is {}, but must be {must}", self.full(name), field.value);
                self.error(field.line, message)
            }
            None => self.error(self.line, format!("{} must be {must}", self.full(name))),
        }
    }

    pub(crate) fn missing(&self, name: &str) -> Error {
        self.error(self.line, format!("{} is missing", self.full(name)))
    }

    /// An error about the owner, in the line of the field `name`, or of the message if there is no such field.
    pub(crate) fn error_at(&self, name: &str, message: impl Into<String>) -> Error {
        self.error(self.line_of(name), message)
    }

    /// A warning about the owner, in the line of the field `name`.
    pub(crate) fn warn(&self, name: &str, message: &str) {
        self.source.warn(self.line_of(name), &self.owner, format!("{}: {message}", self.owner));
    }

    fn line_of(&self, name: &str) -> usize {
        self.fields.iter().find(|field| field.name == name).map_or(self.line, |field| field.line)
    }

    fn error(&self, line: usize, message: impl Into<String>) -> Error {
        Error::at(self.source.location(line), format!("{}: {}", self.owner, message.into()))
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    fn convert<T: FieldValue>(&self, field: &Field) -> Result<T, Error> {
        T::from_value(&field.value).ok_or_else(|| {
            let message = format!("{} is {}, expected {}", self.full(&field.name), field.value, T::EXPECTED);
            self.error(field.line, message)
        })
    }

    fn inner(&self, field: &'s Field) -> Result<Reader<'s>, Error> {
        let Value::Message(message) = &field.value else {
            let message =
                format!("{} is {}, expected a message in {{ }}", self.full(&field.name), field.value);
            return Err(self.error(field.line, message));
        };
        let mut reader = Reader::new(self.source, message, self.owner.clone());
        reader.path = format!("{}{}.", self.path, field.name);
        Ok(reader)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        for (field, known) in self.fields.iter().zip(&self.known) {
            if !known {
                let name = format!("{}{}", self.path, field.name);
                let message = format!("field '{name}' of {} is not known and ignored", self.owner);
                self.source.warn(field.line, &self.owner, message);
            }
        }
    }
}

/// `A`, `A or B`, `A, B or C`
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
