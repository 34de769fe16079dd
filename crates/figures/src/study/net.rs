//! A whole net: policies and limits, the price of a MiB, one total shared or divided.

use super::{LIMITS, Study, USUAL, of_sizes, tone};
use crate::draw::{Axis, Bar, Drawn, Figure, Form, Panel, Tone};
use crate::number::{percent, times};
use crate::table::{Table, row};
use planner::{BatchSizePolicy, Bytes, ConvOp, Kernel, Plan, PlannedKernel, WorkspacePolicy};
use std::cmp::Reverse;

/// Most layers that have a colour each.
const MOST_LAYERS: usize = 6;

/// Most kernels between which the division of a total is shown: those with the most.
const MOST_KERNELS: usize = 14;

/// What the axis of a net's time says.
pub(super) const ALL_MS: &str = "ms, all convolution kernels of an iteration";

/// Three ways to give a total, and what there is without micro-batches.
const WAYS: [(&str, Option<BatchSizePolicy>, WorkspacePolicy, Tone); 4] = [
    ("WR, undivided", Some(BatchSizePolicy::Undivided), WorkspacePolicy::Wr, Tone::Orange),
    ("WR", None, WorkspacePolicy::Wr, Tone::Sky),
    ("WD", None, WorkspacePolicy::Wd, Tone::Blue),
    ("one arena", None, WorkspacePolicy::Ws, Tone::Green),
];

impl Study {
    /// Every limit under every policy, stacked by layer, or by operation in deep nets.
    pub(super) fn sizes(&self) -> Option<Figure> {
        let parts: Vec<String> = match self.convolutions() {
            layers if layers.len() > MOST_LAYERS => ConvOp::ALL.map(|op| op.to_string()).into(),
            layers => layers.into_iter().map(str::to_owned).collect(),
        };
        let mut data = Table::new("limit_bytes policy part time_ms".split(' '));
        let mut bars = Vec::new();
        for limit in LIMITS {
            for &policy in self.policies() {
                let Some(plan) = self.limited(policy, limit) else { continue };
                let mut stacked = Vec::new();
                for (place, part) in parts.iter().enumerate() {
                    let is_of = |kernel: &Kernel| kernel.name == *part || kernel.id.op.to_string() == *part;
                    let kernels = plan.kernels.iter().filter(|planned| is_of(&planned.kernel));
                    let ms: f64 = kernels.map(PlannedKernel::time_ms).sum();
                    row!(data; limit, policy, part, ms);
                    stacked.push((ms, Tone::of(place), String::new()));
                }
                bars.push(Bar::of_parts(limit, stacked, format!("{policy} {}", times(plan.gain()))));
            }
        }
        let key = parts.iter().enumerate().map(|(place, name)| (Tone::of(place), name));
        let panel = Panel::bars(|most| Axis::from_zero(ALL_MS, 1.4 * most), &bars, 76.0).with_key(key);
        let caption = format!(
            "All convolution kernels of {} under three limits for each, with what micro-batches gain over undivided kernels.",
            self.title
        );
        Some(self.figure("sizes", "Three limits, with and without micro-batches", caption, vec![panel], data))
    }

    /// Time over the limit of each kernel, and what a MiB more would save.
    pub(super) fn limits(&self) -> Option<Figure> {
        let range = [Bytes::mib(1), Bytes::mib(8192)];
        let mut data = Table::new("policy limit_bytes time_ms price_ms_per_mib".split(' '));
        let (mut falls, mut prices, mut curves) = (Vec::new(), Vec::new(), Vec::new());
        for &policy in self.policies() {
            let curve = self.fronts(&of_sizes(policy)).ok()?.curve(WorkspacePolicy::Wr);
            for point in curve.points() {
                row!(data; policy, point.workspace, point.time_ms, curve.price_ms_per_mib(point.workspace));
            }
            falls.push(Drawn::steps(&curve, range, tone(policy)).named(policy));
            let limits = (0..27).map(|half| range[0].0 as f64 * (f64::from(half) / 2.0).exp2());
            let price = |limit: f64| [limit, curve.price_ms_per_mib(Bytes(limit as u64)) * 1e3];
            let falling = limits.map(price).filter(|[_, price]| price.is_finite() && *price > 0.0);
            prices.push(Drawn::new(Form::Line, falling, tone(policy)));
            curves.push(curve);
        }
        let [undivided, .., best] = &curves[..] else { return None };
        let [undivided_ms, best_ms] = [undivided, best].map(|curve| curve.time_ms(USUAL).unwrap_or(f64::NAN));
        let equal = match undivided.points().iter().find(|point| point.time_ms <= best_ms) {
            Some(point) => format!("undivided kernels need {} each to be as fast", point.workspace),
            None => "in no workspace are undivided kernels as fast".to_owned(),
        };
        let (net, gain) = (&self.title, times(undivided_ms / best_ms));
        let caption = format!(
            "All convolution kernels of {net}, each with the same limit. At {USUAL} they take {undivided_ms:.1} ms undivided, \
             and {best_ms:.1} ms in micro-batches ({gain}); {equal}. Below: microseconds that each MiB more would save at best."
        );
        let price = |most: f64| Axis::decades("price of a MiB: µs saved at best", [0.1, most.max(1.0)]);
        let panels = vec![
            Panel::new(Axis::bytes("", range), |most| Axis::from_zero(ALL_MS, most), falls, 220.0),
            Panel::new(Axis::bytes("limit of each kernel", range), price, prices, 120.0),
        ];
        Some(self.figure("limit", "Time against workspace", caption, panels, data))
    }

