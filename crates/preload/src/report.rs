//! What each convolution got, why, and what it gains, for whoever sets `MICROBATCH_REPORT`.

use crate::shared::warn;
use planner::Bytes;
use serde_json::Value;
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process,
    sync::OnceLock,
};

/// What the report says of a convolution, in this order.
const KEYS: [&str; 9] =
    ["convolution", "got", "got_ms", "workspace_bytes", "limit_bytes", "own", "own_ms", "calls", "why"];

/// Where the report's lines are.
type Lines = fn() -> Vec<Value>;

/// Writes what `lines` returns when the process ends: objects with the keys above, as JSON if the file's name says so,
/// or else as a paragraph for each. A dash is standard error.
pub(crate) fn at_exit(path: PathBuf, lines: Lines) {
    static AT_EXIT: OnceLock<(PathBuf, Lines, u32)> = OnceLock::new();
    extern "C" fn write() {
        // A process that was forked off has nothing of its own to say.
        let Some((path, lines, _)) = AT_EXIT.get().filter(|of| of.2 == process::id()) else { return };
        let text = match path.extension().is_some_and(|extension| extension == "json") {
            true => format!("{:#}\n", Value::from(lines())),
            false => lines().iter().map(paragraph).collect(),
        };
        let written = match path.as_os_str() == "-" {
            true => io::stderr().write_all(text.as_bytes()),
            false => fs::write(path, text),
        };
        if let Err(error) = written {
            warn(&format!("cannot write the report {}: {error}", path.display()));
        }
    }
    if AT_EXIT.set((path, lines, process::id())).is_ok() {
        // SAFETY: the function stays where it is: this library is never unloaded, and it takes nothing that may be
        // gone.
        unsafe { libc::atexit(write) };
    }
}

/// The convolution, and a line for each of the other keys that has a value.
fn paragraph(line: &Value) -> String {
    let said = KEYS.iter().filter(|&&key| !line[key].is_null());
    let said = said.map(|&key| match (key, &line[key]) {
        ("convolution", value) => format!("{}\n", value.as_str().unwrap_or_default()),
        (key, Value::String(text)) => format!("  {key}: {text}\n"),
        (key, value) => match key.strip_suffix("_bytes").zip(value.as_u64()) {
            Some((key, bytes)) => format!("  {key}: {}\n", Bytes(bytes)),
            None => format!("  {key}: {value}\n"),
        },
    });
    said.collect()
}
