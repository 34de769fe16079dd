//! Text to messages, by recursive descent.

use super::{Field, FieldValue, Message, Result, SpecError};
use std::fmt::Display;

/// Messages inside messages, as many as protobuf's own limit: a hostile file is not to exhaust the stack.
const MAX_DEPTH: usize = 100;

/// Parses `text`; `file` is only used to say where an error is.
///
/// # Errors
/// The first place at which the text is not text format, with file and line.
pub fn parse(file: &str, text: &str) -> Result<Message> {
    // Editors on Windows like to start a file with a byte-order mark.
    let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser { file, rest, line: 1, depth: 0 };
    parser.skip_blank();
    Ok(Message { line: 1, fields: parser.fields(None)? })
}

struct Parser<'t> {
    file: &'t str,
    /// What is still to be read: it begins with a token, without blanks or comments before it.
    rest: &'t str,
    /// Line of the first character of `rest`.
    line: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    /// White space and comments, which run from `#` to the end of the line.
    fn skip_blank(&mut self) {
        loop {
            let text = self.rest.trim_start();
            self.line += self.rest[..self.rest.len() - text.len()].matches('\n').count();
            self.rest = text;
            if !text.starts_with('#') {
                return;
            }
            self.rest = &text[text.find('\n').unwrap_or(text.len())..];
        }
    }

    /// Takes a token of so many bytes.
    fn take(&mut self, length: usize) {
        self.rest = &self.rest[length..];
        self.skip_blank();
    }

    fn accept(&mut self, character: char) -> bool {
        let found = self.rest.starts_with(character);
        if found {
            self.take(character.len_utf8());
        }
        found
    }

    /// The name, word or number that comes next, as it stands; empty if none does.
    fn word(&self) -> &'t str {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || "_.+-".contains(c));
        &self.rest[..self.rest.find(ends).unwrap_or(self.rest.len())]
    }

    fn error(&self, line: usize, message: impl Display) -> SpecError {
        SpecError::at(format_args!("{}:{line}", self.file), message)
    }

    /// What comes next is not what was `expected`, or nothing at all.
    fn unexpected(&self, expected: &str) -> SpecError {
        let found = match (self.word(), self.rest.chars().next()) {
            (_, None) => "the end of the file".to_owned(),
            ("", Some(character)) => format!("{character:?}"),
            (word, _) => format!("'{word}'"),
        };
        self.error(self.line, format!("expected {expected}, found {found}"))
    }

    /// Fields up to and including `close`, or to the end of the file.
    fn fields(&mut self, close: Option<char>) -> Result<Vec<Field>> {
        let mut fields = Vec::new();
        while !close.map_or(self.rest.is_empty(), |close| self.accept(close)) {
            self.field(&mut fields)?;
            let _ = self.accept(';') || self.accept(',');
        }
        Ok(fields)
    }

    /// One `name: value`, or a list that becomes several fields of one name.
    fn field(&mut self, fields: &mut Vec<Field>) -> Result<()> {
        let (line, name) = (self.line, self.word());
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(self.unexpected("the name of a field"));
        }
        self.take(name.len());
        let colon = self.accept(':');
        let is_list = self.accept('[');
        if is_list && self.accept(']') {
            return Ok(());
        }
        loop {
            fields.push(Field { name: name.to_owned(), line, value: self.value(colon)? });
            if !is_list || self.accept(']') {
                return Ok(());
            }
            if !self.accept(',') {
                return Err(self.unexpected("',' or ']' in the list"));
            }
        }
    }

    /// A message, or a scalar if a colon announced one.
    fn value(&mut self, colon: bool) -> Result<FieldValue> {
        match (self.rest.chars().next(), self.word()) {
            (Some('{'), _) => self.message('}'),
            (Some('<'), _) => self.message('>'),
            _ if !colon => Err(self.unexpected("':' or '{' behind the name of the field")),
            (Some('"' | '\''), _) => self.string(),
            (_, "") => Err(self.unexpected("a value")),
            (_, word) => {
                self.take(word.len());
                Ok(FieldValue::Word(word.to_owned()))
            }
        }
    }

    fn message(&mut self, close: char) -> Result<FieldValue> {
        let line = self.line;
        if self.depth == MAX_DEPTH {
            return Err(self.error(line, format!("messages are nested more than {MAX_DEPTH} deep")));
        }
        self.take(1);
        self.depth += 1;
        let fields = self.fields(Some(close)).map_err(|error| match self.rest {
            // A missing brace shows only at the end of the file; the line of the opening one is what the user needs.
            "" => self.error(line, format!("this message is never closed by '{close}'")),
            _ => error,
        })?;
        self.depth -= 1;
        Ok(FieldValue::Message(Message { line, fields }))
    }

    /// One or more adjacent string literals, joined.
    fn string(&mut self) -> Result<FieldValue> {
        let (mut bytes, line) = (Vec::new(), self.line);
        while let Some(quote @ ('"' | '\'')) = self.rest.chars().next() {
            self.rest = unquote(&self.rest[1..], quote, &mut bytes)
                .map_err(|message| self.error(self.line, message))?;
            self.skip_blank();
        }
        let text = String::from_utf8(bytes).map(FieldValue::String);
        text.map_err(|_| self.error(line, "the string is not valid UTF-8"))
    }
}

/// Reads a literal up to its closing `quote`; `text` starts behind the opening one. Appends the bytes it stands for
/// (escapes may spell any byte, so UTF-8 is checked only once adjacent literals are joined) and returns what follows.
fn unquote<'t>(text: &'t str, quote: char, bytes: &mut Vec<u8>) -> Result<&'t str, String> {
    let mut rest = text;
    loop {
        let Some(character) = rest.chars().next() else {
            return Err(format!("the string is not closed by {quote} before the end of the file"));
        };
        rest = &rest[character.len_utf8()..];
        match character {
            _ if character == quote => return Ok(rest),
            '\n' => return Err(format!("the string is not closed by {quote} before the end of the line")),
            '\\' => rest = escape(rest, bytes)?,
            _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// The literal that stands for `text`.
pub(crate) fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// Resolves one escape, of those that protobuf writes: `text` starts behind the backslash. Returns what follows it.
fn escape<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Result<&'t str, String> {
    let Some(kind) = text.chars().next() else { return Err("the file ends inside an escape".to_owned()) };
    let (byte, length) = match kind {
        'n' => (b'\n', 1),
        'r' => (b'\r', 1),
        't' => (b'\t', 1),
        '\\' | '\'' | '"' => (kind as u8, 1),
        // A byte of what is not ASCII.
        '0'..='7' => {
            let length = text.chars().take(3).take_while(|digit| digit.is_digit(8)).count();
            let byte = u8::from_str_radix(&text[..length], 8);
            (byte.map_err(|_| format!("\\{} is larger than a byte", &text[..length]))?, length)
        }
        _ => return Err(format!("the escape \\{} is not supported", kind.escape_default())),
    };
    bytes.push(byte);
    Ok(&text[length..])
}
