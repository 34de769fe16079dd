//! `microbatch test`.

use super::setup::{Recorded, Request, Session, announce};
use crate::args::{Batch, TestArgs};
use crate::report::{Header, confusion_table, output_lines};
use crate::stop::{exit_code, stop};
use crate::{Console, Error, models::load_net, progress};
use figures::{BudgetReport, MemoryEstimate, PlanReport, six_digits};
use serde::Serialize;
use trainer::snapshot::{CopiedWeights, Weights};
use trainer::solver::{Confusion, TestOutput};
use trainer::spec::{LayerKind, LayerSpec, NetSpec, Phase};
use trainer::{Execution, Net};

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
    confusion: Option<Confusion>,
}

/// Runs trained weights over test data, once if nobody says otherwise, and averages the net's outputs. A signal
/// (Ctrl-C) ends it after its mini-batch, with the averages of those before.
pub(super) fn test(args: &TestArgs) -> Result<(), Error> {
    let mut console = Console::new(args.run.json);
    // What is wrong with them should not come out after measuring.
    let weights = Weights::load(&args.trained.weights)?;
    let batch = args.batch.map(Batch::Samples);
    let request = Request { batch, seed: args.seed, ..Request::new("test", &args.planning, &args.run) };
    let spec = load_net(&args.trained.model)?.for_phase(Phase::Test);
    let classified = args.confusion.then(|| classified(&spec)).transpose()?;
    let (mut session, mut header) = Session::open(&request, spec, &mut console)?;
    classified.iter().flatten().try_for_each(|blob| session.nets[0].keep_blob(blob).map(drop))?;
    let (wanted, again) = mini_batches(args, &session.nets[0])?;
    if again > 0 {
        let note = format!("the last mini-batch takes {again} samples again, to be full");
        console.text(format!("  note        {note}"))?;
        header.notes.push(note);
    }
    let copied = weights.copied(&session.nets[0])?;
    console.text(&copied)?;
    copied.complete()?;
    let names = weights.class_names(&session.nets[0], &copied)?;
    let others = other_classes(&names, &session.nets[0]);
    header.warnings.extend(others.inspect(|warning| console.warn(warning)));
    session.profile(&[], &mut console)?;
    let planned = session.plan(Recorded::default())?;
    let (run, memory) = session.lay_out(&planned, &mut console)?;
    let plan = announce(&planned, &memory, &mut console)?;
    let budget = planned.budget;
    let mut running = run.start(args.seed)?;
    running.load_weights(&weights)?;
    let (outputs, iterations, confusion) =
        mean_outputs(&mut running, (wanted, again), classified.as_ref(), &mut console)?;
    let confusion = confusion.map(|counted| Confusion { names, ..counted });
    let loss = outputs.iter().map(TestOutput::loss).sum();
    console.text(format!("Loss: {}", six_digits(loss)))?;
    outputs.iter().flat_map(output_lines).try_for_each(|line| console.text(line))?;
    confusion.iter().try_for_each(|confusion| console.text(confusion_table(confusion)))?;
    let report =
        Report { header, weights: copied, memory, plan, budget, iterations, loss, outputs, confusion };
    console.object(&report)?;
    check_end(iterations, wanted)
}

/// An error that says how far it came, if a signal has stopped it before so many mini-batches were done.
pub(super) fn check_end(done: usize, wanted: usize) -> Result<(), Error> {
    let stopped = exit_code().filter(|_| done < wanted);
    let after = format!("after {done} of {wanted} mini-batches");
    stopped.map_or(Ok(()), |exit_code| Err(Error::Stopped { after, exit_code }))
}

/// How many mini-batches are tested, and how many samples of the last one are there a second time, to fill it.
fn mini_batches(args: &TestArgs, net: &Net) -> Result<(usize, usize), Error> {
    if let Some(iterations) = args.iterations {
        return Ok((iterations, 0));
    }
    let Some((_, loader)) = net.loaders().next() else {
        // Caffe's default.
        return args.epochs.map_or(Ok((50, 0)), |epochs| Ok((net.mini_batches(epochs)?, 0)));
    };
    let epochs = args.epochs.unwrap_or(1);
    let iterations = net.mini_batches(epochs)?;
    Ok((iterations, iterations * net.mini_batch() - epochs * loader.dataset().facts().len))
}

/// What is wrong if a label of the test data stands for another class than among `names`, those of the weights.
fn other_classes(names: &[String], net: &Net) -> Option<String> {
    let tested = net.loaders().next()?.1.dataset().class_names();
    let (label, (known, other)) = names.iter().zip(&tested).enumerate().find(|(_, (a, b))| a != b)?;
    Some(format!(
        "label {label} is '{known}' for the weights and '{other}' in the test data: labels follow the order of the \
         folders' names, so equal labels mean different classes"
    ))
}

/// The blobs of scores and of labels, from the first layer that compares them.
fn classified(spec: &NetSpec) -> Result<[String; 2], Error> {
    let compares =
        |layer: &&LayerSpec| matches!(layer.kind, LayerKind::Accuracy(_) | LayerKind::SoftmaxWithLoss(_));
    let nothing = || usage!("--confusion needs a net with an Accuracy or a SoftmaxWithLoss");
    let layer = spec.layers.iter().find(compares).ok_or_else(nothing)?;
    Ok([layer.bottoms[0].clone(), layer.bottoms[1].clone()])
}

/// Prints the outputs of every mini-batch, and returns their means and of how many these are: all, unless it is
/// stopped. Counts what each sample is taken for, if there are blobs for that, once for each.
fn mean_outputs(
    running: &mut Execution,
    (iterations, again): (usize, usize),
    classified: Option<&[String; 2]>,
    console: &mut Console,
) -> Result<(Vec<TestOutput>, usize, Option<Confusion>), Error> {
    let mut confusion = classified.map(|_| Confusion::default());
    let bar = progress::bar(iterations as u64, "testing");
    let stop = stop()?;
    let _listening = stop.listen();
    let (outputs, done) = running.test(0, iterations, &stop, |running, number, outputs| {
        if let (Some([scores, labels]), Some(confusion)) = (classified, &mut confusion) {
            let (scores, mut labels) = (running.blob(0, scores)?, running.blob(0, labels)?);
            if labels.len() != running.nets()[0].mini_batch() {
                let reason = "--confusion counts images, and the labels of this net are of parts of images";
                return Err(Error::Refused(reason.to_owned()));
            }
            let classes = scores.len() / labels.len().max(1);
            if number + 1 == iterations {
                labels.truncate(labels.len() - again);
            }
            confusion.count(&scores[..classes * labels.len()], &labels);
        }
        for output in outputs {
            for value in &output.values {
                let line = format!("Batch {number}, {} = {}", output.name, six_digits(*value));
                bar.suspend(|| console.text(line))?;
            }
        }
        bar.inc(1);
        Ok::<(), Error>(())
    })?;
    Ok((outputs, done, confusion))
}
