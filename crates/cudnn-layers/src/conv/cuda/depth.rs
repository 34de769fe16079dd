//! Engines for convolutions of few channels with a stride, with blocks of pixels as channels.

use super::engines::EngineConvolver;
use crate::{
    conv::{ConvError, ConvOp, Convolver},
    space_to_depth::{filter_to_depth, gradient_from_depth, image_to_depth},
};
use planner::Bytes;
use tensor::{ALIGNMENT, Accumulate, ConvGeometry, Format, View, ViewMut, cuda::Cuda};

/// What names of such algorithms begin with; the engine's follows.
pub(super) const PREFIX: &str = "S2D_";

/// An engine on x and w as [`crate::space_to_depth`] has them, which lie at the beginning of the workspace.
#[derive(Debug)]
pub(super) struct DepthConvolver {
    name: String,
    engine: EngineConvolver,
    cuda: Cuda,
    op: ConvOp,
    geometry: ConvGeometry,
    format: Format,
}

impl DepthConvolver {
    /// `engine` computes `op` of the convolution that stands for that of `geometry`.
    pub(super) fn new(
        engine: EngineConvolver,
        cuda: &Cuda,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
    ) -> Self {
        Self { name: format!("{PREFIX}{}", engine.name()), engine, cuda: cuda.clone(), op, geometry, format }
    }

    /// Bytes that x and w, or its gradient, take.
    fn bytes(&self) -> [usize; 2] {
        let deep = self.engine.geometry();
        let bytes = |len: usize| (len * self.format.dtype.bytes()).next_multiple_of(ALIGNMENT);
        [deep.x_len(), deep.w_len()].map(bytes)
    }
}

impl Convolver for DepthConvolver {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    fn workspace(&self) -> Bytes {
        self.engine.workspace() + Bytes(self.bytes().iter().sum::<usize>() as u64)
    }

    fn max_error(&self) -> f32 {
        self.engine.max_error()
    }

    fn is_deterministic(&self) -> bool {
        self.engine.is_deterministic()
    }

    fn load(&self) -> Result<(), ConvError> {
        self.engine.load()
    }

    fn run(
        &self,
        [a, b]: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        assert!(workspace.byte_len() as u64 >= self.workspace().0, "the workspace is smaller than planned");
        let (cuda, deep, geometries) =
            (&self.cuda, self.engine.geometry(), [&self.geometry, self.engine.geometry()]);
        let [mut x, mut w] = self.bytes().map(|bytes| workspace.take(Format::U8, bytes));
        let (mut x, mut w) = (x.take(self.format, deep.x_len()), w.take(self.format, deep.w_len()));
        image_to_depth(cuda, geometries, a, x.reborrow());
        if self.op == ConvOp::BackwardFilter {
            self.engine.run([x.as_view(), b], w.reborrow(), Accumulate::Replace, workspace)?;
            gradient_from_depth(cuda, geometries, w.as_view(), out, accumulate);
            return Ok(());
        }
        filter_to_depth(cuda, geometries, b, w.reborrow());
        self.engine.run([x.as_view(), w.as_view()], out, accumulate, workspace)
    }
}
