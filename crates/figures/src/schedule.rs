//! What a policy for memory makes of an iteration.

use crate::number::{bytes, ms};
use crate::table::Table;
use memory::policy::{Fate, MemoryPlan};
use memory::{Action, Buffer, Outline, OutlineNode, StreamKind};
use planner::Bytes;
use serde::Serialize;
use std::fmt;

/// An iteration under a policy for memory: what stays on the device, what leaves it, and when everything runs.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleReport {
    /// The policy.
    pub policy: String,
    /// The budget of device memory.
    pub budget: Bytes,
    /// What the plan takes of it.
    pub arena: Bytes,
    /// What it takes of the host's memory for what is offloaded.
    pub host: Bytes,
    /// How the times of layers and copies were estimated, if they were not measured.
    pub estimate: Option<String>,
    /// Planned time of an iteration, in milliseconds.
    pub planned_ms: f64,
    /// No plan of this kind is faster, in milliseconds; absent where that is not known.
    pub bound_ms: Option<f64>,
    /// The time in any amount of memory, in milliseconds.
    pub unlimited_ms: f64,
    /// How long computation waits for copies, in milliseconds.
    pub stall_ms: f64,
    /// How long copies to the host and back take, in milliseconds.
    pub copying_ms: [f64; 2],
    /// The share of the iteration that each direction is busy.
    pub occupancy: [f64; 2],
    /// What is computed again takes so long, in milliseconds.
    pub recomputing_ms: f64,
    /// Of every layer whose data, or what it keeps, backward passes see again.
    pub layers: Vec<LayerFate>,
    /// Every action in order of launch.
    pub actions: Vec<ActionSpan>,
}

/// What becomes of what a layer makes, until backward passes see it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LayerFate {
    /// The layer.
    pub layer: String,
    /// What stays on the device.
    pub kept: Bytes,
    /// What is copied to the host and back.
    pub offloaded: Bytes,
    /// What is given up and computed again.
    pub recomputed: Bytes,
}

/// When an action runs, planned or measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ActionSpan {
    /// What is done, as in `backward conv1`.
    pub name: String,
    /// The stream that does it.
    pub stream: StreamKind,
    /// Its start from the beginning of the iteration, in milliseconds.
    pub start_ms: f64,
    /// Its end.
    pub end_ms: f64,
    /// What of the iteration is alive on the device meanwhile, if that is known.
    pub alive: Option<Bytes>,
}

impl ScheduleReport {
    /// Describes `plan`, which the policy of this name has made within `budget`, of which the rest takes `base`.
    pub fn new(policy: String, [budget, base]: [Bytes; 2], outline: &Outline, plan: &MemoryPlan) -> Self {
        let timeline = &plan.timeline;
        let spans = || std::iter::zip(&plan.actions, &timeline.spans_ms);
        let actions = spans().zip(&timeline.alive).map(|((&action, &span_ms), &alive)| {
            ActionSpan::new(outline, action, span_ms, Some(base + alive))
        });
        let repeated = spans().filter(|(action, _)| matches!(action, Action::Recompute(_)));
        let planned_ms = plan.planned_ms();
        Self {
            policy,
            budget,
            arena: base + plan.device,
            host: plan.host,
            estimate: None,
            planned_ms,
            bound_ms: Some(plan.bound_ms).filter(|&bound_ms| bound_ms > 0.0),
            unlimited_ms: planned_ms,
            stall_ms: timeline.stall_ms,
            copying_ms: timeline.copying_ms,
            occupancy: timeline.copying_ms.map(|copying_ms| copying_ms / planned_ms.max(f64::MIN_POSITIVE)),
            recomputing_ms: repeated.fold(0.0, |sum_ms, (_, [start_ms, end_ms])| sum_ms + end_ms - start_ms),
            layers: layers(outline, plan),
            actions: actions.collect(),
        }
    }
}

