//! `microbatch test`.

use super::setup::{Recorded, Request, Session, announce};
use crate::args::{Batch, TestArgs};
use crate::report::{Header, confusion_table, output_lines};
use crate::stop::{exit_code, stop};
use crate::{Console, Error, Result, models::load_net, progress};
use figures::{BudgetReport, MemoryEstimate, PlanReport, six_digits};
use serde::Serialize;
use trainer::snapshot::{CopiedWeights, Weights};
use trainer::solver::{Confusion, TestOutput};
use trainer::spec::{LayerKind, NetSpec, Phase};
use trainer::{Execution, Net, layers::BuildOptions};

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
pub(super) fn test(args: &TestArgs) -> Result<()> {
    let mut console = Console::new(args.run.json);
    // What is wrong with them should not come out after measuring.
    let weights = Weights::load(&args.trained.weights)?;
    let batch = args.batch.map(Batch::Samples);
    let request = Request { batch, seed: args.seed, ..Request::new("test", &args.planning, &args.run) };
    let spec = load_net(&args.trained.model)?.for_state(&args.trained.state.of(Phase::Test));
    let classified = args.confusion.then(|| classified(&spec)).transpose()?;
    let (mut session, mut header) = Session::open(&request, spec.clone(), &mut console)?;
    let (mini_batches, rest) = mini_batches(args, &session.nets[0])?;
    if rest > 0 {
        let first = mini_batches * session.nets[0].mini_batch();
        let last = last_net(spec, [first, rest], &session.nets[0], args.seed).map_err(|error| {
            let full = format!("--iterations {mini_batches} tests the full ones");
            Error::Refused(format!("{error}; the last mini-batch has {rest} samples: {full}"))
        })?;
        session.nets.push(last);
        let note = format!("the last mini-batch has {rest} samples");
        console.text(format!("  note        {note}"))?;
        header.notes.push(note);
    }
    for net in &mut session.nets {
        let blobs = classified.iter().flat_map(|(blobs, _)| blobs);
        blobs.into_iter().try_for_each(|blob| net.keep_blob(blob).map(drop))?;
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
    let wanted = [(0, mini_batches), (1, usize::from(rest > 0))];
    let (outputs, iterations, confusion) =
        mean_outputs(&mut running, &wanted, classified.as_ref(), &mut console)?;
    let confusion = confusion.map(|counted| Confusion { names, ..counted });
    let loss = outputs.iter().map(TestOutput::loss).sum();
    console.text(format!("Loss: {}", six_digits(loss)))?;
    outputs.iter().flat_map(output_lines).try_for_each(|line| console.text(line))?;
    confusion.iter().try_for_each(|confusion| console.text(confusion_table(confusion)))?;
    let report =
        Report { header, weights: copied, memory, plan, budget, iterations, loss, outputs, confusion };
    console.object(&report)?;
    check_end(iterations, mini_batches + usize::from(rest > 0))
}

/// An error that says how far it came, if a signal has stopped it before so many mini-batches were done.
pub(super) fn check_end(done: usize, wanted: usize) -> Result<()> {
    match exit_code() {
        Some(_) if done < wanted => Err(Error::Stopped(format!("after {done} of {wanted} mini-batches"))),
        _ => Ok(()),
    }
}

/// How many mini-batches are tested, and how many samples after them, which are too few for another one.
fn mini_batches(args: &TestArgs, net: &Net) -> Result<(usize, usize)> {
    let samples = net.loaders().map(|(_, loader)| loader.dataset().facts().len).max();
    let samples = samples.map(|samples| samples.saturating_mul(args.epochs.unwrap_or(1)));
    match (args.iterations, samples) {
        (Some(iterations), _) => Ok((iterations, 0)),
        (None, Some(samples)) => Ok((samples / net.mini_batch(), samples % net.mini_batch())),
        // Caffe's default.
        (None, None) => args.epochs.map_or(Ok((50, 0)), |epochs| Ok((net.mini_batches(epochs, 0)?, 0))),
    }
}

/// The net for the last samples, `rest` from the `first` on, beside the one for full mini-batches.
fn last_net(mut spec: NetSpec, [first, rest]: [usize; 2], full: &Net, seed: u64) -> Result<Net> {
    spec.set_mini_batch(rest);
    let build = BuildOptions { device: full.device().clone(), seed, synthetic: None };
    let mut net = Net::new(&spec, &build, false)?;
    full.loaders().for_each(|(layer, _)| net.set_position(layer, first as u64));
    Ok(net)
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

/// The blobs of scores and of labels that the last accuracy compares, or else the last loss, and the label that it ignores:
/// heads beside the classifier come before it.
fn classified(spec: &NetSpec) -> Result<([String; 2], Option<i32>)> {
    let last = |compares: fn(&LayerKind) -> bool| spec.layers.iter().rfind(|layer| compares(&layer.kind));
    let nothing = || usage!("--confusion needs a net with an Accuracy or a SoftmaxWithLoss");
    let layer = last(|kind| matches!(kind, LayerKind::Accuracy(_)))
        .or_else(|| last(|kind| matches!(kind, LayerKind::SoftmaxWithLoss(_))))
        .ok_or_else(nothing)?;
    let ignored = match &layer.kind {
        LayerKind::Accuracy(params) => params.ignore_label,
        LayerKind::SoftmaxWithLoss(params) => params.ignore_label,
        _ => None,
    };
    Ok(([layer.bottoms[0].clone(), layer.bottoms[1].clone()], ignored))
}

/// Prints the outputs of every mini-batch, so many of each net, and returns their means over all samples and of how many
/// mini-batches these are: all, unless it is stopped. Counts what each sample is taken for, if there are blobs for that.
fn mean_outputs(
    running: &mut Execution,
    wanted: &[(usize, usize)],
    classified: Option<&([String; 2], Option<i32>)>,
    console: &mut Console,
) -> Result<(Vec<TestOutput>, usize, Option<Confusion>)> {
    let mut confusion = classified.map(|_| Confusion::default());
    let bar = progress::bar(wanted.iter().map(|&(_, count)| count as u64).sum(), "testing");
    let stop = stop()?;
    let _listening = stop.listen();
    let (means, done) = running.test(wanted, &stop, |running, (net, number), outputs| {
        if let (Some(([scores, labels], ignored)), Some(confusion)) = (classified, &mut confusion) {
            let (scores, labels) = (running.blob(net, scores)?, running.blob(net, labels)?);
            if labels.len() != running.nets()[net].mini_batch() {
                let parts = "--confusion counts images, and the labels of this net are of parts of images";
                return Err(Error::Refused(parts.to_owned()));
            }
            confusion.count(&scores, &labels, *ignored);
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
    Ok((means, done, confusion))
}
