//! What a command draws of its own: a plan as bars, several GPUs that train together, learning curves.

use super::{net::ALL_MS, tone};
use crate::{
    KernelReport, PlanReport, ScalingPoint, ScalingReport,
    draw::{Axis, Bar, Data, Drawn, Figure, Form, LEADING, Panel, Tone, row},
};
use planner::{
    BatchSizePolicy::{All, Undivided},
    Bytes, Curve, Plan,
};
use std::iter::zip;

/// Most kernels that are shown: the slowest.
const MOST: usize = 24;

/// What a kernel may take: undivided, as planned, as measured.
const BARS: [(Tone, &str); 3] =
    [(Tone::Orange, "undivided"), (Tone::Blue, "as planned"), (Tone::Green, "as measured in the net")];

/// Time of every kernel undivided, as planned, and as measured if it has run; of `subject`, measured on `source`.
pub fn plan_figure(plan: &PlanReport, subject: &str, source: &str) -> Figure {
    let mut data = Data::new("kernel division undivided_ms planned_ms measured_ms workspace_bytes");
    for kernel in &plan.kernels {
        let [undivided, planned, measured] = times(kernel);
        row!(data; kernel.name(), kernel.division, undivided, planned, measured, kernel.planned.workspace);
    }
    let most = |kernel: &KernelReport| times(kernel).into_iter().flatten().fold(0.0, f64::max);
    let mut kernels: Vec<&KernelReport> = plan.kernels.iter().collect();
    kernels.sort_by(|a, b| most(b).total_cmp(&most(a)));
    kernels.truncate(MOST);
    let group = |kernel: &&KernelReport| {
        // The plan's own bar has the division beside it.
        let texts = ["", &kernel.division, ""];
        let bars = zip(times(kernel), zip(BARS, texts));
        let bars = bars.filter_map(|(ms, ((tone, _), text))| Some(Bar::new(ms?, tone, text)));
        (kernel.name(), bars.collect())
    };
    let groups = kernels.iter().map(group).collect();
    let bars = if plan.kernels.iter().any(|kernel| kernel.measured_ms.is_some()) { 3 } else { 2 };
    let panel = Panel::bars(|most| Axis::from_zero("ms", 1.3 * most), groups, 19.0 * bars as f64);
    let panels = vec![panel.with_key(BARS[..bars].iter().copied())];
    let title = format!("{subject}: {}", plan.policies());
    let figure = Figure::new("plan", title, source.to_owned(), panels, data);
    Figure { caption: plan.totals(), width: Figure::PAGE, ..figure }
}

/// Time of all kernels over the limit, undivided and as planned, with a mark at the plan's own; of `subject`, measured
/// on `source`.
pub fn limit_figure(curves: &[Curve; 2], plan: &Plan, subject: &str, source: &str) -> Figure {
    let limit = plan.options.limit;
    let ends = |curve: &Curve| Some([curve.points().first()?.workspace, curve.points().last()?.workspace]);
    let [undivided, chosen] = curves.each_ref().map(|curve| ends(curve).unwrap_or_default());
    let first = Bytes(chosen[0].0.max(1 << 20).min(limit.0.max(1)));
    let last = chosen[1].max(undivided[1]).max(limit).max(Bytes(2 * first.0));
    let range = [first, Bytes(last.0.saturating_mul(2))];
    let policy = plan.options.batch_size_policy;
    let mut marks = vec![Drawn::steps(&curves[0], range, tone(Undivided)).named("undivided")];
    if policy != Undivided {
        marks.push(Drawn::steps(&curves[1], range, tone(All)).named(policy.to_string()));
    }
    let (at, ms) = (limit.0 as f64, plan.time_ms);
    marks.push(Drawn::new(Form::Dot, [[at, ms]], Tone::Ink).named(format!("{ms:.2} ms at {limit}")));
    let panel = Panel::new(Axis::bytes("limit", range), |most| Axis::from_zero(ALL_MS, most), marks, 240.0);
    let here = Drawn::new(Form::Line, [[at, 0.0], [at, panel.y.range[1]]], Tone::Ink);
    let panel = Panel { marks: [vec![here], panel.marks].concat(), ..panel };
    let title = format!("Time against the limit: {subject}");
    Figure::new("curve", title, source.to_owned(), vec![panel], Data::default())
}

fn times(kernel: &KernelReport) -> [Option<f64>; 3] {
    let undivided_ms = kernel.planned.undivided.as_ref().map(|micro| micro.time_ms);
    [undivided_ms, Some(kernel.planned_ms), kernel.measured_ms]
}

