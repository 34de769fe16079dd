//! Convolutions as operation graphs of one operation: which engines there are for one, and how they are run.

use super::backend::{BehaviorNote, Descriptor, KnobType, NumericalNote};
use super::handle::{SMALL_WORKSPACE, with};
use super::{Engine, EngineFacts, Result, api::call};
use crate::conv::operands::{in_order, operand_extents, operand_lens};
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t as Mode,
};
use planner::ConvOp;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};
use tensor::{Accumulate, AxisOrder, ConvGeometry, ElementType, Format, View, ViewMut, cuda::Cuda};

/// cuDNN's lists of engines: those that it takes for the fastest, the best first, and those that always run.
pub(crate) const LIKELY: Mode = Mode::CUDNN_HEUR_MODE_A;
pub(crate) const FALLBACK: Mode = Mode::CUDNN_HEUR_MODE_FALLBACK;

/// Cross-correlation: what deep learning calls a convolution.
const MODE: sys::cudnnConvolutionMode_t = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
const FLOAT: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;

/// What a graph computes, with operands of `format`, the filter included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) op: ConvOp,
    pub(crate) geometry: ConvGeometry,
    pub(crate) format: Format,
    pub(crate) accumulate: Accumulate,
}

impl Convolution {
    /// The extents of the operands, and the bytes of which their addresses are multiples: feature maps may begin at any
    /// sample.
    fn operands(&self) -> [([usize; 4], u64); 3] {
        /// More does not make engines faster.
        const MOST: u64 = 16;
        let (g, bytes) = (&self.geometry, self.format.dtype.bytes());
        let of_sample = |sample: usize| MOST.min(1 << (sample * bytes).trailing_zeros());
        let multiples = in_order(self.op, [of_sample(g.x_sample()), MOST, of_sample(g.y_sample())]);
        let extents = operand_extents(self.op, g);
        std::array::from_fn(|operand| (extents[operand], multiples[operand]))
    }
}

/// A convolution of which cuDNN knows the engines.
#[derive(Clone, Debug)]
pub(crate) struct ConvGraph {
    graph: Arc<Descriptor>,
    convolution: Convolution,
}

/// An engine set up for a graph.
#[derive(Debug)]
pub(crate) struct EngineConfig {
    config: Arc<Descriptor>,
    convolution: Convolution,
    pub(crate) facts: EngineFacts,
    /// The engine, once it is built.
    plan: OnceLock<Arc<Descriptor>>,
}

/// The operands `a`, `b` and `out` of the table in [`crate::conv`], as a graph and its run call them.
const OPERANDS: [i64; 3] = [1, 2, 3];

/// More than there are knobs and notes of an engine, and than suggested engines are worth a look.
const MANY: usize = 64;

impl ConvGraph {
    /// The graph of one convolution. Its samples may begin at any of a mini-batch.
    pub(crate) fn new(cuda: &Cuda, convolution: Convolution) -> Result<Self> {
        with(cuda, |handle| {
            let operation = operation(&convolution)?;
            let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle])?
                .with_parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &[operation])?
                .finish()?;
            Ok(Self { graph, convolution })
        })
    }

    /// The engines that cuDNN suggests.
    pub(crate) fn engines(&self, cuda: &Cuda, list: Mode) -> Result<Vec<Engine>> {
        with(cuda, |_| {
            let heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
                .with_parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, std::slice::from_ref(&self.graph))?
                .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[list])?
                .finish()?;
            let results = Name::CUDNN_ATTR_ENGINEHEUR_RESULTS;
            let configs = heuristics.get_parts(results, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, MANY)?;
            configs.iter().map(named).collect()
        })
    }

    /// Sets `engine` up for the graph.
    ///
    /// # Errors
    /// It does not apply, or there is no such engine.
    pub(crate) fn configure(&self, cuda: &Cuda, engine: &Engine) -> Result<EngineConfig> {
        with(cuda, |_| {
            let of_index = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?
                .with_parts(Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, std::slice::from_ref(&self.graph))?
                .with(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[engine.index])?
                .finish()?;
            let mut config = Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?
                .with_parts(Name::CUDNN_ATTR_ENGINECFG_ENGINE, std::slice::from_ref(&of_index))?;
            let knobs: Vec<_> = engine.knobs.iter().map(knob).collect::<Result<_, _>>()?;
            if !knobs.is_empty() {
                config = config.with_parts(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &knobs)?;
            }
            let config = config.finish()?;
            let workspace: i64 = config.get_one(Name::CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)?;
            let numerical: Vec<NumericalNote> = of_index.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, MANY)?;
            let behavior: Vec<BehaviorNote> = of_index.get(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, MANY)?;
            let mut facts = EngineFacts {
                workspace: usize::try_from(workspace).unwrap_or(0),
                numerical: numerical.into_iter().map(|note| note.0).collect(),
                behavior: behavior.into_iter().map(|note| note.0).collect(),
            };
            if let (ConvOp::BackwardFilter, 17) = (self.convolution.op, engine.index) {
                // It transforms tiles, as its errors show, and does not say so (cuDNN 9.14).
                facts.numerical.push(EngineFacts::WINOGRAD.start);
            }
            Ok(EngineConfig { config, convolution: self.convolution, facts, plan: OnceLock::new() })
        })
    }
}

