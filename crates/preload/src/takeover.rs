//! What is done with calls that are taken over: which answers Find and Get give, and what the virtual algorithm runs.

use crate::{
    answers::Answers,
    bench::{Given, Wanted, measure},
    call::{Arguments, Call, Epilogue},
    cudnn::{AlgorithmPerformance, NOT_SUPPORTED, SUCCESS, Status},
    driver::Driver,
    pieces::Pieces,
    plan::Plan,
    report,
    settings::{Limits, Settings},
    signature::Signature,
    warning::warn,
};
use planner::{BatchSizePolicy, Configuration};
use serde_json::{Value, json};
use std::{
    cell::Cell,
    collections::HashMap,
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, atomic::Ordering::Relaxed},
};

/// The algorithm that stands for a plan: a number that is none of cuDNN's.
pub(crate) const VIRTUAL: c_int = 0x6d62;

/// A plan must be faster than what cuDNN would do by more than this part.
const WORTH: f64 = 0.02;

/// A plan, or why there is none.
type Planned = Result<Arc<Plan>, String>;

/// What is known of every convolution that Find or Get was asked about.
static KNOWN: LazyLock<RwLock<HashMap<Signature, Planned>>> = LazyLock::new(Default::default);

/// What they got, for the report.
static LINES: LazyLock<Mutex<HashMap<Signature, Value>>> = LazyLock::new(Default::default);

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

/// Answers Find and Get: `real` is cuDNN's answer, before which ours comes if it is the faster one.
pub(crate) fn answer(
    call: &Call,
    answers: Option<Answers>,
    given: Option<Given>,
    real: impl Fn() -> Status,
) -> Status {
    let status = taken_over(&real).unwrap_or_else(&real);
    let Some(answers) = answers.filter(|_| is_answer(status) && call.cudnn.is_recent()) else {
        return status;
    };
    let ours = taken_over(|| {
        let signature = signature(call)?;
        let list = answers.list(status);
        let limits = Settings::get().limits(given.map(|given| given.workspace_bytes));
        let fits = |answer: &&AlgorithmPerformance| answer.status == SUCCESS && answer.memory <= limits.own;
        let question = Question { call, signature, limits, own: list.iter().find(fits).copied() };
        let first = question.answer(given)?;
        answers.put_first(first, &list);
        Some(SUCCESS)
    });
    ours.flatten().unwrap_or(status)
}

/// Whether cuDNN has answered, and be it that it has no algorithm for the undivided convolution.
fn is_answer(status: Status) -> bool {
    status == SUCCESS || (NOT_SUPPORTED..NOT_SUPPORTED + 1000).contains(&status)
}

fn signature(call: &Call) -> Option<Signature> {
    call.signature(Driver::get()?.current_device()?)
}

struct Question<'q> {
    call: &'q Call,
    signature: Signature,
    limits: Limits,
    /// The answer of cuDNN that its caller would take.
    own: Option<AlgorithmPerformance>,
}

