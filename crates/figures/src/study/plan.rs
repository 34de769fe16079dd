//! A plan as bars: what `--plot` draws.

use crate::{
    PlanReport,
    draw::{Axis, Cell, Data, Figure, Mark, Panel, Tone},
};

/// Most kernels that are shown: the slowest undivided.
const MOST: usize = 24;

/// Time of every kernel undivided, as planned, and as measured if it has run; of `subject`, measured on `source`.
pub fn plan_figure(plan: &PlanReport, subject: &str, source: &str) -> Figure {
    let mut data =
        Data::new(&["kernel", "division", "undivided_ms", "planned_ms", "measured_ms", "workspace_bytes"]);
    for kernel in &plan.kernels {
        let undivided_ms = kernel.planned.undivided.as_ref().map(|micro| micro.time_ms);
        let [undivided, measured] =
            [undivided_ms, kernel.measured_ms].map(|ms| ms.map_or_else(|| Cell::from(""), Cell::from));
        let words = [kernel.name(), kernel.division.clone()].map(Cell::from);
        let [name, division] = words;
        data.row([
            name,
            division,
            undivided,
            kernel.planned_ms.into(),
            measured,
            kernel.planned.workspace.into(),
        ]);
    }
    let mut kernels: Vec<_> = plan.kernels.iter().collect();
    let most = |kernel: &crate::KernelReport| {
        let undivided_ms = kernel.planned.undivided.as_ref().map_or(0.0, |micro| micro.time_ms);
        [undivided_ms, kernel.planned_ms, kernel.measured_ms.unwrap_or(0.0)].into_iter().fold(0.0, f64::max)
    };
    kernels.sort_by(|a, b| most(b).total_cmp(&most(a)));
    kernels.truncate(MOST);
    let mut marks = Vec::new();
    for (row, kernel) in kernels.iter().enumerate() {
        let undivided_ms = kernel.planned.undivided.as_ref().map(|micro| micro.time_ms);
        let bars = [
            (undivided_ms, Tone::Orange),
            (Some(kernel.planned_ms), Tone::Blue),
            (kernel.measured_ms, Tone::Green),
        ];
        let bars: Vec<(f64, Tone)> = bars.into_iter().filter_map(|(ms, tone)| Some((ms?, tone))).collect();
        let thick = 0.84 / bars.len() as f64;
        for (place, (ms, tone)) in bars.into_iter().enumerate() {
            let from = row as f64 - 0.42 + thick * place as f64;
            marks.push(Mark::Bar { x: [0.0, ms], y: [from, from + 0.9 * thick], tone, label: String::new() });
        }
        let at = [most(kernel), row as f64];
        marks.push(Mark::Note { at, tone: Tone::Ink, text: kernel.division.clone() });
    }
    let mut key = vec![(Tone::Orange, "undivided".to_owned()), (Tone::Blue, "as planned".to_owned())];
    if kernels.iter().any(|kernel| kernel.measured_ms.is_some()) {
        key.push((Tone::Green, "as measured in the net".to_owned()));
    }
    let slowest = kernels.first().map_or(1.0, |kernel| most(kernel));
    let panel = Panel {
        x: Axis::from_zero("ms", 1.3 * slowest),
        y: Axis::names("", kernels.iter().map(|kernel| kernel.name())).reversed(),
        marks,
        key,
        height: 30.0 * kernels.len() as f64,
    };
    Figure {
        name: "plan".to_owned(),
        title: format!("{subject}: {}", plan.policies()),
        caption: plan.totals(),
        source: source.to_owned(),
        width: Figure::PAGE,
        panels: vec![panel],
        data,
    }
}
