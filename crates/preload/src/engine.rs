//! Execution plans of cuDNN in whose place ours run: what a caller is told of them, and what they launch.

use crate::cudnn::{Owned, Raw, Status, done, is_known};
use crate::driver::{current_device, is_recording};
use crate::graph::{self, LoneConvolution};
use crate::settings::{Settings, USUAL_LIMIT};
use crate::takeover::{choose, in_turn, planned};
use crate::{bench::side_by_side_ms, call::Call, division, plan::Plan, shared::lock};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex};
use std::{collections::HashMap, ptr::null_mut};

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

/// By the address of cuDNN's descriptor.
static REPLACED: LazyLock<Mutex<HashMap<usize, Arc<Replaced>>>> = LazyLock::new(Default::default);

/// What stands for a plan, if anything does.
pub(crate) fn replaced(plan: Raw) -> Option<Arc<Replaced>> {
    lock(&REPLACED).get(&(plan as usize)).cloned()
}

/// A descriptor is to be destroyed.
pub(crate) fn destroyed(descriptor: Raw) {
    lock(&REPLACED).remove(&(descriptor as usize));
}

/// A plan has got the configuration of an engine: what the engine is, is asked while both are alive.
///
/// # Safety
/// Both descriptors are alive.
pub(crate) unsafe fn configured(plan: Raw, config: Raw) -> Option<()> {
    /// `CUDNN_BACKEND_ENGINE_DESCRIPTOR`.
    const KIND: c_int = 2;
    let (mut engine, mut notes) = (Owned::of_backend(KIND)?, [0 as c_int; 16]);
    // SAFETY: the caller's promise; our descriptor is filled and read, and the array is as long as said.
    unsafe {
        get(config, graph::CONFIG_ENGINE, graph::DESCRIPTOR, 1, &mut engine.raw)?;
        let count = get(engine.raw, graph::ENGINE_NOTES, graph::NOTE, 16, &mut notes)?;
        graph::set(plan, graph::ENGINE_NOTES, graph::NOTE, count.min(16), notes.as_ptr().cast());
    }
    Some(())
}

/// Reads at most so many elements of an attribute, and says how many it has.
///
/// # Safety
/// The descriptor is alive, and there is room for as many elements of this type.
unsafe fn get<T>(from: Raw, name: c_int, of_type: c_int, most: i64, values: &mut T) -> Option<i64> {
    let (mut count, to) = (0i64, (&raw mut *values).cast::<c_void>());
    // SAFETY: the caller's promise.
    unsafe { done!("cudnnBackendGetAttribute", (from, name, of_type, most, &mut count, to)) }.then_some(count)
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
    let is_set = set(graph::PACK_IDS, graph::INT64, 3, ids)
        && set(graph::PACK_ADDRESSES, graph::ADDRESS, 3, addresses)
        && set(graph::PACK_WORKSPACE, graph::ADDRESS, 1, workspace);
    // SAFETY: the descriptor is ours.
    (is_set && unsafe { done!("cudnnBackendFinalize", (pack)) }).then_some(made)
}

/// A descriptor has been finalised: if it is a plan, ours stands for it from now on, if that is faster.
///
/// # Safety
/// The descriptor is alive, and so is the handle that it or its graph was made with.
pub(crate) unsafe fn finalised(plan: Raw) -> Option<()> {
    let lone = graph::lone_convolution(plan, current_device()?).filter(|_| is_known())?;
    let LoneConvolution { signature, handle, ids, told } = lone;
    let (mut own_bytes, limit) = (0i64, Settings::get().limit(None).unwrap_or(USUAL_LIMIT));
    // SAFETY: the caller's promise.
    unsafe { get(plan, graph::PLAN_WORKSPACE, graph::INT64, 1, &mut own_bytes)? };
    // Of a total we give the memory ourselves.
    let told = told.filter(|_| Settings::get().total.is_none());
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
    let mut packed = None;
    let launch = |given: &Call| {
        packed = packed.take().or_else(|| pack(&ids, given));
        let executes = |pack: &Owned| {
            // SAFETY: the caller's promise; operands and workspace are as large as the descriptors say.
            unsafe { done!("cudnnBackendExecute", (handle, plan, pack.raw)) }
        };
        packed.as_ref().is_some_and(executes)
    };
    let mut timed = None;
    if let Some(fastest) = fastest {
        timed = Some(in_turn(signature.device, || side_by_side_ms(&call, fastest, own_bytes, launch))?);
    }
    let own = timed.map(|[engine_ms, _]| ("an engine", engine_ms));
    let (ours, chosen) = choose(&signature, &planned, limit, own, timed.map(|[_, plan_ms]| plan_ms))?;
    let own_ms = timed.map_or(0.0, |[engine_ms, plan_ms]| engine_ms * chosen.time_ms() / plan_ms);
    let workspace = if Settings::get().total.is_some() { 0 } else { chosen.workspace().0 as usize };
    let replaced = Replaced { ids, plan: Arc::clone(ours), own_ms, workspace: workspace.max(own_bytes) };
    let mut all = lock(&REPLACED);
    all.insert(plan as usize, Arc::new(replaced));
    if Settings::get().total.is_some() {
        // In a capture the engine runs. A caller that times plans must not take ours for a slow one.
        let is_rival = |other: &Replaced| other.plan.signature == ours.signature;
        let rivals = all.values().filter(|other| is_rival(other));
        let least = rivals.map(|other| other.own_ms).fold(f64::INFINITY, f64::min);
        all.retain(|_, other| !is_rival(other) || other.own_ms <= SLOW * least);
    }
    Some(())
}

/// Runs our plan in the place of cuDNN's; nothing if cuDNN's is to run.
///
/// # Safety
/// As cuDNN asks of its caller.
pub(crate) unsafe fn execute(handle: Raw, plan: Raw, pack: Raw) -> Option<Status> {
    let replaced = replaced(plan)?;
    let (operands, workspace) = graph::addresses(pack, &replaced.ids)?;
    let workspace = (workspace, if workspace.is_null() { 0 } else { replaced.workspace });
    let signature = &replaced.plan.signature;
    // SAFETY: the caller's promise; the plan has the descriptors.
    let call = unsafe { Call::new(signature.op, handle, [null_mut(); 4]) };
    let call = Call { scalars: signature.scalars(), operands, workspace, ..call };
    division::run(&replaced.plan, call, replaced.own_ms)
}
