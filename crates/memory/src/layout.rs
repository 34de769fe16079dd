//! Where everything lies: one arena for the nets of a solver, planned before anything is allocated.
//!
//! ```text
//! | parameters, state | gradients | history | constant inputs | WD segments | transient: data, diffs, saved, scratch |
//!                     | that are kept; others are transient
//! ```
//!
//! Nets of one solver (training, testing) share parameters by name and, as they never run at the same time, the
//! transient part. What is offloaded lies in a slab of the host's memory, likewise shared.

use crate::action::{Buffer, Place};
use crate::outline::{Outline, OutlineParam, Scratch};
use crate::placement::{lower_bound, place};
use crate::schedule::{Schedule, scratch};
use planner::{ARENA_ALIGNMENT, Bytes};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Some bytes of the arena, or of the host's slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spot {
    /// The first.
    pub offset: Bytes,
    /// How many.
    pub bytes: Bytes,
}

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
    /// The segments of WD, by action.
    segments: HashMap<usize, Spot>,
    /// How its transient buffers add up.
    pub report: NetMemory,
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
    /// The segments of WD: each kernel's own workspace.
    pub segments: Bytes,
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
        let (kept, mut report) = Kept::new(nets);
        let places = |(index, schedule)| NetPlaces::new(&nets[index], schedule, &kept, index);
        let nets: Vec<NetPlaces> = schedules.into_iter().enumerate().map(places).collect();
        report.nets = nets.iter().map(|net| net.report).collect();
        let largest = |part: fn(&NetMemory) -> Bytes| report.nets.iter().map(part).max().unwrap_or_default();
        report.arena = kept.end() + report.staged + largest(|net| net.transient);
        report.host += largest(|net| net.slab);
        Self { nets, report }
    }

    /// The same where everything stays on the device.
    pub fn plain(nets: &[Outline]) -> Self {
        Self::new(nets, nets.iter().map(Schedule::plain).collect())
    }

    /// The arena without the transient part, which nets use in turn.
    pub fn base(nets: &[Outline]) -> Bytes {
        let (kept, report) = Kept::new(nets);
        kept.end() + report.staged
    }
}

/// What outlives an iteration, and the segments of WD, side by side at the beginning of the arena.
struct Kept<'a> {
    nets: &'a [Outline],
    /// By name: data, gradient, history.
    params: HashMap<&'a str, [Option<Spot>; 3]>,
    /// Of every net, by value.
    constants: Vec<HashMap<usize, Spot>>,
    segments: Spot,
}

impl<'a> Kept<'a> {
    fn new(nets: &'a [Outline]) -> (Self, MemoryReport) {
        let mut end = Bytes::ZERO;
        let mut params: HashMap<&str, [Option<Spot>; 3]> = HashMap::new();
        let all = || nets.iter().flat_map(|net| net.params.iter().map(move |param| (net, param)));
        for part in 0..3 {
            for (net, param) in all() {
                let OutlineParam { bytes, copy, trained, history, .. } = *param;
                let is_wanted = [true, trained && net.keeps_gradients, trained && net.updates][part];
                let place = &mut params.entry(&param.name).or_default()[part];
                if is_wanted && place.is_none() {
                    *place = Some(take(&mut end, [bytes + copy, bytes, history][part]));
                }
            }
        }
        let part = |part: usize| params.values().filter_map(|spots| spots[part]).map(|spot| spot.bytes).sum();
        let [parameters, gradients, history] = [0, 1, 2].map(part);
        let constants = |net: &Outline| {
            let values = net.values.iter().enumerate().filter(|(_, value)| value.constant);
            values.map(|(id, value)| (id, take(&mut end, value.bytes))).collect()
        };
        let constants: Vec<HashMap<usize, Spot>> = nets.iter().map(constants).collect();
        // Segments of different nets may overlap: the nets never run together.
        let segments = take(&mut end, nets.iter().map(Outline::segments).max().unwrap_or_default());
        let report = MemoryReport {
            parameters,
            gradients,
            history,
            constants: constants.iter().flat_map(HashMap::values).map(|spot| spot.bytes).sum(),
            segments: segments.bytes,
            staged: nets.iter().map(|net| net.staged).sum(),
            host: nets.iter().map(|net| net.host).sum(),
            ..MemoryReport::default()
        };
        (Self { nets, params, constants, segments }, report)
    }

