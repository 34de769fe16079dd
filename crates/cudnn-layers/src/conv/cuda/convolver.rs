//! How an engine is run: on operands as they are, or on what is made of them at the beginning of the workspace.

use super::kind::Kind;
use crate::{
    conv::{ConvError, ConvOp, Convolver, Facts, operands::filter},
    copy::convert,
    cudnn::{Cudnn, CudnnError, Engine, EngineConfig, EngineFacts, ExecutionPlan, SMALL_WORKSPACE},
    space_to_depth::{filter_to_depth, gradient_from_depth, image_to_depth},
};
use planner::Bytes;
use std::sync::OnceLock;
use tensor::{ALIGNMENT, Accumulate, ConvGeometry, Device, Format, Out, View, ViewMut, cuda::Cuda};

/// What the name begins with where blocks of pixels become channels; the engine's follows.
pub(super) const DEPTH: &str = "S2D_";

/// An engine with a handle to run it on. Its operands are all of one format; filters and their gradients are in single precision
/// and NCHW, so in other formats they are converted, and parts of a gradient add up in single precision. Where blocks of
/// pixels become channels, x is laid out anew, too.
#[derive(Debug)]
pub(super) struct EngineConvolver {
    pub(super) facts: Facts,
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
        let (of_engine, geometry) = (&configs[0].facts, geometries[0]);
        let workspace = configs.iter().map(|config| config.facts.workspace);
        let workspace = workspace.filter(|&bytes| bytes > SMALL_WORKSPACE).max().unwrap_or(0);
        let facts = Facts {
            name: format!("{}{engine}", if geometry == geometries[1] { "" } else { DEPTH }),
            geometry,
            workspace: Bytes(workspace as u64),
            prepared: Bytes(0),
            max_error: Kind::of(of_engine, format).max_error(&geometry, format),
            deterministic: !of_engine.says(EngineFacts::NONDETERMINISTIC),
        };
        let (cudnn, cuda, plans) = (cudnn.clone(), cuda.clone(), OnceLock::new());
        let mut made = Self { facts, cudnn, cuda, op, geometries, format, configs, plans, workspace };
        let before = made.laid_out().map(|len| made.bytes(len));
        made.facts.workspace = Bytes((before.iter().sum::<usize>() + workspace) as u64);
        made
    }

    pub(super) fn of_engine(&self) -> &EngineFacts {
        &self.configs[0].facts
    }

    fn failed(&self, source: CudnnError) -> ConvError {
        ConvError::of_algorithm(&self.facts.name, self.facts.geometry.n, source)
    }

    fn plans(&self) -> Result<&[ExecutionPlan], ConvError> {
        if self.plans.get().is_none() {
            let built = self.configs.iter().map(|config| self.cudnn.build(config));
            let built = built.collect::<Result<_, _>>().map_err(|source| self.failed(source))?;
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

    fn launch(&self, operands: [View<'_>; 2], out: Out<'_>, workspace: ViewMut<'_>) -> Result<(), ConvError> {
        let plan = &self.plans()?[usize::from(out.accumulate == Accumulate::Add)];
        let launched = self.cudnn.execute(plan, operands, out.to, workspace);
        launched.map_err(|source| self.failed(source))
    }

    /// Converts the filter, or its gradient back.
    fn convert(&self, from: View<'_>, to: Out<'_>) {
        match (&self.geometries, self.op) {
            ([g, deep], _) if g == deep => convert(&Device::Cuda(self.cuda.clone()), &filter(g), from, to),
            (geometries, ConvOp::BackwardFilter) => gradient_from_depth(&self.cuda, geometries, from, to),
            (geometries, _) => filter_to_depth(&self.cuda, geometries, from, to.to),
        }
    }
}

impl Convolver for EngineConvolver {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn load(&self) -> Result<(), ConvError> {
        self.plans().map(|_| ())
    }

    fn run(&self, [a, b]: [View<'_>; 2], out: Out<'_>, mut workspace: ViewMut<'_>) -> Result<(), ConvError> {
        assert!(
            workspace.byte_len() as u64 >= self.facts.workspace.0,
            "the workspace is smaller than planned"
        );
        if self.format == Format::F32 {
            return self.launch([a, b], out, workspace);
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
            self.launch([a, b], w.reborrow().replaced(), workspace)?;
            self.convert(w.as_view(), out);
            return Ok(());
        }
        self.convert(b, w.reborrow().replaced());
        self.launch([a, w.as_view()], out, workspace)
    }
}
