//! How an engine is run: on operands as they are, or on what is made of them at the beginning of the workspace.

use super::kind::Kind;
use crate::{
    conv::{ConvError, ConvOp, Convolver, operands::filter},
    copy::convert,
    cudnn::{Cudnn, Engine, EngineConfig, EngineFacts, ExecutionPlan, SMALL_WORKSPACE},
    space_to_depth::{filter_to_depth, gradient_from_depth, image_to_depth},
};
use planner::Bytes;
use std::sync::OnceLock;
use tensor::{ALIGNMENT, Accumulate, ConvGeometry, Device, Format, View, ViewMut, cuda::Cuda};

/// What the name begins with where blocks of pixels become channels; the engine's follows.
pub(super) const DEPTH: &str = "S2D_";

/// An engine with a handle to run it on. Its operands are all of one format; filters and their gradients are in single precision
/// and NCHW, so in other formats they are converted, and parts of a gradient add up in single precision. Where blocks of
/// pixels become channels, x is laid out anew, too.
#[derive(Debug)]
pub(super) struct EngineConvolver {
    pub(super) name: String,
    cudnn: Cudnn,
    cuda: Cuda,
    op: ConvOp,
    /// The convolution, and that of the engine.
    geometries: [ConvGeometry; 2],
    format: Format,
    /// To replace and, except where that is never asked for, to add.
    configs: Vec<EngineConfig>,
    /// What was built of them.
    plans: OnceLock<Vec<ExecutionPlan>>,
    /// Bytes that the engine works in; none if the handle has enough.
    pub(super) workspace: usize,
}

impl EngineConvolver {
    /// `engine` computes `op` of the second of the geometries in the place of the first.
    pub(super) fn new(
        cudnn: &Cudnn,
        cuda: &Cuda,
        (op, geometries, format): (ConvOp, [ConvGeometry; 2], Format),
        engine: &Engine,
        configs: Vec<EngineConfig>,
    ) -> Self {
        let workspace = configs.iter().map(|config| config.facts.workspace);
        Self {
            name: format!("{}{engine}", if geometries[0] == geometries[1] { "" } else { DEPTH }),
            cudnn: cudnn.clone(),
            cuda: cuda.clone(),
            op,
            geometries,
            format,
            workspace: workspace.filter(|&bytes| bytes > SMALL_WORKSPACE).max().unwrap_or(0),
            configs,
            plans: OnceLock::new(),
        }
    }

    pub(super) fn facts(&self) -> &EngineFacts {
        &self.configs[0].facts
    }

    fn plans(&self) -> Result<&[ExecutionPlan], ConvError> {
        if self.plans.get().is_none() {
            let built = self.configs.iter().map(|config| self.cudnn.build(config));
            let built: Result<Vec<_>, _> = built.collect();
            let built =
                built.map_err(|source| ConvError::of_algorithm(&self.name, self.geometry().n, source))?;
            // Another thread may have been faster.
            let _ = self.plans.set(built);
        }
        Ok(self.plans.get().expect("they were just built"))
    }

    /// Elements of x and w, or its gradient, that the workspace begins with.
    fn laid_out(&self) -> [usize; 2] {
        let [g, deep] = &self.geometries;
        [if deep == g { 0 } else { deep.x_len() }, if self.format == Format::F32 { 0 } else { deep.w_len() }]
    }

    /// Bytes of so many elements.
    fn bytes(&self, len: usize) -> usize {
        (len * self.format.dtype.bytes()).next_multiple_of(ALIGNMENT)
    }

    fn launch(
        &self,
        operands: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        let plan = &self.plans()?[usize::from(accumulate == Accumulate::Add)];
        let launched = self.cudnn.execute(plan, operands, out, workspace);
        launched.map_err(|source| ConvError::of_algorithm(&self.name, self.geometry().n, source))
    }

    /// Converts the filter, or its gradient back.
    fn convert(&self, from: View<'_>, to: ViewMut<'_>, accumulate: Accumulate) {
        match (&self.geometries, self.op) {
            ([g, deep], _) if g == deep => {
                convert(&Device::Cuda(self.cuda.clone()), &filter(g), from, to, accumulate)
            }
            (geometries, ConvOp::BackwardFilter) => {
                gradient_from_depth(&self.cuda, geometries, from, to, accumulate)
            }
            (geometries, _) => filter_to_depth(&self.cuda, geometries, from, to),
        }
    }
}

impl Convolver for EngineConvolver {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> &ConvGeometry {
        &self.geometries[0]
    }

    fn workspace(&self) -> Bytes {
        let bytes: usize = self.laid_out().map(|len| self.bytes(len)).iter().sum();
        Bytes((bytes + self.workspace) as u64)
    }

    fn max_error(&self) -> f32 {
        Kind::of(self.facts(), self.format).max_error(self.geometry(), self.format)
    }

    fn is_deterministic(&self) -> bool {
        !self.facts().says(EngineFacts::NONDETERMINISTIC)
    }

    fn load(&self) -> Result<(), ConvError> {
        self.plans().map(|_| ())
    }

    fn run(
        &self,
        [a, b]: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        assert!(workspace.byte_len() as u64 >= self.workspace().0, "the workspace is smaller than planned");
        if self.format == Format::F32 {
            return self.launch([a, b], out, accumulate, workspace);
        }
        let mut take = |len| workspace.take(Format::U8, self.bytes(len)).take(self.format, len);
        let [mut x, mut w] = self.laid_out().map(&mut take);
        let a = if x.is_empty() {
            a
        } else {
            image_to_depth(&self.cuda, &self.geometries, a, x.reborrow());
            x.as_view()
        };
        if self.op == ConvOp::BackwardFilter {
            self.launch([a, b], w.reborrow(), Accumulate::Replace, workspace)?;
            self.convert(w.as_view(), out, accumulate);
            return Ok(());
        }
        self.convert(b, w.reborrow(), Accumulate::Replace);
        self.launch([a, w.as_view()], out, accumulate, workspace)
    }
}
