//! What is done with calls that are taken over: which answers Find and Get give, and what the virtual algorithm runs.

use crate::cudnn::{AlgorithmPerformance, NOT_SUPPORTED, SUCCESS, Status, is_known};
use crate::division::{self, DEFAULT_MS, in_turn};
use crate::driver::is_recording;
use crate::plan::{KNOWN, Plan, Planned, algorithms, known_plan};
use crate::report::{self, rounded};
use crate::settings::{Settings, USUAL_LIMIT};
use crate::shared::{lock, warn};
use crate::{bench::measure, call::Call, signature::Signature};
use planner::Configuration;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex};
use std::{cell::Cell, collections::HashMap, ffi::c_int, slice};

/// The algorithm that stands for a plan: a number that is none of cuDNN's.
pub(crate) const VIRTUAL: c_int = 0x6d62;

/// Bytes of workspace that the virtual algorithm was last said to need.
static PROMISED: LazyLock<Mutex<HashMap<Signature, usize>>> = LazyLock::new(Default::default);

/// A plan must be faster than what cuDNN would do by more than this part.
const WORTH: f64 = 0.02;

thread_local! {
    /// Whether this thread is inside a call that was taken over: what cuDNN calls of itself is not.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` so that calls from it are passed through; nothing if we are in such work already.
pub(crate) fn taken_over<R>(work: impl FnOnce() -> R) -> Option<R> {
    if IS_INSIDE.replace(true) {
        return None;
    }
    // A panic must not cross into the caller's language.
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_INSIDE.set(false);
    done.map_err(|_| warn("an internal error: the call was passed through")).ok()
}

/// Answers Find and Get: `real` is cuDNN's answer, before which ours comes if it is the faster one. There may be `most`
/// answers in `list`, of which `found` says how many there are. The caller has `given` so much workspace, if any.
///
/// # Safety
/// As cuDNN asks of its caller: unless they are null, there is a number at `found`, and room for `most` at `list`.
pub(crate) unsafe fn answer(
    call: &Call,
    (most, found, list): (c_int, *mut c_int, *mut AlgorithmPerformance),
    given: Option<usize>,
    real: impl Fn() -> Status,
) -> Status {
    let status = real();
    // Be it that it has no algorithm for the undivided convolution.
    let has_answered = status == SUCCESS || (NOT_SUPPORTED..NOT_SUPPORTED + 1000).contains(&status);
    if !has_answered || most < 1 || found.is_null() || list.is_null() || !is_known() {
        return status;
    }
    let answers = match status {
        // SAFETY: the caller's promise, and cuDNN has set as many answers as it says.
        SUCCESS => unsafe { slice::from_raw_parts(list, (*found).clamp(0, most) as usize) }.to_vec(),
        _ => Vec::new(),
    };
    let limit = Settings::get().limit(given);
    let fits = |answer: &&AlgorithmPerformance| {
        answer.status == SUCCESS && limit.is_none_or(|limit| answer.memory <= limit)
    };
    let own = answers.iter().find(fits);
    let Some(first) = better(call, limit.unwrap_or(USUAL_LIMIT), own) else { return status };
    let answers: Vec<_> = [first].into_iter().chain(answers).take(most as usize).collect();
    // SAFETY: the caller's promise; there are at most `most`.
    unsafe {
        list.copy_from_nonoverlapping(answers.as_ptr(), answers.len());
        found.write(answers.len() as c_int);
    }
    SUCCESS
}

/// The virtual algorithm, if it is worth it: faster in so much workspace than `own`, the answer that would be taken.
fn better(call: &Call, limit: usize, own: Option<&AlgorithmPerformance>) -> Option<AlgorithmPerformance> {
    let signature = Signature::read(call)?;
    let number = own.and_then(|own| usize::try_from(own.algorithm).ok());
    let planned = planned(call, &signature, limit.max(own.map_or(0, |own| own.memory)), number)?;
    let own = own.map(|own| {
        let name = number.and_then(|number| algorithms(call.op).nth(number));
        (name.unwrap_or("another algorithm"), planned.as_ref().map_or(-1.0, |plan| plan.own_ms(own)))
    });
    let (_, chosen) = choose(&signature, &planned, limit, own, None)?;
    // A segment of a total is memory of our own.
    let memory = if Settings::get().total.is_some() { 0 } else { chosen.workspace().0 as usize };
    let math = signature.math;
    lock(&PROMISED).insert(signature, memory);
    Some(AlgorithmPerformance {
        algorithm: VIRTUAL,
        status: SUCCESS,
        time_ms: chosen.time_ms() as f32,
        memory,
        determinism: c_int::from(chosen.deterministic()),
        math,
        reserved: [0; 3],
    })
}

/// What is known of a convolution with at most `ceiling` bytes of workspace, measured now if it was not before (cuDNN's
/// algorithm number `own` however slow it is). Nothing while its stream is captured: then only what is known helps.
pub(crate) fn planned(
    call: &Call,
    signature: &Signature,
    ceiling: usize,
    own: Option<usize>,
) -> Option<Planned> {
    let known = || Some(lock(&KNOWN).get(signature).filter(|(tried, _)| *tried >= ceiling)?.1.clone());
    let measured = || {
        let planned = measure(call, signature.clone(), ceiling, own).map(Arc::new);
        let planned =
            planned.inspect_err(|reason| warn(&format!("a convolution was passed through: {reason}")));
        // A caller may still hold what was planned for less workspace.
        let planned = planned.or_else(|reason| known_plan(signature).ok_or(reason));
        lock(&KNOWN).insert(signature.clone(), (ceiling, planned.clone()));
        planned
    };
    // Whoever had the turn before may have measured it.
    let in_turn = || in_turn(signature.device, || known().unwrap_or_else(measured));
    known().or_else(|| (!is_recording(call.stream())).then(in_turn))
}

/// The fastest configuration within the limit, and its plan, if that is worth it beside cuDNN's `own` way, of which
/// there is a name and a time. If it was timed beside that, it took `today_ms`, or else what was measured counts. Noted
/// for the report.
pub(crate) fn choose<'p>(
    signature: &Signature,
    planned: &'p Planned,
    limit: usize,
    own: Option<(&str, f64)>,
    today_ms: Option<f64>,
) -> Option<(&'p Arc<Plan>, &'p Configuration)> {
    let time_ms = |chosen: &Configuration| today_ms.unwrap_or(chosen.time_ms());
    // An algorithm of cuDNN's would have its workspace beside a total, and an engine has it in any case.
    let is_divided = Settings::get().total.is_some() && today_ms.is_none();
    let within = |plan: &'p Arc<Plan>| {
        let chosen = plan.within(limit).ok_or("nothing does with the limit")?;
        match own.filter(|_| !is_divided) {
            Some((_, own_ms)) if time_ms(chosen) > (1.0 - WORTH) * own_ms => {
                Err(format!("{chosen} takes {:.3} ms, which is not worth it", time_ms(chosen)))
            }
            _ => Ok((plan, chosen)),
        }
    };
    let chosen = planned.as_ref().map_err(String::clone).and_then(within);
    let Some(path) = &Settings::get().report else { return chosen.ok() };
    let got = chosen.as_ref().ok().map(|&(_, got)| got);
    let fastest = planned.as_ref().ok().and_then(|plan| plan.front.last());
    let why = match (&chosen, fastest.filter(|&fastest| Some(fastest) != got)) {
        (Err(reason), _) => reason.clone(),
        (_, Some(fastest)) => {
            format!("{fastest} would take {:.4} ms, but {}", fastest.time_ms(), fastest.workspace())
        }
        _ => "the fastest measured was chosen".to_owned(),
    };
    let line = json!({
        "convolution": signature.to_string(),
        "got": got.map_or("cuDNN's own".to_owned(), Configuration::to_string),
        "got_ms": got.map(|got| rounded(time_ms(got))),
        "workspace_bytes": got.map(Configuration::workspace),
        "limit_bytes": limit,
        "own": own.map(|(name, _)| name),
        "own_ms": own.map(|(_, ms)| ms).filter(|&ms| ms > 0.0).map(rounded),
        "why": why,
    });
    report::note(path, signature, line);
    chosen.ok()
}

/// Bytes of workspace of the virtual algorithm: as Find or Get said, or of a default if they were asked about others.
pub(crate) fn workspace_bytes(call: &Call) -> Option<usize> {
    let promised = || lock(&PROMISED).get(&Signature::read(call)?).copied();
    promised().or_else(|| Call::DEFAULTS.iter().find_map(|&algorithm| call.workspace_bytes(algorithm)))
}

/// Runs the virtual algorithm by its plan, or, if there is none that does with the workspace, a default.
pub(crate) fn run(call: &Call) -> Status {
    let divided = || {
        let signature = Signature::read(call)?;
        let [a, b, _, conv] = call.descriptors;
        let with = |z| Signature::read(&Call { descriptors: [a, b, z, conv], ..*call });
        let is_alike = call.epilogue.is_none_or(|[z, ..]| with(z).as_ref() == Some(&signature));
        division::run(&known_plan(&signature).filter(|_| is_alike)?, *call, DEFAULT_MS)
    };
    divided().unwrap_or_else(|| call.launch_default())
}
