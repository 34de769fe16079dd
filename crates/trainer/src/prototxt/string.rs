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
