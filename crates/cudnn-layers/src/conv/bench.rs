//! Operands to measure with.

use super::{
    ConvOp,
    operands::{operand_lens, slices},
};
use tensor::{Accumulate, Arena, ConvGeometry, Cursor, Format, Span, View, ViewMut, cuda::CudaError};

/// Throw-away operands of one kernel.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) op: ConvOp,
    /// With as many samples as there are operands for.
    pub(super) geometry: ConvGeometry,
    arena: Arena,
    spans: [Span; 3],
    calls: usize,
}

impl Bench {
    /// Operands that hold `geometry`, with the values of `pattern`, in an arena of so many bytes or more.
    pub(super) fn new<E: From<CudaError>>(
        op: ConvOp,
        geometry: ConvGeometry,
        pattern: &[f32],
        arena: impl FnOnce(usize) -> Result<Arena, E>,
    ) -> Result<Self, E> {
        let mut cursor = Cursor::default();
        let spans = operand_lens(op, &geometry).map(|len| cursor.take(Format::F32, len));
        let mut arena = arena(cursor.end())?;
        arena.repeat(Span::bytes(0, cursor.end()).tagged(Format::F32), pattern)?;
        Ok(Self { op, geometry, arena, spans, calls: 0 })
    }

    /// The memory of the operands, for others.
    pub(super) fn into_arena(self) -> Arena {
        self.arena
    }

    /// Whether these are operands of the same kernel, with at least as many samples as `geometry`.
    pub(super) fn holds(&self, op: ConvOp, geometry: &ConvGeometry) -> bool {
        self.op == op && self.geometry.with_batch(geometry.n) == *geometry && geometry.n <= self.geometry.n
    }

    /// The operands of the next call, which are the next slice of so many samples, and what it does with its output: parts of
    /// a filter gradient add up.
    pub(super) fn next(&mut self, samples: usize) -> ([View<'_>; 2], ViewMut<'_>, Accumulate) {
        let first = self.calls % (self.geometry.n / samples) * samples;
        self.calls += 1;
        let ranges = slices(self.op, &self.geometry, &(first..first + samples));
        let [a, b, out] = std::array::from_fn(|operand| self.spans[operand].slice(ranges[operand].clone()));
        let adds_up = self.op == ConvOp::BackwardFilter && samples < self.geometry.n;
        let ([a, b], [out]) = self.arena.lease([a, b], [out]).expect("spans side by side");
        ([a, b], out, if adds_up { Accumulate::Add } else { Accumulate::Replace })
    }
}

/// `arena` if it has `len` bytes, and otherwise a new one in its place.
pub(super) fn reuse<E>(
    arena: Option<Arena>,
    len: usize,
    new: impl FnOnce(usize) -> Result<Arena, E>,
) -> Result<Arena, E> {
    match arena {
        Some(arena) if arena.len() >= len => Ok(arena),
        // The old one goes first: there need not be room for both.
        old => {
            drop(old);
            new(len)
        }
    }
}
