//! What each convolution got, why, and what it gains, for whoever sets `MICROBATCH_REPORT`.

use crate::{
    plan::Plan,
    shared::{lock, warn},
    signature::Signature,
};
use planner::Bytes;
use serde_json::Value;
use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    path::Path,
    process,
    sync::{Arc, LazyLock, Mutex, OnceLock, atomic::Ordering::Relaxed},
};

/// What the report says of a convolution, in this order.
const KEYS: [&str; 9] =
    ["convolution", "got", "got_ms", "workspace_bytes", "limit_bytes", "own", "own_ms", "calls", "why"];

/// What each got, and its plan, which counts its calls.
static LINES: LazyLock<Mutex<HashMap<Signature, (Value, Option<Arc<Plan>>)>>> =
    LazyLock::new(Default::default);

/// Notes what a convolution got: an object with the keys above. Of a graph's engines the fastest counts, which its caller
/// would have taken.
pub(crate) fn note(path: &'static Path, signature: &Signature, line: Value, plan: Option<Arc<Plan>>) {
    let mut noted = lock(&LINES);
    let rival_ms = |line: &Value| line["own_ms"].as_f64().unwrap_or(f64::INFINITY);
    let is_slower = |(other, _): &(Value, _)| rival_ms(&line) >= rival_ms(other);
    if !(signature.is_deterministic && noted.get(signature).is_some_and(is_slower)) {
        noted.insert(signature.clone(), (line, plan));
    }
    at_exit(path);
}

/// What was noted, with the number of calls of the virtual algorithm.
fn lines() -> Vec<Value> {
    let calls = |plan: &Arc<Plan>| plan.calls.load(Relaxed);
    let noted = lock(&LINES);
    let with_calls = noted.values().cloned().map(|(mut line, plan)| {
        line["calls"] = plan.as_ref().map_or(0, calls).into();
        line
    });
    let mut lines: Vec<Value> = with_calls.collect();
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
