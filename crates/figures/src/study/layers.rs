//! Where the memory of a training step goes: by layer, and over its steps.

use super::{LIMITS, Study, USUAL};
use crate::draw::{Axis, Bar, Drawn, Figure, Form, Panel, Tone};
use crate::plan::workspace_given;
use crate::schedule::action_name;
use crate::table::{Table, row};
use memory::{Action, Buffer, LayerMemory, Outline, Place, Schedule};
use planner::{BatchSizePolicy, Bytes, ConvOp, Plan, PlannedKernel};
use std::cmp::Reverse;

/// Most layers that are shown: those with the largest workspaces.
const MOST_LAYERS: usize = 12;

/// Parts of the memory over an iteration, from the lowest up.
const PARTS: [(Tone, &str); 4] = [
    (Tone::Grey, "weights, history"),
    (Tone::Blue, "data"),
    (Tone::Sky, "gradients"),
    (Tone::Orange, "workspace and scratch"),
];

/// Parts of a layer's memory: data with gradients, weights, and its workspace in two plans.
const KEY: [(Tone, &str); 4] = [
    (Tone::Blue, "data"),
    (Tone::Grey, "weights"),
    (Tone::Orange, "workspace, undivided"),
    (Tone::Yellow, "in micro-batches"),
];

/// A layer's name, its data with gradients, its weights, and its workspace: undivided with plenty, divided with little.
type LayerParts<'s> = (&'s str, [Bytes; 4]);

impl Study {
    /// Plans for every kernel undivided with plenty of workspace, and in micro-batches with little.
    pub(super) fn plenty_and_little(&self) -> Option<[Plan; 2]> {
        Some([self.limited(BatchSizePolicy::Undivided, LIMITS[2])?, self.limited(self.finest, USUAL)?])
    }

