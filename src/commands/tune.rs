//! `microbatch tune`: AccUDNN's largest mini-batch in a budget of memory, and its learning rate.

use super::draw::{check, plot};
use super::inputs::{STAND_IN, net_spec, refuse, synthetic};
use super::setup::{Request, Session};
use super::{batch::BatchSearch, budget::Goal, origin::Origin, time::timed};
use crate::args::{Batch, PlanningArgs, TimeArgs, TuneArgs};
use crate::report::{Header, TimeRun};
use crate::{Console, Error, Result};
use figures::six_digits;
use memory::policy::{self, Costs, MemoryPolicy, PassCosts, Speeds, TimedSize};
use planner::{Bytes, PlanOptions};
use serde::Serialize;
use std::fmt;
use trainer::{Group, Net, layers::BuildOptions, spec::NetSpec, spec::Phase};

/// The mini-batches that are measured, in parts of the net's, and from which one on these are five.
const PARTS: [f64; 5] = [0.125, 0.25, 0.5, 2.0 / 3.0, 1.0];
const LEAST: usize = 8;
/// Workspace of each kernel in the model.
const WORKSPACE: Bytes = Bytes::mib(64);

/// What is recommended, and how good the model is behind it.
#[derive(Serialize)]
struct Advice {
    budget: Bytes,
    /// The net's own mini-batch and its rate.
    base: usize,
    base_lr: f64,
    convexity: f64,
    /// The distance of the modelled times of layers from the measured ones, relative to these: the median and the most.
    model_errors: [f64; 2],
    mini_batch: u32,
    predicted_images_per_s: f64,
    measured_images_per_s: f64,
    learning_rate: f64,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    advice: Advice,
    /// What was measured at that mini-batch.
    run: TimeRun,
}

/// Fits the model to layers at several mini-batches, finds the largest at which no swap stalls, and times that.
pub(super) fn tune(args: &TuneArgs) -> Result<()> {
    let TimeArgs { net, planning, run, seed, .. } = &args.time;
    let options = [
        (args.time.compare, "--compare"),
        (net.phase != Phase::Train, "--phase TEST"),
        (net.batch == Some(Batch::Largest), "--batch max"),
        (planning.memory_policy.is_some(), "--memory-policy"),
        (planning.measuring.offline, "--offline"),
    ];
    refuse(options, "`tune`, which measures a training net and finds its mini-batch under AccUDNN's policy")?;
    let needs = || usage!("tune needs --device-memory, the memory to fill");
    let budget = planning.device_memory.ok_or_else(needs)?;
    check(args.time.trace.iter().chain(&args.time.plot), &net.model)?;
    let mut origin = Origin::device(run, &planning.measuring)?;
    let mut spec = net_spec(net)?;
    net.samples()?.into_iter().for_each(|samples| spec.set_mini_batch(samples));
    let base = spec.mini_batch().unwrap_or(1);
    refuse_if!(
        base < LEAST,
        "tune times layers at parts of the mini-batch: it has to be at least {LEAST} (--batch)"
    );
    let (rate, convexity) = (args.base_lr, args.convexity);
    refuse_if!(rate * convexity > 1.0, "--convexity {convexity} allows no rate as large as --base-lr {rate}");
    let options = planning.options(origin.on_gpu(), None)?;
    let mut console = Console::new(run.json);
    origin.settle_layout((run, planning), &spec, (&Group::default(), None))?;
    let synthetic = synthetic(run.synthetic, &spec)?.or(Some(STAND_IN));
    let build = BuildOptions { device: origin.device.clone(), seed: *seed, synthetic };
    let search = BatchSearch { spec, build, goal: Goal { policy: MemoryPolicy::Accudnn, budget } };
    let (samples, costs, whole) = measure(&search, &mut origin, &options, base)?;
    let (layers, outline) = (whole.work(), whole.outline(true));
    let speeds = Speeds::fit(&layers, &samples);
    let tuned =
        policy::tune((&outline, base as u32), (&layers, &speeds), &costs, budget).ok_or_else(|| {
            Error::Refused(format!(
                "in {budget} no mini-batch trains without waiting for copies, as far as the model knows"
            ))
        })?;
    let learning_rate =
        policy::learning_rate(args.base_lr, f64::from(tuned.mini_batch) / base as f64, args.convexity);
    drop(origin);
    let (header, run) = time(args, search.spec, tuned.mini_batch)?;
    let advice = Advice {
        budget,
        base,
        base_lr: args.base_lr,
        convexity: args.convexity,
        model_errors: speeds.errors(&layers, &samples),
        mini_batch: tuned.mini_batch,
        predicted_images_per_s: tuned.samples_per_s,
        measured_images_per_s: run.images_per_s,
        learning_rate,
    };
    console.text(&advice)?;
    console.object(&Report { header, advice, run })
}

/// The times of all layers at several mini-batches; the costs and the net at the last, which is `base`.
fn measure(
    search: &BatchSearch,
    origin: &mut Origin,
    options: &PlanOptions,
    base: usize,
) -> Result<(Vec<TimedSize>, Costs, Net)> {
    let (mut samples, mut last) = (Vec::new(), None);
    for part in PARTS {
        let mini_batch = ((base as f64 * part).round() as usize).max(1);
        let (net, kernels) = search.measured(origin, options, mini_batch)?.expect("a device measures");
        let (costs, net) = origin.planning.costs(net, &kernels, options, origin.rates())?;
        let ms = |passes: &[PassCosts; 2]| passes.each_ref().map(|pass| pass.time_ms(WORKSPACE));
        let ms = costs.nodes.iter().map(ms).collect();
        samples.push(TimedSize { part: mini_batch as f64 / base as f64, ms });
        last = Some((costs, net));
    }
    let (costs, net) = last.expect("there are parts");
    Ok((samples, costs, net))
}

/// Times the net of `spec` at `mini_batch` under AccUDNN's policy.
fn time(args: &TuneArgs, spec: NetSpec, mini_batch: u32) -> Result<(Header, TimeRun)> {
    let TimeArgs { planning, run, seed, .. } = &args.time;
    let planning = PlanningArgs { memory_policy: Some(MemoryPolicy::Accudnn), ..planning.clone() };
    let mut console = Console::new(run.json);
    let batch = Some(Batch::Samples(mini_batch as usize));
    let request = Request { batch, seed: *seed, ..Request::new("tune", &planning, run) };
    let (mut session, header) = Session::open(&request, spec, &mut console)?;
    session.profile(&[], &mut console)?;
    let run = timed(&mut session, &args.time, &mut console)?;
    plot(args.time.plot.as_ref(), (&run.plan, None), header.words(), &mut console)?;
    Ok((header, run))
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, base, base_lr, convexity, mini_batch, learning_rate, .. } = self;
        let (predicted, measured) = (self.predicted_images_per_s, self.measured_images_per_s);
        let [median, most] = self.model_errors.map(|error| 100.0 * error);
        writeln!(f, "\nAccUDNN in {budget}, from mini-batch {base} at the rate {base_lr}:")?;
        writeln!(
            f,
            "  model         layers at {} mini-batches fitted by type, off by {median:.0} % (median), {most:.0} % at most",
            PARTS.len()
        )?;
        writeln!(f, "  mini-batch    {mini_batch}, the largest at which swapping should stall nothing")?;
        writeln!(f, "  images/s      predicted {predicted:.1}, measured {measured:.1}")?;
        write!(f, "  learning rate {}, for a convexity of {convexity}", six_digits(*learning_rate))
    }
}