    /// One total: a share for each kernel (WR), divided (WD), an arena for all (WS).
    pub(super) fn sharing(&self) -> Option<Figure> {
        let mut data = Table::new("total_bytes way time_ms workspace_bytes".split(' '));
        let mut bars = Vec::new();
        // The papers' totals for AlexNet, and for deep nets smaller ones.
        let shares = if self.convolutions().len() <= 16 { LIMITS } else { [8, 16, 32].map(Bytes::mib) };
        for each in shares {
            let total = self.total(each);
            for (name, sizes, policy, tone) in WAYS {
                let limit = if policy == WorkspacePolicy::Wr { each } else { total };
                let Some(plan) = self.plan(sizes.unwrap_or(self.finest), policy, limit) else { continue };
                let is_shared = policy == WorkspacePolicy::Ws;
                let workspace = if is_shared { plan.workspace_total() } else { plan.workspace_separate() };
                row!(data; total, name, plan.time_ms, workspace);
                let text = format!("{name} {:.1}", plan.time_ms);
                bars.push(Bar::new(format!("{} MiB", total.as_mib()), plan.time_ms, tone, text));
            }
        }
        let panel = Panel::bars(|most| Axis::from_zero(ALL_MS, 1.5 * most), &bars, 92.0);
        let caption = "The same memory for workspaces, given in three ways: an equal share for each kernel (WR; three for \
                       every convolution, as in the paper, though the first has no backward data), divided by an ILP \
                       (WD), one arena that all use in turn.".to_owned();
        Some(self.figure("sharing", "Three ways to give a total", caption, vec![panel], data))
    }

    /// How WD divides the smallest total.
    pub(super) fn wd(&self) -> Option<Figure> {
        let (total, plan) = (self.total(LIMITS[0]), self.divided(LIMITS[0])?);
        let mut data = Table::new("kernel division workspace_bytes time_ms".split(' '));
        for planned in &plan.kernels {
            let PlannedKernel { kernel, configuration, workspace, .. } = planned;
            row!(data; kernel.to_string(), configuration.to_string(), workspace, planned.time_ms());
        }
        let mut largest: Vec<&PlannedKernel> = plan.kernels.iter().collect();
        largest.sort_by_key(|planned| Reverse(planned.workspace));
        largest.truncate(MOST_KERNELS);
        let ([first, second], part) = two_layers(&plan)?;
        let (mib, given, kernels) = (total.as_mib(), plan.workspace_separate().as_mib(), plan.kernels.len());
        let (what, part, ms) = (format!("How WD divides {mib} MiB"), percent(part), plan.time_ms);
        let shown = largest.len();
        let drawn =
            if shown < kernels { format!(", of which the {shown} largest are drawn") } else { String::new() };
        let caption = format!(
            "WD gives {given:.1} of {mib} MiB to {kernels} kernels{drawn}; {first} and {second} have {part} of it. All \
             kernels take {ms:.1} ms."
        );
        let bars = largest.into_iter().map(|PlannedKernel { kernel, configuration, workspace, .. }| {
            Bar::new(kernel, workspace.0 as f64, Tone::Blue, format!("{workspace}: {configuration}"))
        });
        // Room for the words beside the longest bar.
        let x = |most| Axis::bytes_from_zero("workspace", 3.0 * most);
        let panel = Panel::bars(x, &bars.collect::<Vec<_>>(), 22.0);
        Some(Figure { width: Figure::PAGE, ..self.figure("wd", &what, caption, vec![panel], data) })
    }
}

/// The two layers whose kernels have the most workspace, and their part of all that is given.
pub(super) fn two_layers(plan: &Plan) -> Option<([&str; 2], f64)> {
    let mut layers: Vec<(&str, Bytes)> = Vec::new();
    for kernels in plan.kernels.chunk_by(|a, b| a.kernel.name == b.kernel.name) {
        layers.push((&kernels[0].kernel.name, kernels.iter().map(|planned| planned.workspace).sum()));
    }
    layers.sort_by_key(|layer| Reverse(layer.1));
    let [(first, most), (second, more), ..] = layers[..] else { return None };
    Some(([first, second], (most + more).0 as f64 / plan.workspace_separate().0.max(1) as f64))
}
