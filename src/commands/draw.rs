//! Writing figures, and traces of iterations, into files.

use crate::{Console, Error, Result};
use ::figures::draw::Figure;
use ::figures::{ActionSpan, PlanReport, ScalingReport, Table, scaling_figure, study::plan_figure};
use files::{try_writing, write_atomically};
use memory::StreamKind;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Draws a plan into the file that `--plot` names, if it names one; of several GPUs, what these bring.
pub(super) fn plot(
    file: Option<&PathBuf>,
    (plan, scaling): (&PlanReport, Option<&ScalingReport>),
    (subject, source): (String, String),
    console: &mut Console,
) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let figure = match scaling {
        Some(scaling) => scaling_figure(scaling, &subject, &source),
        None => plan_figure(plan, &subject, &source),
    };
    write_drawing(file, &figure)?;
    console.text(format!("  drawn       {}", file.display()))
}

/// Writes a drawing alone, as SVG or PNG by the name of the file.
pub(super) fn write_drawing(file: &Path, figure: &Figure) -> Result<()> {
    let is_svg = file.extension().is_some_and(|ending| ending == "svg");
    write(file, if is_svg { figure.svg().into_bytes() } else { figure.png() })
}

/// Writes a figure's numbers and, unless these are wanted alone, its drawings into `folder`.
pub(super) fn write_figure(folder: &Path, figure: &Figure, numbers_alone: bool) -> Result<()> {
    let file = |ending: &str| folder.join(format!("{}.{ending}", figure.name));
    write_data(&file("csv"), &figure.data)?;
    write(&file("json"), format!("{}\n", json!(figure)).into_bytes())?;
    let drawings = if numbers_alone { &[][..] } else { &["svg", "png"] };
    drawings.iter().try_for_each(|ending| write_drawing(&file(ending), figure))
}

/// Writes rows as CSV.
pub(super) fn write_data(file: &Path, data: &Table) -> Result<()> {
    let rows = || -> csv::Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&data.columns)?;
        data.texts().try_for_each(|row| writer.write_record(row))?;
        Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
    };
    write(file, rows().map_err(|error| refused(file, error.into()))?)
}

/// Writes when `actions` run, in Chrome's trace format, which `chrome://tracing` and Perfetto show: a row for each
/// stream, and the device's memory where that is known. Times are in microseconds.
pub(super) fn write_trace(file: &Path, actions: &[ActionSpan]) -> Result<()> {
    let row = |stream: StreamKind, name: &str| {
        let row = stream as u32;
        json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": { "name": name } })
    };
    let rows = [
        row(StreamKind::Compute, "computation"),
        row(StreamKind::CopyOut, "copies to the host"),
        row(StreamKind::CopyIn, "copies from the host"),
    ];
    let spans = actions.iter().flat_map(|action| {
        let ActionSpan { name, stream, start_ms, end_ms, alive } = action;
        let (start, duration, row) = (start_ms * 1e3, (end_ms - start_ms) * 1e3, *stream as u32);
        let span = json!({ "name": name, "ph": "X", "ts": start, "dur": duration, "pid": 1, "tid": row });
        let memory = alive.filter(|_| *stream == StreamKind::Compute).map(|bytes| {
            json!({ "name": "device memory", "ph": "C", "ts": start, "pid": 1, "args": { "bytes": bytes } })
        });
        std::iter::once(span).chain(memory)
    });
    let events: Vec<Value> = rows.into_iter().chain(spans).collect();
    write(file, json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string().into_bytes())
}

/// Writes a file as a whole, in a folder that is made if need be, or leaves what there was.
pub(super) fn write(file: &Path, bytes: Vec<u8>) -> Result<()> {
    write_atomically(file, |out| out.write_all(&bytes)).map_err(|source| refused(file, source))
}

/// Makes sure, before there is anything to lose, that [`write`] will get as far as writing `files`, and that none of them is
/// one that is `read`.
pub(super) fn check<'f>(
    files: impl IntoIterator<Item = &'f PathBuf>,
    read: impl IntoIterator<Item = &'f PathBuf>,
) -> Result<()> {
    let read: Vec<PathBuf> = read.into_iter().filter_map(|file| file.canonicalize().ok()).collect();
    files.into_iter().try_for_each(|file| {
        let is_read = file.canonicalize().is_ok_and(|file| read.contains(&file));
        let over = || Err(io::Error::other("it is read, and not written over"));
        let checked = if is_read { over() } else { try_writing(file) };
        checked.map_err(|source| refused(file, source))
    })
}

pub(super) fn refused(file: &Path, source: io::Error) -> Error {
    Error::Refused(format!("cannot write {}: {source}", file.display()))
}
