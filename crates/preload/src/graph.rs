//! Operation graphs as their callers describe them: every descriptor of cuDNN's backend, attribute by attribute. cuDNN
//! itself gives little of it back, and an execution plan outlives the descriptors that it was made of.

use crate::signature::{ALIGNMENT, Operand, Signature, places};
use crate::{cudnn::Raw, shared::lock};
use planner::ConvOp;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::{Arc, LazyLock, Mutex};

/// Types of attributes (`cudnnBackendAttributeType_t`).
pub(crate) const INT64: c_int = 3;
pub(crate) const ADDRESS: c_int = 6;
pub(crate) const NOTE: c_int = 11;
pub(crate) const DESCRIPTOR: c_int = 15;

/// Attributes (`cudnnBackendAttributeName_t`).
pub(crate) const RESULTS: c_int = 202;
pub(crate) const CONFIG_ENGINE: c_int = 300;
pub(crate) const CONFIG_WORKSPACE: c_int = 303;
pub(crate) const PLAN_CONFIG: c_int = 401;
pub(crate) const PLAN_WORKSPACE: c_int = 402;
pub(crate) const ENGINE_NOTES: c_int = 1303;
pub(crate) const PACK_IDS: c_int = 1000;
pub(crate) const PACK_ADDRESSES: c_int = 1001;
pub(crate) const PACK_WORKSPACE: c_int = 1003;
const HEURISTICS_GRAPH: c_int = 201;
const PLAN_HANDLE: c_int = 400;
const GRAPH_HANDLE: c_int = 800;
const GRAPH_OPERATIONS: c_int = 801;
const ENGINE_GRAPH: c_int = 1300;

/// What is known of a descriptor: the values of its attributes, and the descriptors among them as they were then.
#[derive(Clone, Default)]
struct Node {
    attributes: BTreeMap<c_int, (Vec<i64>, Vec<Arc<Node>>)>,
}

/// Every descriptor that lives and of which something is known, by its address.
static NODES: LazyLock<Mutex<HashMap<usize, Arc<Node>>>> = LazyLock::new(Default::default);

/// A descriptor is to be destroyed.
pub(crate) fn destroyed(descriptor: Raw) {
    lock(&NODES).remove(&(descriptor as usize));
}

/// An attribute of a descriptor has been set, or cuDNN has said what it is.
///
/// # Safety
/// There are `count` elements of this type at `values`.
pub(crate) unsafe fn set(descriptor: Raw, name: c_int, of_type: c_int, count: i64, values: *const c_void) {
    let size = match of_type {
        // Truth values and characters; handles, doubles and the like; fractions; enums and floats.
        2 | 24 => 1,
        0 | INT64 | 5 | ADDRESS | DESCRIPTOR => 8,
        26 => 16,
        _ => 4,
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(values.cast(), usize::try_from(count).unwrap_or(0) * size) };
    let whole = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | i64::from(byte));
    let values: Vec<i64> = bytes.chunks_exact(size).map(whole).collect();
    let mut nodes = lock(&NODES);
    // Of a descriptor of which nothing was set nothing is known, and it is no convolution.
    let part = |&address: &i64| nodes.get(&(address as usize)).cloned().unwrap_or_default();
    let parts = values.iter().filter(|_| of_type == DESCRIPTOR).map(part).collect();
    Arc::make_mut(nodes.entry(descriptor as usize).or_default()).attributes.insert(name, (values, parts));
}

/// Heuristics have filled these descriptors with configurations of engines for their graph.
pub(crate) fn suggested(heuristics: Raw, configs: &[usize]) {
    let mut nodes = lock(&NODES);
    let graph = |node: &Arc<Node>| Some((ENGINE_GRAPH, node.attributes.get(&HEURISTICS_GRAPH)?.clone()));
    let graph = nodes.get(&(heuristics as usize)).and_then(graph);
    let engine = Node { attributes: graph.into_iter().collect() };
    let attributes = BTreeMap::from([(CONFIG_ENGINE, (Vec::new(), vec![Arc::new(engine)]))]);
    let suggestion = Arc::new(Node { attributes });
    nodes.extend(configs.iter().map(|&config| (config, Arc::clone(&suggestion))));
}

/// A graph that is one convolution, and what is known of the plan that runs it.
pub(crate) struct LoneConvolution {
    pub(crate) signature: Signature,
    /// The handle that the plan was made with.
    pub(crate) handle: Raw,
    /// What variant packs call the operands.
    pub(crate) ids: [i64; 3],
    /// Bytes of workspace that the caller was told to be enough before the plan was made.
    pub(crate) told: Option<i64>,
}

