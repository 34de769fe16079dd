//! Text to messages, by recursive descent.

use super::{Field, FieldValue, Location, Message, Result, SpecError, string::unquote};

/// Messages inside messages before we give up; protobuf's own limit. It keeps a hostile file from exhausting the
/// stack.
const MAX_DEPTH: usize = 100;

const PUNCTUATION: &str = "{}<>[]:;,-./";

pub(super) struct Parser<'t> {
    file: &'t str,
    /// What is still to be read: it begins with a token, without blanks or comments before it.
    rest: &'t str,
    /// Line of the first character of `rest`.
    line: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        // Editors on Windows like to start a file with a byte-order mark.
        let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut parser = Self { file, rest, line: 1, depth: 0 };
        parser.skip_blank();
        parser
    }

    /// The whole file: the fields of one message that has no braces.
    pub(super) fn document(mut self) -> Result<Message> {
        let fields = self.fields(None)?;
        Ok(Message { line: 1, fields })
    }

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

    /// The word that comes next; empty if none does.
    fn word(&self) -> &'t str {
        let length = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let word = &self.rest[..length.unwrap_or(self.rest.len())];
        if word.starts_with(|c: char| c.is_ascii_digit()) { "" } else { word }
    }

    /// The number that comes next; empty if none does. With everything that could belong to it, so that `1e-5x` is one
    /// bad number and not two tokens. Without its minus.
    fn number(&self) -> &'t str {
        let bytes = self.rest.as_bytes();
        let digits = bytes.strip_prefix(b".").unwrap_or(bytes);
        if !digits.first().is_some_and(u8::is_ascii_digit) {
            return "";
        }
        let hexadecimal = bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X'));
        let ends = |&at: &usize| {
            let exponent_sign =
                !hexadecimal && matches!(bytes[at], b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E');
            !(bytes[at].is_ascii_alphanumeric() || bytes[at] == b'.' || exponent_sign)
        };
        &self.rest[..(1..bytes.len()).find(ends).unwrap_or(bytes.len())]
    }

    fn error(&self, line: usize, message: impl Into<String>) -> SpecError {
        SpecError::at(Location::new(self.file, line), message)
    }

    /// What comes next is not what was `expected`, or no token at all.
    fn unexpected(&self, expected: &str) -> SpecError {
        let mut string = Vec::new();
        let found = match self.rest.chars().next() {
            None => "the end of the file".to_owned(),
            Some(quote @ ('"' | '\'')) => match unquote(&self.rest[1..], quote, &mut string) {
                Ok(_) => format!("the string {:?}", String::from_utf8_lossy(&string)),
                Err(message) => return self.error(self.line, message),
            },
            Some(first) => match [self.word(), self.number()].concat() {
                token if !token.is_empty() => format!("'{token}'"),
                _ if PUNCTUATION.contains(first) => format!("'{first}'"),
                _ => {
                    let message = format!("the character {first:?} has no meaning in text format");
                    return self.error(self.line, message);
                }
            },
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
        let line = self.line;
        let name = self.name()?;
        let colon = self.accept(':');
        let is_list = self.accept('[');
        if is_list && self.accept(']') {
            return Ok(());
        }
        loop {
            fields.push(Field { name: name.clone(), line, value: self.value(colon)? });
            if !is_list || self.accept(']') {
                return Ok(());
            }
            if !self.accept(',') {
                return Err(self.unexpected("',' or ']' in the list"));
            }
        }
    }

    /// A field's name.
    fn name(&mut self) -> Result<String> {
        let word = self.word();
        if word.is_empty() {
            return Err(self.unexpected("the name of a field"));
        }
        self.take(word.len());
        Ok(word.to_owned())
    }

    /// A message, or a scalar if a colon announced one.
    fn value(&mut self, colon: bool) -> Result<FieldValue> {
        match self.rest.chars().next() {
            Some('{') => self.message('}'),
            Some('<') => self.message('>'),
            _ if colon => self.scalar(),
            _ => Err(self.unexpected("':' or '{' behind the name of the field")),
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

    fn scalar(&mut self) -> Result<FieldValue> {
        let negative = self.accept('-');
        if !negative && self.rest.starts_with(['"', '\'']) {
            return self.string();
        }
        let (token, value) = match (self.word(), self.number()) {
            ("", "") => return Err(self.unexpected("a value")),
            ("", text) => (text, number(text, negative)),
            (word, _) if negative => (word, non_finite(word).map(|number| FieldValue::Real(-number))),
            (word, _) => (word, Some(FieldValue::Word(word.to_owned()))),
        };
        let value = value.ok_or_else(|| self.error(self.line, format!("'{token}' is not a number")))?;
        self.take(token.len());
        Ok(value)
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

/// `inf`, `infinity` and `nan` in any case, as protobuf reads them.
pub(super) fn non_finite(word: &str) -> Option<f64> {
    match word.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => Some(f64::INFINITY),
        "nan" => Some(f64::NAN),
        _ => None,
    }
}

fn number(text: &str, negative: bool) -> Option<FieldValue> {
    if let Some(magnitude) = integer(text) {
        let range = if negative { i128::from(i64::MAX) + 1 } else { i128::from(u64::MAX) };
        if magnitude <= range {
            return Some(FieldValue::Integer(if negative { -magnitude } else { magnitude }));
        }
    }
    real(text).map(|magnitude| FieldValue::Real(if negative { -magnitude } else { magnitude }))
}

fn integer(text: &str) -> Option<i128> {
    if let Some(hexadecimal) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return i128::from_str_radix(hexadecimal, 16).ok();
    }
    let octal = text.len() > 1 && text.starts_with('0');
    i128::from_str_radix(text, if octal { 8 } else { 10 }).ok()
}

fn real(text: &str) -> Option<f64> {
    let digits = text.strip_suffix(['f', 'F']).unwrap_or(text);
    // An integer with a leading zero is octal or wrong, never decimal; Rust's parser would take it, and also "inf".
    let plain_octal =
        digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    if plain_octal || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    digits.parse().ok()
}
