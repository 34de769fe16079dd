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
    report::{Header, MemoryEstimate, PlanReport, output_lines, six_digits},
    stop::{exit_code, stop},
};
use serde::Serialize;
use tensor::{Accumulate, Arena};
use trainer::{
    Net, NetError,
    net::{Layout, NetLayout, run::Iteration},
    snapshot::{SnapshotError, Tensors, load_weights},
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
    outputs: Vec<TestOutput>,
}

/// Runs trained weights over test data and averages the net's outputs. A signal (Ctrl-C) ends it after its mini-batch, with
/// the averages of those before.
///
/// # Errors
/// Files, nets, data and limits that do not do, weights of another net, and [`Error::Stopped`].
pub fn test(args: &TestArgs) -> Result<(), Error> {
    let mut console = Console::new(args.run.json);
    // What is wrong with them should not come out after measuring.
    load_weights(&args.weights)?;
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
    check_memory(net.device(), &layout.report, at_start)?;
    let memory = MemoryEstimate::new(&layout.report, at_start, net.device());
    let plan = PlanReport::new(&plan, &[]);
    console.text(format!("  plan        {}\n{memory}\n", plan.policies()))?;

    let mut arena = Arena::on(net.device(), layout.len).map_err(NetError::from)?;
    initialize(&net, &layout.nets[0], &mut arena, args.seed)?;
    load(&load_weights(&args.weights)?, &net, &layout.nets[0], &mut arena)?;
    let (outputs, iterations) =
        mean_outputs(&mut net, &layout.nets[0], &mut arena, args.iterations, &mut console)?;
    let loss = outputs.iter().map(TestOutput::loss).sum();
    console.text(format!("Loss: {}", six_digits(loss)))?;
    outputs.iter().flat_map(output_lines).try_for_each(|line| console.text(line))?;
    console.object(&Report { header, memory, plan, iterations, loss, outputs })?;
    let stopped = exit_code().filter(|_| iterations < args.iterations);
    let after = format!("after {iterations} of {} mini-batches", args.iterations);
    stopped.map_or(Ok(()), |exit_code| Err(Error::Stopped { after, exit_code }))
}

/// Puts `weights` in their places. They must be of this very net.
fn load(weights: &Tensors, net: &Net, layout: &NetLayout, arena: &mut Arena) -> Result<(), SnapshotError> {
    let params = || net.graph().params.iter().zip(&layout.params);
    weights.check(params().map(|(param, _)| (param.name.as_str(), param.declaration.shape.dims())))?;
    for (param, spans) in params() {
        let dims = param.declaration.shape.dims();
        arena.fill(spans.data, |values| weights.copy_to(&param.name, dims, values))?;
    }
    Ok(())
}

/// Prints the outputs of every mini-batch, and returns their means and of how many these are: all, unless it is stopped.
fn mean_outputs(
    net: &mut Net,
    layout: &NetLayout,
    arena: &mut Arena,
    iterations: usize,
    console: &mut Console,
) -> Result<(Vec<TestOutput>, usize), Error> {
    let bar = progress::bar(iterations as u64, "testing");
    let mut sums = None;
    let stop = stop()?;
    let _listening = stop.listen();
    let mut done = 0;
    while done < iterations && !stop.is_requested() {
        let outputs = forward(net, layout, arena, done as u64)?;
        for (name, value) in outputs.iter().flat_map(|output| output.values.iter().map(|v| (&output.name, v)))
        {
            bar.suspend(|| console.text(format!("Batch {done}, {name} = {}", six_digits(*value))))?;
        }
        solver::add(&mut sums, outputs);
        bar.inc(1);
        done += 1;
    }
    bar.finish_and_clear();
    Ok((solver::mean(sums, done), done))
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
