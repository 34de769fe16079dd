//! Text to tokens, each with its line.

use super::{Location, Result, SpecError, string};

/// The smallest unit of the text. Numbers keep their spelling: only the parser knows about a preceding minus.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Number(&'t str),
    String(Vec<u8>),
    Punctuation(char),
    End,
}

impl Token<'_> {
    /// The token as an error message shows it.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Word(text) | Self::Number(text) => format!("'{text}'"),
            Self::String(bytes) => format!("the string {:?}", String::from_utf8_lossy(bytes)),
            Self::Punctuation(character) => format!("'{character}'"),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

const PUNCTUATION: &str = "{}<>[]:;,-./";

pub(super) struct Lexer<'t> {
    file: &'t str,
    rest: &'t str,
    /// Line of the first character of `rest`.
    line: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        // Editors on Windows like to start a file with a byte-order mark.
        Self { file, rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 }
    }

    pub(super) fn location(&self, line: usize) -> Location {
        Location::new(self.file, line)
    }

    /// The next token and its line.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, usize)> {
        self.skip_blank();
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return Ok((Token::End, line)) };
        let token = match first {
            '"' | '\'' => self.string(first)?,
            'a'..='z' | 'A'..='Z' | '_' => {
                Token::Word(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_'))
            }
            '0'..='9' => self.number(),
            '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            _ if PUNCTUATION.contains(first) => {
                self.rest = &self.rest[first.len_utf8()..];
                Token::Punctuation(first)
            }
            _ => {
                let message = format!("the character {first:?} has no meaning in text format");
                return Err(SpecError::at(self.location(line), message));
            }
        };
        Ok((token, line))
    }

    /// White space and comments, which run from `#` to the end of the line.
    fn skip_blank(&mut self) {
        loop {
            let blank = self.take_while(char::is_whitespace);
            self.line += blank.matches('\n').count();
            if !self.rest.starts_with('#') {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let length = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Everything that could belong to a number, so that `1e-5x` is one bad number and not two tokens.
    fn number(&mut self) -> Token<'t> {
        let bytes = self.rest.as_bytes();
        let hexadecimal = bytes.len() > 1 && bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X');
        let length = (1..bytes.len())
            .find(|&i| {
                let exponent_sign =
                    !hexadecimal && matches!(bytes[i], b'+' | b'-') && matches!(bytes[i - 1], b'e' | b'E');
                !(bytes[i].is_ascii_alphanumeric() || bytes[i] == b'.' || exponent_sign)
            })
            .unwrap_or(bytes.len());
        let (number, rest) = self.rest.split_at(length);
        self.rest = rest;
        Token::Number(number)
    }

    fn string(&mut self, quote: char) -> Result<Token<'t>> {
        let (bytes, rest) = string::unquote(&self.rest[1..], quote)
            .map_err(|message| SpecError::at(self.location(self.line), message))?;
        self.rest = rest;
        Ok(Token::String(bytes))
    }
}
