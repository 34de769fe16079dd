//! Operation graphs as their callers describe them, and plans of cuDNN in whose place ours run: what a caller is told of
//! them, and what they launch.
//!
//! Every descriptor of cuDNN's backend is noted, attribute by attribute: cuDNN itself gives little of it back, and an
//! execution plan outlives the descriptors that it was made of.

use crate::cudnn::{Owned, Raw, Status, done, is_known};
use crate::division::{self, in_turn};
use crate::driver::{current_device, is_recording};
use crate::settings::{Settings, USUAL_LIMIT};
use crate::signature::{ALIGNMENT, Operand, Signature, places};
use crate::takeover::{choose, planned};
use crate::{bench::side_by_side_ms, call::Call, plan::Plan, shared::lock};
use planner::ConvOp;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::ptr::{self, null_mut};
use std::sync::{Arc, LazyLock, Mutex};
use std::{cell::OnceCell, slice};

/// Types of attributes (`cudnnBackendAttributeType_t`).
const INT64: c_int = 3;
const ADDRESS: c_int = 6;
const NOTE: c_int = 11;
const DESCRIPTOR: c_int = 15;

/// Attributes (`cudnnBackendAttributeName_t`).
pub(crate) const RESULTS: c_int = 202;
const CONFIG_ENGINE: c_int = 300;
pub(crate) const CONFIG_WORKSPACE: c_int = 303;
const PLAN_CONFIG: c_int = 401;
pub(crate) const PLAN_WORKSPACE: c_int = 402;
const ENGINE_NOTES: c_int = 1303;
const PACK_IDS: c_int = 1000;
const PACK_ADDRESSES: c_int = 1001;
const PACK_WORKSPACE: c_int = 1003;
const HEURISTICS_GRAPH: c_int = 201;
const PLAN_HANDLE: c_int = 400;
const GRAPH_HANDLE: c_int = 800;
const GRAPH_OPERATIONS: c_int = 801;
const ENGINE_GRAPH: c_int = 1300;

/// What is known of a descriptor.
#[derive(Clone, Default)]
struct Node {
    /// The values of its attributes, and the descriptors among them as they were then.
    attributes: BTreeMap<c_int, (Vec<i64>, Vec<Arc<Node>>)>,
    /// What stands for an execution plan.
    replaced: Option<Arc<Replaced>>,
}

/// A plan of cuDNN that ours stands for.
pub(crate) struct Replaced {
    /// What variant packs call the operands.
    ids: [i64; 3],
    plan: Arc<Plan>,
    /// What cuDNN's own plan takes, where ours takes what was measured.
    own_ms: f64,
    /// Bytes of workspace that the caller is told to give: enough for cuDNN's own plan, too.
    pub(crate) workspace: usize,
}

/// Under a total, ours stands for no engine that takes more than so many times as long as the fastest it could.
const SLOW: f64 = 1.2;

/// Every descriptor that lives and of which something is known, by its address.
static NODES: LazyLock<Mutex<HashMap<usize, Arc<Node>>>> = LazyLock::new(Default::default);

fn node(descriptor: Raw) -> Option<Arc<Node>> {
    lock(&NODES).get(&(descriptor as usize)).cloned()
}

/// What stands for a plan, if anything does.
pub(crate) fn replaced(plan: Raw) -> Option<Arc<Replaced>> {
    node(plan)?.replaced.clone()
}

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

/// Heuristics have filled these descriptors with configurations of engines: their graph is that of the heuristics.
pub(crate) fn suggested(heuristics: Raw, configs: &[usize]) {
    let suggestion = node(heuristics).unwrap_or_default();
    lock(&NODES).extend(configs.iter().map(|&config| (config, Arc::clone(&suggestion))));
}

/// Reads at most so many elements of an attribute.
///
/// # Safety
/// The descriptor is alive, and there is room for as many elements of this type.
unsafe fn get<T>(from: Raw, name: c_int, of_type: c_int, most: i64, values: &mut T) -> bool {
    let (mut count, to) = (0i64, (&raw mut *values).cast::<c_void>());
    // SAFETY: the caller's promise.
    unsafe { done!("cudnnBackendGetAttribute", (from, name, of_type, most, &mut count, to)) }
}

