//! `microbatch time`.

use super::draw::{check, plot, write_trace};
use super::setup::{Recorded, Request, Session, announce};
use super::{inputs::net_spec, ranks::on_each};
use crate::args::{RunArgs, TimeArgs};
use crate::report::{Header, TimeRun};
use crate::{Console, Result, progress};
use figures::{ActionSpan, BatchReport, Comparison, PlanReport, ProfilingReport};
use planner::BatchSizePolicy;
use serde::Serialize;
use trainer::{Group, NetRun, host, spec::NetSpec, time};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    profiling: Option<ProfilingReport>,
    planning_ms: f64,
    /// One, or two under `--compare`: undivided first.
    runs: Vec<TimeRun>,
    comparison: Option<Comparison>,
    /// With --batch max, what mini-batches bring.
    batches: Option<BatchReport>,
}

/// Times a net layer by layer under a plan; with `--compare` undivided first.
pub(super) fn time(args: &TimeArgs) -> Result<()> {
    on_each(&args.run, |run, group| time_rank(args, run, group))
}

fn time_rank(args: &TimeArgs, run: &RunArgs, group: &Group) -> Result<()> {
    let mut console = Console::of_rank(group.leads(), run.json);
    let TimeArgs { net, planning, seed, .. } = args;
    check(args.trace.iter().chain(&args.plot), &net.model)?;
    let (batch, seed) = (net.batch, *seed);
    let request = Request { batch, seed, group: group.clone(), ..Request::new("time", planning, run) };
    let spec = NetSpec { share: group.share(), ..net_spec(net)? };
    let chosen = planning.options(false, None)?.batch_size_policy;
    refuse_if!(
        args.compare && chosen == BatchSizePolicy::Undivided,
        "--compare compares undivided with another policy; choose powerOfTwo, adaptive or all"
    );
    let (mut session, header) = Session::open(&request, spec, &mut console)?;
    let policies = if args.compare { vec![BatchSizePolicy::Undivided, chosen] } else { vec![chosen] };
    session.profile(&[], &mut console)?;
    let mut runs = Vec::with_capacity(policies.len());
    for policy in policies {
        if args.compare {
            console.text(format!("\n{policy}:"))?;
        }
        session.options.batch_size_policy = policy;
        let run = timed(&mut session, args, &mut console)?;
        console.text(format!("\n{}", run.our_tables()))?;
        runs.push(run);
    }
    let comparison = args.compare.then(|| runs[0].compare(&runs[1]));
    comparison.iter().try_for_each(|comparison| console.text(format!("\n{comparison}")))?;
    if let Some(run) = runs.last().filter(|_| group.leads()) {
        plot(args.plot.as_ref(), (&run.plan, None), header.words(), &mut console)?;
    }
    console.object(&Report {
        header,
        profiling: session.origin.profiling,
        planning_ms: session.origin.planning.planning.as_secs_f64() * 1e3,
        runs,
        comparison,
        batches: session.batches,
    })
}

/// Plans and times the net under the session's options; the session keeps it.
pub(super) fn timed(session: &mut Session, args: &TimeArgs, console: &mut Console) -> Result<TimeRun> {
    let planned = session.plan(Recorded::default())?;
    let (run, memory) = session.lay_out(&planned, console)?;
    let layer_memory = run.nets()[0].layer_memory();
    let samples = run.nets()[0].mini_batch() * session.group.share().ranks;
    let (outline, actions) = (run.nets()[0].outline(true), run.actions(0).to_vec());
    announce(&planned, &memory, console)?;
    let measured = measure(session, run, args)?;
    if let Some(file) = args.trace.as_ref().filter(|_| session.group.leads()) {
        let spans = measured.spans_ms.iter().zip(&actions);
        let span = |(&span_ms, &action)| ActionSpan::new(&outline, action, span_ms, None);
        write_trace(file, &spans.map(span).collect::<Vec<_>>())?;
    }
    let run = TimeRun {
        memory,
        plan: PlanReport::new(&planned.plans[0], &measured.kernels_ms),
        schedule: planned.schedule,
        images_per_s: samples as f64 / measured.iteration_ms() * 1e3,
        kernels_measured_ms: measured.kernels_ms.iter().sum(),
        layer_memory,
        peak_resident: host::peak_resident(),
        measured,
    };
    console.text(run.caffe_lines())?;
    Ok(run)
}

/// Runs the net and puts its data back where it was: another run sees the same mini-batches.
fn measure(session: &mut Session, run: NetRun, args: &TimeArgs) -> Result<time::TimeReport> {
    let positions = run.nets()[0].loaders().map(|(layer, loader)| (layer.to_owned(), loader.position()));
    let positions: Vec<(String, u64)> = positions.collect();
    let bar = session.group.leads().then(|| progress::bar(args.iterations as u64, "timing"));
    let step = || bar.iter().for_each(|bar| bar.inc(1));
    let (report, mut net) = time::time(run, args.iterations, args.seed, step)?;
    positions.iter().for_each(|(layer, position)| net.set_position(layer, *position));
    session.nets.push(net);
    Ok(report)
}
