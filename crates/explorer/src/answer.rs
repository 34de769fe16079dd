//! What the page is told.

use crate::{question::PlanQuestion, state::Prepared};
use ::memory::Room;
use figures::PlanReport;
use figures::study::{limit_figure, plan_figure};
use planner::{BatchSizePolicy::Undivided, Fronts, Headroom, Plan, PlanOptions};
use serde::Serialize;
use std::{error::Error, slice};

/// A plan with its drawings, as SVG.
#[derive(Serialize)]
pub(crate) struct Planned {
    plan: PlanReport,
    /// The policies and the sums, as the command prints them.
    summary: [String; 2],
    /// How much is estimated, and how well.
    estimate: Option<String>,
    /// Milliseconds that a MiB more would save at best.
    price_ms_per_mib: f64,
    curve: String,
    kernels: String,
    timeline: Option<String>,
    cliff: Option<String>,
}

/// Plans as `question` asks.
pub(crate) fn answer(prepared: &Prepared, question: &PlanQuestion) -> Result<Planned, Box<dyn Error>> {
    let ((study, estimate), options) = (prepared, &question.options);
    if question.in_memory && study.outline.nodes.is_empty() {
        return Err("a budget of memory needs a net: a convolution alone has no schedule".into());
    }
    let room = || Room::new(slice::from_ref(&study.outline), 0, &study.kernels);
    let room = question.in_memory.then(room);
    let undivided = PlanOptions { batch_size_policy: Undivided, ..options.clone() };
    let fronts = [study.fronts(&undivided)?, study.fronts(options)?];
    let chosen = planned(&fronts[1], options, room.as_ref())?;
    let curves = fronts.each_ref().map(|fronts| match &room {
        Some(room) => fronts.budget_curve(room),
        None => fronts.curve(options.workspace_policy),
    });
    let report = PlanReport { prediction: true, ..PlanReport::new(&chosen, &[]) };
    let subject = format!("{}, mini-batch {}, {}", study.title, question.mini_batch, question.math);
    let mut bars = plan_figure(&report, &subject, &study.source());
    // The page says the sums itself.
    (bars.title, bars.caption) = (format!("{subject}: time of every kernel"), String::new());
    let curve = limit_figure(&curves, &chosen, &subject, &study.source());
    let cliff = study.kernels.iter().find(|kernel| question.kernel.as_ref() == Some(&kernel.to_string()));
    Ok(Planned {
        summary: [report.policies(), report.totals()],
        estimate: estimate.map(|estimate| estimate.to_string()),
        price_ms_per_mib: curves[1].price_ms_per_mib(options.limit),
        curve: curve.svg(),
        kernels: bars.svg(),
        timeline: study.timeline_of(&chosen).map(|figure| figure.svg()),
        cliff: cliff.and_then(|kernel| study.cliff(kernel)).map(|figure| figure.svg()),
        plan: report,
    })
}

/// The plan within the options' limit, or with what `room` leaves to each kernel within it.
fn planned(fronts: &Fronts, options: &PlanOptions, room: Option<&Room>) -> Result<Plan, Box<dyn Error>> {
    let Some(room) = room else { return Ok(fronts.plan(options)?) };
    let (smallest, _) = fronts.smallest_budget(room);
    if options.limit < smallest {
        return Err(format!("the smallest budget with a plan is {}", smallest.exact()).into());
    }
    let limits = (0..fronts.iter().count()).map(|kernel| room.limit(kernel, options.limit));
    Ok(fronts.plan_within(&limits.collect::<Vec<_>>(), options)?)
}
