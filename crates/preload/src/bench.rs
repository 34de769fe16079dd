//! Measuring a convolution on the GPU that it is to run on: every algorithm at every size of the batch-size policy.

use crate::{
    call::{Arguments, Call},
    cudnn::{Raw, SUCCESS},
    driver::{Clock, Memory},
    plan::{Pieces, Plan, algorithms},
    signature::{Signature, is_deterministic},
};
use planner::{Algorithm, Bytes, ConvOp, Measurement};
use std::{
    collections::BTreeSet,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// A call that takes this many times as long as one that needs no more workspace will not be chosen, and is timed once.
const HOPELESS: f64 = 1.5;
/// An algorithm that takes this many times as long, at a size of at least this part of the mini-batch, is not tried at
/// larger ones.
const LOST: (f64, u32) = (3.0, 16);

/// Calls that are not hopeless are timed for so long together, and so often at most.
const AT_LEAST_MS: f64 = 1.0;
const MOST_CALLS: f64 = 20.0;

/// A GPU is slow to leave its idle clocks: how long it works before the first measurement of the process.
const SPIN_UP: Duration = Duration::from_millis(200);

/// What the caller gives to measure with, as cuDNN's Find…Ex has it: the result and the workspace may be overwritten.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) operands: [Raw; 3],
    /// Address and bytes.
    pub(crate) workspace: (Raw, usize),
}

/// Measures a convolution at these sizes, rising, with at most `ceiling` bytes of workspace. `own` is cuDNN's number of
/// an algorithm that is measured however slow it is. A sentence if nothing works.
pub(crate) fn measure(
    call: &Call,
    signature: Signature,
    given: Option<Given>,
    sizes: &[u32],
    (ceiling, own): (usize, Option<usize>),
) -> Result<Plan, String> {
    let clock = Clock::new(call.stream()).ok_or("the driver makes no events")?;
    let given = given.filter(|given| given.operands.iter().all(|operand| !operand.is_null()));
    let bytes = if given.is_some() { [0; 3] } else { signature.bytes() };
    let ours = Ours::new(bytes, 0).ok_or("the GPU has no room for operands to measure with")?;
    let given = given.unwrap_or(ours.given());
    let pieces = Pieces::new(signature, sizes).ok_or("cuDNN makes no descriptors")?;
    let mut bench = Bench { call, pieces: &pieces, clock, given, ceiling, scratch: None, calls: 0 };
    let (mut rows, mut lost) = (Vec::new(), BTreeSet::new());
    for &size in sizes {
        let of_size = rows.len();
        for (number, name) in algorithms(call.op).enumerate() {
            if lost.contains(&number) || !pieces.signature.allows(name) {
                continue;
            }
            let Some(row) = bench.trial(&name.into(), size, &rows[of_size..]) else { continue };
            let (factor, part) = LOST;
            let counts = size * part >= pieces.signature.mini_batch() && own != Some(number);
            if counts && lag(&row, &rows[of_size..]) > factor {
                lost.insert(number);
            }
            rows.push(row);
        }
    }
    drop(bench);
    Plan::new(pieces, rows, ceiling).ok_or_else(|| "no algorithm could be measured".to_owned())
}

/// Milliseconds that an engine of cuDNN takes for the whole convolution in so many bytes of workspace, on memory of our
/// own; nothing if there is no room, or it does not run. `launch` launches it. If it takes much longer than `rival_ms`,
/// it is timed once.
pub(crate) fn engine_ms(
    call: &Call,
    signature: &Signature,
    workspace_bytes: usize,
    rival_ms: f64,
    mut launch: impl FnMut(&Given) -> bool,
) -> Option<f64> {
    let (clock, ours) = (Clock::new(call.stream())?, Ours::new(signature.bytes(), workspace_bytes)?);
    let mut time_ms = |calls: u32| {
        let ms = clock.time_ms(|| (0..calls).all(|_| launch(&ours.given())))?;
        Some(ms / f64::from(calls))
    };
    time_ms(1)?;
    let once = time_ms(1)?;
    if once > HOPELESS * rival_ms { Some(once) } else { Some(once.min(time_ms(repeats(once))?)) }
}