impl Question<'_> {
    /// The virtual algorithm, if it is worth it.
    fn answer(&self, given: Option<Given>) -> Option<AlgorithmPerformance> {
        let planned = self.plan(given)?;
        let chosen = planned.as_ref().map_err(String::clone).and_then(|plan| self.choose(plan));
        self.note(planned.as_deref().ok(), &chosen);
        let (plan, chosen) = (planned.as_ref().ok()?, chosen.ok()?);
        let memory = chosen.workspace().0 as usize;
        plan.promised.store(memory, Relaxed);
        Some(AlgorithmPerformance {
            algorithm: VIRTUAL,
            status: SUCCESS,
            time_ms: chosen.time_ms() as f32,
            memory,
            determinism: c_int::from(chosen.deterministic()),
            math: self.signature.math(),
            reserved: [0; 3],
        })
    }

    /// What is known of the convolution, measured now if it was not before. Nothing while its stream is captured: then only
    /// what is known helps.
    fn plan(&self, given: Option<Given>) -> Option<Planned> {
        static MEASURING: Mutex<()> = Mutex::new(());
        let ceiling = self.limits.plan.max(self.own.map_or(0, |own| own.memory));
        let known = || {
            let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
            let found = known.get(&self.signature)?;
            found.as_ref().map_or(true, |plan| plan.ceiling >= ceiling).then(|| found.clone())
        };
        if let Some(planned) = known() {
            return Some(planned);
        }
        Driver::get().filter(|driver| !driver.is_recording(self.call.stream()))?;
        // One at a time: two would disturb each other.
        let _turn = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = known() {
            return Some(planned);
        }
        let planned = self.measure(given, ceiling).map(Arc::new);
        if let Err(reason) = &planned {
            warn(&format!("a convolution was passed through: {reason}"));
        }
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).insert(self.signature.clone(), planned.clone());
        Some(planned)
    }

    fn measure(&self, given: Option<Given>, ceiling: usize) -> Result<Plan, String> {
        let pieces = Pieces::new(self.signature.clone());
        let policy = Settings::get().policy;
        let policy = if self.signature.adds_in_16_bits() { BatchSizePolicy::Undivided } else { policy };
        let own = self.own.and_then(|own| pieces.name(own.algorithm)).cloned();
        measure(self.call, pieces, given, &Wanted { policy, limit: self.limits.plan, ceiling, own })
    }

    /// The fastest configuration within the limit, or why cuDNN's own algorithm is as good.
    fn choose(&self, plan: &Plan) -> Result<Configuration, String> {
        let chosen = plan.within(self.limits.plan).ok_or("nothing does with the limit")?;
        match self.own_ms(plan) {
            Some(own_ms) if chosen.time_ms() > (1.0 - WORTH) * own_ms => {
                Err(format!("{chosen} takes {:.3} ms, which is not worth it", chosen.time_ms()))
            }
            _ => Ok(chosen.clone()),
        }
    }

    /// What cuDNN's own answer takes: as we measured the algorithm in the caller's arithmetic. If the answer is in another one,
    /// it may be faster, as far as cuDNN says so; -1 if nobody measured it.
    fn own_ms(&self, plan: &Plan) -> Option<f64> {
        let own = self.own?;
        let (said_ms, is_alike) = (f64::from(own.time_ms), own.math == self.signature.math());
        let measured_ms = plan.pieces.name(own.algorithm).and_then(|name| plan.undivided_ms(name));
        Some(match measured_ms {
            Some(ms) if is_alike || said_ms <= 0.0 => ms,
            Some(ms) => ms.min(said_ms),
            None => said_ms,
        })
    }

    /// Notes for the report what the convolution got.
    fn note(&self, plan: Option<&Plan>, chosen: &Result<Configuration, String>) {
        let Some(path) = &Settings::get().report else { return };
        let own = self.own.map(|own| match plan.and_then(|plan| plan.pieces.name(own.algorithm)) {
            Some(name) => name.to_string(),
            None => format!("algorithm {}", own.algorithm),
        });
        let why = match (chosen, plan) {
            (Ok(chosen), Some(plan)) => plan.explanation(chosen, self.limits.plan).to_string(),
            (chosen, _) => chosen.clone().err().unwrap_or_default(),
        };
        let got = chosen.as_ref().ok();
        let rounded = |ms: f64| (ms * 1e4).round() / 1e4;
        let line = json!({
            "convolution": self.signature.to_string(),
            "got": got.map_or("cuDNN's own".to_owned(), Configuration::to_string),
            "got_ms": got.map(|got| rounded(got.time_ms())),
            "workspace_bytes": got.map(Configuration::workspace),
            "limit_bytes": self.limits.plan,
            "own": own,
            "own_ms": plan.and_then(|plan| self.own_ms(plan)).filter(|&ms| ms > 0.0).map(rounded),
            "why": why,
        });
        LINES.lock().unwrap_or_else(PoisonError::into_inner).insert(self.signature.clone(), line);
        report::at_exit(path.clone(), lines);
    }
}

/// What the report says at the end, with the number of calls of the virtual algorithm.
fn lines() -> Vec<Value> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let with_calls = lines.iter().map(|(signature, line)| {
        let mut line = line.clone();
        line["calls"] = known(signature).map_or(0, |plan| plan.calls.load(Relaxed)).into();
        line
    });
    let mut lines: Vec<Value> = with_calls.collect();
    lines.sort_by_key(|line| line["convolution"].to_string());
    lines
}

fn known(signature: &Signature) -> Option<Arc<Plan>> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(signature)?.as_ref().ok().cloned()
}

/// Bytes of workspace of the virtual algorithm: what Find or Get said, or what cuDNN's first choice needs, if they were asked
/// about another convolution.
pub(crate) fn workspace_bytes(call: &Call) -> Option<usize> {
    let promised = || Some(known(&signature(call)?)?.promised.load(Relaxed));
    let first =
        || call.heuristics().first().filter(|answer| answer.status == SUCCESS).map(|answer| answer.memory);
    taken_over(|| promised().filter(|&bytes| bytes > 0).or_else(first)).flatten()
}

/// Runs a convolution: the virtual algorithm by its plan, or, if there is none that does with the workspace, as cuDNN itself
/// would; every other algorithm as it is.
pub(crate) fn run(call: &Call, algorithm: c_int, arguments: &Arguments) -> Status {
    if algorithm != VIRTUAL {
        return call.run(algorithm, arguments);
    }
    let divided = || {
        let signature = signature(call)?;
        let is_alike = |epilogue: Epilogue| signature.is_result(call.cudnn, epilogue.z);
        arguments.epilogue.is_none_or(is_alike).then(|| known(&signature)?.run(call, arguments))?
    };
    taken_over(|| divided().unwrap_or_else(|| call.run_any(arguments))).unwrap_or(NOT_SUPPORTED)
}
