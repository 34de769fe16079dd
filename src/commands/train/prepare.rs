//! From the command line to a training that is ready to begin.

use super::metrics::Metrics;
use crate::args::{DEFAULT_SEED, RunArgs, TrainArgs, required};
use crate::commands::inputs::{ranks_note, refuse, synthetic, warn};
use crate::commands::setup::{Planned, Session, announce};
use crate::report::{DataReport, NetReport, Subject, TrainReport};
use crate::{Console, Error, Result, commands::origin::Origin, models::load_solver};
use files::{fnv1a, read_regular};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use trainer::snapshot::{SnapshotPlace, SolverState, Weights, load_solver_state, newest};
use trainer::spec::{NetSource, NetSpec, SolverSpec};
use trainer::{Group, Net, Solver, Training, host, layers::BuildOptions, planning::PlanRecord};

/// A training that is ready to begin, and what was said of it.
pub(super) struct Prepared {
    pub(super) solver: Solver,
    pub(super) report: TrainReport,
    /// As long as this is there, no other training writes snapshots to the same place.
    pub(super) place: Option<SnapshotPlace>,
    /// The solver state that it resumes from.
    pub(super) snapshot: Option<String>,
}

/// Reads the solver, makes sure of the place for its snapshots, builds its nets, prints the header, plans and begins.
pub(super) fn prepare(
    args: &TrainArgs,
    run: &RunArgs,
    group: &Group,
    console: &mut Console,
) -> Result<Prepared> {
    let at_start = host::resident();
    let mut origin = Origin::device(run, &args.planning.measuring)?;
    let mut spec = solver_spec(args)?;
    spec.share = group.share();
    let (snapshot, damaged) = group.from_leader(|| {
        Ok::<_, Error>(match args.resume {
            true => newest(&spec.snapshot.prefix)?,
            false => (args.snapshot.clone(), Vec::new()),
        })
    })?;
    for sentence in damaged {
        console.warn(format!("{sentence}; an earlier snapshot is looked for"));
    }
    let resumed = snapshot.as_deref().map(resumed).transpose()?;
    let recorded_seed = resumed.as_ref().map(|(state, _)| state.random_seed);
    spec.random_seed = args.seed.or(recorded_seed).or(spec.random_seed);
    if let Some((state, _)) = &resumed {
        spec.done = [state.iteration, state.data_positions.values().copied().max().unwrap_or(0)];
    }
    let mut net = spec.train_net.load()?.for_state(&spec.train_state);
    let (chosen, mut notes) = run.chosen(args.batch.is_some(), origin.on_gpu());
    args.batch.or(chosen).into_iter().for_each(|samples| net.set_mini_batch(samples));
    spec.train_net = NetSource::Inline(Box::new(net.clone()));
    // What is wrong with them should not come out after measuring.
    let files = if args.weights.is_empty() { spec.weights.clone() } else { args.weights.clone() };
    let is_wanted = !files.is_empty() && snapshot.is_none();
    let weights = is_wanted.then(|| Weights::load(&files)).transpose()?;
    // That snapshots cannot be written should not come out at the end of a training.
    let place = || SnapshotPlace::open(&spec.snapshot.prefix, spec.max_iter as u64);
    let place = (group.leads() && spec.snapshot.is_wanted()).then(place).transpose()?;
    if group.leads() {
        Metrics::check(args, &spec.snapshot.prefix, snapshot.as_deref())?;
    }
    let mut warnings = warn(console, &spec.warnings);
    warnings.extend(warn(console, &net.warnings));
    let recorded = resumed.as_ref().and_then(|(_, plans)| plans.as_ref());
    let before = recorded.and_then(|record| record.plans.first());
    let options = args.planning.options(origin.on_gpu(), before.map(|plan| &plan.options))?;
    if args.resume && snapshot.is_none() {
        let prefix = spec.snapshot.prefix.display();
        notes.push(format!("there is no snapshot {prefix}_iter_N to resume from: this training begins"));
    }
    let first = resumed.as_ref().map_or(0, |(state, _)| state.iteration);
    notes.extend(snapshot.iter().map(|path| format!("resumes from {} at iteration {first}", path.display())));
    notes.extend(place.iter().flat_map(|place| place.notes(first)));
    notes.extend(origin.settle_layout((run, &args.planning), &net, (group, before))?);
    let tests = spec.tests.iter().map(|test| Ok(test.net.load()?.for_state(&test.state)));
    let tests = tests.collect::<Result<Vec<NetSpec>>>()?;
    let mut others: Vec<&NetSpec> = tests.iter().filter(|test| test.file != net.file).collect();
    others.dedup_by_key(|test| test.file.clone());
    warnings.extend(others.into_iter().flat_map(|test| warn(console, &test.warnings)));
    // The tests alone may read a data set.
    let of_test = || tests.iter().find_map(|test| synthetic(run.synthetic, test).ok());
    let synthetic = synthetic(run.synthetic, &net).or_else(|refused| of_test().ok_or(refused))?;
    let seed = group.from_leader(|| Ok::<_, Error>(spec.random_seed.unwrap_or_else(seed)))?;
    let build = BuildOptions { device: origin.device.clone(), seed, synthetic };
    let (training, nets) = Training::build(spec, &build)?;
    if let (Some((state, _)), Some(path)) = (&resumed, &snapshot) {
        training.check(&nets[0], path, state)?;
    }
    let has_no_loss = !nets[1..].iter().any(Net::has_loss);
    refuse_if!(args.patience.is_some() && has_no_loss, "--patience has no effect: no test has a loss");
    let files = files.iter().filter(|_| weights.is_some() && group.share().ranks > 1);
    let files: Vec<_> = files.map(|file| read_regular(file).map(fnv1a).ok()).collect();
    let of_snapshot = resumed.as_ref().map(|(state, _)| state.weights_checksum);
    let given = (training.seed, training.settings.clone(), files, of_snapshot);
    if group.from_leader(|| Ok::<_, Error>(given.clone()))? != given {
        let what = "it was given another solver, net, seed, data, weights or snapshot than rank 0";
        return Err(Error::Refused(what.to_owned()));
    }
    // With --resume nobody has chosen a snapshot, and it may be that only the tests at the end are missing.
    let end = training.spec.max_iter;
    let is_left = first < end as u64 || args.resume && first == end as u64;
    if let (false, Some(snapshot)) = (is_left, &snapshot) {
        return Err(Error::Refused(format!(
            "{} is at iteration {first}, and training ends at iteration {end} (--max-iter moves the end)",
            snapshot.display()
        )));
    }
    let (planning, ranks) = (args.planning.clone(), group.clone());
    let mut session = Session { at_start, options, planning, origin, group: ranks, batches: None, nets };
    session.check_memory()?;
    let (recorded, plan_origin) = recorded.map(|record| session.recorded(record)).unwrap_or_default();
    let nets = &mut session.nets;
    if let Some((state, _)) = &resumed {
        let plan = recorded.plans.first().and_then(Option::as_ref);
        notes.extend(training.resume_notes(nets, state, (plan, &plan_origin)));
    }
    notes.push(format!("seed {}", training.seed));
    notes.extend(ranks_note(group.share(), &nets[0]));
    warnings.extend(training.warnings(nets).into_iter().inspect(|warning| console.warn(warning)));
    let mut report = NetReport::new(&net, &mut nets[0], synthetic);
    let test_data = tests.iter().zip(&nets[1..]).map(|(spec, net)| DataReport::new(spec, net, synthetic));
    report.test_data = test_data.collect();
    let subject = Subject::Net(Box::new(report));
    let header = session.origin.header("train", subject, [warnings, notes]);
    console.text(&header)?;
    let copied = weights.as_ref().map(|weights| weights.copied(&session.nets[0])).transpose()?;
    copied.iter().try_for_each(|copied| console.text(copied))?;
    session.profile(&recorded.plans, console)?;
    let planned = session.plan(recorded)?;
    let (laid_out, mut memory) = session.lay_out(&planned, console)?;
    if snapshot.is_some() {
        memory = memory.restoring();
    }
    let plan = announce(&planned, &memory, console)?;
    let Planned { budget, schedule, .. } = planned;
    let mut solver = training.start(laid_out)?;
    if let Some(weights) = &weights {
        solver.load_weights(weights)?;
    }
    if let Some(snapshot) = &snapshot {
        solver.restore(snapshot)?;
    }
    let snapshot = snapshot.map(|path| path.display().to_string());
    let (weights, steps, tests, summary) = (copied, Vec::new(), Vec::new(), None);
    let report = TrainReport { header, weights, memory, plan, budget, schedule, steps, tests, summary };
    Ok(Prepared { solver, report, place, snapshot })
}

