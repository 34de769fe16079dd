//! What is done with calls that are taken over: which answers Find and Get give, and what the virtual algorithm runs.

use crate::call::{Arguments, Call};
use crate::cudnn::{AlgorithmPerformance, NOT_SUPPORTED, Raw, SUCCESS, Status, is_known};
use crate::division::{self, DEFAULT_MS};
use crate::driver::{current_device, is_recording, relaxed};
use crate::plan::{Plan, algorithms};
use crate::report::{self, rounded};
use crate::settings::{Settings, USUAL_LIMIT};
use crate::shared::{lock, warn};
use crate::{bench::measure, signature::Signature};
use planner::{BatchSizePolicy, Configuration};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex};
use std::{cell::Cell, collections::HashMap, ffi::c_int, slice, sync::atomic::Ordering::Relaxed};

/// The algorithm that stands for a plan: a number that is none of cuDNN's.
pub(crate) const VIRTUAL: c_int = 0x6d62;

/// What stands for an engine of operation graphs where algorithms have their numbers.
pub(crate) const ENGINE: c_int = -1;

/// A plan must be faster than what cuDNN would do by more than this part.
const WORTH: f64 = 0.02;

/// A plan, or why there is none.
type Planned = Result<Arc<Plan>, String>;

/// What is known of every convolution that Find or Get was asked about.
static KNOWN: LazyLock<Mutex<HashMap<Signature, Planned>>> = LazyLock::new(Default::default);

/// Measures. Those who do wait for each other: two at a time would disturb each other.
pub(crate) fn in_turn<R>(work: impl FnOnce() -> R) -> R {
    static MEASURING: Mutex<()> = Mutex::new(());
    let _turn = lock(&MEASURING);
    relaxed(work)
}

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
/// answers in `list`, of which `found` says how many there are.
///
/// # Safety
/// As cuDNN asks of its caller: unless they are null, there is a number at `found` and room for `most` answers at
/// `list`.
pub(crate) unsafe fn answer(
    call: &Call,
    (most, found, list): (c_int, *mut c_int, *mut AlgorithmPerformance),
    given: Option<Arguments>,
    real: impl Fn() -> Status,
) -> Status {
    let status = real();
    if !is_answer(status) || most < 1 || found.is_null() || list.is_null() || !is_known() {
        return status;
    }
    let answers = match status {
        // SAFETY: the caller's promise, and cuDNN has set as many answers as it says.
        SUCCESS => unsafe { slice::from_raw_parts(list, (*found).clamp(0, most) as usize) }.to_vec(),
        _ => Vec::new(),
    };
    let limit = Settings::get().limit(given.map(|given| given.workspace.1));
    let does = |answer: &AlgorithmPerformance| limit.is_none_or(|limit| answer.memory <= limit);
    let fits = |answer: &&AlgorithmPerformance| answer.status == SUCCESS && does(answer);
    let own = answers.iter().find(fits).copied();
    let first = taken_over(|| {
        let limit = limit.unwrap_or(USUAL_LIMIT);
        Question { call, signature: signature(call)?, limit, own, today_ms: None }.answer(given)
    })
    .flatten();
    let Some(first) = first else { return status };
    for (place, answer) in [first].into_iter().chain(answers).take(most as usize).enumerate() {
        // SAFETY: the caller's promise; there are at most `most`.
        unsafe {
            list.add(place).write(answer);
            found.write(place as c_int + 1);
        }
    }
    SUCCESS
}

/// Whether cuDNN has answered, and be it that it has no algorithm for the undivided convolution.
fn is_answer(status: Status) -> bool {
    status == SUCCESS || (NOT_SUPPORTED..NOT_SUPPORTED + 1000).contains(&status)
}

fn signature(call: &Call) -> Option<Signature> {
    Signature::read(current_device()?, call)
}

/// What a convolution should get.
pub(crate) struct Question<'q> {
    pub(crate) call: &'q Call,
    pub(crate) signature: Signature,
    /// Bytes of workspace that a plan may have.
    pub(crate) limit: usize,
    /// The answer of cuDNN that its caller would take.
    pub(crate) own: Option<AlgorithmPerformance>,
    /// What the fastest configuration within the limit takes if it is timed now; nothing if measurements are to be
    /// trusted.
    pub(crate) today_ms: Option<f64>,
}

