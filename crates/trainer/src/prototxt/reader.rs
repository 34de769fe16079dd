//! Typed access to the fields of a message.

use super::{Field, FieldValue, Location, Message, Result, SpecError, Warning, parse};
use std::{cell::RefCell, fmt::Display, path::Path, sync::Arc};

/// The file being read and the warnings collected from it so far.
pub(crate) struct SourceFile {
    name: Arc<str>,
    warnings: RefCell<Vec<Warning>>,
}

impl SourceFile {
    pub(crate) fn location(&self, line: usize) -> Location {
        Location { file: self.name.clone(), line }
    }
}

/// What `read` makes of `file`'s `text`, called `owner` in errors, and the warnings in the order of the file.
pub(crate) fn interpret<T>(
    file: &Path,
    text: &str,
    owner: &str,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
) -> Result<(T, Vec<Warning>)> {
    let name = file.display().to_string();
    let message = parse(&name, text)?;
    let source = SourceFile { name: name.into(), warnings: RefCell::default() };
    let found = read(&mut Reader::new(&source, &message, owner.to_owned()))?;
    let mut warnings = source.warnings.into_inner();
    warnings.sort_by_key(|warning| warning.location.line);
    Ok((found, warnings))
}

/// What `read` makes of a text that says nothing, in which every field has a default.
pub(crate) fn defaults<T>(read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> T {
    interpret(Path::new(""), "", "", read).expect("there are defaults").0
}

/// A type that fields can be read as.
pub(crate) trait FromField: Sized {
    /// What `reader`'s field `name` says, if there is one.
    fn read(reader: &mut Reader<'_>, name: &str) -> Result<Option<Self>>;
}

impl<T: Scalar> FromField for T {
    fn read(reader: &mut Reader<'_>, name: &str) -> Result<Option<Self>> {
        reader.field(name)?.map(|field| reader.convert(field)).transpose()
    }
}

/// A field that may be absent.
impl<T: FromField> FromField for Option<T> {
    fn read(reader: &mut Reader<'_>, name: &str) -> Result<Option<Self>> {
        T::read(reader, name).map(Some)
    }
}

/// A field that may stand any number of times.
impl<T: Scalar> FromField for Vec<T> {
    fn read(reader: &mut Reader<'_>, name: &str) -> Result<Option<Self>> {
        reader.fields(name).into_iter().map(|field| reader.convert(field)).collect::<Result<_, _>>().map(Some)
    }
}

/// Enums that are read from fields: an operation's by `Type: "NAME" = Variant, …;`, others with what variants mean.
macro_rules! choices {
    ($(
        $(#[$meta:meta])*
        pub enum $type:ident { $($(#[$mark:meta])* $choice:ident = $name:literal; $doc:literal)+ }
    )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type {
            $(#[doc = $doc] $(#[$mark])* $choice,)+
        }

        $crate::prototxt::choices! { $type: $($name = $choice),+; }
    )+};
    ($($type:ty: $($name:literal = $choice:ident),+;)+) => {$(
        impl $crate::prototxt::FromField for $type {
            fn read(
                reader: &mut $crate::prototxt::Reader<'_>,
                name: &str,
            ) -> $crate::prototxt::Result<Option<Self>> {
                let choice = reader.word(name, &[$($name),+])?;
                Ok(choice.map(|choice| [$(Self::$choice),+][choice]))
            }
        }
    )+};
}

pub(crate) use choices;

/// A type that one value can be read as.
pub(crate) trait Scalar: Sized {
    /// What the error says was expected.
    const EXPECTED: &'static str;
    fn from_value(value: &FieldValue) -> Option<Self>;
}

/// The integer that a value is: decimal or, as in C, hexadecimal (0x1F) or octal (017).
fn integer<T: TryFrom<i128>>(value: &FieldValue) -> Option<T> {
    let FieldValue::Word(word) = value else { return None };
    let digits = word.strip_prefix('-').unwrap_or(word);
    let (digits, radix) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (digits, if digits.starts_with('0') { 8 } else { 10 }),
    };
    let size = i128::from(u64::from_str_radix(digits, radix).ok()?);
    T::try_from(if word.starts_with('-') { -size } else { size }).ok()
}

impl Scalar for f32 {
    const EXPECTED: &'static str = "a finite number";
    fn from_value(value: &FieldValue) -> Option<Self> {
        let FieldValue::Word(word) = value else { return None };
        let without_suffix = || word.strip_suffix(['f', 'F'])?.parse().ok();
        // By way of f64, as protobuf does, for which what begins like an octal integer is no such number.
        let is_octal = matches!(word.trim_start_matches('-').as_bytes(), [b'0', b'0'..=b'9', ..]);
        let number = word.parse::<f64>().ok().or_else(without_suffix);
        number.map(|number| number as f32).filter(|number| number.is_finite() && !is_octal)
    }
}

impl Scalar for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_value(value: &FieldValue) -> Option<Self> {
        let FieldValue::Word(word) = value else { return None };
        match word.as_str() {
            "true" | "True" | "t" | "1" => Some(true),
            "false" | "False" | "f" | "0" => Some(false),
            _ => None,
        }
    }
}

impl Scalar for String {
    const EXPECTED: &'static str = "a string in quotes";
    fn from_value(value: &FieldValue) -> Option<Self> {
        if let FieldValue::String(text) = value { Some(text.clone()) } else { None }
    }
}

impl Scalar for i64 {
    const EXPECTED: &'static str = "an integer";
    fn from_value(value: &FieldValue) -> Option<Self> {
        integer(value)
    }
}

impl Scalar for i32 {
    const EXPECTED: &'static str = "an integer of 32 bits";
    fn from_value(value: &FieldValue) -> Option<Self> {
        integer(value)
    }
}

/// Sizes and counts. Caffe's are 32-bit, too, and its blobs have no more than 2³¹ - 1 elements.
impl Scalar for usize {
    const EXPECTED: &'static str = "an integer from 0 to 2147483647";
    fn from_value(value: &FieldValue) -> Option<Self> {
        i32::from_value(value)?.try_into().ok()
    }
}

/// Hands out the fields of one message. When it is dropped, every field that was not read becomes a warning.
pub(crate) struct Reader<'s> {
    pub(crate) source: &'s SourceFile,
    fields: &'s [Field],
    /// Line on which the message opens; that of its parent if it is absent.
    line: usize,
    /// The owner of these fields, for messages: `layer 'conv1'`.
    owner: String,
    /// Names of the messages between the owner and here, each with a dot behind it: `convolution_param.`
    path: String,
    known: Vec<bool>,
}

impl<'s> Reader<'s> {
    pub(crate) fn new(source: &'s SourceFile, message: &'s Message, owner: String) -> Self {
        let Message { line, ref fields } = *message;
        Self { source, fields, line, owner, path: String::new(), known: vec![false; fields.len()] }
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
    fn field(&mut self, name: &str) -> Result<Option<&'s Field>> {
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

    /// Whatever stands here is of no interest.
    pub(crate) fn ignore_all(&mut self) {
        self.known.fill(true);
    }

    pub(crate) fn get<T: FromField>(&mut self, name: &str) -> Result<Option<T>> {
        T::read(self, name)
    }

    pub(crate) fn get_or<T: FromField>(&mut self, name: &str, default: T) -> Result<T> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    pub(crate) fn require<T: FromField>(&mut self, name: &str) -> Result<T> {
        self.get(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn list<T: Scalar>(&mut self, name: &str) -> Result<Vec<T>> {
        self.require(name)
    }

    /// The place among `words` of the one in the field `name`, which old files put in quotes; for those of an enum, which
    /// are in capitals, its number may stand.
    pub(crate) fn word(&mut self, name: &str, words: &[&str]) -> Result<Option<usize>> {
        let Some(field) = self.field(name)? else { return Ok(None) };
        let is_enum = !words.iter().any(|word| word.contains(char::is_lowercase));
        let number = integer(&field.value).filter(|&number: &usize| is_enum && number < words.len());
        let place = match &field.value {
            FieldValue::Word(word) | FieldValue::String(word) => words.iter().position(|other| other == word),
            _ => None,
        };
        place.or(number).map(Some).ok_or_else(|| self.unexpected(field, &one_of(words)))
    }

    /// The message in the field `name`; empty where the field is absent, so that its defaults apply.
    pub(crate) fn message(&mut self, name: &str) -> Result<Reader<'s>> {
        Ok(self.optional_message(name)?.unwrap_or_else(|| self.inside(name, &[], self.line)))
    }

    pub(crate) fn optional_message(&mut self, name: &str) -> Result<Option<Reader<'s>>> {
        self.field(name)?.map(|field| self.inner(field)).transpose()
    }

    /// What `read` makes of every message `name`.
    pub(crate) fn read_all<T>(
        &mut self,
        name: &str,
        read: impl Fn(&mut Reader<'s>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.fields(name).into_iter().map(|field| read(&mut self.inner(field)?)).collect()
    }

    /// Fails at the line of the field `name` unless its value `holds`; `must` says what the value has to be.
    pub(crate) fn check(&self, name: &str, holds: bool, must: &str) -> Result<()> {
        if holds {
            return Ok(());
        }
        let given: Vec<_> = self.fields.iter().filter(|field| field.name == name).collect();
        let values: Vec<String> = given.iter().map(|field| field.value.to_string()).collect();
        let is = if given.is_empty() { String::new() } else { format!("is {}, but ", values.join(", ")) };
        let line = given.last().map_or(self.line, |field| field.line);
        Err(self.error(line, format!("{} {is}must be {must}", self.full(name))))
    }

    /// Fails with `message`, about the owner, at the line of the field `name` unless something `holds`.
    pub(crate) fn ensure(&self, name: &str, holds: bool, message: impl Display) -> Result<()> {
        if holds { Ok(()) } else { Err(self.error_at(name, message)) }
    }

    /// Fails unless the field `name`, which is `given` so many times, is left out or stands for each of `count` `blobs`.
    pub(crate) fn check_each(&self, name: &str, given: usize, blobs: &str, count: usize) -> Result<()> {
        let message = format_args!("{name} is given {given} times for {count} {blobs}");
        self.ensure(name, given == 0 || given == count, message)
    }

    /// The field `name` is missing, or misspelt as one that nothing has read.
    pub(crate) fn missing(&self, name: &str) -> SpecError {
        let distance = |field: &&Field| strsim::levenshtein(&field.name, name);
        let unread = (0..self.known.len()).filter(|&at| !self.known[at]).map(|at| &self.fields[at]);
        let near = unread.filter(|field| distance(field) * 3 <= name.len()).min_by_key(distance);
        let near = near.map(|field| format!("; line {} has {}", field.line, field.name)).unwrap_or_default();
        self.error(self.line, format!("{} is missing{near}", self.full(name)))
    }

    /// An error about the owner, in the line of the field `name`, or of the message if there is no such field.
    pub(crate) fn error_at(&self, name: &str, message: impl Display) -> SpecError {
        let field = self.fields.iter().find(|field| field.name == name);
        self.error(field.map_or(self.line, |field| field.line), message)
    }

    fn error(&self, line: usize, message: impl Display) -> SpecError {
        SpecError::at(self.source.location(line), format!("{}: {message}", self.owner))
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    fn convert<T: Scalar>(&self, field: &Field) -> Result<T> {
        T::from_value(&field.value).ok_or_else(|| self.unexpected(field, T::EXPECTED))
    }

    fn unexpected(&self, field: &Field, expected: &str) -> SpecError {
        let message = format!("{} is {}, expected {expected}", self.full(&field.name), field.value);
        self.error(field.line, message)
    }

    fn inner(&self, field: &'s Field) -> Result<Reader<'s>> {
        let FieldValue::Message(message) = &field.value else {
            return Err(self.unexpected(field, "a message in { }"));
        };
        Ok(self.inside(&field.name, &message.fields, message.line))
    }

    fn inside(&self, name: &str, fields: &'s [Field], line: usize) -> Reader<'s> {
        let (owner, path) = (self.owner.clone(), format!("{}{name}.", self.path));
        Reader { source: self.source, fields, line, owner, path, known: vec![false; fields.len()] }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        for (field, known) in self.fields.iter().zip(&self.known) {
            if !known {
                let name = format!("{}{}", self.path, field.name);
                let message = format!("field '{name}' of {} has no effect here", self.owner);
                let (location, owner) = (self.source.location(field.line), self.owner.clone());
                self.source.warnings.borrow_mut().push(Warning { location, owner, message });
            }
        }
    }
}

/// `A`, `A or B`, `A, B or C`
fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
