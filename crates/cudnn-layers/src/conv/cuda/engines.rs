//! cuDNN's engines as algorithms: which of those that it suggests are tried, and how one is run.

use super::{Kind, failed};
use crate::{
    conv::{ConvError, ConvOp, Convolver},
    cudnn::{
        ConvGraph, Convolution, Cudnn, CudnnError, Engine, EngineConfig, EngineFacts, ExecutionPlan,
        SMALL_WORKSPACE, Suggestions,
    },
};
use planner::{Bytes, Math};
use std::sync::OnceLock;
use tensor::{Accumulate, ConvGeometry, ElementType, Format, View, ViewMut};

/// How many of the suggested engines are tried: the best of the first eight is within half a per cent of the best of all.
const MOST: usize = 8;

/// The engines for operands of `format`, the filter included, that `math` allows; or the one called `name`.
pub(super) fn convolvers(
    cudnn: &Cudnn,
    (op, geometry, format): (ConvOp, ConvGeometry, Format),
    math: Math,
    name: Option<&str>,
) -> Result<Vec<EngineConvolver>, CudnnError> {
    let engine = match name.map(str::parse::<Engine>) {
        Some(Err(_)) => return Ok(Vec::new()),
        engine => engine.and_then(Result::ok),
    };
    let Some(subject) = refused(Subject::new(cudnn, op, geometry, format))? else { return Ok(Vec::new()) };
    if let Some(engine) = engine {
        return Ok(subject.set_up(&engine)?.into_iter().collect());
    }
    let mut found = subject.suitable(Suggestions::Likely, math, MOST)?;
    // The other list has slow engines, for those who have no memory.
    if found.iter().all(|engine| engine.workspace > 0) {
        let mut others = subject.suitable(Suggestions::Fallback, math, usize::MAX)?;
        others.retain(|other| found.is_empty() || other.workspace == 0);
        others.retain(|other| found.iter().all(|engine| engine.name != other.name));
        found.append(&mut others);
    }
    Ok(found)
}

/// What engines are sought for.
pub(super) struct Subject<'s> {
    cudnn: &'s Cudnn,
    geometry: ConvGeometry,
    format: Format,
    /// To replace and, except where that is never asked for, to add.
    pub(super) graphs: Vec<ConvGraph>,
}

impl<'s> Subject<'s> {
    pub(super) fn new(
        cudnn: &'s Cudnn,
        op: ConvOp,
        geometry: ConvGeometry,
        format: Format,
    ) -> Result<Self, CudnnError> {
        // A gradient that is converted is replaced, and added afterwards.
        let only_replaces = op == ConvOp::BackwardFilter && format != Format::F32;
        let ways = [Accumulate::Replace, Accumulate::Add].into_iter().take(if only_replaces { 1 } else { 2 });
        let graph = |accumulate| cudnn.graph(Convolution { op, geometry, format, accumulate });
        Ok(Self { cudnn, geometry, format, graphs: ways.map(graph).collect::<Result<_, _>>()? })
    }

    /// `engine`, if it applies.
    fn set_up(&self, engine: &Engine) -> Result<Option<EngineConvolver>, CudnnError> {
        let configs = self.graphs.iter().map(|graph| self.cudnn.configure(graph, engine));
        let Some(configs) = refused(configs.collect::<Result<Vec<_>, _>>())? else { return Ok(None) };
        let workspace = configs.iter().map(|config| config.facts.workspace);
        Ok(Some(EngineConvolver {
            cudnn: self.cudnn.clone(),
            name: engine.to_string(),
            geometry: self.geometry,
            format: self.format,
            workspace: workspace.filter(|&bytes| bytes > SMALL_WORKSPACE).max().unwrap_or(0),
            configs,
            plans: OnceLock::new(),
        }))
    }

    /// The first of the suggested engines that apply and suit.
    pub(super) fn suitable(
        &self,
        list: Suggestions,
        math: Math,
        most: usize,
    ) -> Result<Vec<EngineConvolver>, CudnnError> {
        let mut found = Vec::new();
        for engine in refused(self.cudnn.engines(&self.graphs[0], list))?.unwrap_or_default() {
            let applying = self.set_up(&engine)?;
            found.extend(applying.filter(|engine| suits(engine.facts(), self.format, math)));
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }
}

/// `None` for what cuDNN does not offer. Of engines that it does not know it says that their numbers are wrong.
fn refused<T>(answer: Result<T, CudnnError>) -> Result<Option<T>, CudnnError> {
    match answer {
        Err(error) if error.is_unsupported() || error.is_bad_parameter() => Ok(None),
        answer => answer.map(Some),
    }
}

/// Whether an engine computes as exactly as is asked for, and without being compiled first.
pub(super) fn suits(facts: &EngineFacts, format: Format, math: Math) -> bool {
    let strict = format.dtype == ElementType::F32 && math == Math::Fp32;
    !(facts.is_compiled_late() || facts.loses_precision() || strict && facts.uses_tensor_cores())
}

pub(super) fn kind(facts: &EngineFacts, format: Format) -> Kind {
    if facts.is_winograd() {
        Kind::Winograd
    } else if facts.uses_tensor_cores() && format.dtype == ElementType::F32 {
        Kind::Tf32
    } else if facts.transforms_to_frequencies() {
        Kind::Fft
    } else {
        Kind::Direct
    }
}

/// An engine with a handle to run it on.
#[derive(Debug)]
pub(super) struct EngineConvolver {
    cudnn: Cudnn,
    name: String,
    geometry: ConvGeometry,
    format: Format,
    /// As there are graphs.
    configs: Vec<EngineConfig>,
    /// What was built of them.
    plans: OnceLock<Vec<ExecutionPlan>>,
    /// Bytes, none if a handle has enough for itself.
    workspace: usize,
}

impl EngineConvolver {
    fn facts(&self) -> &EngineFacts {
        &self.configs[0].facts
    }

    fn plans(&self) -> Result<&[ExecutionPlan], ConvError> {
        if self.plans.get().is_none() {
            let built = self.configs.iter().map(|config| self.cudnn.build(config));
            let built: Result<Vec<_>, _> = built.collect();
            let built = built.map_err(|source| failed(&self.name, &self.geometry, source))?;
            // Another thread may have been faster.
            let _ = self.plans.set(built);
        }
        Ok(self.plans.get().expect("they were just built"))
    }
}

impl Convolver for EngineConvolver {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    fn workspace(&self) -> Bytes {
        Bytes(self.workspace as u64)
    }

    fn max_error(&self) -> f32 {
        kind(self.facts(), self.format).max_error(&self.geometry, self.format)
    }

    fn is_deterministic(&self) -> bool {
        self.facts().is_deterministic()
    }

    fn load(&self) -> Result<(), ConvError> {
        self.plans().map(|_| ())
    }

    fn run(
        &self,
        operands: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        let plan = &self.plans()?[usize::from(accumulate == Accumulate::Add)];
        let launched = self.cudnn.execute(plan, operands, out, workspace);
        launched.map_err(|source| failed(&self.name, &self.geometry, source))
    }
}
