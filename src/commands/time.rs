//! `microbatch time`.

use super::{
    Notes,
    setup::{Request, Session, check_memory},
    verify::verify,
};
use crate::{
    Console, Error,
    args::{TimeArgs, required},
    progress,
    report::{Comparison, Header, MemoryEstimate, PlanReport, ProfilingReport, TimeRun},
};
use planner::BatchSizePolicy;
use serde::Serialize;
use trainer::{
    Net,
    time::{TimeReport, Timing},
};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    profiling: Option<ProfilingReport>,
    planning_ms: f64,
    /// One, or two under `--compare`: undivided first.
    runs: Vec<TimeRun>,
    comparison: Option<Comparison>,
}

/// Times a net layer by layer under a plan; with `--compare` undivided first.
///
/// # Errors
/// Files, nets, data and limits that do not do.
pub fn time(args: &TimeArgs, notes: &Notes) -> Result<(), Error> {
    let mut console = Console::new(args.run.json);
    let request = Request {
        command: "time",
        model: required(&args.net.model, "--model")?,
        phase: args.net.phase,
        batch: args.net.batch,
        planning: &args.planning,
        device_memory: args.device_memory,
        run: &args.run,
        seed: args.seed,
        notes,
    };
    let mut session = Session::open(&request, &mut console)?;
    let chosen = session.options.batch_size_policy;
    let policies = match (args.compare, chosen) {
        (false, _) => vec![chosen],
        (true, BatchSizePolicy::Undivided) => {
            let reason =
                "--compare compares undivided with another policy; choose powerOfTwo, adaptive or all";
            return Err(Error::Usage(reason.to_owned()));
        }
        (true, _) => vec![BatchSizePolicy::Undivided, chosen],
    };
    session.profile(chosen, &mut console)?;
    let mut runs = Vec::with_capacity(policies.len());
    for policy in policies {
        if args.compare {
            console.text(format!("\n{policy}:"))?;
        }
        let run;
        (session, run) = timed(session, policy, args, &mut console)?;
        console.text(format!("\n{}", run.our_tables()))?;
        runs.push(run);
    }
    let comparison = match &runs[..] {
        [undivided, chosen] => Some(undivided.compare(chosen)),
        _ => None,
    };
    if let Some(comparison) = &comparison {
        console.text(format!("\n{comparison}"))?;
    }
    console.object(&Report {
        header: session.header,
        profiling: session.origin.profiling,
        planning_ms: session.origin.planning.planning().as_secs_f64() * 1e3,
        runs,
        comparison,
    })
}

/// Plans and times the net under one policy, and gives it back.
fn timed(
    mut session: Session,
    policy: BatchSizePolicy,
    args: &TimeArgs,
    console: &mut Console,
) -> Result<(Session, TimeRun), Error> {
    let before = session.origin.planning.planning();
    let (plan, budget) = session.install(policy)?;
    let Session { at_start, options, device_memory, origin, net, header } = session;
    let planning_ms = (origin.planning.planning() - before).as_secs_f64() * 1e3;
    let layers = net.layer_memory();
    if args.planning.verify {
        verify(net.device(), &plan, console)?;
    }
    let device = net.device().clone();
    let timing = Timing::new(net, plan.clone());
    check_memory(&device, timing.memory(), at_start)?;
    let memory = MemoryEstimate::new(timing.memory(), at_start, &device);
    let policies = PlanReport::new(&plan, &[]).policies();
    console.text(format!("  plan        {policies}; made in {planning_ms:.2} ms\n{memory}\n"))?;
    if let Some(budget) = &budget {
        console.text(format!("{budget}\n"))?;
    }
    let (measured, net) = run(timing, args)?;
    let run = TimeRun::new((memory, &plan, layers), measured, header.net.mini_batch);
    console.text(run.caffe_lines())?;
    Ok((Session { at_start, options, device_memory, origin, net, header }, run))
}

/// Runs the net and puts its data back where it was: another run sees the same mini-batches.
fn run(timing: Timing, args: &TimeArgs) -> Result<(TimeReport, Net), Error> {
    let positions = timing.net().positions().map(|(layer, position)| (layer.to_owned(), position));
    let positions: Vec<(String, u64)> = positions.collect();
    let bar = progress::bar(args.iterations as u64, "timing");
    let result = timing.run(args.iterations, args.seed, |_, _| bar.inc(1));
    bar.finish_and_clear();
    let (report, mut net) = result?;
    positions.iter().for_each(|(layer, position)| net.set_position(layer, *position));
    Ok((report, net))
}
