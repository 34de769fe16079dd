//! An iteration in Chrome's trace format, which `chrome://tracing` and Perfetto show.

use figures::ActionSpan;
use memory::StreamKind;
use serde_json::{Value, json};

/// One row for each stream, and the device's memory where that is known. Times are in microseconds.
pub(crate) fn trace(actions: &[ActionSpan]) -> Value {
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
    json!({ "traceEvents": rows.into_iter().chain(spans).collect::<Vec<_>>(), "displayTimeUnit": "ms" })
}
