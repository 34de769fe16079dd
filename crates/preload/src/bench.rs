//! Measuring a convolution on the GPU that it is to run on: every algorithm at every size of the batch-size policy.

use crate::call::Call;
use crate::cudnn::{Owned, Raw, SUCCESS};
use crate::database::{keep, known};
use crate::driver::{Clock, memory};
use crate::plan::{Plan, algorithms};
use crate::settings::Settings;
use crate::signature::{Signature, is_deterministic};
use planner::{Algorithm, Bytes, Configuration, ConvOp, Measurement};
use std::time::{Duration, Instant};
use std::{collections::BTreeSet, ffi::c_int, sync::OnceLock};

/// A call that takes this many times as long as one that needs no more workspace will not be chosen, and is timed once.
const HOPELESS: f64 = 1.5;
/// An algorithm that takes this many times as long, from this part of the mini-batch on, is tried at no larger size.
const LOST: (f64, u32) = (3.0, 16);

/// Calls that are not hopeless are timed for so long together, and so often at most.
const AT_LEAST_MS: f64 = 1.0;
const MOST_CALLS: f64 = 20.0;

/// A GPU is slow to leave its idle clocks: how long it works before the first measurement of the process.
const SPIN_UP: Duration = Duration::from_millis(200);

/// Measures a convolution at the sizes of the policy, rising, with at most `ceiling` bytes of workspace, as far as the
/// database does not know it: on what the caller gives, or on memory of our own; result and workspace are overwritten.
/// `own` is cuDNN's number of an algorithm that is measured however slow it is. A sentence if nothing works.
pub(crate) fn measure(
    call: &Call,
    signature: Signature,
    ceiling: usize,
    own: Option<usize>,
) -> Result<Plan, String> {
    let mut sizes = Settings::get().policy.sizes(signature.mini_batch());
    sizes.retain(|&size| signature.can_have(size));
    let plan = Plan::new(signature, &sizes).ok_or("cuDNN makes no descriptors")?;
    let (signature, known, mut bench) = (&plan.signature, known(&plan.signature, &sizes), None);
    let (mut rows, mut lost) = (Vec::<Measurement>::new(), BTreeSet::new());
    for size in sizes {
        let of_size = rows.len();
        for (number, name) in algorithms(call.op).enumerate() {
            if lost.contains(&number) || signature.is_deterministic && !is_deterministic(name) {
                continue;
            }
            let (algorithm, is_own) = (Algorithm::from(name), own == Some(number));
            let bytes = plan.part(call, size).and_then(|part| part.workspace_bytes(number as c_int));
            let Some(bytes) = bytes.filter(|&bytes| bytes <= ceiling) else { continue };
            let workspace = Bytes(bytes as u64);
            // Of the fastest that needs no more workspace.
            let rivals = rows[of_size..].iter().filter(|row| row.workspace <= workspace);
            let rival_ms = rivals.map(|row| row.time_ms).fold(f64::INFINITY, f64::min);
            // cuDNN may ask for another workspace today.
            let is_it = |row: &&Measurement| {
                row.algorithm == algorithm && row.micro_batch == size && row.workspace == workspace
            };
            let row = known.iter().find(is_it).cloned().or_else(|| {
                let bench = bench.get_or_insert_with(|| Bench::new(call, &plan));
                let time_ms = bench.as_mut().ok()?.time_ms(&algorithm, (size, bytes), rival_ms)?;
                Some(Measurement {
                    algorithm,
                    micro_batch: size,
                    time_ms,
                    shared_ms: 0.0,
                    workspace,
                    // Of which nobody asks here.
                    max_error: 1.0,
                    deterministic: is_deterministic(name),
                })
            });
            let Some(row) = row else { continue };
            let (factor, part) = LOST;
            if size * part >= signature.mini_batch() && !is_own && row.time_ms > factor * rival_ms {
                lost.insert(number);
            }
            rows.push(row);
        }
    }
    keep(signature, rows.iter().filter(|row| !known.contains(row)));
    let reason = bench.and_then(Result::err).unwrap_or("no algorithm could be measured");
    plan.measured(rows).ok_or_else(|| reason.to_owned())
}

