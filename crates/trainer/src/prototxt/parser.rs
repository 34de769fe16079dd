//! Tokens to messages, by recursive descent.

use super::{
    Field, FieldValue, Message, Result, SpecError,
    lexer::{Lexer, Token},
};

/// Messages inside messages before we give up; protobuf's own limit. It keeps a hostile file from exhausting the
/// stack.
const MAX_DEPTH: usize = 100;

pub(super) struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The token not yet consumed; `Err` if the text stops making sense there.
    next: Result<(Token<'t>, usize)>,
    depth: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        let mut lexer = Lexer::new(file, text);
        let next = lexer.next();
        Self { lexer, next, depth: 0 }
    }

    /// The whole file: the fields of one message that has no braces.
    pub(super) fn document(mut self) -> Result<Message> {
        let fields = self.fields(&Token::End)?;
        Ok(Message { line: 1, fields })
    }

    fn peek(&self) -> Result<(&Token<'t>, usize)> {
        match &self.next {
            Ok((token, line)) => Ok((token, *line)),
            Err(error) => Err(error.clone()),
        }
    }

    fn advance(&mut self) -> Result<(Token<'t>, usize)> {
        let following = self.lexer.next();
        std::mem::replace(&mut self.next, following)
    }

    fn accept(&mut self, character: char) -> Result<bool> {
        let found = *self.peek()?.0 == Token::Punctuation(character);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expected(&self, what: &str) -> SpecError {
        match self.peek() {
            Ok((token, line)) => {
                let message = format!("expected {what}, found {}", token.describe());
                SpecError::at(self.lexer.location(line), message)
            }
            Err(error) => error,
        }
    }

    /// Fields up to and including `close`.
    fn fields(&mut self, close: &Token<'t>) -> Result<Vec<Field>> {
        let mut fields = Vec::new();
        while self.peek()?.0 != close {
            self.field(&mut fields)?;
            if !self.accept(';')? {
                self.accept(',')?;
            }
        }
        self.advance()?;
        Ok(fields)
    }

    /// One `name: value`, or a list that becomes several fields of one name.
    fn field(&mut self, fields: &mut Vec<Field>) -> Result<()> {
        let (name, line) = self.name()?;
        let colon = self.accept(':')?;
        if self.accept('[')? {
            if self.accept(']')? {
                return Ok(());
            }
            loop {
                fields.push(Field { name: name.clone(), line, value: self.value(colon)? });
                if self.accept(']')? {
                    return Ok(());
                }
                if !self.accept(',')? {
                    return Err(self.expected("',' or ']' in the list"));
                }
            }
        }
        fields.push(Field { name, line, value: self.value(colon)? });
        Ok(())
    }

    /// A field's name; an extension is written `[package.name]`.
    fn name(&mut self) -> Result<(String, usize)> {
        let (token, line) = self.peek()?;
        match *token {
            Token::Word(word) => {
                let name = word.to_owned();
                self.advance()?;
                Ok((name, line))
            }
            Token::Punctuation('[') => {
                self.advance()?;
                Ok((self.extension_name()?, line))
            }
            _ => Err(self.expected("the name of a field")),
        }
    }

    fn extension_name(&mut self) -> Result<String> {
        let mut name = String::from("[");
        loop {
            let &Token::Word(word) = self.peek()?.0 else { return Err(self.expected("an extension's name")) };
            name.push_str(word);
            self.advance()?;
            match self.advance()? {
                (Token::Punctuation(separator @ ('.' | '/')), _) => name.push(separator),
                (Token::Punctuation(']'), _) => return Ok(name + "]"),
                (token, line) => {
                    let message = format!("expected ']' behind {name}, found {}", token.describe());
                    return Err(SpecError::at(self.lexer.location(line), message));
                }
            }
        }
    }

    /// A message, or a scalar if a colon announced one.
    fn value(&mut self, colon: bool) -> Result<FieldValue> {
        match self.peek()?.0 {
            Token::Punctuation('{') => self.message('}'),
            Token::Punctuation('<') => self.message('>'),
            _ if colon => self.scalar(),
            _ => Err(self.expected("':' or '{' behind the name of the field")),
        }
    }

    fn message(&mut self, close: char) -> Result<FieldValue> {
        let (_, line) = self.advance()?;
        if self.depth == MAX_DEPTH {
            let message = format!("messages are nested more than {MAX_DEPTH} deep");
            return Err(SpecError::at(self.lexer.location(line), message));
        }
        self.depth += 1;
        let fields =
            self.fields(&Token::Punctuation(close)).map_err(|error| self.unclosed(error, close, line))?;
        self.depth -= 1;
        Ok(FieldValue::Message(Message { line, fields }))
    }

    /// A missing brace shows only at the end of the file; the line of the opening one is what the user needs.
    fn unclosed(&self, error: SpecError, close: char, line: usize) -> SpecError {
        match self.peek() {
            Ok((Token::End, _)) => {
                SpecError::at(self.lexer.location(line), format!("this message is never closed by '{close}'"))
            }
            _ => error,
        }
    }

    fn scalar(&mut self) -> Result<FieldValue> {
        let negative = self.accept('-')?;
        let (token, line) = self.peek()?;
        let value = match token {
            Token::String(_) if !negative => return self.string(),
            Token::Word(word) if !negative => Some(FieldValue::Word((*word).to_owned())),
            Token::Word(word) => non_finite(word).map(|number| FieldValue::Real(-number)),
            Token::Number(text) => number(text, negative),
            _ => return Err(self.expected("a value")),
        };
        let Some(value) = value else {
            let message = format!("{} is not a number", token.describe());
            return Err(SpecError::at(self.lexer.location(line), message));
        };
        self.advance()?;
        Ok(value)
    }

    /// One or more adjacent string literals, joined.
    fn string(&mut self) -> Result<FieldValue> {
        let mut bytes = Vec::new();
        let (_, line) = self.peek()?;
        while let (Token::String(part), _) = self.peek()? {
            bytes.extend_from_slice(part);
            self.advance()?;
        }
        String::from_utf8(bytes)
            .map(FieldValue::String)
            .map_err(|_| SpecError::at(self.lexer.location(line), "the string is not valid UTF-8"))
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