impl EngineConfig {
    /// The engine, which is built now unless that has been done.
    pub(crate) fn plan(&self, cuda: &Cuda) -> Result<&Descriptor> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        let of_config = Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
        let plan = with(cuda, |handle| {
            Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle])?
                .with_parts(of_config, std::slice::from_ref(&self.config))?
                .finish()
        })?;
        // Another thread may have been faster.
        Ok(self.plan.get_or_init(|| plan))
    }

    /// Launches the engine, and does not wait for it. Operands as in the table of [`crate::conv`]; a workspace of no
    /// more than [`SMALL_WORKSPACE`] need not be given.
    pub(crate) fn execute(
        &self,
        cuda: &Cuda,
        [a, b]: [View<'_>; 2],
        out: ViewMut<'_>,
        workspace: ViewMut<'_>,
    ) -> Result<()> {
        let plan = self.plan(cuda)?;
        let Convolution { op, geometry, format, .. } = self.convolution;
        let operands = [a, b, out.as_view()];
        assert_eq!(operands.map(|operand| operand.len()), operand_lens(op, &geometry), "operands of {op}");
        assert_eq!(operands.map(|operand| operand.format().dtype), [format.dtype; 3], "operands of {op}");
        let addresses = operands.map(|operand| operand.numbers());
        for (address, (_, alignment)) in std::iter::zip(addresses, self.convolution.operands()) {
            assert!(address.is_multiple_of(alignment), "{op}: {address} is no multiple of {alignment} bytes");
        }
        let pointer = |address: u64| address as *mut c_void;
        let launch = |handle, workspace: ViewMut<'_>| {
            assert!(workspace.byte_len() >= self.facts.workspace, "the workspace is smaller than planned");
            let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
                .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &OPERANDS)?
                .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses.map(pointer))?
                .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[pointer(workspace.address::<u8>())])?
                .finish()?;
            // SAFETY: handle, plan and pack are alive and set. The operands are device memory of the lengths and
            // alignments that the graph says and the workspace of the size that the engine needs (asserted above),
            // `out` and the workspace exclusively ours. The work goes to the stream through which all else on this
            // memory goes.
            unsafe { call!(cudnnBackendExecute(handle, plan.raw, pack.raw)) }
        };
        with(cuda, |handle| match self.facts.workspace > SMALL_WORKSPACE {
            true => launch(handle, workspace),
            false => cuda.scratch(|scratch| launch(handle, scratch)),
        })
    }
}

/// The descriptor of an operation and its attributes: factors, the convolution, and the operands `a`, `b` and `out`.
macro_rules! operation {
    ($kind:ident: $($name:ident)*) => {
        (Kind::$kind, [$(Name::$name),*])
    };
}

/// The only operation of a graph.
fn operation(convolution: &Convolution) -> Result<Arc<Descriptor>> {
    let (kind, [alpha, beta, description, operands @ ..]) = match convolution.op {
        ConvOp::Forward => operation! { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
        },
        ConvOp::BackwardData => operation! { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
        },
        ConvOp::BackwardFilter => {
            operation! { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW
            }
        }
    };
    let kept = if convolution.accumulate == Accumulate::Add { 1.0f32 } else { 0.0 };
    let mut operation = Descriptor::new(kind)?
        .with(alpha, &[1.0f32])?
        .with(beta, &[kept])?
        .with_parts(description, &[describe(&convolution.geometry)?])?;
    for (place, (dims, alignment)) in convolution.operands().into_iter().enumerate() {
        let operand = tensor(OPERANDS[place], dims, alignment, convolution.format)?;
        operation = operation.with_parts(operands[place], &[operand])?;
    }
    operation.finish()
}

/// The description of a convolution without its operands.
fn describe(g: &ConvGeometry) -> Result<Arc<Descriptor>> {
    let pair = |extents: [usize; 2]| extents.map(|extent| extent as i64);
    Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[FLOAT])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[MODE])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &pair(g.dilation))?
        .with(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &pair(g.stride))?
        .with(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pair(g.pad))?
        .with(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pair(g.pad))?
        .finish()
}

/// An operand whose extents are `dims`.
fn tensor(id: i64, dims: [usize; 4], alignment: u64, format: Format) -> Result<Arc<Descriptor>> {
    let dtype = match format.dtype {
        ElementType::F32 => FLOAT,
        ElementType::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        ElementType::U8 => panic!("no convolution computes with bytes"),
    };
    let [n, c, h, w] = dims.map(|extent| extent as i64);
    let strides = match format.layout {
        AxisOrder::Nchw => [c * h * w, h * w, w, 1],
        AxisOrder::Nhwc => [h * w * c, 1, w * c, c],
    };
    Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)?
        .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[alignment as i64])?
        .finish()
}

fn knob(&(knob, value): &(u32, i64)) -> Result<Arc<Descriptor>> {
    Descriptor::new(Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &[KnobType(knob)])?
        .with(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[value])?
        .finish()
}

/// The engine that cuDNN has set up.
fn named(config: &Descriptor) -> Result<Engine> {
    let (engine, choices) = (Name::CUDNN_ATTR_ENGINECFG_ENGINE, Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    let mut index = -1;
    for engine in config.get_parts(engine, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)? {
        index = engine.get_one(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
    }
    let mut knobs = Vec::new();
    for choice in config.get_parts(choices, Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, MANY)? {
        let KnobType(knob) = choice.get_one(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)?;
        knobs.push((knob, choice.get_one(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?));
    }
    Ok(Engine::new(index, knobs))
}
