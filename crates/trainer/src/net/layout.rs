//! Where everything lies: one arena for the nets of a solver, planned before anything is allocated.
//!
//! ```text
//! | parameters, state | gradients | history | constant inputs | WD segments | transient: data, diffs, saved, scratch |
//! ```
//!
//! Nets of one solver (training, testing) share parameters by name and, as they never run at the same time, the transient
//! part.

use super::{
    Net,
    memory::{Lifetime, lower_bound, place},
    room::is_scratch,
    schedule::{Buffer, Schedule},
};
use planner::Bytes;
use serde::Serialize;
use std::collections::HashMap;
use tensor::{Cursor, Format, Span};

/// Where a parameter lies.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpans {
    /// Its values.
    pub data: Span,
    /// Its gradient, if it is trained.
    pub diff: Option<Span>,
    /// Its momentum, if a solver trains it.
    pub history: Option<Span>,
}

/// Where one net's buffers lie.
#[derive(Clone, Debug)]
pub struct NetLayout {
    /// Its schedule.
    pub schedule: Schedule,
    /// Data of each value.
    pub data: Vec<Span>,
    /// Gradient of each value; empty where there is none.
    pub diff: Vec<Span>,
    /// Saved state of each node.
    pub saved: Vec<Span>,
    /// Scratch or workspace of each step.
    pub scratch: Vec<Span>,
    /// Each parameter.
    pub params: Vec<ParamSpans>,
    /// How its transient buffers add up.
    pub report: NetMemory,
}

/// What a net's transient buffers need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetMemory {
    /// Data of all blobs.
    pub data: Bytes,
    /// Gradients of all blobs.
    pub diff: Bytes,
    /// State kept from forward to backward.
    pub saved: Bytes,
    /// Scratch and workspace of all steps.
    pub scratch: Bytes,
    /// What all of these take with lifetimes used: the size of the transient part.
    pub transient: Bytes,
    /// The most that is alive at any step: no placement is smaller.
    pub lower_bound: Bytes,
}

/// The whole arena.
#[derive(Clone, Debug)]
pub struct Layout {
    /// One layout per net, in the order given.
    pub nets: Vec<NetLayout>,
    /// What it adds up to.
    pub report: MemoryReport,
    /// Bytes of the arena.
    pub len: usize,
}

/// The memory of a run, known before it is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// Parameters and persistent state.
    pub parameters: Bytes,
    /// Their gradients.
    pub gradients: Bytes,
    /// The solver's history.
    pub history: Bytes,
    /// Inputs that are filled once.
    pub constants: Bytes,
    /// The segments of WD: each kernel's own workspace.
    pub segments: Bytes,
    /// Each net's transient part.
    pub nets: Vec<NetMemory>,
    /// The arena: all of the above, the transient parts counted once.
    pub arena: Bytes,
    /// Outside the arena: data sets in memory and mini-batches prepared ahead.
    pub host: Bytes,
}

impl Layout {
    /// Lays out `nets`, with room for the solver's history if `with_history`.
    pub fn new(nets: &[&Net], with_history: bool) -> Self {
        let mut end = Cursor::default();
        let params = params(nets, with_history, &mut end);
        let mut report = MemoryReport {
            parameters: sum(params.values().map(|spans| spans.data)),
            gradients: sum(params.values().filter_map(|spans| spans.diff)),
            history: sum(params.values().filter_map(|spans| spans.history)),
            host: Bytes(nets.iter().map(|net| net.host_bytes()).sum()),
            ..MemoryReport::default()
        };
        let constants: Vec<_> = nets.iter().map(|net| constants(net, &mut end)).collect();
        report.constants = sum(constants.iter().flat_map(|spans| spans.values().copied()));
        // Segments of different nets may overlap: the nets never run together.
        let segments = nets.iter().map(|net| net.segments_len()).max().unwrap_or(0);
        let segments = end.take(Format::U8, segments);
        report.segments = sum([segments]);
        let nets: Vec<NetLayout> = (nets.iter().zip(&constants))
            .map(|(net, constants)| NetLayout::new(net, &params, constants, segments.offset, end.end()))
            .collect();
        let transient = nets.iter().map(|net| net.report.transient.0).max().unwrap_or(0);
        let len = end.end() + transient as usize;
        report.nets = nets.iter().map(|net| net.report).collect();
        report.arena = Bytes(len as u64);
        Self { nets, report, len }
    }
}

