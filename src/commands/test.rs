//! `microbatch test`.

use super::{
    Notes,
    setup::{Request, Session, check_memory},
    verify::verify,
};
use crate::{
    Console, Error,
    args::TestArgs,
    progress,
    report::{Header, MemoryEstimate, OutputReport, PlanReport, six_digits},
};
use serde::Serialize;
use tensor::{Accumulate, Arena};
use trainer::{
    Net, NetError,
    net::{Layout, NetLayout, run::Iteration},
    snapshot::{SnapshotError, load_tensors},
    solver::{self, TestOutput, initialize},
    spec::Phase,
};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    memory: MemoryEstimate,
    plan: PlanReport,
    iterations: usize,
    loss: f64,
    outputs: Vec<OutputReport>,
}

/// Runs trained weights over test data and averages the net's outputs.
///
/// # Errors
/// Files, nets, data and limits that do not do, and weights of another net.
pub fn test(args: &TestArgs) -> Result<(), Error> {
    let mut console = Console::new(args.run.json);
    let request = Request {
        command: "test",
        model: &args.model,
        phase: Phase::Test,
        batch: args.batch,
        planning: &args.planning,
        device_memory: None,
        run: &args.run,
        seed: args.seed,
        notes: &Notes::default(),
    };
    let mut session = Session::open(&request, &mut console)?;
    session.profile(session.options.batch_size_policy, &mut console)?;
    let Session { at_start, options, mut origin, mut net, header, .. } = session;
    let plan = origin.install(&mut net, &options)?;
    let layout = Layout::new(&[&net], false);
    if args.planning.verify {
        verify(net.device(), &plan, &mut console)?;
    }
    check_memory(net.device(), layout.report.arena)?;
    let memory = MemoryEstimate::new(&layout.report, at_start, net.device());
    let plan = PlanReport::new(&plan, &[]);
    console.text(format!("  plan        {}\n{memory}\n", plan.policies()))?;

    let mut arena = Arena::on(net.device(), layout.len).map_err(NetError::from)?;
    initialize(&net, &layout.nets[0], &mut arena, args.seed)?;
    load(args, &net, &layout.nets[0], &mut arena)?;
    let outputs = mean_outputs(&mut net, &layout.nets[0], &mut arena, args.iterations, &mut console)?;
    let loss = outputs.iter().map(OutputReport::loss).sum();
    console.text(format!("Loss: {}", six_digits(loss)))?;
    outputs.iter().flat_map(OutputReport::lines).try_for_each(|line| console.text(line))?;
    console.object(&Report { header, memory, plan, iterations: args.iterations, loss, outputs })
}

/// Puts the weights of `args` in their places. The file must be of this very net.
fn load(args: &TestArgs, net: &Net, layout: &NetLayout, arena: &mut Arena) -> Result<(), SnapshotError> {
    let weights = load_tensors(&args.weights)?;
    let params = || net.graph().params.iter().zip(&layout.params);
    weights.check(params().map(|(param, _)| (param.name.as_str(), param.declaration.shape.dims())))?;
    for (param, spans) in params() {
        let dims = param.declaration.shape.dims();
        arena.fill(spans.data, |values| weights.copy_to(&param.name, dims, values))?;
    }
    Ok(())
}

/// Prints the outputs of every mini-batch, and returns their means.
fn mean_outputs(
    net: &mut Net,
    layout: &NetLayout,
    arena: &mut Arena,
    iterations: usize,
    console: &mut Console,
) -> Result<Vec<OutputReport>, Error> {
    let bar = progress::bar(iterations as u64, "testing");
    let mut sums = None;
    for batch in 0..iterations {
        let outputs = forward(net, layout, arena, batch as u64)?;
        for (name, value) in outputs.iter().flat_map(|output| output.values.iter().map(|v| (&output.name, v)))
        {
            bar.suspend(|| console.text(format!("Batch {batch}, {name} = {}", six_digits(*value))))?;
        }
        solver::add(&mut sums, outputs);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(solver::mean(sums, iterations).into_iter().map(OutputReport::from).collect())
}

/// The outputs of one forward pass.
fn forward(
    net: &mut Net,
    layout: &NetLayout,
    arena: &mut Arena,
    number: u64,
) -> Result<Vec<TestOutput>, NetError> {
    let device = net.device().clone();
    let iteration = Iteration { number, accumulate: Accumulate::Replace };
    device.run(|| net.forward(layout, arena, iteration, |_| Ok(())))?;
    solver::outputs(net, layout, arena)
}