/// The convolution that a plan runs on this GPU, if its graph is nothing else: unscaled, not added to anything, with
/// operands in memory that are aligned for any algorithm.
pub(crate) fn lone_convolution(plan: Raw, device: c_int) -> Option<LoneConvolution> {
    let plan = lock(&NODES).get(&(plan as usize)).cloned()?;
    let config = plan.part(PLAN_CONFIG)?;
    // Shapes that are only known when the plan is run (803 to 805) cannot be planned for.
    let graph = config.part(CONFIG_ENGINE)?.part(ENGINE_GRAPH)?;
    let graph = graph.has_only(&[GRAPH_HANDLE, GRAPH_OPERATIONS], &[803, 804, 805])?;
    let operation = graph.part(GRAPH_OPERATIONS)?;
    let (op, scale, names) = match *operation.attributes.first_key_value()?.0 {
        700 => (ConvOp::Forward, 700, [704, 703, 705]),
        706 => (ConvOp::BackwardData, 706, [709, 711, 710]),
        712 => (ConvOp::BackwardFilter, 712, [716, 717, 715]),
        _ => return None,
    };
    // One and zero, as floats or as doubles.
    let is_plain = matches!(operation.number(scale)?, 0x3f80_0000 | 0x3ff0_0000_0000_0000)
        && operation.number(scale + 1)? == 0;
    // The memory of a descriptor that nobody destroyed may be another one's now, of which more is known then.
    let operation = operation.has_only(&Vec::from_iter(scale..scale + 6), &[])?;
    let (convolution, mut ids) = (operation.part(scale + 2)?, [0; 3]);
    let mut operand = |place: usize| {
        let (operand, id) = operation.part(names[place])?.operand(place == places(op)[1])?;
        ids[place] = id;
        Some(operand)
    };
    let operands = [operand(0)?, operand(1)?, operand(2)?];
    let axes = operands[0].axes();
    let list = |name| convolution.list(name).filter(|list| list.len() == axes);
    let geometry = [list(105)?, list(103)?, list(102)?];
    let modes = [convolution.number(101)? as c_int, convolution.number(100)? as c_int];
    // `CUDNN_NUMERICAL_NOTE_TENSOR_CORE`
    let has_tensor_cores = plan.numbers(ENGINE_NOTES)?.contains(&0);
    let signature = Signature::of_graph(device, op, operands, geometry, (modes, has_tensor_cores))?;
    let handle = plan.number(PLAN_HANDLE).or(graph.number(GRAPH_HANDLE))? as usize as Raw;
    let told = config.number(CONFIG_WORKSPACE);
    (is_plain && list(104)? == list(105)?).then_some(LoneConvolution { signature, handle, ids, told })
}

impl Node {
    /// The descriptor that an attribute is set to, if it is a single one.
    fn part(&self, name: c_int) -> Option<&Node> {
        let [part] = &self.attributes.get(&name)?.1[..] else { return None };
        Some(part)
    }

    fn numbers(&self, name: c_int) -> Option<&[i64]> {
        self.attributes.get(&name).map(|(numbers, _)| &numbers[..])
    }

    /// Numbers as cuDNN's functions take them; nothing if they are too large.
    fn list(&self, name: c_int) -> Option<Vec<c_int>> {
        self.numbers(name)?.iter().map(|&number| number.try_into().ok()).collect()
    }

    fn number(&self, name: c_int) -> Option<i64> {
        self.numbers(name)?.first().copied()
    }

    /// This, if no other attributes are set than these; some may be set to zero.
    fn has_only(&self, these: &[c_int], or_zero: &[c_int]) -> Option<&Self> {
        let is_zero = |name: &c_int| or_zero.contains(name) && self.number(*name) == Some(0);
        self.attributes.keys().all(|name| these.contains(name) || is_zero(name)).then_some(self)
    }

    /// A tensor that lies in memory as its dimensions and strides say, at multiples of 16 bytes; and its name in packs.
    fn operand(&self, is_filter: bool) -> Option<(Operand, i64)> {
        // Neither in vectors (904), nor virtual (907), nor a value (908), nor reordered (909).
        let plain = self.has_only(&[900, 901, 902, 903, 905, 906], &[907, 908, 909])?;
        let operand =
            Operand::new(plain.number(901)? as c_int, plain.list(902)?, plain.list(903)?, is_filter)?;
        (plain.number(900)? % ALIGNMENT as i64 == 0).then_some((operand, plain.number(906)?))
    }
}

/// Where a variant pack says that the operands with these names lie, and the workspace; nothing if it says more or less.
pub(crate) fn addresses(pack: Raw, names: &[i64; 3]) -> Option<([Raw; 3], Raw)> {
    let pack = lock(&NODES).get(&(pack as usize)).cloned()?;
    let pack = pack.has_only(&[PACK_IDS, PACK_ADDRESSES, PACK_WORKSPACE], &[])?;
    let (ids, found) = (pack.numbers(PACK_IDS)?, pack.numbers(PACK_ADDRESSES)?);
    let address = |number: i64| number as usize as Raw;
    let [a, b, c] = names.map(|name| found.get(ids.iter().position(|&id| id == name)?).copied().map(address));
    Some(([a?, b?, c?], address(pack.number(PACK_WORKSPACE).unwrap_or(0))))
}
