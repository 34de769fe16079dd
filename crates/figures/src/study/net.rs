//! A whole net: policies and limits, the price of a MiB, one total shared or divided.

use super::{LIMITS, Study, USUAL, tone};
use crate::{
    draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row, steps},
    times,
};
use planner::{BatchSizePolicy, Bytes, ConvOp, Plan, PlannedKernel, WorkspacePolicy};
use std::cmp::Reverse;

/// Most layers that have a colour each.
const MOST_LAYERS: usize = 6;

/// What the vertical axis of a net says.
const ALL_MS: &str = "ms, all convolution kernels of an iteration";

/// Three ways to give a total, and what there is without micro-batches.
const WAYS: [(&str, BatchSizePolicy, WorkspacePolicy, Tone); 4] = [
    ("WR, undivided", BatchSizePolicy::Undivided, WorkspacePolicy::Wr, Tone::Orange),
    ("WR", BatchSizePolicy::All, WorkspacePolicy::Wr, Tone::Sky),
    ("WD", BatchSizePolicy::All, WorkspacePolicy::Wd, Tone::Blue),
    ("one arena", BatchSizePolicy::All, WorkspacePolicy::Ws, Tone::Green),
];

impl Study {
    /// Every limit under every policy, stacked by layer, or by operation in deep nets.
    pub(super) fn sizes(&self) -> Option<Figure> {
        let parts = self.parts();
        let mut data = Data::new("limit_bytes policy part time_ms");
        let (mut marks, mut ticks, mut most, mut sentences) = (Vec::new(), Vec::new(), 0.0_f64, Vec::new());
        let wide = self.policies().len() as f64 + 0.6;
        for (group, limit) in LIMITS.into_iter().enumerate() {
            let mut undivided_ms = f64::NAN;
            for (within, &policy) in self.policies().iter().enumerate() {
                let bar = group as f64 * wide + within as f64;
                let name = ["undi-\nvided", "power\nOfTwo", "all"][within];
                ticks.push((bar, if within == 1 { format!("{name}\n{limit}") } else { name.to_owned() }));
                let Some(plan) = self.limited(policy, limit) else { continue };
                let mut top = 0.0;
                for (place, part) in parts.iter().enumerate() {
                    let belongs =
                        |k: &&PlannedKernel| k.kernel.name == *part || k.kernel.id.op.to_string() == *part;
                    let ms: f64 = plan.kernels.iter().filter(belongs).map(PlannedKernel::time_ms).sum();
                    row!(data; limit, policy.to_string(), part, ms);
                    marks.push(Drawn::bar([bar - 0.42, bar + 0.42], [top, top + ms], Tone::of(place)));
                    top += ms;
                }
                most = most.max(top);
                match policy {
                    BatchSizePolicy::Undivided => undivided_ms = plan.time_ms,
                    _ => marks.push(Drawn::text(Form::Above, [bar, top], times(undivided_ms / plan.time_ms))),
                }
                if policy == self.finest {
                    sentences.push(format!("{} at {limit}", times(undivided_ms / plan.time_ms)));
                }
            }
        }
        let x = Axis { ticks, range: [-0.6, 3.0 * wide - 1.0], ..Axis::names("limit of each kernel", [""]) };
        let key = parts.iter().enumerate().map(|(place, name)| (Tone::of(place), name.as_str()));
        let panel = Panel::new(x, Axis::from_zero(ALL_MS, most * 1.05), marks, 240.0).with_key(key);
        let caption = format!(
            "All convolution kernels of {} under three limits. Micro-batches gain {} ({}).",
            self.title,
            sentences.join(", "),
            self.finest
        );
        Some(self.figure("sizes", "Three limits, with and without micro-batches", caption, vec![panel], data))
    }

