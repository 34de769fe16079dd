//! Where output goes: text for people or one JSON object for machines on stdout, and what would disturb that on stderr.

use crate::Result;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// The version of the reports in JSON: it rises when a field changes its name or meaning.
const VERSION: u32 = 1;

/// A report as it is printed.
#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    report: &'a T,
}

/// Standard output in one of its two forms: a command says everything in both, and one of them is printed.
pub(crate) struct Console {
    out: Box<dyn Write>,
    pub(crate) json: bool,
    warns: bool,
}

impl Console {
    /// Standard output, as text or as JSON.
    pub(crate) fn new(json: bool) -> Self {
        Self { out: Box::new(io::stdout()), json, warns: true }
    }

    /// That of a rank that `leads`, or of another, which says nothing.
    pub(crate) fn of_rank(leads: bool, json: bool) -> Self {
        if leads { Self::new(json) } else { Self { out: Box::new(io::sink()), json: false, warns: false } }
    }

    pub(crate) fn text(&mut self, text: impl Display) -> Result<()> {
        if !self.json {
            writeln!(self.out, "{text}")?;
        }
        Ok(())
    }

    pub(crate) fn object(&mut self, object: &impl Serialize) -> Result<()> {
        if self.json {
            let report = Versioned { version: VERSION, report: object };
            serde_json::to_writer_pretty(&mut self.out, &report).map_err(io::Error::from)?;
            writeln!(self.out)?;
        }
        Ok(self.out.flush()?)
    }

    /// Tells of something that has no effect, on stderr, where it disturbs no reader of the output.
    pub(crate) fn warn(&self, warning: impl Display) {
        if self.warns {
            complain(&format!("warning: {}", escaped(warning)));
        }
    }
}

/// Prints a line on stderr, if that is open.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Has a panic told in one sentence, as any other error, unless RUST_BACKTRACE is set.
pub(crate) fn tell_panics_in_a_sentence() {
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|panic| {
            complain(&format!("error: a mistake in microbatch itself: {}", one_line(panic)));
        }));
    }
}

/// `text` without line ends.
pub(crate) fn one_line(text: impl Display) -> String {
    escaped(text.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// `text` with the control characters that names of files may have escaped.
pub(crate) fn escaped(text: impl Display) -> String {
    let mut escaped = String::new();
    for letter in text.to_string().chars() {
        if letter.is_control() { escaped.extend(letter.escape_debug()) } else { escaped.push(letter) }
    }
    escaped
}
