//! What each convolution got, why, and what it gains, for whoever sets `MICROBATCH_REPORT`.

use crate::warning::warn;
use planner::{Bytes, Configuration};
use serde_json::{Value, json};
use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// One convolution.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) convolution: String,
    /// In micro-batches, or nothing: what cuDNN answered stands.
    pub(crate) got: Option<Configuration>,
    /// Why it got no more.
    pub(crate) why: String,
    /// What cuDNN would have used, and its time if that is known.
    pub(crate) own: Option<(String, Option<f64>)>,
    pub(crate) limit: usize,
    /// How often the virtual algorithm ran.
    pub(crate) calls: u64,
}

impl Line {
    /// How many times faster it is than what cuDNN would have used.
    fn gain(&self) -> Option<f64> {
        let (_, own_ms) = self.own.as_ref()?;
        Some((*own_ms)? / self.got.as_ref()?.time_ms())
    }

    fn json(&self) -> Value {
        let Self { convolution, got, why, own, limit, calls } = self;
        json!({
            "convolution": convolution,
            "got": got.as_ref().map(Configuration::to_string),
            "time_ms": got.as_ref().map(Configuration::time_ms),
            "workspace_bytes": got.as_ref().map(Configuration::workspace),
            "limit_bytes": limit,
            "own": own.as_ref().map(|(name, _)| name),
            "own_ms": own.as_ref().and_then(|(_, ms)| *ms),
            "gain": self.gain(),
            "calls": calls,
            "why": why,
        })
    }

    fn text(&self) -> String {
        let Self { convolution, got, why, own, limit, calls } = self;
        let time = |ms: Option<f64>| ms.map_or("not measured".to_owned(), |ms| format!("{ms:.3} ms"));
        let own = own.as_ref().map_or("nothing".to_owned(), |(name, ms)| format!("{name}, {}", time(*ms)));
        let mut text = format!("{convolution}\n  cuDNN's own: {own}\n");
        let written = match got {
            Some(got) => {
                let gain = self.gain().map_or(String::new(), |gain| format!(", {gain:.2}x as fast"));
                let workspace = got.workspace();
                let limit = Bytes(*limit as u64);
                writeln!(
                    text,
                    "  got: {got}, {}{gain}, {workspace} of {limit}, {calls} calls",
                    time(Some(got.time_ms()))
                )
            }
            None => writeln!(text, "  got: cuDNN's own"),
        };
        written.and_then(|()| writeln!(text, "  why: {why}")).expect("text takes text");
        text
    }
}

/// Writes the report, as JSON if the file's name says so.
fn write(path: &Path, lines: &[Line]) -> io::Result<()> {
    let text = if path.extension().is_some_and(|extension| extension == "json") {
        format!("{:#}\n", Value::from_iter(lines.iter().map(Line::json)))
    } else {
        lines.iter().map(Line::text).collect()
    };
    fs::write(path, text)
}

/// Writes what `lines` returns when the process ends. Only the first call counts.
pub(crate) fn at_exit(path: &Path, lines: fn() -> Vec<Line>) {
    static AT_EXIT: OnceLock<(PathBuf, fn() -> Vec<Line>)> = OnceLock::new();
    extern "C" fn run() {
        let Some((path, lines)) = AT_EXIT.get() else { return };
        if let Err(error) = write(path, &lines()) {
            warn(&format!("cannot write the report {}: {error}", path.display()));
        }
    }
    if AT_EXIT.set((path.to_owned(), lines)).is_ok() {
        // SAFETY: the function stays where it is: this library is never unloaded, and it takes nothing that may be gone.
        unsafe { libc::atexit(run) };
    }
}
