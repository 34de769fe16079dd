//! Operands and workspace to measure with.

use super::super::operands::{operands, slices};
use super::super::{ConvOp, Convolver};
use tensor::{
    Arena, Bf16, ConvGeometry, Cursor, Device, ElementType, Format, MemoryError, Out, Span, View, ViewMut,
};

/// Throw-away operands of one kernel, and a workspace. Micro-batches are taken in turn from the slices of a
/// mini-batch's operands: they find the addresses, the alignment and the caches that they will find as parts of a
/// mini-batch.
#[derive(Debug)]
pub(super) struct Bench {
    op: ConvOp,
    format: Format,
    /// With as many samples as there are operands for.
    pub(super) geometry: ConvGeometry,
    operands: Arena,
    spans: [Span; 3],
    workspace: Arena,
    calls: usize,
}

impl Bench {
    /// Operands that hold `geometry`, with the values of `pattern`, and so many bytes of workspace: those of `old` as
    /// far as they will do.
    pub(super) fn new(
        old: Option<Self>,
        device: &Device,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
        workspace: usize,
        pattern: &[f32],
    ) -> Result<Self, MemoryError> {
        let (old_operands, old_workspace) = match old {
            Some(old) if old.format == format && old.holds(op, &geometry) => {
                let workspace = reuse(Some(old.workspace), device, workspace)?;
                return Ok(Self { workspace, ..old });
            }
            old => old.map(|old| (old.operands, old.workspace)).unzip(),
        };
        let mut cursor = Cursor::default();
        let spans = operands(op, &geometry, format).map(|operand| cursor.place(&operand));
        let mut operands = reuse(old_operands, device, cursor.end())?;
        operands.repeat(Span::bytes(0, cursor.end()).tagged(Format::F32), pattern)?;
        if format.dtype == ElementType::Bf16 {
            let pattern: Vec<Bf16> = pattern.iter().map(|&value| Bf16::from_f32(value)).collect();
            let mut blobs = spans.into_iter().filter(|span| span.format.dtype == ElementType::Bf16);
            blobs.try_for_each(|span| operands.repeat(span, &pattern))?;
        }
        let workspace = reuse(old_workspace, device, workspace)?;
        Ok(Self { op, format, geometry, operands, spans, workspace, calls: 0 })
    }

    /// Whether these are operands of the same kernel, with at least as many samples as `geometry`.
    fn holds(&self, op: ConvOp, geometry: &ConvGeometry) -> bool {
        self.op == op && self.geometry.with_batch(geometry.n) == *geometry && geometry.n <= self.geometry.n
    }

    /// What the next call computes with, operands, output and workspace: the next slice of so many samples. Parts of a
    /// filter gradient add up.
    pub(super) fn next(&mut self, convolver: &dyn Convolver) -> ([View<'_>; 2], Out<'_>, ViewMut<'_>) {
        let samples = convolver.facts().geometry.n;
        let first = self.calls % (self.geometry.n / samples) * samples;
        self.calls += 1;
        let ranges = slices(self.op, &self.geometry, &(first..first + samples));
        let [a, b, out] = std::array::from_fn(|operand| self.spans[operand].slice(ranges[operand].clone()));
        let adds_up = self.op == ConvOp::BackwardFilter && samples < self.geometry.n;
        let (operands, [out]) = self.operands.lease([a, b], [out]).expect("spans side by side");
        let workspace = self.workspace.view_mut(Span::bytes(0, convolver.facts().workspace.0 as usize));
        (operands, if adds_up { out.added() } else { out.replaced() }, workspace)
    }
}

/// `arena` if it has `len` bytes, and otherwise a new one in its place.
fn reuse(arena: Option<Arena>, device: &Device, len: usize) -> Result<Arena, MemoryError> {
    match arena {
        Some(arena) if arena.len() >= len => Ok(arena),
        // The old one goes first: there need not be room for both.
        old => {
            drop(old);
            Arena::on(device, len)
        }
    }
}
