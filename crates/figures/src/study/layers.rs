//! Where the memory of a training step goes: by layer, and over its steps.

use super::{LIMITS, Study, USUAL};
use crate::{
    draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row},
    schedule::action_name,
};
use memory::{Action, Buffer, LayerMemory, Outline, Place, Schedule, Scratch};
use planner::{BatchSizePolicy, Bytes, ConvOp, Kernel, Plan, PlannedKernel};

/// Most layers that are shown: the largest.
const MOST_LAYERS: usize = 12;

/// Parts of the memory over an iteration, from the lowest up.
const PARTS: [(&str, Tone); 4] = [
    ("weights, gradients, history", Tone::Grey),
    ("data", Tone::Blue),
    ("gradients of data", Tone::Sky),
    ("workspace and scratch", Tone::Orange),
];

/// A layer's data with gradients, its weights, and its workspace: undivided with plenty, and in micro-batches with little.
pub(super) struct LayerParts<'s> {
    name: &'s str,
    data: Bytes,
    weights: Bytes,
    workspaces: [Bytes; 2],
}

impl LayerParts<'_> {
    fn total(&self, plan: usize) -> Bytes {
        self.data + self.weights + self.workspaces[plan]
    }

    /// How many times less micro-batches take.
    pub(super) fn less(&self) -> f64 {
        self.total(0).0 as f64 / self.total(1).0.max(1) as f64
    }
}

impl Study {
    /// Plans for every kernel undivided with plenty of workspace, and in micro-batches with little.
    pub(super) fn plenty_and_little(&self) -> Option<[Plan; 2]> {
        Some([self.limited(BatchSizePolicy::Undivided, LIMITS[2])?, self.limited(self.finest, USUAL)?])
    }

    /// The memory of each layer under two plans.
    pub(super) fn layer_parts(&self, plans: &[Plan; 2]) -> Vec<LayerParts<'_>> {
        let parts = |layer: &'_ LayerMemory| {
            let own = |planned: &&PlannedKernel| planned.kernel.name == layer.name;
            plans
                .each_ref()
                .map(|plan| plan.kernels.iter().filter(own).map(|k| k.workspace).max().unwrap_or_default())
        };
        let layers = self.layers.iter().map(|layer| {
            let (data, weights, workspaces) = (layer.data + layer.diff, layer.weights, parts(layer));
            LayerParts { name: &layer.name, data, weights, workspaces }
        });
        layers.collect()
    }

    /// Data, workspace and weights of each layer: undivided with plenty of workspace, and in micro-batches with little.
    pub(super) fn layer_memory(&self) -> Option<Figure> {
        let plans = self.plenty_and_little()?;
        let mut layers = self.layer_parts(&plans);
        let mut data = Data::new("layer data_bytes weights_bytes undivided_workspace_bytes workspace_bytes");
        for LayerParts { name, data: blobs, weights, workspaces } in &layers {
            row!(data; name, blobs, weights, workspaces[0], workspaces[1]);
        }
        layers.sort_by_key(|layer| std::cmp::Reverse((layer.workspaces[0], layer.total(0))));
        layers.truncate(MOST_LAYERS);
        let most = layers.iter().map(|layer| layer.total(0)).max()?;
        let mut marks = Vec::new();
        for (place, layer) in layers.iter().enumerate() {
            for (half, workspace) in layer.workspaces.into_iter().enumerate() {
                let y = [place as f64 + [-0.4, 0.02][half], place as f64 + [-0.02, 0.4][half]];
                let tones = [Tone::Blue, Tone::Grey, [Tone::Orange, Tone::Yellow][half]];
                let mut start = 0.0;
                for (bytes, tone) in std::iter::zip([layer.data, layer.weights, workspace], tones) {
                    let end = start + bytes.0 as f64;
                    marks.push(Drawn::bar([start, end], y, tone));
                    start = end;
                }
            }
        }
        let best = layers.iter().max_by(|a, b| a.less().total_cmp(&b.less()))?;
        let caption = format!(
            "Data with gradients, weights and workspace of the {} layers with the largest workspaces. Upper bars: undivided with up to {} \
             for each kernel ({:.1} ms). Lower bars: micro-batches with up to {USUAL} ({:.1} ms). {} takes {:.2} times less.",
            layers.len(),
            LIMITS[2],
            plans[0].time_ms,
            plans[1].time_ms,
            best.name,
            best.less(),
        );
        let key = [
            (Tone::Blue, "data"),
            (Tone::Grey, "weights"),
            (Tone::Orange, "workspace, undivided"),
            (Tone::Yellow, "in micro-batches"),
        ];
        let names = Axis::names("", layers.iter().map(|layer| layer.name)).reversed();
        let height = 27.0 * layers.len() as f64;
        let panel = Panel::new(Axis::bytes_from_zero("memory", most), names, marks, height).with_key(key);
        Some(self.figure("memory", "Memory by layer", caption, vec![panel], data))
    }

    /// An iteration under the usual limit.
    pub(super) fn timeline(&self) -> Option<Figure> {
        self.timeline_of(&self.limited(self.finest, USUAL)?)
    }

    /// An iteration under `plan`, step by step: the time of convolutions, and what lies in memory.
    pub fn timeline_of(&self, plan: &Plan) -> Option<Figure> {
        let outline = reserved(&self.outline, plan);
        let schedule = Schedule::plain(&outline);
        let steps = schedule.actions.len();
        let mut data =
            Data::new("step action convolution_ms kept_bytes data_bytes gradients_bytes workspace_bytes");
        let (mut times, mut stacks) = (Vec::new(), Vec::new());
        for (step, &action) in schedule.actions.iter().enumerate() {
            let (name, ms) = (action_name(&outline, action), convolution_ms(&outline, plan, action));
            let [kept, blobs, gradients, scratch] = alive(&schedule, step);
            row!(data; step, name, ms, kept, blobs, gradients, scratch);
            times.push(ms);
            stacks.push([kept, blobs, gradients, scratch]);
        }
        let sum = |step: usize, parts: usize| stacks[step][..parts].iter().copied().sum::<Bytes>();
        let peak = (0..steps).max_by_key(|&step| sum(step, 4))?;
        let corner = |step: usize, parts: usize| {
            let height = sum(step, parts).0 as f64;
            [[step as f64, height], [step as f64 + 1.0, height]]
        };
        let area = |part: usize| {
            let upper = (0..steps).flat_map(|step| corner(step, part + 1));
            let lower = (0..steps).rev().flat_map(|step| corner(step, part).into_iter().rev());
            Drawn::new(Form::Area, upper.chain(lower).collect::<Vec<_>>(), PARTS[part].1)
        };
        let mut marks: Vec<Drawn> = (0..PARTS.len()).map(area).collect();
        let most = sum(peak, 4);
        let name = action_name(&outline, schedule.actions[peak]);
        marks.push(Drawn::text(Form::Above, [peak as f64 + 0.5, most.0 as f64], format!("{name}: {most}")));
        let bar = |(step, &ms): (usize, &f64)| {
            Drawn::bar([step as f64 + 0.08, step as f64 + 0.92], [0.0, ms], Tone::Green)
        };
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let backward = schedule.actions.iter().position(|action| matches!(action, Action::Backward(_)))?;
        let x = |title: &str| {
            let ticks = vec![(0.0, "forward".to_owned()), (backward as f64, "backward".to_owned())];
            Axis { range: [0.0, steps as f64], ticks, grid: true, ..Axis::names(title, [""]) }
        };
        let bars = times.iter().enumerate().map(bar).collect();
        let memory = Axis::bytes_from_zero("memory in use", Bytes(most.0 / 100 * 108));
        let panels = vec![
            Panel::new(x(""), Axis::from_zero("ms of convolution kernels", slowest), bars, 90.0),
            Panel::new(x("steps of an iteration"), memory, marks, 190.0)
                .with_key(PARTS.map(|(name, tone)| (tone, name))),
        ];
        let caption = format!(
            "The {steps} steps of an iteration of {}, planned with at most {}. At most {most} are in use, at step {peak} \
             ({name}); workspace is {} of that.",
            self.title, plan.options.limit, stacks[peak][3]
        );
        let figure = self.figure("timeline", "An iteration step by step", caption, panels, data);
        Some(Figure { width: Figure::PAGE, ..figure })
    }
}