/// How often a call is repeated that takes so long.
fn repeats(ms: f64) -> u32 {
    (AT_LEAST_MS / ms).clamp(2.0, MOST_CALLS).ceil() as u32
}

/// Operands of our own, and a workspace.
struct Ours(Vec<Memory>);

impl Ours {
    fn new([a, b, c]: [usize; 3], workspace: usize) -> Option<Self> {
        [a, b, c, workspace].into_iter().map(Memory::new).collect::<Option<_>>().map(Self)
    }

    fn given(&self) -> Given {
        let at = |place: usize| self.0[place].address;
        Given { operands: [at(0), at(1), at(2)], workspace: (at(3), self.0[3].len) }
    }
}

struct Bench<'b> {
    call: &'b Call,
    pieces: &'b Pieces,
    clock: Clock,
    given: Given,
    ceiling: usize,
    /// Workspace of our own, where the caller's is too small.
    scratch: Option<Memory>,
    calls: u32,
}

impl Bench<'_> {
    /// The time of an algorithm on `size` samples; nothing if it does not apply, or there is no room for its workspace.
    /// Those in `rows` are of the same size.
    fn trial(&mut self, algorithm: &Algorithm, size: u32, rows: &[Measurement]) -> Option<Measurement> {
        static BUSY_SINCE: OnceLock<Instant> = OnceLock::new();
        let bytes = self.pieces.workspace_bytes(self.call, algorithm, size)?;
        let workspace = (self.workspace(bytes)?, bytes);
        let row = |time_ms| Measurement {
            algorithm: algorithm.clone(),
            micro_batch: size,
            time_ms,
            shared_ms: 0.0,
            workspace: Bytes(bytes as u64),
            max_error: 0.0,
            deterministic: is_deterministic(algorithm.as_str()),
        };
        let mut time_ms = |calls| self.time_ms(algorithm, size, workspace, calls);
        // The first call loads the algorithm's code.
        time_ms(1)?;
        while BUSY_SINCE.get_or_init(Instant::now).elapsed() < SPIN_UP {
            time_ms(1)?;
        }
        let once = row(time_ms(1)?);
        if lag(&once, rows) > HOPELESS {
            return Some(once);
        }
        Some(row(once.time_ms.min(time_ms(repeats(once.time_ms))?)))
    }

    /// So many bytes of workspace, the caller's if that is large enough; nothing if there is no room.
    fn workspace(&mut self, bytes: usize) -> Option<Raw> {
        let (address, len) = self.given.workspace;
        if bytes <= len {
            return Some(address);
        }
        if bytes <= self.ceiling && self.scratch.as_ref().is_none_or(|scratch| scratch.len < bytes) {
            // The old one goes first: there need not be room for both.
            self.scratch = None;
            self.scratch = Memory::new(bytes);
        }
        self.scratch
            .as_ref()
            .filter(|scratch| bytes <= scratch.len.min(self.ceiling))
            .map(|scratch| scratch.address)
    }

    /// Milliseconds of a call, of so many one after the other. They take the slices of the mini-batch in turn, to find
    /// the addresses and caches that they will find as parts of it.
    fn time_ms(
        &mut self,
        algorithm: &Algorithm,
        size: u32,
        workspace: (Raw, usize),
        calls: u32,
    ) -> Option<f64> {
        let signature = &self.pieces.signature;
        let ([one, zero], slices) = (signature.scalars(), signature.mini_batch() / size);
        let beta = if signature.op == ConvOp::BackwardFilter && slices > 1 { one } else { zero };
        let (scalars, operands) = ([one, beta], self.given.operands);
        let arguments = Arguments { scalars, operands, workspace, epilogue: None };
        let mut launch = |_| {
            let first = self.calls % slices * size;
            self.calls = self.calls.wrapping_add(1);
            self.pieces.launch(self.call, algorithm, (size, first), &arguments) == SUCCESS
        };
        Some(self.clock.time_ms(|| (0..calls).all(&mut launch))? / f64::from(calls))
    }
}

/// How many times as long it takes as the fastest of `rows` that needs no more workspace.
fn lag(row: &Measurement, rows: &[Measurement]) -> f64 {
    let rivals = rows.iter().filter(|other| other.workspace <= row.workspace);
    row.time_ms / rivals.map(|other| other.time_ms).fold(row.time_ms, f64::min)
}
