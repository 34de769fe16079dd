//! Where the buffers of nets lie, as spans of an arena. What lies where is decided in `memory`, which knows no tensors.

use super::{Net, graph::ValueId};
use memory::{ArenaLayout, Buffer, MemoryReport, NetPlaces, Place, Residence};
use planner::Bytes;
use std::borrow::Cow;
use tensor::{AxisOrder, Format, Span, TensorType};

/// Where a parameter lies.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpans {
    /// Its values, as the solver keeps them.
    pub data: Span,
    /// The same in the type in which passes read them, if that is another.
    pub copy: Option<Span>,
    /// Its gradient, as long as that is there, if it is trained.
    pub diff: Option<Span>,
    /// Its momentum, if a solver trains it.
    pub history: Option<Span>,
}

impl ParamSpans {
    /// What passes read.
    pub(super) fn read(&self) -> Span {
        self.copy.unwrap_or(self.data)
    }
}

/// Where one net's buffers lie.
#[derive(Clone, Debug)]
pub struct NetLayout {
    /// Its schedule, and the place of everything in it.
    pub places: NetPlaces,
    /// Each parameter.
    pub params: Vec<ParamSpans>,
    /// For each value, where its data lies, the root of its gradient, and what it consists of.
    values: Vec<(Buffer, ValueId, Format)>,
}

/// The whole arena.
#[derive(Clone, Debug)]
pub struct RunLayout {
    /// One layout per net, in the order given.
    pub nets: Vec<NetLayout>,
    /// What it adds up to.
    pub report: MemoryReport,
}

impl RunLayout {
    /// Lays out `nets`, with room for the solver's history if there are `updates`.
    pub fn new(nets: &[&Net], updates: bool) -> Self {
        let outlines: Vec<_> = nets.iter().map(|net| net.outline(updates)).collect();
        Self::of(nets, ArenaLayout::plain(&outlines))
    }

    /// The places of `nets` that `layout` says.
    pub fn of(nets: &[&Net], layout: ArenaLayout) -> Self {
        let nets = nets.iter().zip(layout.nets).map(|(net, places)| NetLayout::new(net, places));
        Self { nets: nets.collect(), report: layout.report }
    }

    /// Bytes of the arena, without what data layers allocate themselves.
    pub fn bytes(&self) -> usize {
        (self.report.arena.0 - self.report.staged.0) as usize
    }
}

impl NetLayout {
    fn new(net: &Net, places: NetPlaces) -> Self {
        let graph = net.graph();
        let values = graph.values.iter().map(|value| {
            let is_constant = graph.nodes[graph.values[value.root].producer].declaration.constant;
            let data = if is_constant { Buffer::Constant(value.root) } else { Buffer::Data(value.root) };
            (data, value.root, value.shape.format())
        });
        let params = graph.params.iter().enumerate().map(|(id, param)| {
            let (master, read) = (param.master(), &param.declaration.shape);
            let first = |buffer| Some(span(places.residences(buffer).next()?).tagged(master.format()));
            let all = first(Buffer::Parameter(id)).expect("every parameter has a place");
            let len = read.space().bytes();
            let copy = Span { offset: all.end() - len, len, format: read.format() };
            ParamSpans {
                data: all.slice(0..master.count()),
                copy: (*read != master).then_some(copy),
                diff: first(Buffer::Gradient(id)),
                history: first(Buffer::History(id)),
            }
        });
        Self { values: values.collect(), params: params.collect(), places }
    }

    /// The last action, after which outputs are read.
    pub fn end(&self) -> usize {
        self.places.schedule.actions.len().saturating_sub(1)
    }

    /// The data of a value at action `at`.
    pub fn data(&self, value: ValueId, at: usize) -> Span {
        let (data, _, format) = self.values[value];
        self.span(data, at).tagged(format)
    }

    /// The gradient of a value at action `at`.
    pub fn diff(&self, value: ValueId, at: usize) -> Span {
        let (_, root, format) = self.values[value];
        self.span(Buffer::Diff(root), at).tagged(format)
    }

    /// Where a buffer lies on the device at action `at`; an empty span if it does not.
    pub fn span(&self, buffer: Buffer, at: usize) -> Span {
        self.find(buffer, Place::Device, at).unwrap_or_default()
    }

    /// Where a buffer lies in the device's arena or the host's slab.
    pub fn find(&self, buffer: Buffer, place: Place, at: usize) -> Option<Span> {
        self.places.residence(buffer, place, at).map(span)
    }
}

fn span((one, offset): (&Residence, Bytes)) -> Span {
    Span::bytes(offset.0 as usize, one.bytes.0 as usize)
}

/// Matrices of so many rows and columns, which lie in a row, each transposed.
fn transposed<'v, T: Copy>(values: &'v [T], [rows, columns]: [usize; 2]) -> Vec<T> {
    let in_columns =
        |matrix: &'v [T]| (0..columns).flat_map(move |column| matrix[column..].iter().step_by(columns));
    values.chunks_exact(rows * columns).flat_map(in_columns).copied().collect()
}

/// The elements of blobs of this type, one or several in a row, in the order of NCHW, which is that of all files.
pub(crate) fn in_nchw<'v, T: Copy>(values: Cow<'v, [T]>, blob: &TensorType) -> Cow<'v, [T]> {
    match blob.format().layout {
        AxisOrder::Nchw => values,
        AxisOrder::Nhwc => transposed(&values, [blob.spatial(), blob.c()]).into(),
    }
}

/// Brings elements that are in the order of NCHW into that of a blob of this type.
pub(crate) fn from_nchw<T: Copy>(values: &mut [T], blob: &TensorType) {
    if blob.format().layout == AxisOrder::Nhwc {
        values.copy_from_slice(&transposed(values, [blob.c(), blob.spatial()]));
    }
}