/// A variant pack with the operands of a call, by their names, and its workspace.
fn pack(ids: &[i64; 3], given: &Call) -> Option<Owned> {
    /// `CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR`.
    const PACK: c_int = 16;
    let (made, addresses) = (Owned::of_backend(PACK)?, given.operands.as_ptr().cast::<c_void>());
    let (pack, ids, workspace) = (made.raw, ids.as_ptr().cast(), (&raw const given.workspace.0).cast());
    let set = |name: c_int, kind: c_int, count: i64, values: *const c_void| {
        // SAFETY: the descriptor is ours and not finalised yet; there are as many values of this type.
        unsafe { done!("cudnnBackendSetAttribute", (pack, name, kind, count, values)) }
    };
    let is_set = set(PACK_IDS, INT64, 3, ids)
        && set(PACK_ADDRESSES, ADDRESS, 3, addresses)
        && set(PACK_WORKSPACE, ADDRESS, 1, workspace);
    // SAFETY: the descriptor is ours.
    (is_set && unsafe { done!("cudnnBackendFinalize", (pack)) }).then_some(made)
}

/// A descriptor has been finalised: if it is a plan, ours stands for it from now on, if that is faster.
///
/// # Safety
/// The descriptor is alive, and so is the handle that it or its graph was made with.
pub(crate) unsafe fn finalised(plan: Raw) -> Option<()> {
    /// `CUDNN_BACKEND_ENGINE_DESCRIPTOR`.
    const ENGINE: c_int = 2;
    let made = node(plan)?;
    let asked = made.number(PLAN_CONFIG)? as usize as Raw;
    // The configuration as it was then, and what is at its address: nothing is known of one that was destroyed, which
    // cannot be asked either, and another one may have its place.
    let (config, living) = (made.part(PLAN_CONFIG)?, node(asked)?);
    let graph = config.graph().filter(|graph| living.graph().is_some_and(|other| ptr::eq(*graph, other)))?;
    let (mut engine, mut notes, mut own_bytes) = (Owned::of_backend(ENGINE)?, [-1 as c_int; 16], 0i64);
    // SAFETY: both descriptors are alive; ours is filled and read, and the array is as long as said.
    let is_read = unsafe {
        get(asked, CONFIG_ENGINE, DESCRIPTOR, 1, &mut engine.raw)
            && get(engine.raw, ENGINE_NOTES, NOTE, 16, &mut notes)
            && get(plan, PLAN_WORKSPACE, INT64, 1, &mut own_bytes)
    };
    // Shapes that are only known when the plan is run (803 to 805) cannot be planned for.
    let graph = graph.has_only(&[GRAPH_HANDLE, GRAPH_OPERATIONS], &[803, 804, 805]).filter(|_| is_read)?;
    // `CUDNN_NUMERICAL_NOTE_TENSOR_CORE`
    let convolution = graph.part(GRAPH_OPERATIONS)?.convolution(current_device()?, notes.contains(&0));
    let (signature, ids) = convolution.filter(|_| is_known())?;
    let handle = made.number(PLAN_HANDLE).or(graph.number(GRAPH_HANDLE))? as usize as Raw;
    let (limit, is_total) =
        (Settings::get().limit(None).unwrap_or(USUAL_LIMIT), Settings::get().total.is_some());
    // What the caller was told to be enough before the plan was made; of a total we give the memory ourselves.
    let told = living.number(CONFIG_WORKSPACE).filter(|_| !is_total);
    let limit = told.map_or(limit, |told| limit.min(told as usize));
    // An engine that wants more stays: in its place as much would have to be asked for, so that it can still run.
    let own_bytes = usize::try_from(own_bytes).ok().filter(|&bytes| bytes <= limit)?;
    // SAFETY: the caller's promise; the plan will have the descriptors.
    let call = unsafe { Call::new(signature.op, handle, [null_mut(); 4]) };
    if is_recording(call.stream()) {
        return None;
    }
    let planned = planned(&call, &signature, limit, None)?;
    let fastest = planned.as_ref().ok().and_then(|plan| Some((&**plan, plan.within(limit)?)));
    let packed = OnceCell::new();
    let launch = |given: &Call| {
        let pack: Option<&Owned> = packed.get_or_init(|| pack(&ids, given)).as_ref();
        // SAFETY: the caller's promise; operands and workspace are as large as the descriptors say.
        pack.is_some_and(|pack| unsafe { done!("cudnnBackendExecute", (handle, plan, pack.raw)) })
    };
    let mut timed = None;
    if let Some(fastest) = fastest {
        timed = Some(in_turn(signature.device, || side_by_side_ms(&call, fastest, own_bytes, launch))?);
    }
    let own = timed.map(|[engine_ms, _]| ("an engine", engine_ms));
    let (ours, chosen) = choose(&signature, &planned, limit, own, timed.map(|[_, plan_ms]| plan_ms))?;
    let own_ms = timed.map_or(0.0, |[engine_ms, plan_ms]| engine_ms * chosen.time_ms() / plan_ms);
    let workspace = if is_total { 0 } else { chosen.workspace().0 as usize };
    let replaced = Replaced { ids, plan: Arc::clone(ours), own_ms, workspace: workspace.max(own_bytes) };
    let mut nodes = lock(&NODES);
    Arc::make_mut(nodes.entry(plan as usize).or_default()).replaced = Some(Arc::new(replaced));
    if is_total {
        // In a capture the engine runs. A caller that times plans must not take ours for a slow one.
        let rival_ms = |node: &Arc<Node>| {
            let other = node.replaced.as_ref().filter(|other| other.plan.signature == ours.signature);
            other.map(|other| other.own_ms)
        };
        let least = nodes.values().filter_map(rival_ms).fold(f64::INFINITY, f64::min);
        let is_slow = |node: &&mut Arc<Node>| rival_ms(node).is_some_and(|ms| ms > SLOW * least);
        nodes.values_mut().filter(is_slow).for_each(|node| Arc::make_mut(node).replaced = None);
    }
    Some(())
}

