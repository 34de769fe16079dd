//! String literals and their escapes.

/// Reads a literal up to its closing `quote`; `text` starts behind the opening one. Appends the bytes it stands for
/// (escapes may spell any byte, so UTF-8 is checked only once adjacent literals are joined) and returns what follows.
pub(super) fn unquote<'t>(text: &'t str, quote: char, bytes: &mut Vec<u8>) -> Result<&'t str, String> {
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
            _ => push(bytes, character),
        }
    }
}

/// The literal that stands for `text`.
pub(crate) fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn push(bytes: &mut Vec<u8>, character: char) {
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Resolves one escape; `text` starts behind the backslash. Returns what follows it.
fn escape<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Result<&'t str, String> {
    let Some(kind) = text.chars().next() else { return Err("the file ends inside an escape".to_owned()) };
    let rest = &text[kind.len_utf8()..];
    let byte = match kind {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' | '\'' | '"' | '?' => kind as u8,
        '0'..='7' => return octal(text, bytes),
        'x' | 'X' => {
            let (value, rest) =
                digits(rest, 16, 1, 2).ok_or("\\x must be followed by a hexadecimal digit")?;
            bytes.push(value as u8);
            return Ok(rest);
        }
        'u' => return code_point(rest, 4, bytes),
        'U' => return code_point(rest, 8, bytes),
        _ => return Err(format!("\\{} is not an escape of text format", kind.escape_default())),
    };
    bytes.push(byte);
    Ok(rest)
}

fn octal<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Result<&'t str, String> {
    let (value, rest) = digits(text, 8, 1, 3).ok_or("\\ must be followed by an octal digit")?;
    let byte = u8::try_from(value).map_err(|_| format!("\\{value:o} is larger than a byte"))?;
    bytes.push(byte);
    Ok(rest)
}

fn code_point<'t>(text: &'t str, length: usize, bytes: &mut Vec<u8>) -> Result<&'t str, String> {
    let (value, rest) = digits(text, 16, length, length)
        .ok_or_else(|| format!("this escape must be followed by {length} hexadecimal digits"))?;
    let character = char::from_u32(value).ok_or_else(|| format!("U+{value:04X} is not a character"))?;
    push(bytes, character);
    Ok(rest)
}

/// Between `least` and `most` (at most 8) leading digits of `text`, their value and what follows.
fn digits(text: &str, radix: u32, least: usize, most: usize) -> Option<(u32, &str)> {
    let length = text.chars().take(most).take_while(|c| c.is_digit(radix)).count();
    let value = u32::from_str_radix(&text[..length], radix).ok()?;
    (length >= least).then_some((value, &text[length..]))
}
