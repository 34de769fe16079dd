//! Where everything lies: one arena for the nets of a solver, planned before anything is allocated.
//!
//! ```text
//! | parameters, state | gradients | history | constant inputs | transient: data, diffs, saved, scratch |
//!                     | that are kept; others are transient
//! ```
//!
//! Nets of one solver (training, testing) share parameters by name and, as they never run at the same time, the
//! transient part. What is offloaded lies in a slab of the host's memory, likewise shared.

use crate::action::{Buffer, Place, Residence};
use crate::outline::Outline;
use crate::placement::{lower_bound, place};
use crate::schedule::Schedule;
use planner::Bytes;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, iter::zip};

/// The whole arena.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaLayout {
    /// The places of every net, in the order given.
    pub nets: Vec<NetPlaces>,
    /// What it adds up to.
    pub report: MemoryReport,
}

/// Where one net's buffers lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetPlaces {
    /// Its schedule.
    pub schedule: Schedule,
    /// For each of the schedule's buffers, where each of its residences begins.
    pub offsets: Vec<Vec<Bytes>>,
}

/// What a net's transient buffers need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetMemory {
    /// Data of all blobs.
    pub data: Bytes,
    /// Gradients of all blobs.
    pub diff: Bytes,
    /// State kept from forward to backward.
    pub saved: Bytes,
    /// Scratch and workspace of all actions.
    pub scratch: Bytes,
    /// Gradients of parameters that are not kept.
    pub gradients: Bytes,
    /// What all of these take as places are shared: the size of the transient part.
    pub transient: Bytes,
    /// The most that is alive at any action: no placement is smaller.
    pub lower_bound: Bytes,
    /// The slab of host memory for what is offloaded.
    pub slab: Bytes,
}

/// The memory of a run, known before it is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Parameters and persistent state.
    pub parameters: Bytes,
    /// Their gradients that are kept.
    pub gradients: Bytes,
    /// The solver's history.
    pub history: Bytes,
    /// Inputs that are filled once.
    pub constants: Bytes,
    /// Mini-batches prepared ahead, in memory of their own.
    pub staged: Bytes,
    /// Each net's transient part.
    pub nets: Vec<NetMemory>,
    /// The arena and what counts with it: all of the above, of the transient parts the largest.
    pub arena: Bytes,
    /// Outside the arena: data sets in memory, mini-batches prepared ahead, what is offloaded.
    pub host: Bytes,
}

impl ArenaLayout {
    /// Lays out the nets of a solver, each with its schedule.
    pub fn new(nets: &[Outline], schedules: Vec<Schedule>) -> Self {
        let (kept, mut report) = kept(nets);
        let start = report.arena.saturating_sub(report.staged);
        let places = |(schedule, kept)| NetPlaces::new(schedule, kept, start);
        let (nets, memory): (Vec<_>, Vec<_>) = schedules.into_iter().zip(&kept).map(places).unzip();
        let largest = |part: fn(&NetMemory) -> Bytes| memory.iter().map(part).max().unwrap_or_default();
        report.arena += largest(|net| net.transient);
        report.host += largest(|net| net.slab);
        Self { nets, report: MemoryReport { nets: memory, ..report } }
    }

    /// The same where everything stays on the device.
    pub fn plain(nets: &[Outline]) -> Self {
        Self::new(nets, nets.iter().map(Schedule::plain).collect())
    }

    /// The arena without the transient part, which nets use in turn.
    pub fn base(nets: &[Outline]) -> Bytes {
        kept(nets).1.arena
    }
}