    /// What bars are stacked of: layers, or operations if there are many layers.
    fn parts(&self) -> Vec<String> {
        match self.convolutions() {
            layers if layers.len() > MOST_LAYERS => ConvOp::ALL.map(|op| op.to_string()).into(),
            layers => layers.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Time over the limit of each kernel, and what a MiB more would save.
    pub(super) fn limits(&self) -> Option<Figure> {
        let range = [Bytes::mib(1), Bytes::mib(8192)];
        let mut data = Data::new("policy limit_bytes time_ms price_ms_per_mib");
        let (mut falls, mut prices, mut most, mut dearest) = (Vec::new(), Vec::new(), 0.0_f64, 1.0_f64);
        let mut curves = Vec::new();
        for &policy in self.policies() {
            let curve = self.fronts(&self.kernels, policy)?.curve(WorkspacePolicy::Wr);
            for point in curve.points() {
                let price = curve.price_ms_per_mib(point.workspace);
                row!(data; policy.to_string(), point.workspace, point.time_ms, price);
            }
            most = most.max(curve.time_ms(range[0].max(curve.points().first()?.workspace))?);
            let line = |points| Drawn::new(Form::Line, points, tone(policy));
            falls.push(line(steps(&curve, range)).named(policy.to_string()));
            let limits = (0..27).map(|half| range[0].0 as f64 * (f64::from(half) / 2.0).exp2());
            let price = |limit: f64| [limit, curve.price_ms_per_mib(Bytes(limit as u64)) * 1e3];
            let points: Vec<_> =
                limits.map(price).filter(|[_, price]| price.is_finite() && *price > 0.0).collect();
            dearest = points.iter().map(|point| point[1]).fold(dearest, f64::max);
            prices.push(line(points));
            curves.push(curve);
        }
        let times_ms: Vec<f64> =
            curves.iter().map(|curve| curve.time_ms(USUAL).unwrap_or(f64::NAN)).collect();
        let (undivided_ms, best_ms) = (*times_ms.first()?, *times_ms.last()?);
        let equal = curves[0].points().iter().find(|point| point.time_ms <= best_ms);
        let equal = equal.map_or_else(|| "no amount".to_owned(), |point| point.workspace.to_string());
        let all =
            std::iter::zip(self.policies(), &times_ms).map(|(policy, ms)| format!("{policy} {ms:.1} ms"));
        let caption = format!(
            "All convolution kernels of {}, each with the same limit. At {USUAL}: {} ({}). Undivided kernels need {equal} each \
             to be as fast. Below: microseconds that each MiB more would save at best.",
            self.title,
            all.collect::<Vec<_>>().join(", "),
            times(undivided_ms / best_ms),
        );
        let price = Axis::decades("price of a MiB: µs saved at best", [0.1, dearest]);
        let panels = vec![
            Panel::new(Axis::bytes("", range), Axis::from_zero(ALL_MS, most), falls, 220.0),
            Panel::new(Axis::bytes("limit of each kernel", range), price, prices, 120.0),
        ];
        Some(self.figure("limit", "Time against workspace", caption, panels, data))
    }

    /// One total: a share for each kernel (WR), divided (WD), an arena for all (WS).
    pub(super) fn sharing(&self) -> Option<Figure> {
        let mut data = Data::new("total_bytes way time_ms workspace_bytes");
        let (mut marks, mut ticks, mut most, mut sentences) = (Vec::new(), Vec::new(), 0.0_f64, Vec::new());
        for (group, each) in self.shares().into_iter().enumerate() {
            let (total, first) = (self.total(each), group as f64 * 4.8);
            ticks.push((first + 1.5, format!("{} MiB", total.as_mib())));
            let mut times = Vec::new();
            for (within, (name, sizes, policy, tone)) in WAYS.into_iter().enumerate() {
                let limit = if policy == WorkspacePolicy::Wr { each } else { total };
                let sizes = if sizes == BatchSizePolicy::All { self.finest } else { sizes };
                let Some(plan) = self.plan(sizes, policy, limit) else { continue };
                let workspace = match policy {
                    WorkspacePolicy::Ws => plan.workspace_total(),
                    _ => plan.workspace_separate(),
                };
                row!(data; total, name, plan.time_ms, workspace);
                let (bar, ms) = (first + within as f64, plan.time_ms);
                marks.push(Drawn::bar([bar - 0.44, bar + 0.44], [0.0, ms], tone));
                marks.push(Drawn::text(Form::Above, [bar, ms], format!("{ms:.1}")));
                most = most.max(ms);
                times.push(format!("{name} {ms:.1} ms"));
            }
            sentences.push(format!("{} MiB: {}", total.as_mib(), times.join(", ")));
        }
        let range = [-0.8, ticks.len() as f64 * 4.8 - 1.0];
        let x = Axis { ticks, range, ..Axis::names("workspace of all kernels together", [""]) };
        let key = WAYS.map(|(name, .., tone)| (tone, name));
        let panel = Panel::new(x, Axis::from_zero(ALL_MS, most * 1.05), marks, 220.0).with_key(key);
        let caption = format!(
            "The same memory for workspaces, given in three ways: an equal share for each kernel (WR), divided by an ILP \
             (WD), one arena that all use in turn. {}. Kernels that run one after the other lose by not sharing.",
            sentences.join("; ")
        );
        Some(self.figure("sharing", "Three ways to give a total", caption, vec![panel], data))
    }

    /// Each kernel's share of the totals compared: the papers' three for AlexNet, and for deep nets smaller ones.
    fn shares(&self) -> [Bytes; 3] {
        if self.convolutions().len() <= 16 { LIMITS } else { [8, 16, 32].map(Bytes::mib) }
    }

    /// How WD divides the smallest total.
    pub(super) fn wd(&self) -> Option<Figure> {
        let total = self.total(LIMITS[0]);
        let plan = self.plan(self.finest, WorkspacePolicy::Wd, total)?;
        let mut data = Data::new("kernel division workspace_bytes time_ms");
        for planned in &plan.kernels {
            let PlannedKernel { kernel, configuration, workspace, .. } = planned;
            row!(data; kernel.to_string(), configuration.to_string(), workspace, planned.time_ms());
        }
        let mut largest: Vec<&PlannedKernel> = plan.kernels.iter().collect();
        largest.sort_by_key(|planned| Reverse(planned.workspace));
        largest.truncate(14);
        let used: Bytes = plan.kernels.iter().map(|planned| planned.workspace).sum();
        let layers = layers(&plan);
        let [first, second] = layers.get(..2)? else { return None };
        let caption = format!(
            "WD gives {used} of {} MiB to {} kernels; {} and {} have {:.1} % of it. All kernels take {:.1} ms.",
            total.as_mib(),
            plan.kernels.len(),
            first.0,
            second.0,
            100.0 * (first.1 + second.1).0 as f64 / used.0.max(1) as f64,
            plan.time_ms,
        );
        // Room for the words beside the longest bar.
        let x = Axis::bytes_from_zero("workspace", Bytes(largest.first()?.workspace.0 * 3));
        let bar = |planned: &&PlannedKernel| {
            let PlannedKernel { kernel, configuration, workspace, .. } = planned;
            (kernel.to_string(), workspace.0 as f64, format!("{workspace}: {configuration}"), Tone::Blue)
        };
        let panel = Panel::bars(x, largest.iter().map(bar), 22.0);
        let figure =
            self.figure("wd", &format!("How WD divides {} MiB", total.as_mib()), caption, vec![panel], data);
        Some(Figure { width: Figure::PAGE, ..figure })
    }
}

/// The workspace of every layer's kernels together, the largest first.
fn layers(plan: &Plan) -> Vec<(&str, Bytes)> {
    let mut layers: Vec<(&str, Bytes)> = Vec::new();
    for PlannedKernel { kernel, workspace, .. } in &plan.kernels {
        match layers.iter_mut().find(|(name, _)| *name == kernel.name) {
            Some((_, bytes)) => *bytes += *workspace,
            None => layers.push((&kernel.name, *workspace)),
        }
    }
    layers.sort_by_key(|layer| Reverse(layer.1));
    layers
}
