//! How an engine is run: on operands as they are, or on what is made of them at the beginning of the workspace.

use crate::conv::operands::padded;
use crate::conv::{ConvError, ConvOp, Convolver, Facts, Result};
use crate::copy::convert;
use crate::cudnn::{Engine, EngineConfig, EngineFacts, SMALL_WORKSPACE};
use crate::space_to_depth::{Deepened, filter_to_depth, gradient_from_depth, image_to_depth};
use planner::Bytes;
use tensor::cuda::{Cuda, CudaError};
use tensor::{Accumulate, ConvGeometry, Device, ElementType, Format, Out, View, ViewMut};

/// What the name begins with where blocks of pixels become channels; the engine's follows.
const DEPTH: &str = "S2D_";

/// The engines that transform tiles or frequencies, by the names that cuDNN's older interface has for them and their
/// numbers in cuDNN 9, whose lists have few of them: they want much workspace, or round more.
pub(super) fn transforming(op: ConvOp) -> impl Iterator<Item = (&'static str, Engine)> {
    let numbers: &[_] = match op {
        ConvOp::Forward => &[("FFT", 3), ("FFT_TILING", 4), ("WINOGRAD", 5), ("WINOGRAD_NONFUSED", 6)],
        ConvOp::BackwardData => &[("FFT", 4), ("FFT_TILING", 5), ("WINOGRAD", 6), ("WINOGRAD_NONFUSED", 7)],
        ConvOp::BackwardFilter => &[("FFT", 18), ("WINOGRAD_NONFUSED", 17)],
    };
    numbers.iter().map(|&(name, index)| (name, Engine::new(index, Vec::new())))
}

/// What engines compute, and where.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) cuda: Cuda,
    pub(super) op: ConvOp,
    /// The convolution, and the one that an engine computes in its place, with the same `y`.
    pub(super) geometries: [ConvGeometry; 2],
    /// Of feature maps, filters and what an engine writes.
    pub(super) format: Format,
}

impl Task {
    /// The transforming engines; in BF16 and in NHWC others are as fast, and more.
    pub(super) fn transforming(&self) -> impl Iterator<Item = (&'static str, Engine)> {
        transforming(self.op).filter(|_| self.format == Format::F32)
    }

    fn prefix(&self) -> &'static str {
        if self.geometries[0] == self.geometries[1] { "" } else { DEPTH }
    }

    /// The name of the algorithm that `engine` is.
    fn name(&self, engine: &Engine) -> String {
        let name = self.transforming().find(|(_, own)| own == engine).map(|(name, _)| name.to_owned());
        format!("{}{}", self.prefix(), name.unwrap_or_else(|| engine.to_string()))
    }

    /// The engine that is the algorithm of this name.
    pub(super) fn named(&self, name: &str) -> Option<Engine> {
        let name = name.strip_prefix(self.prefix())?;
        let engine = self.transforming().find(|(own, _)| *own == name).map(|(_, engine)| engine);
        engine.or_else(|| Engine::named(name))
    }

    fn deepened(&self) -> Deepened<'_> {
        (&self.cuda, &self.geometries, self.format.layout)
    }

    /// Elements of x and w, or its gradient, that the workspace begins with, for an engine that can or cannot add.
    fn laid_out(&self, adds: bool) -> [usize; 2] {
        let [g, deep] = &self.geometries;
        let is_sum = self.format.dtype == ElementType::F32 && adds;
        let is_converted = self.op == ConvOp::BackwardFilter && !is_sum;
        let len = |is_laid_out, len| if is_laid_out { len } else { 0 };
        [len(deep != g && g.pack == 0, deep.x_len()), len(deep != g || is_converted, deep.w_len())]
    }
}

/// An engine and where to run it. Its operands are of one format. Where the gradient of a filter is so, too, and
/// not in single precision, it is converted, and its parts add up afterwards; so do those of an engine that can only
/// replace. Where blocks of pixels become channels, x and the filter are laid out anew.
#[derive(Debug)]
pub(super) struct EngineConvolver {
    pub(super) facts: Facts,
    task: Task,
    laid_out: [usize; 2],
    /// To replace and, except where that is never asked for, to add.
    pub(super) configs: Vec<EngineConfig>,
    /// Bytes that the engine works in; none if the device's scratch is enough.
    pub(super) workspace: usize,
}

