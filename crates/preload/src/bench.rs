//! Measuring a convolution on the GPU that it is to run on: every algorithm at every size of the batch-size policy.

use crate::{
    call::{Arguments, Call},
    cudnn::SUCCESS,
    driver::{Clock, Driver, Memory},
    library::Raw,
    pieces::{Pieces, is_deterministic},
    plan::Plan,
};
use planner::{
    Algorithm, BatchSizePolicy, Bytes, ConvOp, ConvShape, CostTable, DeviceHeader, Done, Dtype, Kernel,
    KernelId, Layout, Math, Measurement, PlanOptions, Profiler, ProfilerError, Request, RequestError,
    profile, repeat,
};
use std::{
    collections::BTreeMap,
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A call that takes this many times as long as one that needs no more workspace will not be chosen, and is timed once.
const HOPELESS: f64 = 1.5;
/// An algorithm that takes this many times as long, at so many sizes in a row of at least this part of the mini-batch, is
/// not tried at larger ones.
const LOST: (f64, u32, u32) = (2.0, 2, 16);

/// Calls that are not hopeless are timed for so long together, and so often at most.
const AT_LEAST_MS: f64 = 1.0;
const MOST_CALLS: f64 = 20.0;

/// A GPU is slow to leave its idle clocks: how long it works before the first measurement.
const SPIN_UP: Duration = Duration::from_millis(200);

/// What the caller gives to measure with, as cuDNN's Find…Ex has it: the result and the workspace may be overwritten.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) operands: [Raw; 3],
    pub(crate) workspace: Raw,
    pub(crate) workspace_bytes: usize,
}

/// What is measured.
pub(crate) struct Wanted {
    pub(crate) policy: BatchSizePolicy,
    /// The workspace that the plan may use, which decides what is measured twice.
    pub(crate) limit: usize,
    /// The most workspace that anything is measured with.
    pub(crate) ceiling: usize,
    /// What cuDNN would use: measured, however slow it is.
    pub(crate) own: Option<Algorithm>,
}

/// Measures the convolution of `call`. A sentence if that does not work out.
pub(crate) fn measure(
    call: &Call,
    mut pieces: Pieces,
    given: Option<Given>,
    wanted: &Wanted,
) -> Result<Plan, String> {
    let driver = Driver::get().ok_or("the CUDA driver lacks a function")?;
    let clock = Clock::new(driver, call.stream()).ok_or("the driver makes no events")?;
    let room = || "the GPU has no room for operands to measure with";
    let bytes = pieces.signature.bytes();
    let given = given.filter(|given| given.operands.iter().all(|operand| !operand.is_null()));
    let own_bytes = if given.is_some() { [0; 3] } else { bytes };
    let [a, b, c] = own_bytes.map(|bytes| Memory::new(driver, bytes));
    let own = [a.ok_or_else(room)?, b.ok_or_else(room)?, c.ok_or_else(room)?];
    let given = given.unwrap_or(Given {
        operands: own.each_ref().map(|memory| memory.address),
        workspace: null_mut(),
        workspace_bytes: 0,
    });
    let kernels = [kernel(pieces.signature.mini_batch())];
    let (scratch, behind, pieces_mut) = (None, BTreeMap::new(), &mut pieces);
    let mut bench =
        Bench { call, pieces: pieces_mut, driver, clock, given, wanted, scratch, behind, calls: 0 };
    let limit = Bytes(wanted.limit as u64);
    let options = PlanOptions { batch_size_policy: wanted.policy, limit, ..PlanOptions::default() };
    let mut table = CostTable::new(DeviceHeader::default());
    profile(&mut table, &kernels, &options, &mut bench, |_| ()).map_err(|error| error.to_string())?;
    repeat(&mut table, &kernels, &options, &mut bench, |_, _| true, |_| ())
        .map_err(|error| error.to_string())?;
    drop(bench);
    let rows = table.iter().flat_map(|(_, _, rows)| rows.to_vec()).collect();
    Plan::new(pieces, rows, wanted.ceiling).ok_or_else(|| "no algorithm could be measured".to_owned())
}

/// The kernel for the planner. The table is of this one alone, so that nothing depends on its identity.
fn kernel(mini_batch: u32) -> Kernel {
    let (shape, dtype, math, layout) = (ConvShape::default(), Dtype::F32, Math::Fp32, Layout::Nchw);
    let id = KernelId { op: ConvOp::Forward, shape, dtype, math, layout };
    Kernel { name: "convolution".into(), id, mini_batch }
}

struct Bench<'b> {
    call: &'b Call,
    pieces: &'b mut Pieces,
    driver: &'b Driver,
    clock: Clock<'b>,
    given: Given,
    wanted: &'b Wanted,
    /// Workspace of our own, where the caller's is too small.
    scratch: Option<Memory<'b>>,
    /// At how many sizes in a row algorithms were far behind.
    behind: BTreeMap<Algorithm, u32>,
    calls: u32,
}

