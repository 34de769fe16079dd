//! Where the memory of a training step goes: by layer, and over its steps.

use super::{LIMITS, Study, USUAL};
use crate::draw::{Axis, Cell, Data, Figure, Mark, Panel, Tone};
use memory::{Buffer, Outline, Place, Schedule, Scratch};
use planner::{BatchSizePolicy, Bytes, ConvOp, Plan, PlannedKernel};

/// Most layers that are shown: the largest.
const MOST_LAYERS: usize = 12;

/// Parts of the memory over an iteration, from the lowest up.
const PARTS: [(&str, Tone); 4] = [
    ("weights, gradients, history", Tone::Grey),
    ("data", Tone::Blue),
    ("gradients of data", Tone::Sky),
    ("workspace and scratch", Tone::Orange),
];

impl Study<'_> {
    /// Data, workspace and weights of each layer: undivided with plenty of workspace, and in micro-batches with little.
    pub(super) fn layer_memory(&self) -> Option<Figure> {
        let plenty = self.limited(BatchSizePolicy::Undivided, LIMITS[2])?;
        let little = self.limited(BatchSizePolicy::All, USUAL)?;
        let workspace = |plan: &Plan, layer: &str| {
            let of = plan.kernels.iter().filter(|planned| planned.kernel.name == layer);
            of.map(|planned| planned.workspace).max().unwrap_or_default()
        };
        let mut data = Data::new(&[
            "layer",
            "data_bytes",
            "weights_bytes",
            "undivided_workspace_bytes",
            "micro_batched_workspace_bytes",
        ]);
        let mut layers = Vec::new();
        for layer in &self.layers {
            let (weights, blobs) = (layer.weights, layer.data + layer.diff);
            let workspaces = [&plenty, &little].map(|plan| workspace(plan, &layer.name));
            let name = layer.name.as_str();
            data.row([name.into(), blobs.into(), weights.into(), workspaces[0].into(), workspaces[1].into()]);
            layers.push((name, blobs, weights, workspaces));
        }
        let total = |layer: &(&str, Bytes, Bytes, [Bytes; 2])| layer.1 + layer.2 + layer.3[0];
        layers.sort_by_key(|layer| std::cmp::Reverse(total(layer)));
        layers.truncate(MOST_LAYERS);
        let most = layers.first().map(total)?;
        let mut marks = Vec::new();
        for (row, (_, blobs, weights, workspaces)) in layers.iter().enumerate() {
            for (half, workspace) in workspaces.iter().enumerate() {
                let y = [row as f64 + [-0.4, 0.02][half], row as f64 + [-0.02, 0.4][half]];
                let mut start = Bytes::ZERO;
                let tones = [Tone::Blue, Tone::Grey, [Tone::Orange, Tone::Yellow][half]];
                for (bytes, tone) in std::iter::zip([*blobs, *weights, *workspace], tones) {
                    let end = start + bytes;
                    marks.push(Mark::Bar {
                        x: [start.0 as f64, end.0 as f64],
                        y,
                        tone,
                        label: String::new(),
                    });
                    start = end;
                }
            }
        }
        // The layer that gains most.
        let less = |layer: &(&str, Bytes, Bytes, [Bytes; 2])| {
            let rest = (layer.1 + layer.2).0 as f64;
            (rest + layer.3[0].0 as f64) / (rest + layer.3[1].0 as f64)
        };
        let best = layers.iter().max_by(|a, b| less(a).total_cmp(&less(b)))?;
        let caption = format!(
            "Data with gradients, weights and workspace of the {} layers that take most. Upper bars: undivided with up to {} \
             for each kernel ({:.1} ms). Lower bars: micro-batches with up to {USUAL} ({:.1} ms). {} takes {:.2} times less.",
            layers.len(),
            LIMITS[2],
            plenty.time_ms,
            little.time_ms,
            best.0,
            less(best),
        );
        let key = [
            (Tone::Blue, "data"),
            (Tone::Grey, "weights"),
            (Tone::Orange, "workspace, undivided"),
            (Tone::Yellow, "in micro-batches"),
        ];
        let panel = Panel {
            x: Axis::bytes_from_zero("memory", most),
            y: Axis::names("", layers.iter().map(|layer| layer.0)).reversed(),
            marks,
            key: key.map(|(tone, name)| (tone, name.to_owned())).into(),
            height: 27.0 * layers.len() as f64,
        };
        let title = format!("Memory by layer: {}", self.subject());
        Some(Figure { data, ..self.figure("memory", title, caption, vec![panel]) })
    }

    /// An iteration, step by step: the time of convolutions, and what lies in memory.
    pub(super) fn timeline(&self) -> Option<Figure> {
        let plan = self.limited(BatchSizePolicy::All, USUAL)?;
        let outline = reserved(&self.outline, &plan);
        let schedule = Schedule::plain(&outline);
        let steps = schedule.actions.len();
        let mut data = Data::new(&[
            "step",
            "action",
            "convolution_ms",
            "kept_bytes",
            "data_bytes",
            "gradients_bytes",
            "workspace_bytes",
        ]);
        let (mut times, mut stacks) = (Vec::new(), Vec::new());
        for (step, &action) in schedule.actions.iter().enumerate() {
            let (name, ms) = named(&outline, &plan, action);
            let alive = alive(&schedule, step);
            let [kept, blobs, gradients, scratch] = alive.map(Cell::from);
            data.row([(step as u32).into(), name.into(), ms.into(), kept, blobs, gradients, scratch]);
            times.push(ms);
            stacks.push(alive);
        }
        let sum = |stack: &[Bytes; 4], parts: usize| stack[..parts].iter().copied().sum::<Bytes>();
        let peak = (0..steps).max_by_key(|&step| sum(&stacks[step], 4))?;
        let corner = |step: usize, parts: usize| {
            let height = sum(&stacks[step], parts).0 as f64;
            [[step as f64, height], [step as f64 + 1.0, height]]
        };
        let area = |part: usize| Mark::Area {
            outline: (0..steps)
                .flat_map(|step| corner(step, part + 1))
                .chain((0..steps).rev().flat_map(|step| corner(step, part).into_iter().rev()))
                .collect(),
            tone: PARTS[part].1,
        };
        let mut marks: Vec<Mark> = (0..PARTS.len()).map(area).collect();
        let most = sum(&stacks[peak], 4);
        let (name, _) = named(&outline, &plan, schedule.actions[peak]);
        let at = [peak as f64 + 0.5, most.0 as f64];
        marks.push(Mark::Above { at, tone: Tone::Ink, text: format!("{name}: {most}") });
        let bar = |(step, &ms): (usize, &f64)| Mark::Bar {
            x: [step as f64 + 0.08, step as f64 + 0.92],
            y: [0.0, ms],
            tone: Tone::Green,
            label: String::new(),
        };
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let backward =
            schedule.actions.iter().position(|action| matches!(action, memory::Action::Backward(_)))?;
        let ticks = vec![(0.0, "forward".to_owned()), (backward as f64, "backward".to_owned())];
        let x = |title: &str| Axis {
            range: [0.0, steps as f64],
            ticks: ticks.clone(),
            grid: true,
            ..Axis::names(title, [""])
        };
        let above = Panel {
            x: x(""),
            y: Axis::from_zero("ms of convolution kernels", slowest),
            marks: times.iter().enumerate().map(bar).collect(),
            key: Vec::new(),
            height: 90.0,
        };
        let below = Panel {
            x: x("steps of an iteration"),
            y: Axis::bytes_from_zero("memory in use", Bytes(most.0 / 100 * 108)),
            marks,
            key: PARTS.map(|(name, tone)| (tone, name.to_owned())).into(),
            height: 190.0,
        };
        let caption = format!(
            "The {steps} steps of an iteration of {}, planned with up to {USUAL} for each kernel. At most {most} are in use, \
             at step {peak} ({name}); workspace is {} of that.",
            self.title, stacks[peak][3]
        );
        let title = format!("An iteration step by step: {}", self.subject());
        let figure = self.figure("timeline", title, caption, vec![above, below]);
        Some(Figure { data, width: Figure::PAGE, ..figure })
    }
}

/// What a step is called, and the planned time of its convolution kernels.
fn named(outline: &Outline, plan: &Plan, action: memory::Action) -> (String, f64) {
    let ms = |node: usize, forward: bool| {
        let of_step = |planned: &&PlannedKernel| {
            planned.kernel.name == outline.nodes[node].name
                && (planned.kernel.id.op == ConvOp::Forward) == forward
        };
        plan.kernels.iter().filter(of_step).map(PlannedKernel::time_ms).sum()
    };
    match action {
        memory::Action::Forward(node) => (format!("{} forward", outline.nodes[node].name), ms(node, true)),
        memory::Action::Backward(node) => (format!("{} backward", outline.nodes[node].name), ms(node, false)),
        _ => ("update".to_owned(), 0.0),
    }
}

/// The net with the workspaces of a plan that shares them.
fn reserved(outline: &Outline, plan: &Plan) -> Outline {
    let mut outline = outline.clone();
    for node in &mut outline.nodes {
        for planned in plan.kernels.iter().filter(|planned| planned.kernel.name == node.name) {
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
