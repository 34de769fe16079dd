//! How an engine is run: on operands as they are, or on what is made of them at the beginning of the workspace.

use super::{
    engines::{Search, kind},
    failed,
};
use crate::{
    conv::{ConvError, ConvOp, Convolver, operands::filter},
    copy::convert,
    cudnn::{Cudnn, Engine, EngineConfig, EngineFacts, ExecutionPlan, SMALL_WORKSPACE},
    space_to_depth::{filter_to_depth, gradient_from_depth, image_to_depth},
};
use planner::Bytes;
use std::sync::OnceLock;
use tensor::{ALIGNMENT, Accumulate, ConvGeometry, Device, Format, View, ViewMut};

/// What the name begins with where blocks of pixels become channels; the engine's follows.
pub(super) const DEPTH: &str = "S2D_";

/// An engine with a handle to run it on. Its operands are all of one format; filters and their gradients are in single precision
/// and NCHW, so in other formats they are converted, and parts of a gradient add up in single precision. Where blocks of
/// pixels become channels, x is laid out anew, too.
#[derive(Debug)]
pub(super) struct EngineConvolver {
    pub(super) name: String,
    cudnn: Cudnn,
    device: Device,
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
    pub(super) fn new(search: &Search<'_>, engine: &Engine, configs: Vec<EngineConfig>) -> Self {
        let &Search { cudnn, device, op, geometries: [geometry, deep], format, .. } = search;
        let workspace = configs.iter().map(|config| config.facts.workspace);
        Self {
            name: format!("{}{engine}", if deep == geometry { "" } else { DEPTH }),
            cudnn: cudnn.clone(),
            device: device.clone(),
            op,
            geometries: [geometry, deep],
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
            let built = built.map_err(|source| failed(&self.name, self.geometry(), source))?;
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
        launched.map_err(|source| failed(&self.name, self.geometry(), source))
    }

    /// Converts the filter.
    fn filter(&self, w: View<'_>, to: ViewMut<'_>) {
        match &self.geometries {
            [g, deep] if g == deep => convert(&self.device, &filter(g), w, to, Accumulate::Replace),
            geometries => filter_to_depth(&self.device, geometries, w, to),
        }
    }

    /// Converts the gradient of the filter back.
    fn gradient(&self, dw: View<'_>, to: ViewMut<'_>, accumulate: Accumulate) {
        match &self.geometries {
            [g, deep] if g == deep => convert(&self.device, &filter(g), dw, to, accumulate),
            geometries => gradient_from_depth(&self.device, geometries, dw, to, accumulate),
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
        kind(self.facts(), self.format).max_error(self.geometry(), self.format)
    }

    fn is_deterministic(&self) -> bool {
        self.facts().is_deterministic()
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
            image_to_depth(&self.device, &self.geometries, a, x.reborrow());
            x.as_view()
        };
        if self.op == ConvOp::BackwardFilter {
            self.launch([a, b], w.reborrow(), Accumulate::Replace, workspace)?;
            self.gradient(w.as_view(), out, accumulate);
            return Ok(());
        }
        self.filter(b, w.reborrow());
        self.launch([a, w.as_view()], out, accumulate, workspace)
    }
}