    fn end(&self) -> Bytes {
        (self.segments.offset + self.segments.bytes).align_up(ARENA_ALIGNMENT)
    }

    /// Where `buffer` of net number `net` lies, if it outlives an iteration.
    fn spot(&self, net: usize, buffer: Buffer) -> Option<Spot> {
        let param = |id: usize, part: usize| self.params[self.nets[net].params[id].name.as_str()][part];
        match buffer {
            Buffer::Constant(id) => self.constants[net].get(&id).copied(),
            Buffer::Parameter(id) => param(id, 0),
            Buffer::Gradient(id) => param(id, 1),
            Buffer::History(id) => param(id, 2),
            _ => None,
        }
    }
}

fn take(end: &mut Bytes, bytes: Bytes) -> Spot {
    let spot = Spot { offset: *end, bytes };
    *end = (*end + bytes).align_up(ARENA_ALIGNMENT);
    spot
}

impl NetPlaces {
    fn new(net: &Outline, schedule: Schedule, kept: &Kept<'_>, index: usize) -> Self {
        let (buffers, residences) = schedule.transient(Place::Device);
        let is_scratch = |at: usize| matches!(buffers[at], Buffer::Scratch(_));
        // Placing scratch last may need more or less; a plan that was made for a budget fits it in one of the ways.
        let ways = [false, true].map(|last| place(&residences, |at| last && is_scratch(at), 0));
        let device = ways.into_iter().min_by_key(|way| way.len).expect("two");
        let slab = place(&schedule.transient(Place::Host).1, |_| false, 0);
        let mut next = [device.offsets.iter(), slab.offsets.iter()];
        let base = kept.end();
        let mut offset = |buffer: Buffer, at: Place| match (kept.spot(index, buffer), at) {
            (Some(spot), _) => spot.offset,
            (None, Place::Device) => base + Bytes(*next[0].next().expect("placed")),
            (None, Place::Host) => Bytes(*next[1].next().expect("placed")),
        };
        let all = schedule.buffers.iter();
        let offsets = all.map(|(buffer, all)| all.iter().map(|one| offset(*buffer, one.place)).collect());
        let segments = schedule.actions.iter().enumerate().filter_map(|(at, &action)| {
            let Scratch::Segment { offset, bytes } = scratch(net, action) else { return None };
            Some((at, Spot { offset: kept.segments.offset + offset, bytes }))
        });
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
        Self { offsets: offsets.collect(), segments: segments.collect(), report, schedule }
    }

    /// Where `buffer` lies at first.
    pub fn first_spot(&self, buffer: Buffer) -> Option<Spot> {
        let found = self.schedule.find(buffer)?;
        let bytes = self.schedule.buffers[found].1.first()?.bytes;
        Some(Spot { offset: *self.offsets[found].first()?, bytes })
    }

    /// Where `buffer` lies in `place` at action `at`; nothing if it does not.
    pub fn spot(&self, buffer: Buffer, place: Place, at: usize) -> Option<Spot> {
        if let (Buffer::Scratch(action), Some(segment)) = (buffer, self.segments.get(&at)) {
            return (action == at).then_some(*segment);
        }
        let found = self.schedule.find(buffer)?;
        let residences = self.schedule.buffers[found].1.iter().zip(&self.offsets[found]);
        // The last of them: an action that brings a buffer back, or fills it again, means what it fills.
        let mut there = residences.rev().filter(|(one, _)| one.place == place && one.holds(at));
        there.next().map(|(residence, &offset)| Spot { offset, bytes: residence.bytes })
    }
}