impl NetLayout {
    fn new(
        net: &Net,
        params: &HashMap<String, ParamSpans>,
        constants: &HashMap<usize, Span>,
        segments: usize,
        base: usize,
    ) -> Self {
        let graph = net.graph();
        let schedule = Schedule::new(graph, |step| net.scratch(step).transient_len());
        let lifetimes: Vec<Lifetime> = schedule.buffers.iter().map(|&(_, lifetime)| lifetime).collect();
        // Placing scratch last may need more, and may need less; with it last, a plan made for a budget of memory fits that.
        let by_size = place(&lifetimes, |_| false);
        let last = place(&lifetimes, |index| is_scratch(schedule.buffers[index].0));
        let placement = if last.len < by_size.len { last } else { by_size };
        let placed: HashMap<Buffer, Span> = (schedule.buffers.iter().zip(&placement.offsets))
            .map(|(&(buffer, lifetime), &offset)| (buffer, Span::bytes(base + offset, lifetime.len)))
            .collect();
        let span = |buffer: Buffer| placed.get(&buffer).copied().unwrap_or_default();
        let data = |root: usize| constants.get(&root).copied().unwrap_or_else(|| span(Buffer::Data(root)));
        let values = graph.values.iter();
        let scratch = |(index, &step)| match net.scratch(step).segment() {
            Some(segment) => Span { offset: segments + segment.offset, ..segment },
            None => span(Buffer::Scratch(index)),
        };
        let total = |kind: fn(&Buffer) -> bool| {
            let of_kind = schedule.buffers.iter().filter(|(buffer, _)| kind(buffer));
            bytes(of_kind.map(|(_, life)| life.len).sum())
        };
        let report = NetMemory {
            data: total(|buffer| matches!(buffer, Buffer::Data(_))),
            diff: total(|buffer| matches!(buffer, Buffer::Diff(_))),
            saved: total(|buffer| matches!(buffer, Buffer::Saved(_))),
            scratch: total(|buffer| matches!(buffer, Buffer::Scratch(_))),
            transient: bytes(placement.len),
            lower_bound: bytes(lower_bound(&lifetimes)),
        };
        Self {
            data: values.clone().map(|value| data(value.root).tagged(value.shape.format())).collect(),
            diff: values.map(|value| span(Buffer::Diff(value.root)).tagged(value.shape.format())).collect(),
            saved: (0..graph.nodes.len()).map(|node| span(Buffer::Saved(node))).collect(),
            scratch: schedule.steps.iter().enumerate().map(scratch).collect(),
            params: graph.params.iter().map(|param| params[&param.name]).collect(),
            schedule,
            report,
        }
    }
}

fn params(nets: &[&Net], with_history: bool, end: &mut Cursor) -> HashMap<String, ParamSpans> {
    let mut params: HashMap<String, ParamSpans> = HashMap::new();
    let all =
        || nets.iter().flat_map(|net| net.graph().params.iter().map(move |param| (net.is_training(), param)));
    for (_, param) in all() {
        let fresh = || ParamSpans { data: end.place(&param.declaration.shape), diff: None, history: None };
        params.entry(param.name.clone()).or_insert_with(fresh);
    }
    for (_, param) in all().filter(|(training, param)| *training && param.trained) {
        let spans = params.get_mut(&param.name).expect("entered above");
        spans.diff = spans.diff.or_else(|| Some(end.place(&param.declaration.shape)));
    }
    for (_, param) in all().filter(|(training, param)| with_history && *training && param.trained) {
        let spans = params.get_mut(&param.name).expect("entered above");
        spans.history = spans.history.or_else(|| Some(end.place(&param.declaration.shape)));
    }
    params
}

fn constants(net: &Net, end: &mut Cursor) -> HashMap<usize, Span> {
    let graph = net.graph();
    let constant = |&id: &usize| graph.nodes[graph.values[id].producer].declaration.constant;
    (0..graph.values.len()).filter(constant).map(|id| (id, end.place(&graph.values[id].shape))).collect()
}

fn sum(spans: impl IntoIterator<Item = Span>) -> Bytes {
    bytes(spans.into_iter().map(|span| span.len).sum())
}

fn bytes(len: usize) -> Bytes {
    Bytes(len as u64)
}