/// Milliseconds that an engine of cuDNN takes for the whole convolution, and those that this configuration of `plan`
/// takes beside it, on memory of our own with so many bytes of workspace; nothing if there is no room, or one of them
/// does not run. `launch` launches the engine. The plan's measurements may be of another day, when the GPU's clock had
/// another rate: it comes first, so that the engine is timed once only if it takes much longer than the plan does now.
pub(crate) fn side_by_side_ms(
    call: &Call,
    (plan, chosen): (&Plan, &Configuration),
    workspace_bytes: usize,
    mut launch: impl FnMut(&Call) -> bool,
) -> Option<[f64; 2]> {
    let (mut bench, bytes) = (Bench::new(call, plan).ok()?, chosen.workspace().0 as usize);
    let workspace = bench.workspace(workspace_bytes.max(bytes))?;
    let (clock, call) = (&bench.clock, Call { workspace: (workspace, bytes), ..bench.call });
    let plan_ms = settled_ms(clock, f64::INFINITY, || plan.run(call) == Some(SUCCESS))?;
    Some([settled_ms(clock, plan_ms, || launch(&call))?, plan_ms])
}

/// Milliseconds of a call of `launch`, timed once if it takes much longer than `rival_ms`; nothing if it fails.
fn settled_ms(clock: &Clock, rival_ms: f64, mut launch: impl FnMut() -> bool) -> Option<f64> {
    static BUSY_SINCE: OnceLock<Instant> = OnceLock::new();
    let mut time_ms = |calls: u32| Some(clock.time_ms(|| (0..calls).all(|_| launch()))? / f64::from(calls));
    // The first call loads the algorithm's code.
    time_ms(1)?;
    while BUSY_SINCE.get_or_init(Instant::now).elapsed() < SPIN_UP {
        time_ms(1)?;
    }
    let once = time_ms(1)?;
    if once > HOPELESS * rival_ms {
        return Some(once);
    }
    Some(once.min(time_ms((AT_LEAST_MS / once).clamp(2.0, MOST_CALLS).ceil() as u32)?))
}

/// What a convolution is measured with.
struct Bench<'b> {
    plan: &'b Plan,
    /// The whole convolution, on operands of our own if the caller gives none.
    call: Call,
    /// These operands, and a workspace where the caller's is too small.
    ours: [Owned; 4],
    /// Address and bytes of the caller's or of ours.
    workspace: (Raw, usize),
    clock: Clock,
}

impl<'b> Bench<'b> {
    fn new(call: &Call, plan: &'b Plan) -> Result<Self, &'static str> {
        let clock = Clock::new(call.stream()).ok_or("the driver makes no events")?;
        let is_given = call.operands.iter().all(|operand| !operand.is_null());
        let [a, b, c] = if is_given { [0; 3] } else { plan.signature.bytes() };
        let [Some(a), Some(b), Some(c), Some(scratch)] = [a, b, c, 0].map(memory) else {
            return Err("the GPU has no room for operands to measure with");
        };
        let operands = if is_given { call.operands } else { [a.raw, b.raw, c.raw] };
        let call = Call { operands, scalars: plan.signature.scalars(), ..*call };
        Ok(Self { plan, call, ours: [a, b, c, scratch], workspace: call.workspace, clock })
    }

    /// Milliseconds of a call of an algorithm on `size` samples in so many bytes of workspace; nothing if it does not
    /// run, or there is no room. Calls take the slices of the mini-batch in turn, to find the addresses and caches that
    /// they will find as parts of it.
    fn time_ms(&mut self, algorithm: &Algorithm, (size, bytes): (u32, usize), rival_ms: f64) -> Option<f64> {
        let workspace = (self.workspace(bytes)?, bytes);
        let ([one, zero], slices) = (self.call.scalars, self.plan.signature.mini_batch() / size);
        let beta = if self.call.op == ConvOp::BackwardFilter && slices > 1 { one } else { zero };
        let (call, mut slice) = (Call { scalars: [one, beta], workspace, ..self.call }, 0);
        settled_ms(&self.clock, rival_ms, || {
            slice = (slice + 1) % slices;
            self.plan.launch(&call, algorithm, (size, slice * size)) == SUCCESS
        })
    }

    /// So many bytes of workspace, our own if the caller's is too small; nothing if there is no room.
    fn workspace(&mut self, bytes: usize) -> Option<Raw> {
        if self.workspace.1 < bytes {
            let [.., scratch] = &mut self.ours;
            // The old one goes first: there need not be room for both.
            (*scratch, self.workspace) = (memory(0)?, self.call.workspace);
            *scratch = memory(bytes)?;
            self.workspace = (scratch.raw, bytes);
        }
        Some(self.workspace.0)
    }
}
