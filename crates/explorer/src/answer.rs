//! What the page is told.

use crate::{
    question::{Give, PlanQuestion},
    state::Prepared,
};
use ::memory::Room;
use figures::{
    PlanReport,
    draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, steps},
    study::plan_figure,
};
use planner::{
    BatchSizePolicy, Bytes, Curve, EstimateError, Headroom, Plan, PlanOptions, WorkspacePolicy, plan,
    plan_within,
};
use serde::Serialize;

/// A plan with its drawings, as SVG.
#[derive(Serialize)]
pub(crate) struct Planned {
    plan: PlanReport,
    /// The policies and the sums, as the command prints them.
    summary: [String; 2],
    estimated: usize,
    estimate_error: Option<EstimateError>,
    /// The smallest limit with a plan, and the one from which on more brings nothing.
    range: [Bytes; 2],
    /// Milliseconds that a MiB more would save at best.
    price_ms_per_mib: f64,
    curve: String,
    kernels: String,
    timeline: Option<String>,
    cliff: Option<String>,
}

/// Plans as `question` asks.
pub(crate) fn answer(prepared: &Prepared<'_>, question: &PlanQuestion) -> Result<Planned, String> {
    let Prepared { study, options, estimated, error, .. } = prepared;
    let room = room(prepared, question)?;
    let chosen = planned(prepared, question.give, room.as_ref())?;
    // Undivided, and under the policy.
    let curves = prepared.fronts.each_ref().map(|fronts| match (&room, question.give) {
        (Some(room), _) => fronts.budget_curve(room),
        (None, Give::Wd) => fronts.curve(WorkspacePolicy::Wd),
        (None, _) => fronts.curve(WorkspacePolicy::Wr),
    });
    let report = PlanReport { prediction: true, ..PlanReport::new(&chosen, &[]) };
    let mini_batch = format!("{}, mini-batch {}, {}", study.title, question.mini_batch, question.math);
    let source = study.source();
    let is_net = !study.outline.nodes.is_empty();
    let cliff = question.kernel.as_ref().and_then(|name| {
        let kernel = study.kernels.iter().find(|kernel| kernel.to_string() == *name)?;
        study.cliff(kernel)
    });
    let mut bars = plan_figure(&report, &mini_batch, &source);
    // The page says the sums itself.
    (bars.title, bars.caption) = (format!("{mini_batch}: time of every kernel"), String::new());
    Ok(Planned {
        summary: [report.policies(), report.totals()],
        estimated: *estimated,
        estimate_error: *error,
        range: range(&curves[1]),
        price_ms_per_mib: curves[1].price_ms_per_mib(options.limit),
        curve: curve_figure(&curves, &chosen, options.limit, (&mini_batch, &source)).svg(),
        kernels: bars.svg(),
        timeline: study.timeline_of(&chosen).filter(|_| is_net).map(|figure| figure.svg()),
        cliff: cliff.map(|figure| figure.svg()),
        plan: report,
    })
}

fn range(curve: &Curve) -> [Bytes; 2] {
    let ends = [curve.points().first(), curve.points().last()];
    ends.map(|end| end.map_or(Bytes::ZERO, |point| point.workspace))
}

/// What each kernel may have, if the question is about all memory.
fn room(prepared: &Prepared<'_>, question: &PlanQuestion) -> Result<Option<Room>, String> {
    let study = &prepared.study;
    match question.give {
        Give::Memory if study.outline.nodes.is_empty() => {
            Err("a budget of memory needs a net: a convolution alone has no schedule".to_owned())
        }
        Give::Memory => Ok(Some(Room::new(std::slice::from_ref(&study.outline), 0, &study.kernels))),
        _ => Ok(None),
    }
}

fn planned(prepared: &Prepared<'_>, give: Give, room: Option<&Room>) -> Result<Plan, String> {
    let Prepared { study, options, fronts, .. } = prepared;
    let workspace_policy = match give {
        Give::Wr => WorkspacePolicy::Wr,
        Give::Wd => WorkspacePolicy::Wd,
        Give::Ws | Give::Memory => WorkspacePolicy::Ws,
    };
    let options = PlanOptions { workspace_policy, ..options.clone() };
    let Some(room) = room else {
        return plan(&study.kernels, &study.table, &options).map_err(|error| error.to_string());
    };
    let (smallest, _) = fronts[1].smallest_budget(room);
    if options.limit < smallest {
        return Err(format!("the smallest budget with a plan is {}", smallest.exact()));
    }
    let limits: Vec<Bytes> =
        (0..study.kernels.len()).map(|kernel| room.limit(kernel, options.limit)).collect();
    plan_within(&study.kernels, &limits, &study.table, &options).map_err(|error| error.to_string())
}

/// Time over the limit, with a mark where the plan is.
fn curve_figure(curves: &[Curve; 2], plan: &Plan, limit: Bytes, (subject, source): (&str, &str)) -> Figure {
    let [smallest, most] = range(&curves[1]);
    let undivided_most = range(&curves[0])[1];
    let first = Bytes(smallest.0.max(1 << 20).min(limit.0.max(1)));
    let last = Bytes(most.max(undivided_most).max(limit).max(Bytes(2 * first.0)).0.saturating_mul(2));
    let axis = [first, last];
    let slowest =
        curves.iter().filter_map(|curve| curve.time_ms(first)).chain([plan.time_ms]).fold(0.0, f64::max);
    let line = |curve: &Curve, tone| Drawn::new(Form::Line, steps(curve, axis), tone);
    let y = Axis::from_zero("ms, all convolution kernels of an iteration", slowest);
    let here = [limit.0 as f64, plan.time_ms];
    let mut marks = vec![line(&curves[0], Tone::Orange).named("undivided")];
    if plan.options.batch_size_policy != BatchSizePolicy::Undivided {
        marks.push(line(&curves[1], Tone::Blue).named(plan.options.batch_size_policy.to_string()));
    }
    marks.push(Drawn::new(Form::Line, [[here[0], 0.0], [here[0], y.range[1]]], Tone::Ink));
    marks.push(Drawn::new(Form::Dot, [here], Tone::Ink).named(format!("{:.2} ms at {limit}", plan.time_ms)));
    let panel = Panel::new(Axis::bytes("limit", axis), y, marks, 240.0);
    Figure {
        name: "curve".to_owned(),
        title: format!("Time against the limit: {subject}"),
        caption: String::new(),
        source: source.to_owned(),
        width: Figure::COLUMN,
        panels: vec![panel],
        data: Data::default(),
    }
}
