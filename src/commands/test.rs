//! `microbatch test`.

use super::{
    Notes,
    setup::{Recorded, Request, Session, announce},
};
use crate::{
    Console, Error,
    args::{Batch, TestArgs},
    progress,
    report::{BudgetReport, Header, MemoryEstimate, PlanReport, output_lines, six_digits},
    stop::{exit_code, stop},
};
use serde::Serialize;
use trainer::{
    Execution,
    snapshot::{CopiedWeights, Weights},
    solver::TestOutput,
    spec::Phase,
};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    weights: CopiedWeights,
    memory: MemoryEstimate,
    plan: PlanReport,
    budget: Option<BudgetReport>,
    iterations: usize,
    loss: f64,
    outputs: Vec<TestOutput>,
}

/// Runs trained weights over test data and averages the net's outputs. A signal (Ctrl-C) ends it after its mini-batch, with
/// the averages of those before.
///
/// # Errors
/// Files, nets, data and limits that do not do, weights that lack a layer, and [`Error::Stopped`].
pub fn test(args: &TestArgs) -> Result<(), Error> {
    let mut console = Console::new(args.run.json);
    // What is wrong with them should not come out after measuring.
    let weights = Weights::load(&args.weights)?;
    let request = Request {
        command: "test",
        model: &args.model,
        phase: Phase::Test,
        batch: args.batch.map(Batch::Samples),
        planning: &args.planning,
        run: &args.run,
        seed: args.seed,
        notes: &Notes::default(),
    };
    let (mut session, header) = Session::open(&request, &mut console)?;
    let copied = weights.copied(&session.nets[0])?;
    console.text(&copied)?;
    copied.complete()?;
    session.profile(&[], &mut console)?;
    let planned = session.plan(Recorded::default())?;
    let (run, memory) = session.lay_out(&planned, &mut console)?;
    let plan = announce(&planned, &memory, &mut console)?;
    let budget = planned.budget;
    let mut running = run.start(args.seed)?;
    running.load_weights(&weights)?;
    let (outputs, iterations) = mean_outputs(&mut running, args.iterations, &mut console)?;
    let loss = outputs.iter().map(TestOutput::loss).sum();
    console.text(format!("Loss: {}", six_digits(loss)))?;
    outputs.iter().flat_map(output_lines).try_for_each(|line| console.text(line))?;
    console.object(&Report { header, weights: copied, memory, plan, budget, iterations, loss, outputs })?;
    let stopped = exit_code().filter(|_| iterations < args.iterations);
    let after = format!("after {iterations} of {} mini-batches", args.iterations);
    stopped.map_or(Ok(()), |exit_code| Err(Error::Stopped { after, exit_code }))
}

/// Prints the outputs of every mini-batch, and returns their means and of how many these are: all, unless it is stopped.
fn mean_outputs(
    running: &mut Execution,
    iterations: usize,
    console: &mut Console,
) -> Result<(Vec<TestOutput>, usize), Error> {
    let bar = progress::bar(iterations as u64, "testing");
    let stop = stop()?;
    let _listening = stop.listen();
    let tested = running.test(0, iterations, &stop, |number, outputs| {
        for output in outputs {
            for value in &output.values {
                let line = format!("Batch {number}, {} = {}", output.name, six_digits(*value));
                bar.suspend(|| console.text(line))?;
            }
        }
        bar.inc(1);
        Ok::<(), Error>(())
    });
    bar.finish_and_clear();
    tested
}