/// What outlives an iteration, side by side at the beginning of the arena: of every net where each buffer lies, and a
/// report on an arena without transient parts.
fn kept(nets: &[Outline]) -> (Vec<HashMap<Buffer, Bytes>>, MemoryReport) {
    let (mut end, mut sums) = (Bytes::ZERO, [Bytes::ZERO; 4]);
    let kept: Vec<[Vec<Buffer>; 4]> = nets.iter().map(Outline::kept).collect();
    let mut offsets: Vec<HashMap<Buffer, Bytes>> = vec![HashMap::new(); nets.len()];
    let mut shared: HashMap<(usize, &str), Bytes> = HashMap::new();
    for (part, sum) in sums.iter_mut().enumerate() {
        for ((net, kept), offsets) in nets.iter().zip(&kept).zip(&mut offsets) {
            for &buffer in &kept[part] {
                let mut new = || {
                    *sum += net.size(buffer);
                    take(&mut end, net.size(buffer))
                };
                let offset = match buffer {
                    Buffer::Parameter(id) | Buffer::Gradient(id) | Buffer::History(id) => {
                        *shared.entry((part, &net.params[id].name)).or_insert_with(new)
                    }
                    _ => new(),
                };
                offsets.insert(buffer, offset);
            }
        }
    }
    let [parameters, gradients, history, constants] = sums;
    let staged = nets.iter().map(|net| net.staged).sum();
    let report = MemoryReport {
        parameters,
        gradients,
        history,
        constants,
        staged,
        nets: Vec::new(),
        arena: end + staged,
        host: nets.iter().map(|net| net.host).sum(),
    };
    (offsets, report)
}

/// Where the next `bytes` begin.
fn take(end: &mut Bytes, bytes: Bytes) -> Bytes {
    let next = (*end + bytes).aligned();
    std::mem::replace(end, next)
}

impl NetPlaces {
    /// The places of a net's buffers, where these are `kept` and transient ones lie from `start` on.
    fn new(schedule: Schedule, kept: &HashMap<Buffer, Bytes>, start: Bytes) -> (Self, NetMemory) {
        let (buffers, residences) = schedule.transient(Place::Device);
        let is_scratch = |at: usize| matches!(buffers[at], Buffer::Scratch(_));
        // Placing scratch last may need more or less; a plan that was made for a budget fits it in one of the ways.
        let ways = [false, true].map(|last| place(&residences, |at| last && is_scratch(at), 0));
        let device = ways.into_iter().min_by_key(|way| way.len).expect("two");
        let slab = place(&schedule.transient(Place::Host).1, |_| false, 0);
        let mut next = [device.offsets.iter(), slab.offsets.iter()];
        let mut offset = |buffer: &Buffer, at: Place| match (kept.get(buffer), at) {
            (Some(&offset), _) => offset,
            (None, Place::Device) => start + Bytes(*next[0].next().expect("placed")),
            (None, Place::Host) => Bytes(*next[1].next().expect("placed")),
        };
        let all = schedule.buffers.iter();
        let offsets = all.map(|(buffer, all)| all.iter().map(|one| offset(buffer, one.place)).collect());
        let each = || buffers.iter().zip(&residences);
        let total = |kind: fn(&Buffer) -> bool| each().filter(|one| kind(one.0)).map(|one| one.1.bytes).sum();
        let report = NetMemory {
            data: total(|buffer| matches!(buffer, Buffer::Data(_))),
            diff: total(|buffer| matches!(buffer, Buffer::Diff(_))),
            saved: total(|buffer| matches!(buffer, Buffer::Saved(_))),
            scratch: total(|buffer| matches!(buffer, Buffer::Scratch(_))),
            gradients: total(|buffer| matches!(buffer, Buffer::Gradient(_))),
            transient: Bytes(device.len),
            lower_bound: Bytes(lower_bound(&residences)),
            slab: Bytes(slab.len),
        };
        (Self { offsets: offsets.collect(), schedule }, report)
    }

    /// The residences of `buffer`, each with where it begins.
    pub fn residences(&self, buffer: Buffer) -> impl DoubleEndedIterator<Item = (&Residence, Bytes)> {
        let found = self.schedule.find(buffer).into_iter();
        let places = |found: usize| zip(&self.schedule.buffers[found].1, &self.offsets[found]);
        found.flat_map(places).map(|(one, &offset)| (one, offset))
    }

    /// That in `place` at action `at`; nothing if `buffer` does not lie there.
    pub fn residence(&self, buffer: Buffer, place: Place, at: usize) -> Option<(&Residence, Bytes)> {
        // The last of them: an action that brings a buffer back, or fills it again, means what it fills.
        self.residences(buffer).rev().find(|(one, _)| one.place == place && one.holds(at))
    }
}