impl Bench<'_> {
    /// The time of an algorithm on `size` samples; nothing if it does not apply, or there is no room for its workspace.
    /// Those in `rows` are of the same size.
    fn trial(&mut self, algorithm: &Algorithm, size: u32, rows: &[Measurement]) -> Option<Measurement> {
        let (workspace, bytes) = self.workspace(algorithm, size)?;
        let row = |time_ms| Measurement {
            algorithm: algorithm.clone(),
            micro_batch: size,
            time_ms,
            shared_ms: 0.0,
            workspace: Bytes(bytes as u64),
            max_error: 0.0,
            deterministic: is_deterministic(algorithm),
        };
        let mut time_ms = |calls| self.time_ms(algorithm, size, (workspace, bytes), calls);
        // The first call loads the algorithm's code.
        time_ms(1)?;
        let once = row(time_ms(1)?);
        if lag(&once, rows) > HOPELESS {
            return Some(once);
        }
        let calls = (AT_LEAST_MS / once.time_ms).clamp(2.0, MOST_CALLS).ceil();
        Some(row(once.time_ms.min(time_ms(calls as u32)?)))
    }

    /// The workspace of an algorithm, in the caller's if that is large enough; nothing if the algorithm does not apply or there
    /// is no room for it.
    fn workspace(&mut self, algorithm: &Algorithm, size: u32) -> Option<(Raw, usize)> {
        let micro = self.pieces.micro(algorithm, size, 0)?;
        let bytes = self.call.workspace_bytes(micro.algorithm, micro.tensors)?;
        if bytes <= self.given.workspace_bytes {
            return Some((self.given.workspace, bytes));
        }
        if bytes <= self.wanted.ceiling && self.scratch.as_ref().is_none_or(|scratch| scratch.len < bytes) {
            // The old one goes first: there need not be room for both.
            self.scratch = None;
            self.scratch = Memory::new(self.driver, bytes);
        }
        let scratch =
            self.scratch.as_ref().filter(|scratch| bytes <= scratch.len.min(self.wanted.ceiling))?;
        Some((scratch.address, bytes))
    }

    /// Milliseconds of a call, of so many one after the other. They take the slices of the mini-batch in turn, to find the
    /// addresses and caches that they will find as parts of it.
    fn time_ms(
        &mut self,
        algorithm: &Algorithm,
        size: u32,
        (workspace, workspace_bytes): (Raw, usize),
        calls: u32,
    ) -> Option<f64> {
        let signature = &self.pieces.signature;
        let ([one, zero], slices) = (signature.scalars(), signature.mini_batch() / size);
        let adds_up = signature.op == ConvOp::BackwardFilter && slices > 1;
        let scalars = [one, if adds_up { one } else { zero }];
        let arguments = Arguments::new(scalars, self.given.operands, workspace, workspace_bytes);
        let mut launch = || {
            let first = self.calls % slices * size;
            self.calls = self.calls.wrapping_add(1);
            let micro = self.pieces.micro(algorithm, size, first);
            micro.is_some_and(|micro| self.call.run_micro(&micro, &arguments) == SUCCESS)
        };
        let all_ms = self.clock.time_ms(|| (0..calls).all(|_| launch()))?;
        Some(all_ms / f64::from(calls))
    }

    /// Keeps the GPU busy before the first measurement of the process, with whatever runs.
    fn spin_up(&mut self) {
        static IS_BUSY: AtomicBool = AtomicBool::new(false);
        if IS_BUSY.swap(true, Relaxed) {
            return;
        }
        let (start, size) = (Instant::now(), self.pieces.signature.mini_batch());
        for algorithm in self.pieces.algorithms.clone() {
            let Some(workspace) = self.workspace(&algorithm, size) else { continue };
            while start.elapsed() < SPIN_UP && self.time_ms(&algorithm, size, workspace, 1).is_some() {}
        }
    }

    fn has_lost(&self, algorithm: &Algorithm) -> bool {
        let is_own = self.wanted.own.as_ref() == Some(algorithm);
        !is_own && self.behind.get(algorithm).is_some_and(|&times| times >= LOST.1)
    }

    /// Notes who is far behind at this size.
    fn note(&mut self, size: u32, rows: &[Measurement]) {
        let (factor, _, part) = LOST;
        for row in rows.iter().filter(|_| size * part >= self.pieces.signature.mini_batch()) {
            let times = self.behind.entry(row.algorithm.clone()).or_default();
            *times = if lag(row, rows) > factor { *times + 1 } else { 0 };
        }
    }
}

/// How many times as long it takes as the fastest of `rows` that needs no more workspace.
fn lag(row: &Measurement, rows: &[Measurement]) -> f64 {
    let rivals = rows.iter().filter(|other| other.workspace <= row.workspace);
    row.time_ms / rivals.map(|other| other.time_ms).fold(row.time_ms, f64::min)
}

impl Profiler for Bench<'_> {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let (size, is_for_all) = (request.micro_batch, request.algorithms.is_none());
        let signature = &self.pieces.signature;
        if size != signature.mini_batch() && !signature.is_aligned(size) {
            return Ok(Vec::new());
        }
        self.pieces.prepare(self.call, size).ok_or("cuDNN makes no descriptors")?;
        let mut rows = Vec::new();
        for algorithm in self.pieces.algorithms.clone() {
            if request.asks_for(algorithm.as_str()) && !(is_for_all && self.has_lost(&algorithm)) {
                rows.extend(self.trial(&algorithm, size, &rows));
            }
        }
        if is_for_all {
            self.note(size, &rows);
        }
        Ok(rows)
    }

    /// From the smallest size to the largest: the smaller ones, which cost little, tell which algorithms need not be tried
    /// at the larger ones.
    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        let whole = self.pieces.signature.mini_batch();
        if self.pieces.prepare(self.call, whole).is_some() {
            self.spin_up();
        }
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|&index| requests[index].micro_batch);
        for index in order {
            let served = self.measure(&requests[index]).and_then(|rows| done(index, rows));
            served.map_err(|source| RequestError { index, source })?;
        }
        Ok(())
    }
}
