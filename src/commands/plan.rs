//! `microbatch plan`.

use super::{
    Notes,
    setup::{Request, Session},
};
use crate::{
    Console, Error,
    args::{PlanArgs, required},
    report::{Header, LayerMemory, MemoryEstimate, PlanReport, layer_memory, layer_table},
};
use serde::Serialize;
use trainer::net::Layout;

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    profiling_ms: f64,
    planning_ms: f64,
    plan: PlanReport,
    memory: MemoryEstimate,
    layer_memory: Vec<LayerMemory>,
}

/// Measures and plans the convolutions of a net, and tells what training it would take, without running it.
///
/// # Errors
/// Files, nets and limits that do not do.
pub fn plan(args: &PlanArgs, notes: &Notes) -> Result<(), Error> {
    let mut console = Console::new(args.run.json);
    let request = Request {
        command: "plan",
        model: required(&args.net.model, "--model")?,
        phase: args.net.phase,
        batch: args.net.batch,
        planning: &args.planning,
        run: &args.run,
        notes,
    };
    let mut session = Session::open(&request, &mut console)?;
    session.profile(session.options.batch_size_policy, &mut console)?;
    let Session { at_start, options, mut planning, mut net, header } = session;
    let plan = planning.install(&mut net, &options)?;
    let report = Report {
        header,
        profiling_ms: planning.profiling().as_secs_f64() * 1e3,
        planning_ms: planning.planning().as_secs_f64() * 1e3,
        plan: PlanReport::new(&plan, &[]),
        memory: MemoryEstimate::new(&Layout::new(&[&net], true).report, at_start, net.device()),
        layer_memory: layer_memory(&net),
    };
    console.text(format!("  planning    {:.2} ms", report.planning_ms))?;
    console.text(format!("{}\n\n{}\n", report.memory, report.plan))?;
    console.text(format!(
        "Memory by layer, before buffers share their places:\n{}",
        layer_table(&report.layer_memory)
    ))?;
    console.object(&report)
}