/// Runs our plan in the place of cuDNN's; nothing if cuDNN's is to run, or if the variant pack says more or less than
/// where the operands and the workspace lie.
///
/// # Safety
/// As cuDNN asks of its caller.
pub(crate) unsafe fn execute(handle: Raw, plan: Raw, pack: Raw) -> Option<Status> {
    let (replaced, pack) = (replaced(plan)?, node(pack)?);
    let pack = pack.has_only(&[PACK_IDS, PACK_ADDRESSES, PACK_WORKSPACE], &[])?;
    let (ids, found) = (pack.numbers(PACK_IDS)?, pack.numbers(PACK_ADDRESSES)?);
    let address = |number: i64| number as usize as Raw;
    let operand = |name: i64| found.get(ids.iter().position(|&id| id == name)?).copied().map(address);
    let [a, b, c] = replaced.ids.map(operand);
    let workspace = address(pack.number(PACK_WORKSPACE).unwrap_or(0));
    let workspace = (workspace, if workspace.is_null() { 0 } else { replaced.workspace });
    let signature = &replaced.plan.signature;
    // SAFETY: the caller's promise; the plan has the descriptors.
    let call = unsafe { Call::new(signature.op, handle, [null_mut(); 4]) };
    let call = Call { scalars: signature.scalars(), operands: [a?, b?, c?], workspace, ..call };
    division::run(&replaced.plan, call, replaced.own_ms)
}

impl Node {
    /// The descriptor that an attribute is set to, if it is a single one.
    fn part(&self, name: c_int) -> Option<&Node> {
        let [part] = &self.attributes.get(&name)?.1[..] else { return None };
        Some(part)
    }

    /// The graph of a configuration: that of the engine which was set, or of the heuristics that have filled it.
    fn graph(&self) -> Option<&Node> {
        match self.part(CONFIG_ENGINE) {
            Some(engine) => engine.part(ENGINE_GRAPH),
            None => self.part(HEURISTICS_GRAPH),
        }
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

    /// The convolution on this GPU that an operation is, and what variant packs call its operands, if it is nothing else:
    /// unscaled, not added to anything, with operands in memory that are aligned for any algorithm.
    fn convolution(&self, device: c_int, has_tensor_cores: bool) -> Option<(Signature, [i64; 3])> {
        let (op, scale, names) = match *self.attributes.first_key_value()?.0 {
            700 => (ConvOp::Forward, 700, [704, 703, 705]),
            706 => (ConvOp::BackwardData, 706, [709, 711, 710]),
            712 => (ConvOp::BackwardFilter, 712, [716, 717, 715]),
            _ => return None,
        };
        // One and zero, as floats or as doubles.
        let is_plain = matches!(self.number(scale)?, 0x3f80_0000 | 0x3ff0_0000_0000_0000)
            && self.number(scale + 1)? == 0;
        // The memory of a descriptor that nobody destroyed may be another one's now, of which more is known then.
        let operation = self.has_only(&Vec::from_iter(scale..scale + 6), &[])?;
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
        let signature = Signature::of_graph(device, op, operands, geometry, (modes, has_tensor_cores))?;
        (is_plain && list(104)? == list(105)?).then_some((signature, ids))
    }
}