    /// The memory of each layer under these plans.
    fn layer_parts(&self) -> Option<Vec<LayerParts<'_>>> {
        let plans = self.plenty_and_little()?;
        let layers = self.layers.iter().map(|LayerMemory { name, data, diff, weights, .. }| {
            let own = |planned: &&PlannedKernel| planned.kernel.name == *name;
            let workspace = |plan: &Plan| plan.kernels.iter().filter(own).map(|k| k.workspace).max();
            let [plenty, little] = plans.each_ref().map(|plan| workspace(plan).unwrap_or_default());
            (name.as_str(), [*data + *diff, *weights, plenty, little])
        });
        Some(layers.collect())
    }

    /// The layer that micro-batches save most of, and how many times less memory it takes.
    pub(super) fn most_saved(&self) -> Option<(&str, f64)> {
        let saved = self.layer_parts()?.into_iter().map(|(name, [data, weights, plenty, little])| {
            let bytes = |workspace| (data + weights + workspace).0.max(1) as f64;
            (name, bytes(plenty) / bytes(little))
        });
        saved.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Data, workspace and weights of each layer: undivided with plenty of workspace, and in micro-batches with little.
    pub(super) fn layer_memory(&self) -> Option<Figure> {
        let ([plenty, little], mut layers) = (self.plenty_and_little()?, self.layer_parts()?);
        let mut data =
            Table::new("layer data_bytes weights_bytes undivided_workspace_bytes workspace_bytes".split(' '));
        for (name, [blobs, weights, plenty, little]) in &layers {
            row!(data; name, blobs, weights, plenty, little);
        }
        layers.sort_by_key(|&(_, [data, weights, plenty, _])| Reverse((plenty, data + weights)));
        layers.truncate(MOST_LAYERS);
        let (shown, limit, (best, saved)) = (layers.len(), LIMITS[2], self.most_saved()?);
        let [plenty_ms, little_ms] = [plenty.time_ms, little.time_ms];
        let caption = format!(
            "Data with gradients, weights and workspace of {shown} layers, those with the largest workspaces first. Upper \
             bars: undivided with up to {limit} for each kernel ({plenty_ms:.1} ms). Lower bars: micro-batches with up to \
             {USUAL} ({little_ms:.1} ms). Of all layers {best} saves most: it takes {saved:.2} times less."
        );
        let bar = |(name, parts): &LayerParts<'_>, bar: [usize; 3]| {
            Bar::of_parts(name, bar.map(|at| (parts[at].0 as f64, KEY[at].0, String::new())), "")
        };
        let bars = layers.iter().flat_map(|layer| [bar(layer, [0, 1, 2]), bar(layer, [0, 1, 3])]);
        let bars: Vec<Bar> = bars.collect();
        let panel = Panel::bars(|most| Axis::bytes_from_zero("memory", most), &bars, 27.0).with_key(KEY);
        Some(self.figure("memory", "Memory by layer", caption, vec![panel], data))
    }

    /// An iteration under `plan`, step by step: the time of convolutions, and what lies in memory.
    pub fn timeline_of(&self, plan: &Plan) -> Option<Figure> {
        let (outline, schedule) = (&self.outline, Schedule::plain(&self.outline));
        let columns = "step action convolution_ms kept_bytes data_bytes gradients_bytes workspace_bytes";
        let mut data = Table::new(columns.split(' '));
        // Of every step, how high its lowest parts reach.
        let (mut bars, mut heights) = (Vec::new(), Vec::new());
        for (step, &action) in schedule.actions.iter().enumerate() {
            let (ms, workspace) = convolution(outline, plan, action);
            let [kept, blobs, gradients, scratch] = alive(&schedule, step, workspace);
            row!(data; step, action_name(outline, action), ms, kept, blobs, gradients, scratch);
            let from = step as f64;
            bars.push(Drawn::new(Form::Bar, [[from + 0.08, 0.0], [from + 0.92, ms]], Tone::Green));
            let below = kept + blobs + gradients;
            heights.push([kept, kept + blobs, below, below + scratch]);
        }
        let (peak, [.., below, most]) = heights.iter().enumerate().max_by_key(|(_, parts)| parts[3])?;
        let name = action_name(outline, schedule.actions[peak]);
        // Lower parts cover what higher ones fill down to 0.
        let area = |(part, (tone, _)): (usize, &(Tone, &str))| {
            let over = |(step, parts): (usize, &[Bytes; 4])| {
                [0.0, 1.0].map(|side| [step as f64 + side, parts[part].0 as f64])
            };
            let upper = heights.iter().enumerate().flat_map(over);
            Drawn::new(Form::Area, upper.chain([[heights.len() as f64, 0.0], [0.0; 2]]), *tone)
        };
        let mut marks: Vec<Drawn> = PARTS.iter().enumerate().rev().map(area).collect();
        let above = [peak as f64 + 0.5, 1.05 * most.0 as f64];
        marks.push(Drawn::new(Form::Note, [above], Tone::Ink).named(format!("{name}: {most}")));
        let backward = schedule.actions.iter().position(|action| matches!(action, Action::Backward(_)))?;
        let passes = [(0.0, "forward".to_owned()), (backward as f64, "backward".to_owned())];
        let x = |title| Axis::new(title, [0.0, heights.len() as f64], passes.clone());
        let panels = vec![
            Panel::new(x(""), |most| Axis::from_zero("ms of convolution kernels", most), bars, 90.0),
            Panel::new(x("steps"), |most| Axis::bytes_from_zero("memory in use", 1.03 * most), marks, 190.0)
                .with_key(PARTS),
        ];
        let (steps, net, given) = (heights.len(), &self.title, workspace_given(&plan.options));
        let workspace = most.saturating_sub(*below);
        let caption = format!(
            "The {steps} steps of an iteration of {net} ({given}). At most {most} are in use, at step {peak} \
             ({name}); workspace is {workspace} of that."
        );
        let figure = self.figure("timeline", "An iteration step by step", caption, panels, data);
        Some(Figure { width: Figure::PAGE, ..figure })
    }
}

/// The planned time of a step's convolution kernels, and the workspace that they share, if it has any.
fn convolution(outline: &Outline, plan: &Plan, action: Action) -> (f64, Option<Bytes>) {
    let of_step = |PlannedKernel { kernel, .. }: &&PlannedKernel| {
        let pass = usize::from(kernel.id.op != ConvOp::Forward);
        action.pass().is_some_and(|(node, own)| own == pass && outline.nodes[node].name == kernel.name)
    };
    let kernels = || plan.kernels.iter().filter(of_step);
    (kernels().map(PlannedKernel::time_ms).sum(), kernels().map(|planned| planned.workspace).max())
}

/// What lies on the device at a step: what outlives it, data, gradients, workspace and scratch.
fn alive(schedule: &Schedule, step: usize, workspace: Option<Bytes>) -> [Bytes; 4] {
    let mut parts = [Bytes::ZERO; 4];
    for (buffer, residences) in &schedule.buffers {
        let part = match buffer {
            Buffer::Data(_) | Buffer::Saved(_) => 1,
            Buffer::Diff(_) | Buffer::Gradient(_) => 2,
            Buffer::Scratch(_) => 3,
            Buffer::Constant(_) | Buffer::Parameter(_) | Buffer::History(_) => 0,
        };
        let there = residences.iter().filter(|one| one.holds(step));
        parts[part] += there.filter(|one| one.place == Place::Device).map(|one| one.bytes).sum();
    }
    parts[3] = workspace.unwrap_or(parts[3]);
    parts
}
