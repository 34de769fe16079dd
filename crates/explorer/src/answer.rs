//! What the page is told.

use crate::{question::PlanQuestion, state::Prepared};
use ::memory::Room;
use figures::study::{limit_figure, plan_figure};
use figures::{PlanReport, price};
use planner::{BatchSizePolicy::Undivided, PlanOptions, WorkspacePolicy};
use serde_json::{Value, json};
use std::{error::Error, slice};

/// Plans as `question` asks: the plan within the options' limit, or with what that leaves to each kernel of all memory;
/// its sentences and its drawings, as SVG.
pub(crate) fn answer(prepared: &Prepared, question: &PlanQuestion) -> Result<Value, Box<dyn Error>> {
    let ((study, estimate), options) = (prepared, &question.options);
    if question.in_memory && study.outline.nodes.is_empty() {
        return Err("a budget of memory needs a net: a convolution alone has no schedule".into());
    }
    let undivided = PlanOptions { batch_size_policy: Undivided, ..options.clone() };
    let both = [study.fronts(&undivided)?, study.fronts(options)?];
    let [_, fronts] = &both;
    let (plan, curves, saved) = if question.in_memory {
        let room = Room::new(slice::from_ref(&study.outline), 0, &study.kernels);
        let (smallest, _) = room.smallest_budget(fronts);
        if options.limit < smallest {
            return Err(format!("keeping every feature map needs at least {}", smallest.exact()).into());
        }
        let plan = fronts.plan_within(&room.limits(fronts, options.limit), options)?;
        let curves = both.each_ref().map(|fronts| room.budget_curve(fronts));
        let saved = price(curves[1].price_ms_per_mib(options.limit), false);
        (plan, curves, saved)
    } else {
        let policy = options.workspace_policy;
        let saved = price(fronts.price_ms_per_mib(policy, options.limit), policy == WorkspacePolicy::Wd);
        (fronts.plan(options)?, both.each_ref().map(|fronts| fronts.curve(policy)), saved)
    };
    let report = PlanReport { prediction: true, ..PlanReport::new(&plan, &[]) };
    let subject = format!("{}, mini-batch {}, {}", study.title, question.mini_batch, question.math);
    let mut bars = plan_figure(&report, &subject, &study.source());
    // The page says the sums itself.
    (bars.title, bars.caption) = (format!("{subject}: kernels, the slowest first"), String::new());
    let kernel = study.kernels.iter().find(|kernel| question.kernel.as_ref() == Some(&kernel.to_string()));
    Ok(json!({
        "summary": [report.policies(), report.totals(), saved],
        // How much is estimated, and how well.
        "estimate": estimate.map(|estimate| estimate.to_string()),
        "curve": limit_figure(&curves, &plan, options.limit, &subject, &study.source()).svg(),
        "kernels": bars.svg(),
        "timeline": study.timeline_of(&plan).map(|figure| figure.svg()),
        "cliff": kernel.and_then(|kernel| study.cliff(kernel, options)).map(|figure| figure.svg()),
        "plan": report,
    }))
}
