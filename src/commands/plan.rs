//! `microbatch plan`.

use super::draw::{check, plot, write_trace};
use super::inputs::{in_math, net_spec, refuse};
use super::list::list;
use super::origin::Origin;
use super::setup::{Planned, Recorded, Request, Session, verify};
use crate::args::{Link, NetArgs, PlanArgs, ShapeArgs, required};
use crate::report::{Header, ShapesReport, Subject};
use crate::shapes::{ShapeSpec, read_csv};
use crate::{Console, Result};
use cudnn_layers::conv::{geometry, operand_lens};
use figures::{
    BatchReport, BudgetReport, EstimateReport, ExplainReport, MemoryEstimate, PlanReport, ProfilingReport,
    ScalingReport, ScheduleReport, layer_table,
};
use memory::{Action, LayerMemory, Outline, Schedule, policy::MemoryPolicy};
use planner::{Bytes, ConvOp, Kernel, Math, PlannedKernel};
use serde::Serialize;
use tensor::Format;
use trainer::{host::check_memory, spec::Phase};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    /// What was measured, unless the device is a recorded table.
    profiling: Option<ProfilingReport>,
    /// What a recorded device's tables do not have.
    estimate: Option<EstimateReport>,
    planning_ms: f64,
    plan: PlanReport,
    explanation: Option<ExplainReport>,
    /// With a budget of memory, what it allows.
    budget: Option<BudgetReport>,
    /// Under a policy for memory, what becomes of feature maps.
    schedule: Option<ScheduleReport>,
    /// With --batch max, what mini-batches bring.
    batches: Option<BatchReport>,
    /// With --gpus, what several bring.
    scaling: Option<ScalingReport>,
    /// What running the net would take, where it could run.
    memory: Option<MemoryEstimate>,
    layer_memory: Vec<LayerMemory>,
    /// What else its memory depends on: what reads what, how large it is.
    outline: Option<Outline>,
}

/// Measures and plans the convolutions of a net, and tells what training it would take, without running it; or plans
/// other convolutions, or from a recorded table.
pub(super) fn plan(args: &PlanArgs) -> Result<()> {
    let mut console = Console::new(args.run.json);
    if args.list {
        return list(args, &mut console);
    }
    check(args.trace.iter().chain(&args.plot), args.net.model.iter().chain(&args.shapes.csv))?;
    match convolutions(&args.shapes, &args.net)? {
        Some((source, convolutions)) => plan_shapes(args, source, &convolutions, &mut console),
        None => plan_net(args, &mut console),
    }
}

fn plan_net(args: &PlanArgs, console: &mut Console) -> Result<()> {
    let NetArgs { phase, batch, .. } = args.net;
    let keeps = phase == Phase::Test || args.planning.memory_policy == Some(MemoryPolicy::Keep);
    refuse([(keeps && args.trace.is_some(), "--trace")], "a net of which everything stays on the device")?;
    let request = Request { batch, ..Request::new("plan", &args.planning, &args.run) };
    let mut spec = net_spec(&args.net)?;
    // One of two GPUs takes as much memory as one of a thousand.
    spec.share.ranks = args.gpus.unwrap_or(1).min(2);
    let (mut session, header) = Session::open(&request, spec, console)?;
    session.profile(&[], console)?;
    let planned = session.plan(Recorded::default())?;
    let scaling = args.gpus.map(|gpus| scaling(&mut session, &planned, (args.link, gpus))).transpose()?;
    let batches = session.batches.take();
    let outline = args.run.json.then(|| session.nets[0].outline(true));
    let (memory, layer_memory) = match session.origin.recorded.is_some() {
        // What was recorded elsewhere has algorithms that are not here: the net has their workspaces, and cannot run.
        true => {
            session.nets[0].install(&planned.plans[0], false)?;
            (None, session.nets[0].layer_memory())
        }
        false => {
            let (run, memory) = session.lay_out(&planned, console)?;
            (Some(memory), run.nets()[0].layer_memory())
        }
    };
    let report = report(args, header, &session.origin, planned)?;
    let report = Report { memory, layer_memory, outline, batches, scaling, ..report };
    if let Some(file) = &args.trace {
        let stays = "everything stays on the device (--memory-policy joint plans all the same)";
        let stays = || usage!("--trace has no effect here: {stays}");
        write_trace(file, &report.schedule.as_ref().ok_or_else(stays)?.actions)?;
    }
    print(args, &report, console)
}

