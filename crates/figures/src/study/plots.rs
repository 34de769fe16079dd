//! What commands and the explorer draw of one plan: its kernels as bars, and its time over the limit.

use super::{net::ALL_MS, tone};
use crate::draw::{Axis, Bar, Drawn, Figure, Form, Panel, Tone};
use crate::{KernelReport, PlanReport};
use planner::BatchSizePolicy::{All, Undivided};
use planner::{Bytes, Curve, Plan, WorkspacePolicy};
use std::iter::zip;

/// Most kernels that are shown: the slowest.
const MOST: usize = 24;

/// What a kernel may take: undivided, as planned, as measured.
const BARS: [(Tone, &str); 3] =
    [(Tone::Orange, "undivided"), (Tone::Blue, "as planned"), (Tone::Green, "as measured in the net")];

/// Time of every kernel undivided, as planned, and as measured if it has run; of `subject`, measured on `source`.
pub fn plan_figure(plan: &PlanReport, subject: &str, source: &str) -> Figure {
    let most = |kernel: &KernelReport| times(kernel).into_iter().flatten().fold(0.0, f64::max);
    let mut kernels: Vec<&KernelReport> = plan.kernels.iter().collect();
    kernels.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let bars = |kernel: &KernelReport| {
        // The plan's own bar has the division beside it.
        let marks = zip(BARS, ["", &kernel.division, ""]);
        let bar = |(ms, ((tone, _), text)): (Option<f64>, _)| Some(Bar::new(kernel.name(), ms?, tone, text));
        zip(times(kernel), marks).filter_map(bar).collect::<Vec<_>>()
    };
    let kinds = if plan.kernels.iter().any(|kernel| kernel.measured_ms.is_some()) { 3 } else { 2 };
    let bars: Vec<Bar> = kernels.into_iter().take(MOST).flat_map(bars).collect();
    let panel = Panel::bars(|most| Axis::from_zero("ms", 1.3 * most), &bars, 19.0 * kinds as f64);
    let panels = vec![panel.with_key(BARS[..kinds].iter().copied())];
    let all = plan.kernels.len();
    let part = if all > MOST { format!(" (the slowest {MOST} of {all} kernels)") } else { String::new() };
    let title = format!("{subject}: {}{part}", plan.policies());
    Figure { caption: plan.totals(), width: Figure::PAGE, ..Figure::new(title, source.to_owned(), panels) }
}

/// Time of all kernels over the limit, or over all memory, undivided and as planned, with a mark at the `limit` of `plan`;
/// of `subject`, by `source`.
pub fn limit_figure(curves: &[Curve; 2], plan: &Plan, limit: Bytes, subject: &str, source: &str) -> Figure {
    let drawn = || curves.iter().flat_map(Curve::points).map(|point| point.workspace).chain([limit]);
    let first = drawn().min().unwrap_or_default().max(Bytes::mib(1));
    let last = drawn().max().unwrap_or_default().max(first);
    let range = [first, Bytes(last.0.saturating_mul(2))];
    let policy = plan.options.batch_size_policy;
    let (at, ms) = (limit.0 as f64, plan.time_ms);
    let here = Drawn::new(Form::Line, [[at, 0.0], [at, f64::INFINITY]], Tone::Ink);
    let mut marks = vec![here, Drawn::steps(&curves[0], range, tone(Undivided)).named("undivided")];
    if policy != Undivided {
        marks.push(Drawn::steps(&curves[1], range, tone(All)).named(policy));
    }
    marks.push(Drawn::new(Form::Dot, [[at, ms]], Tone::Ink).named(format!("{ms:.2} ms at {limit}")));
    let panel = Panel::new(Axis::bytes("limit", range), |most| Axis::from_zero(ALL_MS, most), marks, 240.0);
    let title = format!("Time against the limit: {subject}");
    let between = "The lines lead from one total to the next whose best division is known beforehand; a plan between them may be faster.";
    let caption = if plan.options.workspace_policy == WorkspacePolicy::Wd { between } else { "" };
    Figure { caption: caption.to_owned(), ..Figure::new(title, source.to_owned(), vec![panel]) }
}

fn times(kernel: &KernelReport) -> [Option<f64>; 3] {
    let undivided_ms = kernel.planned.undivided.as_ref().map(|micro| micro.time_ms);
    [undivided_ms, Some(kernel.planned_ms), kernel.measured_ms]
}