/// How exact sums of products are, in single precision and with multiplicands of 10 bits.
pub(super) const FP32_ERROR: f32 = 1e-6;
pub(super) const TF32_ERROR: f32 = 5e-4;

/// How exact an engine is: the typical largest error over the largest output. Numbers of BF16 are off by 2e-3 of
/// themselves, operands and results. The rest was measured on small random convolutions. Sums of transformed tiles are
/// the worse the larger the tile is: those that cuDNN takes for filters larger than 3x3 cost three digits, more than
/// TF32 does.
pub(super) fn max_error(facts: &EngineFacts, g: &ConvGeometry, format: Format) -> f32 {
    match (facts.says(EngineFacts::WINOGRAD), format.dtype) {
        (true, ElementType::Bf16) => 2e-2,
        (false, ElementType::Bf16) => 4e-3,
        (true, _) if g.r.max(g.s) > 3 => 2e-3,
        (true, _) => 1e-5,
        (false, ElementType::F32) if facts.says(EngineFacts::TENSOR_CORES) => TF32_ERROR,
        (false, _) => FP32_ERROR,
    }
}

impl EngineConvolver {
    /// The engine of this name, set up as `configs`.
    pub(super) fn new(task: &Task, engine: &Engine, configs: Vec<EngineConfig>) -> Self {
        let (of_engine, geometry, format) = (&configs[0].facts, task.geometries[0], task.format);
        let workspace = configs.iter().map(|config| config.facts.workspace);
        let workspace = workspace.filter(|&bytes| bytes > SMALL_WORKSPACE).max().unwrap_or(0);
        let laid_out = task.laid_out(configs.len() > 1);
        let before: usize = laid_out.into_iter().map(|len| padded(format, len)).sum();
        let facts = Facts {
            name: task.name(engine),
            geometry,
            workspace: Bytes((before + workspace) as u64),
            prepared: Bytes(0),
            max_error: max_error(of_engine, &task.geometries[1], format),
            deterministic: !of_engine.says(EngineFacts::NONDETERMINISTIC),
        };
        Self { facts, task: task.clone(), laid_out, configs, workspace }
    }

    pub(super) fn of_engine(&self) -> &EngineFacts {
        &self.configs[0].facts
    }

    fn failed(&self, source: CudaError) -> ConvError {
        let Facts { ref name, geometry, .. } = self.facts;
        ConvError::Algorithm { algorithm: name.clone(), samples: geometry.n, source }
    }

    fn launch(&self, operands: [View<'_>; 2], out: Out<'_>, workspace: ViewMut<'_>) -> Result<()> {
        let config = &self.configs[usize::from(out.accumulate == Accumulate::Add)];
        let launched = config.execute(&self.task.cuda, operands, out.to, workspace);
        launched.map_err(|source| self.failed(source))
    }
}

impl Convolver for EngineConvolver {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn load(&self) -> Result<()> {
        let built = self.configs.iter().try_for_each(|config| config.plan(&self.task.cuda).map(|_| ()));
        built.map_err(|source| self.failed(source))
    }

    fn run(&self, [a, b]: [View<'_>; 2], out: Out<'_>, mut workspace: ViewMut<'_>) -> Result<()> {
        let (format, needed) = (self.task.format, self.facts.workspace.0);
        assert!(workspace.byte_len() as u64 >= needed, "the workspace is smaller than planned");
        let mut take = |len| workspace.take(Format::U8, padded(format, len)).take(format, len);
        let [mut x, mut w] = self.laid_out.map(&mut take);
        let a = if x.is_empty() {
            a
        } else {
            image_to_depth(self.task.deepened(), a, x.reborrow());
            x.as_view()
        };
        if w.is_empty() {
            return self.launch([a, b], out, workspace);
        }
        if self.task.op == ConvOp::BackwardFilter {
            self.launch([a, b], w.reborrow().replaced(), workspace)?;
            let (Task { cuda, geometries: [g, deep], .. }, written) = (&self.task, w.as_view());
            match g == deep {
                true => convert(&Device::Cuda(cuda.clone()), &[written.len()], written, out),
                false => gradient_from_depth(self.task.deepened(), written, out),
            }
            return Ok(());
        }
        filter_to_depth(self.task.deepened(), b, w.reborrow());
        self.launch([a, w.as_view()], out, workspace)
    }
}
