//! cuDNN's engines as algorithms: which of those that it suggests are tried.

use super::convolver::{EngineConvolver, Task};
use crate::conv::{ConvOp, error::is_unsupported};
use crate::cudnn::{ConvGraph, Convolution, Engine, EngineFacts, FALLBACK, LIKELY};
use cudarc::cudnn::sys::cudnnBackendHeurMode_t;
use num_integer::gcd;
use planner::Math;
use tensor::cuda::{Cuda, CudaError};
use tensor::{Accumulate, ConvGeometry, ElementType, Format};

/// How many suggested engines are tried: the best of the first eight is within half a per cent of the best.
const MOST: usize = 8;

/// The engines for a task.
pub(super) struct Search {
    pub(super) task: Task,
    /// To replace and, except where that is never asked for, to add.
    pub(super) graphs: Vec<ConvGraph>,
}

impl Search {
    /// For operands and results of `format`.
    pub(super) fn new(
        cuda: &Cuda,
        op: ConvOp,
        geometries: [ConvGeometry; 2],
        format: Format,
    ) -> Result<Self, CudaError> {
        // A gradient that is converted is replaced, and added afterwards.
        let is_plain = format.dtype == ElementType::F32 && geometries[0] == geometries[1];
        let only_replaces = op == ConvOp::BackwardFilter && !is_plain;
        let ways = [Accumulate::Replace, Accumulate::Add].into_iter().take(if only_replaces { 1 } else { 2 });
        let geometry = geometries[1];
        let graph = |accumulate| ConvGraph::new(cuda, Convolution { op, geometry, format, accumulate });
        let graphs = ways.map(graph).collect::<Result<_, _>>()?;
        Ok(Self { task: Task { cuda: cuda.clone(), op, geometries, format }, graphs })
    }

    /// The engines that `math` allows.
    pub(super) fn all(&self, math: Math) -> Result<Vec<EngineConvolver>, CudaError> {
        let likely = self.suitable(LIKELY, math, MOST)?;
        // The other list has slow engines, for those who have no memory.
        let wants_memory = likely.iter().all(|engine| engine.workspace > 0);
        let mut others = if wants_memory { self.suitable(FALLBACK, math, usize::MAX)? } else { Vec::new() };
        others.retain(|engine| likely.is_empty() || engine.workspace == 0);
        // In NCHW, TF32 wants much workspace: single precision is worth a try.
        if math == Math::Tf32 && self.task.format == Format::F32 {
            others.append(&mut self.suitable(LIKELY, Math::Fp32, MOST)?);
        }
        let mut found: Vec<EngineConvolver> = Vec::new();
        for (_, engine) in self.task.transforming() {
            let applying = self.set_up(&engine)?;
            found.extend(applying.filter(|engine| suits(engine.of_engine(), self.task.format, math)));
        }
        for engine in likely.into_iter().chain(others) {
            if found.iter().all(|other| other.facts.name != engine.facts.name) {
                found.push(engine);
            }
        }
        Ok(found)
    }

    /// The first of the suggested engines that apply and suit.
    pub(super) fn suitable(
        &self,
        list: cudnnBackendHeurMode_t,
        math: Math,
        most: usize,
    ) -> Result<Vec<EngineConvolver>, CudaError> {
        let mut found = Vec::new();
        let mut engines = refused(self.graphs[0].engines(&self.task.cuda, list))?.unwrap_or_default();
        // Tried anyway, with the knobs that they have by default.
        engines.retain(|engine| self.task.transforming().all(|(_, own)| engine.index != own.index));
        for engine in engines {
            let applying = self.set_up(&engine)?;
            found.extend(applying.filter(|engine| suits(engine.of_engine(), self.task.format, math)));
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    /// `engine`, if it applies.
    pub(super) fn set_up(&self, engine: &Engine) -> Result<Option<EngineConvolver>, CudaError> {
        let mut configs = Vec::new();
        for graph in &self.graphs {
            match refused(graph.configure(&self.task.cuda, engine))? {
                Some(config) => configs.push(config),
                // What cannot add to a filter's gradient can still replace it, to be added afterwards.
                None if self.task.op == ConvOp::BackwardFilter && !configs.is_empty() => {}
                None => return Ok(None),
            }
        }
        Ok(Some(EngineConvolver::new(&self.task, engine, configs)))
    }
}

/// Whether cuDNN is not to be asked at all: for gradients of images where a stride above 3 has a divisor in common with
/// the dilation, engines 73 and 76 of version 9.14 never end, and where it suggests engines it may end the process.
pub(super) fn is_harmful(op: ConvOp, g: &ConvGeometry) -> bool {
    let along = |axis: usize| g.stride[axis] > 3 && gcd(g.stride[axis], g.dilation[axis]) > 1;
    op == ConvOp::BackwardData && (along(0) || along(1))
}

/// `None` for what cuDNN does not offer. Of engines that it does not know it says that their numbers are wrong.
pub(super) fn refused<T>(answer: Result<T, CudaError>) -> Result<Option<T>, CudaError> {
    match answer {
        // 2000 to 2999 are the reasons for which a parameter is wrong.
        Err(error) if is_unsupported(&error) || matches!(error.status, Some(2000..3000)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Whether an engine computes as exactly as is asked for, and without being compiled first.
pub(super) fn suits(facts: &EngineFacts, format: Format, math: Math) -> bool {
    let strict = format.dtype == ElementType::F32 && math == Math::Fp32;
    !(facts.is_compiled_late()
        || facts.says(EngineFacts::HALF_PRECISION)
        || strict && facts.says(EngineFacts::TENSOR_CORES))
}
