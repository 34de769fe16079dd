//! What each convolution got, why, and what it gains, for whoever sets `MICROBATCH_REPORT`.

use crate::shared::{lock, warn};
use crate::{plan::known_plan, signature::Signature};
use planner::{Bytes, Configuration};
use serde_json::Value;
use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::{collections::HashMap, fs, path::Path, process, sync::atomic::Ordering::Relaxed};

/// What the report says of a convolution, in this order.
const KEYS: [&str; 9] =
    ["convolution", "got", "got_ms", "workspace_bytes", "limit_bytes", "own", "own_ms", "calls", "why"];

static LINES: LazyLock<Mutex<HashMap<Signature, Value>>> = LazyLock::new(Default::default);

/// Notes what a convolution got: an object with the keys above. Of a graph's engines the fastest counts, which its caller
/// would have taken.
pub(crate) fn note(path: &'static Path, signature: &Signature, line: Value) {
    let mut noted = lock(&LINES);
    let rival_ms = |line: &Value| line["own_ms"].as_f64().unwrap_or(f64::INFINITY);
    let is_slower = |other: &Value| signature.is_deterministic && rival_ms(&line) >= rival_ms(other);
    if !noted.get(signature).is_some_and(is_slower) {
        noted.insert(signature.clone(), line);
    }
    at_exit(path);
}

/// Notes what a convolution has got of a total, or that it runs as without us.
pub(crate) fn divided(signature: &Signature, got: Option<&Configuration>) {
    if let Some(line) = lock(&LINES).get_mut(signature) {
        line["got"] = got.map_or("cuDNN's own".to_owned(), Configuration::to_string).into();
        line["got_ms"] = got.map(|got| rounded(got.time_ms())).into();
        line["workspace_bytes"] = got.map(|got| got.workspace().0).into();
        line["why"] = "the total is divided".into();
    }
}

/// Milliseconds as the report has them.
pub(crate) fn rounded(ms: f64) -> f64 {
    (ms * 1e4).round() / 1e4
}

/// What was noted, with the number of calls of the virtual algorithm.
fn lines() -> Vec<Value> {
    let mut lines = Vec::new();
    for (signature, line) in lock(&LINES).iter_mut() {
        line["calls"] = known_plan(signature).map_or(0, |plan| plan.calls.load(Relaxed)).into();
        lines.push(line.clone());
    }
    lines.sort_by_key(|line| line["convolution"].to_string());
    lines
}

/// Writes the report when the process ends, as JSON if the file's name says so, or else as a paragraph for each
/// convolution. A dash is standard error.
fn at_exit(path: &'static Path) {
    static AT_EXIT: OnceLock<(&Path, u32)> = OnceLock::new();
    extern "C" fn write() {
        // A process that was forked off has nothing of its own to say.
        let Some((path, _)) = AT_EXIT.get().filter(|of| of.1 == process::id()) else { return };
        let text = match path.extension().is_some_and(|extension| extension == "json") {
            true => format!("{:#}\n", Value::from(lines())),
            false => lines().iter().map(paragraph).collect(),
        };
        let written = match path.as_os_str() == "-" {
            true => io::stderr().write_all(text.as_bytes()),
            false => fs::write(path, text),
        };
        written.unwrap_or_else(|error| warn(&format!("cannot write the report {}: {error}", path.display())));
    }
    if AT_EXIT.set((path, process::id())).is_ok() {
        // SAFETY: the function stays where it is: this library is never unloaded, and takes nothing that may go.
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