/// What several GPUs bring that run a plan.
fn scaling(session: &mut Session, planned: &Planned, (link, gpus): (Link, usize)) -> Result<ScalingReport> {
    let (kernels, rates) = (session.kernels().swap_remove(0), session.origin.rates());
    let net = session.nets.remove(0);
    let (costs, net) = session.origin.planning.costs(net, &kernels, &session.options, rates)?;
    let (outline, samples) = (net.outline(true), net.mini_batch());
    let pass_ms = |node: usize, pass: usize| -> f64 {
        let kernels = planned.plans[0].kernels.iter();
        let own = kernels.filter(|planned| planned.kernel.name == outline.nodes[node].name);
        let own = own.filter(|planned| usize::from(planned.kernel.id.op != ConvOp::Forward) == pass);
        costs.nodes[node][pass].fixed_ms + own.map(PlannedKernel::time_ms).sum::<f64>()
    };
    let step = |action: &Action| match *action {
        Action::Backward(node) => Some((pass_ms(node, 1), 0.0)),
        // What is updated together is added up together.
        Action::Update(first, end) => {
            let trained = outline.params[first..end].iter().filter(|param| param.trained);
            Some((0.0, trained.map(|param| param.bytes.0 as f64).sum()))
        }
        _ => None,
    };
    let backward: Vec<(f64, f64)> = Schedule::plain(&outline).actions.iter().filter_map(step).collect();
    let backward_ms: f64 = backward.iter().map(|(ms, _)| ms).sum();
    // Copies, waits and what is computed again are taken to lie outside the backward pass.
    let rest_ms = match &planned.schedule {
        Some(schedule) => schedule.planned_ms - backward_ms,
        None => (0..outline.nodes.len()).map(|node| pass_ms(node, 0)).sum::<f64>() + costs.update_ms,
    };
    session.nets.insert(0, net);
    refuse_if!(rest_ms + backward_ms <= 0.0, "--gpus: this net computes nothing");
    Ok(ScalingReport::new(link, gpus, &backward, (rest_ms, samples)))
}

fn plan_shapes(
    args: &PlanArgs,
    source: String,
    convolutions: &[ShapeSpec],
    console: &mut Console,
) -> Result<()> {
    if let Some(budget) = args.planning.device_memory {
        let budget = budget.exact();
        return Err(usage!("--device-memory {budget} needs a net: shapes have no schedule"));
    }
    let mut origin = Origin::any(&args.run, &args.planning)?;
    let options = args.planning.options(origin.on_gpu(), None)?;
    let [format] = args.run.formats()[..] else {
        return Err(usage!("--layout auto needs a net, for which it chooses: say nchw or nhwc"));
    };
    let kernels = shape_kernels(convolutions, &args.shapes.op, format, args.run.math);
    if origin.recorded.is_none() {
        check_memory(&origin.device, [largest(&kernels), Bytes::ZERO], None)?;
    }
    let shapes = ShapesReport { source, convolutions: convolutions.len(), kernels: kernels.len() };
    let header = origin.header("plan", Subject::Shapes(shapes), [Vec::new(), Vec::new()]);
    console.text(&header)?;
    origin.profile(&kernels, &options, console)?;
    let plans = vec![origin.plan(&kernels, None, &options)?];
    if args.planning.verify {
        verify(&origin.device, &plans, console)?;
    }
    let planned = Planned { plans, ..Planned::default() };
    print(args, &report(args, header, &origin, planned)?, console)
}

/// The convolutions that are given instead of a net, and where they stand; all at the mini-batch, if one is given.
pub(super) fn convolutions(args: &ShapeArgs, net: &NetArgs) -> Result<Option<(String, Vec<ShapeSpec>)>> {
    let (source, mut convolutions) = match &args.csv {
        Some(file) => (file.display().to_string(), read_csv(file)?),
        None if args.conv.is_empty() => {
            return required(&net.model, "--conv SHAPE, --csv FILE or --model").map(|_| None);
        }
        None => ("the command line".to_owned(), numbered(&args.conv)),
    };
    if let Some(batch) = net.samples()?.and_then(|batch| u32::try_from(batch).ok()) {
        convolutions.iter_mut().for_each(|convolution| convolution.mini_batch = batch);
    }
    Ok(Some((source, convolutions)))
}

