//! Operands to measure with.

use super::Convolution;
use crate::conv::{ConvError, ConvOp, operand_lens, run::slices};
use crate::raw::Cudnn;
use tensor::{
    Access, Accumulate, ConvGeometry, Lease, Span,
    arena::ALIGNMENT,
    cuda::{CudaError, DeviceArena},
};

/// Throw-away operands of one kernel.
#[derive(Debug)]
pub(super) struct Bench {
    op: ConvOp,
    /// With as many samples as there are operands for.
    geometry: ConvGeometry,
    pub(super) arena: DeviceArena,
    spans: [Span; 3],
    calls: usize,
}

impl Bench {
    /// Operands that hold `geometry`, with the values of `pattern`, in `arena` if that is large enough.
    pub(super) fn new(
        cudnn: &Cudnn,
        op: ConvOp,
        geometry: ConvGeometry,
        pattern: &[f32],
        arena: Option<DeviceArena>,
    ) -> Result<Self, CudaError> {
        let mut end = 0;
        let spans = operand_lens(op, &geometry).map(|len| {
            let span = Span { offset: end, len };
            end += len.next_multiple_of(ALIGNMENT);
            span
        });
        let mut arena = reuse(cudnn, arena, end)?;
        arena.repeat(Span { offset: 0, len: end }, pattern)?;
        Ok(Self { op, geometry, arena, spans, calls: 0 })
    }

    /// Whether these are operands of the same kernel, with at least as many samples as `geometry`.
    pub(super) fn holds(&self, op: ConvOp, geometry: &ConvGeometry) -> bool {
        self.op == op && self.geometry.with_batch(geometry.n) == *geometry && geometry.n <= self.geometry.n
    }

    /// One call, on the next slice that there is.
    pub(super) fn call(
        &mut self,
        cudnn: &Cudnn,
        convolution: &Convolution,
        workspace: &mut DeviceArena,
    ) -> Result<(), ConvError> {
        let samples = convolution.geometry().n;
        let first = self.calls % (self.geometry.n / samples) * samples;
        self.calls += 1;
        let ranges = slices(self.op, &self.geometry, &(first..first + samples));
        let mut spans = self.spans;
        for (span, range) in spans.iter_mut().zip(ranges) {
            *span = Span { offset: span.offset + range.start, len: range.len() };
        }
        let is_part = samples < self.geometry.n;
        let adds_up = self.op == ConvOp::BackwardFilter && is_part;
        let accumulate = if adds_up { Accumulate::Add } else { Accumulate::Replace };
        let [a, b, out] = spans;
        let leases = self.arena.lease(&[(a, Access::Read), (b, Access::Read), (out, Access::Write)]);
        let leases = <[Lease<'_>; 3]>::try_from(leases.expect("spans side by side"));
        let [Lease::Read(a), Lease::Read(b), Lease::Write(mut out)] = leases.expect("three requests") else {
            unreachable!("leases come in the order of the requests")
        };
        let workspace = workspace.view_mut(Span { offset: 0, len: convolution.workspace_len() });
        convolution.run(cudnn, [a.device(), b.device()], out.device(), accumulate, workspace)
    }
}

/// `arena` if it has `len` elements, and otherwise a new one in its place.
pub(super) fn reuse(cudnn: &Cudnn, arena: Option<DeviceArena>, len: usize) -> Result<DeviceArena, CudaError> {
    match arena {
        Some(arena) if arena.len() >= len => Ok(arena),
        // The old one goes first: there need not be room for both.
        old => {
            drop(old);
            DeviceArena::new(cudnn.stream(), len)
        }
    }
}