/// Images a second, and what remains of each GPU, over the number of GPUs, each of which trains `subject`.
pub fn scaling_figure(scaling: &ScalingReport, subject: &str, source: &str) -> Figure {
    let mut data = Data::new("gpus step_ms images_per_s efficiency sums_ms hidden");
    let alone = scaling.points.first().map_or(1.0, |one| one.images_per_s);
    for point in &scaling.points {
        row!(data; point.gpus, point.step_ms, point.images_per_s, point.efficiency, point.sums_ms, point.hidden);
    }
    let most = scaling.points.last().map_or(1, |last| last.gpus);
    let sizes = |title| Axis::counts(title, u32::try_from(most).unwrap_or(u32::MAX));
    let line = |name: &str, tone, value: &dyn Fn(&ScalingPoint) -> f64| {
        let points = scaling.points.iter().map(|point| [point.gpus as f64, value(point)]);
        Drawn::new(Form::Line, points, tone).named(name)
    };
    let speeds = vec![
        line("without sums", Tone::Grey, &|point| point.gpus as f64 * alone),
        line("predicted", Tone::Blue, &|point| point.images_per_s),
    ];
    let parts = vec![
        line("sums hidden", Tone::Green, &|point| 100.0 * point.hidden),
        line("efficiency", Tone::Blue, &|point| 100.0 * point.efficiency),
    ];
    let [latency_us, gb_per_s] = scaling.link;
    let ring = format!("a ring of links of {latency_us} us and {gb_per_s} GB/s");
    let title = format!("{subject} on each of up to {most} GPUs, {ring}");
    let images = |most| Axis::decades("images / s", [alone, most]);
    let panels = vec![
        Panel::new(sizes(""), images, speeds, 190.0),
        Panel::new(sizes("GPUs"), |_| Axis::from_zero("%", 100.0), parts, 130.0),
    ];
    Figure::new("gpus", title, source.to_owned(), panels, data)
}

/// A number that a training says again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningCurve {
    /// Whose it is and what: `train loss`.
    pub name: String,
    /// Whether it is a loss; all others, accuracies and the like, are drawn together.
    pub is_loss: bool,
    /// Places, such as iterations, and values.
    pub points: Vec<[f64; 2]>,
}

/// Losses above, and everything else below, over what `place` says.
pub fn learning_curves(curves: &[LearningCurve], place: &str) -> Figure {
    let mut data = Data::new(&format!("curve {} value", place.replace(' ', "_")));
    for curve in curves {
        curve.points.iter().for_each(|&[place, value]| row!(data; curve.name, place, value));
    }
    let last =
        curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).fold(f64::MIN_POSITIVE, f64::max);
    let panel = |title: &str, is_loss: bool| {
        let of_kind = || curves.iter().filter(move |curve| curve.is_loss == is_loss).enumerate();
        of_kind().flat_map(|(_, curve)| &curve.points).next()?;
        let line = |(at, curve): (usize, &LearningCurve)| {
            // What was said once makes no line.
            let form = if curve.points.len() > 1 { Form::Line } else { Form::Dot };
            Drawn::new(form, curve.points.clone(), Tone::of(at)).named(curve.name.as_str())
        };
        let height = (LEADING * of_kind().count() as f64).max(220.0);
        let (x, y) = (Axis::from_zero(place, last), |most| Axis::from_zero(title, most));
        Some(Panel::new(x, y, of_kind().map(line).collect(), height))
    };
    let panels = [panel("loss", true), panel("accuracy", false)].into_iter().flatten().collect();
    let figure = Figure::new("learning", "Learning curves".to_owned(), String::new(), panels, data);
    Figure { width: Figure::PAGE, ..figure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_accuracies_have_panels_of_their_own() {
        let curve = |name: &str, is_loss| LearningCurve {
            name: name.to_owned(),
            is_loss,
            points: vec![[0.0, 2.0], [10.0, 1.0]],
        };
        let both = learning_curves(&[curve("train loss", true), curve("test accuracy", false)], "iteration");
        assert_eq!((both.panels.len(), both.data.rows.len()), (2, 4));
        let svg = both.svg();
        assert!(["train loss", "test accuracy", "iteration"].iter().all(|text| svg.contains(text)), "{svg}");
        assert_eq!(learning_curves(&[curve("loss", true)], "iteration").panels.len(), 1);
    }

    #[test]
    fn what_was_said_once_is_a_dot_with_its_name() {
        let points = vec![[0.0, 0.5]];
        let once = LearningCurve { name: "test accuracy".to_owned(), is_loss: false, points };
        let svg = learning_curves(&[once], "iteration").svg();
        assert!(svg.contains("<circle") && svg.contains("test accuracy"), "{svg}");
    }
}