/// Several convolutions of one name get numbers.
fn numbered(convolutions: &[ShapeSpec]) -> Vec<ShapeSpec> {
    let mut numbered = convolutions.to_vec();
    for (number, convolution) in (1..).zip(&mut numbered) {
        if convolutions.iter().filter(|other| other.name == convolution.name).count() > 1 {
            convolution.name += &format!("{number}");
        }
    }
    numbered
}

/// The kernels of `convolutions` for these operations, or for all, with feature maps of this format, in this `math`.
pub(super) fn shape_kernels(
    convolutions: &[ShapeSpec],
    ops: &[ConvOp],
    format: Format,
    math: Math,
) -> Vec<Kernel> {
    let ops: Vec<ConvOp> = ConvOp::ALL.into_iter().filter(|op| ops.is_empty() || ops.contains(op)).collect();
    in_math(convolutions.iter().flat_map(|convolution| convolution.kernels(&ops, format)).collect(), math)
}

/// What measuring the largest of `kernels` takes without its workspace.
pub(super) fn largest(kernels: &[Kernel]) -> Bytes {
    let bytes = |kernel: &Kernel| {
        let lens = operand_lens(kernel.id.op, &geometry(&kernel.id.shape, kernel.mini_batch));
        lens.into_iter().map(|len| Bytes((len * size_of::<f32>()) as u64)).sum()
    };
    kernels.iter().map(bytes).max().unwrap_or_default()
}

/// What there is to say of a plan, wherever its convolutions come from.
fn report(args: &PlanArgs, header: Header, origin: &Origin, planned: Planned) -> Result<Report> {
    let Planned { plans, budget, schedule, .. } = planned;
    let explanation = args.explain.then(|| ExplainReport::new(&plans[0], &origin.planning.table));
    let explanation = explanation.transpose().map_err(trainer::NetError::from)?;
    // With a budget it is about that: no one limit is behind the plan.
    let explanation = explanation.map(|explanation| match (&budget, &schedule) {
        (Some(budget), _) => explanation.in_budget(budget),
        (None, Some(_)) => explanation.in_schedule(),
        (None, None) => explanation,
    });
    Ok(Report {
        header,
        profiling: origin.profiling.clone(),
        estimate: origin.estimate,
        planning_ms: origin.planning.planning.as_secs_f64() * 1e3,
        plan: PlanReport { prediction: origin.recorded.is_some(), ..PlanReport::new(&plans[0], &[]) },
        explanation,
        budget,
        schedule,
        batches: None,
        scaling: None,
        memory: None,
        layer_memory: Vec::new(),
        outline: None,
    })
}

/// Prints a report, and draws it if that is asked for.
fn print(args: &PlanArgs, report: &Report, console: &mut Console) -> Result<()> {
    console.text(format!("  planning    {:.2} ms", report.planning_ms))?;
    if let Some(memory) = &report.memory {
        console.text(memory)?;
        if matches!(&report.header.subject, Subject::Net(net) if net.data.unopened) {
            console.text("              (the data set comes on top: a plan does not open it)")?;
        }
    }
    console.text(format!("\n{}", report.plan))?;
    report.budget.iter().try_for_each(|budget| console.text(format!("\n{budget}")))?;
    report.schedule.iter().try_for_each(|schedule| console.text(format!("\n{schedule}")))?;
    report.scaling.iter().try_for_each(|scaling| console.text(format!("\n{scaling}")))?;
    report.explanation.iter().try_for_each(|explanation| console.text(format!("\n{explanation}")))?;
    plot(args.plot.as_ref(), (&report.plan, report.scaling.as_ref()), report.header.words(), console)?;
    if matches!(report.header.subject, Subject::Net(_)) {
        console.text(format!("\n{}", layer_table(&report.layer_memory)))?;
    }
    console.object(report)
}