impl Question<'_> {
    /// The virtual algorithm, if it is worth it.
    pub(crate) fn answer(&self, given: Option<Arguments>) -> Option<AlgorithmPerformance> {
        let planned = self.plan(given)?;
        let chosen = planned.as_ref().map_err(String::clone).and_then(|plan| self.choose(plan));
        self.note(planned.as_ref(), &chosen);
        let (plan, chosen) = (planned.as_ref().ok()?, chosen.ok()?);
        // A segment of a total is memory of our own.
        let memory = if Settings::get().total.is_some() { 0 } else { chosen.workspace().0 as usize };
        plan.promised.store(memory, Relaxed);
        Some(AlgorithmPerformance {
            algorithm: VIRTUAL,
            status: SUCCESS,
            time_ms: self.time_ms(&chosen) as f32,
            memory,
            determinism: c_int::from(chosen.deterministic()),
            math: self.signature.math,
            reserved: [0; 3],
        })
    }

    /// What is known of the convolution, measured now if it was not before. Nothing while its stream is captured: then
    /// only what is known helps.
    pub(crate) fn plan(&self, given: Option<Arguments>) -> Option<Planned> {
        let ceiling = self.limit.max(self.own.map_or(0, |own| own.memory));
        let is_enough = |planned: &Planned| planned.as_ref().map_or(true, |plan| plan.ceiling >= ceiling);
        let known = || lock(&KNOWN).get(&self.signature).cloned().filter(is_enough);
        // Whoever had the turn before may have measured it.
        let measured = || known().unwrap_or_else(|| self.measure(given, ceiling));
        known().or_else(|| (!is_recording(self.call.stream())).then(|| in_turn(measured)))
    }

    fn measure(&self, given: Option<Arguments>, ceiling: usize) -> Planned {
        let (signature, mini_batch) = (&self.signature, self.signature.mini_batch());
        let policy = match signature.adds_in_16_bits() {
            true => BatchSizePolicy::Undivided,
            false => Settings::get().policy,
        };
        let mut sizes = policy.sizes(mini_batch);
        sizes.retain(|&size| size == mini_batch || signature.is_aligned(size));
        let own = self.own.and_then(|own| usize::try_from(own.algorithm).ok());
        let planned = measure(self.call, signature.clone(), given, &sizes, (ceiling, own)).map(Arc::new);
        let planned =
            planned.inspect_err(|reason| warn(&format!("a convolution was passed through: {reason}")));
        lock(&KNOWN).insert(signature.clone(), planned.clone());
        planned
    }

    /// The fastest configuration within the limit, or why cuDNN's own algorithm is as good.
    fn choose(&self, plan: &Plan) -> Result<Configuration, String> {
        let chosen = plan.within(self.limit).ok_or("nothing does with the limit")?;
        let time_ms = self.time_ms(chosen);
        // An algorithm of cuDNN's would have its workspace beside a total, and an engine has it in any case.
        let is_divided = Settings::get().total.is_some() && self.today_ms.is_none();
        match self.own_ms(plan).filter(|_| !is_divided) {
            Some(own_ms) if time_ms > (1.0 - WORTH) * own_ms => {
                Err(format!("{chosen} takes {time_ms:.3} ms, which is not worth it"))
            }
            _ => Ok(chosen.clone()),
        }
    }

    fn time_ms(&self, chosen: &Configuration) -> f64 {
        self.today_ms.unwrap_or(chosen.time_ms())
    }

    /// What cuDNN's own answer takes: as we measured the algorithm in the caller's arithmetic. If the answer is in
    /// another one, it may be faster, as far as cuDNN says so; -1 if nobody measured it.
    fn own_ms(&self, plan: &Plan) -> Option<f64> {
        let own = self.own?;
        let (said_ms, is_alike) = (f64::from(own.time_ms), own.math == self.signature.math);
        Some(match plan.undivided_ms(own.algorithm) {
            Some(ms) if is_alike || said_ms <= 0.0 => ms,
            Some(ms) => ms.min(said_ms),
            None => said_ms,
        })
    }

    /// Notes for the report what the convolution got.
    fn note(&self, planned: Result<&Arc<Plan>, &String>, chosen: &Result<Configuration, String>) {
        let Some(path) = &Settings::get().report else { return };
        let plan = planned.ok();
        let own = self.own.and_then(|own| match own.algorithm {
            ENGINE => Some("an engine"),
            number => algorithms(self.signature.op).nth(usize::try_from(number).ok()?),
        });
        let got = chosen.as_ref().ok();
        let fastest = plan.and_then(|plan| plan.front.iter().last()).filter(|&fastest| Some(fastest) != got);
        let why = match (chosen, fastest) {
            (Err(reason), _) => reason.clone(),
            (_, Some(fastest)) => {
                format!("{fastest} would take {:.4} ms, but {}", fastest.time_ms(), fastest.workspace())
            }
            _ => "the fastest measured was chosen".to_owned(),
        };
        let line = json!({
            "convolution": self.signature.to_string(),
            "got": got.map_or("cuDNN's own".to_owned(), Configuration::to_string),
            "got_ms": got.map(|got| rounded(self.time_ms(got))),
            "workspace_bytes": got.map(Configuration::workspace),
            "limit_bytes": self.limit,
            "own": own,
            "own_ms": plan.and_then(|plan| self.own_ms(plan)).filter(|&ms| ms > 0.0).map(rounded),
            "why": why,
        });
        report::note(path, &self.signature, line, planned.ok().cloned());
    }
}

fn known(signature: &Signature) -> Option<Arc<Plan>> {
    lock(&KNOWN).get(signature)?.as_ref().ok().cloned()
}

/// Bytes of workspace of the virtual algorithm: what Find or Get said, or what a default needs, if they were asked
/// about another convolution.
pub(crate) fn workspace_bytes(call: &Call) -> Option<usize> {
    let promised = || Some(known(&signature(call)?)?.promised.load(Relaxed));
    let default = || Call::DEFAULTS.iter().find_map(|&algorithm| call.workspace_bytes(algorithm));
    taken_over(|| promised().or_else(default)).flatten()
}

/// Runs the virtual algorithm by its plan, or, if there is none that does with the workspace, a default.
pub(crate) fn run(call: &Call, arguments: Arguments) -> Status {
    let divided = || {
        let signature = signature(call)?;
        let is_alike = |[z, ..]: [Raw; 5]| signature.is_result(z);
        arguments
            .epilogue
            .is_none_or(is_alike)
            .then(|| division::run(&known(&signature)?, call, arguments, DEFAULT_MS))?
    };
    taken_over(|| divided().unwrap_or_else(|| call.launch_default(&arguments))).unwrap_or(NOT_SUPPORTED)
}
