//! A total of workspace, divided among the convolutions that run on a GPU (WD), in memory of the library's own.
//!
//! A caller is told how much workspace to give for a convolution before it asks about the next one, and gives as much
//! from then on. So it is told to give none, and all is divided again whenever another convolution runs.

use crate::cudnn::{Owned, Raw, Status};
use crate::driver::{is_recording, memory, relaxed, stream_number};
use crate::shared::{lock, warn};
use crate::{call::Call, plan::Plan, report, settings::Settings};
use planner::{Bytes, Configuration, Cost, divide_exact};
use std::sync::{Arc, Mutex};
use std::{collections::BTreeMap, ffi::c_int, iter, sync::atomic::Ordering::Relaxed};

/// What a default of cuDNN takes, which nobody has measured: too long.
pub(crate) const DEFAULT_MS: f64 = 1e6;

/// The part of a convolution, which has one for each stream that it runs in: only a stream keeps its work in order.
struct Segment {
    plan: Arc<Plan>,
    stream: u64,
    /// What it takes without us, and without a segment.
    own_ms: f64,
    offset: usize,
    bytes: usize,
}

/// How the total is divided on a GPU.
#[derive(Default)]
struct Division {
    segments: Vec<Segment>,
    memory: Option<Owned>,
}

/// What is done on a GPU by one thread at a time. Those of another GPU do not wait, as measuring and dividing wait for
/// work of the caller, which may wait for that GPU's.
#[derive(Default)]
struct Gpu {
    measuring: Mutex<()>,
    division: Mutex<Division>,
}

fn gpu(device: c_int) -> Arc<Gpu> {
    static GPUS: Mutex<BTreeMap<c_int, Arc<Gpu>>> = Mutex::new(BTreeMap::new());
    Arc::clone(lock(&GPUS).entry(device).or_default())
}

/// Measures on a GPU. Those who do wait for each other, as two at a time would disturb each other.
pub(crate) fn in_turn<R>(device: c_int, work: impl FnOnce() -> R) -> R {
    let gpu = gpu(device);
    let _turn = lock(&gpu.measuring);
    relaxed(work)
}

/// Runs a plan in the workspace that its caller gives, or, of a total, in its segment, if it has one. Nothing if that
/// does not do, or if what the caller has without us, and takes `own_ms`, is faster there.
pub(crate) fn run(plan: &Arc<Plan>, mut call: Call, own_ms: f64) -> Option<Status> {
    let counted = |call| plan.run(call).inspect(|_| _ = plan.calls.fetch_add(1, Relaxed));
    let Some(total) = Settings::get().total else { return counted(call) };
    let gpu = gpu(plan.signature.device);
    // Held until the launch, so that nobody frees the segment before.
    let mut division = lock(&gpu.division);
    // What is captured may run at any later time, beside whatever has the same memory then: it has no segment.
    let stream = Some(call.stream()).filter(|&stream| !is_recording(stream)).and_then(stream_number);
    let segment = stream.and_then(|stream| division.segment(plan, stream, own_ms, total));
    call.workspace = segment.unwrap_or(call.workspace);
    plan.within(call.workspace.1).filter(|ours| ours.time_ms() <= own_ms)?;
    counted(call)
}

impl Division {
    /// Address and bytes of a convolution's segment. Divides anew if it has none yet.
    fn segment(&mut self, plan: &Arc<Plan>, stream: u64, own_ms: f64, total: Bytes) -> Option<(Raw, usize)> {
        let is_it = |known: &Segment| known.stream == stream && known.plan.signature == plan.signature;
        let place = self.segments.iter().position(is_it).unwrap_or_else(|| {
            self.segments.push(Segment { plan: Arc::clone(plan), stream, own_ms, offset: 0, bytes: 0 });
            relaxed(|| self.divide(total));
            self.segments.len() - 1
        });
        let (segment, memory) = (&self.segments[place], self.memory.as_ref()?);
        Some((memory.raw.wrapping_byte_add(segment.offset), segment.bytes))
    }

    /// Divides the total for the least sum of all times, in new memory.
    fn divide(&mut self, total: Bytes) {
        let choices = |segment: &Segment| {
            let ours = segment.plan.front.iter().map(Configuration::cost);
            let ours = ours.map(|ours| Cost { workspace: ours.workspace.aligned(), ..ours });
            iter::once(Cost { time_ms: segment.own_ms, workspace: Bytes(0) }).chain(ours).collect()
        };
        let groups: Vec<Vec<Cost>> = self.segments.iter().map(choices).collect();
        // Everyone can do with nothing.
        let picks = divide_exact(&groups, total).map_or_else(Vec::new, |division| division.picks);
        let mut end = 0;
        for ((segment, choices), pick) in self.segments.iter_mut().zip(groups).zip(picks) {
            (segment.offset, segment.bytes) = (end, choices[pick].workspace.0 as usize);
            end += segment.bytes;
            let ours = segment.plan.within(segment.bytes).filter(|ours| ours.time_ms() <= segment.own_ms);
            report::divided(&segment.plan.signature, ours);
        }
        // To free the old memory waits for what still works on it.
        self.memory = None;
        self.memory = memory(end);
        if self.memory.is_none() {
            warn("convolutions run without workspace: the GPU has no room for the total");
        }
    }
}