fn layers(outline: &Outline, plan: &MemoryPlan) -> Vec<LayerFate> {
    let layer = |node: &OutlineNode| LayerFate { layer: node.name.clone(), ..LayerFate::default() };
    let mut layers: Vec<LayerFate> = outline.nodes.iter().map(layer).collect();
    for &(buffer, bytes, fate) in &plan.fates {
        let layer = &mut layers[maker(outline, buffer)];
        let sum = match fate {
            Fate::Kept => &mut layer.kept,
            Fate::Offloaded => &mut layer.offloaded,
            Fate::Recomputed => &mut layer.recomputed,
        };
        *sum += bytes;
    }
    layers.retain(|layer| layer.kept + layer.offloaded + layer.recomputed > Bytes::ZERO);
    layers
}

/// The node that makes `buffer`, if it may leave the device.
fn maker(outline: &Outline, buffer: Buffer) -> usize {
    match buffer {
        Buffer::Data(value) | Buffer::Diff(value) | Buffer::Constant(value) => outline.values[value].producer,
        Buffer::Saved(node) | Buffer::Scratch(node) => node,
        Buffer::Parameter(_) | Buffer::Gradient(_) | Buffer::History(_) => 0,
    }
}

impl ActionSpan {
    /// That of an action of a net with this outline.
    pub fn new(outline: &Outline, action: Action, span_ms: [f64; 2], alive: Option<Bytes>) -> Self {
        let [start_ms, end_ms] = span_ms;
        Self { name: action_name(outline, action), stream: action.stream(), start_ms, end_ms, alive }
    }
}

/// What an action does, in words.
pub(crate) fn action_name(outline: &Outline, action: Action) -> String {
    let of = |what: &str, node: usize| format!("{what} {}", outline.nodes[node].name);
    match action {
        Action::Forward(node) => of("forward", node),
        Action::Backward(node) => of("backward", node),
        Action::Recompute(node) => of("forward again", node),
        Action::Update(0, _) => "update".to_owned(),
        Action::Update(first, _) => format!("update from {} on", outline.params[first].name),
        Action::Offload(buffer) => of("offload", maker(outline, buffer)),
        Action::Prefetch(buffer) => of("prefetch", maker(outline, buffer)),
        Action::Hold(buffer) => of("wait for", maker(outline, buffer)),
    }
}

impl fmt::Display for ScheduleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, budget, arena, host, planned_ms, unlimited_ms, copying_ms, occupancy, .. } = self;
        write!(f, "Memory policy {policy} in {budget}: ")?;
        writeln!(f, "the plan takes {arena}, and {host} of the host's memory")?;
        self.estimate.iter().try_for_each(|estimate| writeln!(f, "  {estimate}"))?;
        let bound = match self.bound_ms {
            Some(bound_ms) => format!("no plan of this kind is faster than {bound_ms:.1} ms"),
            None => "how much faster another plan could be is not known".to_owned(),
        };
        writeln!(f, "  planned {planned_ms:.1} ms, {bound}; in any amount of memory {unlimited_ms:.1} ms")?;
        let sum = |of: fn(&LayerFate) -> Bytes| self.layers.iter().map(of).sum::<Bytes>();
        let (kept, offloaded) = (sum(|layer| layer.kept), sum(|layer| layer.offloaded));
        write!(f, "  of what backward passes see again {kept} stay, {offloaded} are offloaded, ")?;
        let recomputed = sum(|layer| layer.recomputed);
        writeln!(f, "{recomputed} are computed again in {:.1} ms", self.recomputing_ms)?;
        let way = |way: usize| format!("{:.1} ms ({:.0} %)", copying_ms[way], 100.0 * occupancy[way]);
        let ([out, back], waits) = ([0, 1].map(way), ms(self.stall_ms));
        writeln!(f, "  copies to the host {out}, back {back}; computation waits {waits} ms for them")?;
        let mut table = Table::new(["layer", ">kept", ">offloaded", ">computed again"]);
        for LayerFate { layer, kept, offloaded, recomputed } in &self.layers {
            table.row([layer.clone(), bytes(*kept), bytes(*offloaded), bytes(*recomputed)]);
        }
        write!(f, "{table}")
    }
}