/// The solver file, with what the command line says in its place.
fn solver_spec(args: &TrainArgs) -> Result<SolverSpec> {
    let mut spec = load_solver(required(&args.solver, "--solver")?)?;
    spec.max_iter = args.max_iter.unwrap_or(spec.max_iter);
    spec.epochs = args.epochs;
    if spec.max_iter == 0 && spec.epochs.is_none() {
        let file = spec.file.display();
        return Err(usage!("{file} has no max_iter above 0: --max-iter or --epochs says how long to train"));
    }
    if let Some(rate) = args.base_lr {
        spec.learning_rate.base_lr = rate;
        let least = spec.learning_rate.min_lr;
        refuse_if!(least > rate, "--base-lr {rate} is below the solver's min_lr, {least}");
    }
    if args.no_test {
        spec.tests.clear();
    }
    if args.no_snapshot {
        spec.snapshot.interval = 0;
        spec.snapshot.after_train = false;
    }
    if !spec.snapshot.is_wanted() {
        // Where it resumes, the prefix also says from what.
        let options = [
            (args.keep.is_some(), "--keep"),
            (args.snapshot_prefix.is_some() && !args.resume, "--snapshot-prefix"),
        ];
        refuse(options, "a training whose solver writes no snapshots")?;
    }
    if let Some(prefix) = &args.snapshot_prefix {
        spec.snapshot.prefix.clone_from(prefix);
    }
    Ok(spec)
}

/// What a snapshot says that has to be known before the nets are built: a resumed training draws the same random numbers,
/// and runs under the same plan.
fn resumed(snapshot: &Path) -> Result<(SolverState, Option<PlanRecord>)> {
    let (state, history) = load_solver_state(snapshot)?;
    Ok((state, PlanRecord::recorded(&history)?))
}

/// The seed where the solver file has none: Caffe draws another one for each run.
fn seed() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(DEFAULT_SEED, |time| u64::from(time.subsec_nanos()))
}