/// The planned time of a step's convolution kernels.
fn convolution_ms(outline: &Outline, plan: &Plan, action: Action) -> f64 {
    let Some((node, pass)) = action.pass() else { return 0.0 };
    let of_step = |planned: &&PlannedKernel| {
        let Kernel { name, id, .. } = &planned.kernel;
        *name == outline.nodes[node].name && usize::from(id.op != ConvOp::Forward) == pass
    };
    plan.kernels.iter().filter(of_step).map(PlannedKernel::time_ms).sum()
}

/// The net with the workspaces of a plan that shares them.
fn reserved(outline: &Outline, plan: &Plan) -> Outline {
    let mut outline = outline.clone();
    for node in &mut outline.nodes {
        let own = || plan.kernels.iter().filter(|planned| planned.kernel.name == node.name);
        if own().next().is_some() {
            node.scratch = [Scratch::default(); 2];
        }
        for planned in own() {
            let pass = usize::from(planned.kernel.id.op != ConvOp::Forward);
            node.scratch[pass] = Scratch::Transient(node.scratch[pass].bytes().max(planned.workspace));
        }
    }
    outline
}

/// What lies on the device at a step: what outlives it, data, their gradients, workspace and scratch.
fn alive(schedule: &Schedule, step: usize) -> [Bytes; 4] {
    let mut parts = [Bytes::ZERO; 4];
    for (buffer, residences) in &schedule.buffers {
        let part = match buffer {
            Buffer::Data(_) | Buffer::Saved(_) => 1,
            Buffer::Diff(_) => 2,
            Buffer::Scratch(_) => 3,
            _ => 0,
        };
        // What outlives an iteration is there from its beginning to its end.
        let there =
            residences.iter().filter(|one| one.place == Place::Device && (part == 0 || one.holds(step)));
        parts[part] += there.map(|one| one.bytes).sum();
    }
    parts
}
