//! What `--plot` draws: a plan as bars, or several GPUs that train together.

use crate::{
    KernelReport, PlanReport, ScalingPoint, ScalingReport,
    draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row},
};

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
    let mut marks = Vec::new();
    for (place, kernel) in kernels.iter().enumerate() {
        let bars = times(kernel).into_iter().zip(BARS).filter_map(|(ms, (tone, _))| Some((ms?, tone)));
        let thick = 0.84 / bars.clone().count() as f64;
        for (bar, (ms, tone)) in bars.enumerate() {
            let from = place as f64 - 0.42 + thick * bar as f64;
            marks.push(Drawn::bar([0.0, ms], [from, from + 0.9 * thick], tone));
        }
        marks.push(Drawn::text(Form::Note, [most(kernel), place as f64], kernel.division.as_str()));
    }
    let ran = plan.kernels.iter().any(|kernel| kernel.measured_ms.is_some());
    let slowest = kernels.first().map_or(1.0, |kernel| most(kernel));
    let names = Axis::names("", kernels.iter().map(|kernel| kernel.name())).reversed();
    let height = 30.0 * kernels.len() as f64;
    let panel = Panel::new(Axis::from_zero("ms", 1.3 * slowest), names, marks, height);
    Figure {
        name: "plan".to_owned(),
        title: format!("{subject}: {}", plan.policies()),
        caption: plan.totals(),
        source: source.to_owned(),
        width: Figure::PAGE,
        panels: vec![panel.with_key(BARS[..if ran { 3 } else { 2 }].iter().copied())],
        data,
    }
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
        Drawn::new(Form::Line, points.collect::<Vec<_>>(), tone).named(name)
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
    Figure {
        name: "gpus".to_owned(),
        title: format!(
            "{subject} on each of up to {most} GPUs, a ring of links of {latency_us} us and {gb_per_s} GB/s"
        ),
        caption: String::new(),
        source: source.to_owned(),
        width: Figure::COLUMN,
        panels: vec![
            Panel::new(sizes(""), Axis::decades("images / s", [alone, most as f64 * alone]), speeds, 190.0),
            Panel::new(sizes("GPUs"), Axis::from_zero("%", 100.0), parts, 130.0),
        ],
        data,
    }
}
