//! The notation itself: what is read, what is refused and where, and that nothing makes the parser panic.

use super::{FieldValue, Message, parse, reader::Scalar};
use proptest::prelude::*;

fn read(text: &str) -> Message {
    parse("net.prototxt", text).unwrap()
}

/// The values of a message in order, as they print.
fn values(text: &str) -> Vec<String> {
    read(text).fields.iter().map(|field| format!("{}={}", field.name, field.value)).collect()
}

fn error(text: &str) -> String {
    parse("net.prototxt", text).unwrap_err().to_string()
}

#[test]
fn scalars_of_every_notation() {
    let cases = [
        ("a: 1", "a=1"),
        ("a: -7", "a=-7"),
        ("a:-1.5E+2,", "a=-1.5E+2"),
        ("a: .5f;", "a=.5f"),
        ("a: true", "a=true"),
        ("a: MAX", "a=MAX"),
        ("a:'x'", "a=\"x\""),
        (r#"a: "b" 'c'  # joined"#, "a=\"bc\""),
        (r#"a: "\101B\n\"\\é😀""#, "a=\"AB\\n\\\"\\\\é😀\""),
        (r#"a: "\303\251""#, "a=\"é\""),
    ];
    for (text, expected) in cases {
        assert_eq!(values(text), [expected], "{text}");
    }
}

#[test]
fn words_are_numbers_where_these_are_wanted() {
    let numbers = [
        ("1", Some(1.0)),
        ("-7", Some(-7.0)),
        ("18446744073709551616", Some(18446744073709551616.0)),
        (".5", Some(0.5)),
        ("5.", Some(5.0)),
        ("1e-4", Some(1e-4)),
        ("1.5E+2", Some(150.0)),
        ("2.5f", Some(2.5)),
        ("-0.25F", Some(-0.25)),
        ("inf", None),
        ("-Infinity", None),
        ("1e39", None),
        ("nan", None),
        ("0.1", Some(0.1)),
        ("1.2.3", None),
        ("089", None),
        ("010", None),
        ("0x1F", None),
        ("1e5x", None),
        ("-MAX", None),
        ("'1'", None),
    ];
    for (text, expected) in numbers {
        let value = &read(&format!("a: {text}")).fields[0].value;
        assert_eq!(<f32 as Scalar>::from_value(value), expected, "{text}");
    }
    let integer = |text: &str| <i64 as Scalar>::from_value(&read(text).fields[0].value);
    assert_eq!(integer("a: -9223372036854775808"), Some(i64::MIN));
    for (text, expected) in [("0x1F", 31), ("-0Xa", -10), ("017", 15), ("-00", 0), ("0", 0)] {
        assert_eq!(integer(&format!("a: {text}")), Some(expected), "{text}");
    }
    for text in ["1.0", "9223372036854775808", "08", "0x", "0x-1", "--1", "0xFFFFFFFFFFFFFFFF", "1F", "'1'"] {
        assert_eq!(integer(&format!("a: {text}")), None, "{text}");
    }
}

#[test]
fn messages_lists_and_separators() {
    assert_eq!(values("a: 1; b: 2, c: 3"), ["a=1", "b=2", "c=3"]);
    assert_eq!(values("a: [1, 2, 3] b: []"), ["a=1", "a=2", "a=3"]);
    assert_eq!(values("\u{feff}a: 1"), ["a=1"]);
    assert_eq!(values(""), [""; 0]);
    let forms = ["m { a: 1 }", "m: { a: 1 }", "m < a: 1 >", "m: <a:1;>;", "m: [{ a: 1 }]", "m{a:1}"];
    for form in forms {
        let FieldValue::Message(inner) = &read(form).fields[0].value else { panic!("{form}") };
        assert_eq!(inner.fields[0].value, FieldValue::Word("1".to_owned()), "{form}");
    }
}

#[test]
fn every_field_knows_its_line() {
    let text = "a: 1 # comment: { \"\n\nm {\r\n  b: 2\n  c: [\n 3,\n 4]\n}\nd: 'x'\n  'y'\ne: 5";
    let message = read(text);
    let lines: Vec<_> = message.fields.iter().map(|field| (field.name.as_str(), field.line)).collect();
    assert_eq!(lines, [("a", 1), ("m", 3), ("d", 9), ("e", 11)]);
    let FieldValue::Message(inner) = &message.fields[1].value else { panic!() };
    let lines: Vec<_> = inner.fields.iter().map(|field| (field.name.as_str(), field.line)).collect();
    assert_eq!(lines, [("b", 4), ("c", 5), ("c", 5)]);
    assert_eq!(inner.line, 3);
}

#[test]
fn what_is_not_text_format_is_refused_with_its_line() {
    let cases = [
        ("a: 1\nb 2", "net.prototxt:2: expected ':' or '{' behind the name of the field, found '2'"),
        ("a:\n\n", "net.prototxt:3: expected a value, found the end of the file"),
        ("a: }", "net.prototxt:1: expected a value, found '}'"),
        ("a: 1\n}", "net.prototxt:2: expected the name of a field, found '}'"),
        ("m {\n a: 1\n", "net.prototxt:1: this message is never closed by '}'"),
        ("m <\n a: 1 }", "net.prototxt:2: expected the name of a field, found '}'"),
        ("a: [1 2]", "net.prototxt:1: expected ',' or ']' in the list, found '2'"),
        ("'a': 1", "net.prototxt:1: expected the name of a field, found '\\''"),
        ("a: -'x'", "net.prototxt:1: expected the name of a field, found '\\''"),
        ("a: 'x", "net.prototxt:1: the string is not closed by ' before the end of the file"),
        ("a: \"x\nb: 1", "net.prototxt:1: the string is not closed by \" before the end of the line"),
        (r"a: '\q'", r"net.prototxt:1: the escape \q is not supported"),
        (r"a: '\777'", r"net.prototxt:1: \777 is larger than a byte"),
        (r"a: '\x42'", r"net.prototxt:1: the escape \x is not supported"),
        (r"a: '\377'", "net.prototxt:1: the string is not valid UTF-8"),
        ("a: 1\n<<<<<<< HEAD", "net.prototxt:2: expected the name of a field, found '<'"),
        ("a: @", "net.prototxt:1: expected a value, found '@'"),
        ("[a.b]: 1", "net.prototxt:1: expected the name of a field, found '['"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| "m {".repeat(depth) + &"}".repeat(depth);
    assert!(parse("f", &nested(100)).is_ok());
    assert_eq!(error(&nested(101)), "net.prototxt:1: messages are nested more than 100 deep");
    assert_eq!(error(&"m{".repeat(1_000_000)), "net.prototxt:1: messages are nested more than 100 deep");
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.prototxt");
    let message = super::read(&missing).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: cannot be read: ", missing.display())), "{message}");
    let binary = folder.path().join("net.caffemodel");
    std::fs::write(&binary, b"a: 1\nb: \xff").unwrap();
    let message = super::read(&binary).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("{}:2: the text is not valid UTF-8", binary.display())),
        "{message}"
    );
    // A comment in another encoding.
    std::fs::write(&binary, b"a: 1 # \xd7\xa2\nb: 2").unwrap();
    assert_eq!(read(&super::read(&binary).unwrap()).fields.len(), 2);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = parse("f", &text);
    }

    #[test]
    fn no_sequence_of_tokens_makes_the_parser_panic(
        tokens in proptest::collection::vec(
            proptest::sample::select(vec![
                "a", "layer", ":", "{", "}", "<", ">", "[", "]", ",", ";", "-", ".", "/", "1", "0x", "1e", "1e-", "0b1",
                ".5", "\"", "'", "\\", "\\x", "\\u12", "#", "\n", " ", "inf", "nan", "é", "\u{0}",
            ]),
            0..40,
        )
    ) {
        let _ = parse("f", &tokens.concat());
    }

    #[test]
    fn strings_survive_escaping(text in any::<String>()) {
        let escaped: String = text.bytes().map(|byte| format!("\\{byte:03o}")).collect();
        let message = parse("f", &format!("a: \"{escaped}\"")).unwrap();
        prop_assert_eq!(&message.fields[0].value, &FieldValue::String(text));
    }
}
