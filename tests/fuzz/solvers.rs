//! Solvers: read, prepared, and two steps and a test done if their nets are small.

use crate::convolution::device;
use crate::harness::{Accepted, Input, Random, Verdict, fuzz};
use crate::mutate::{Corpus, below, extent, extreme, one_in, pick};
use crate::nets::{build_options, from_file, is_small, net};
use microbatch::planner::{Bytes, PlanOptions};
use microbatch::trainer::planning::{PlanRecord, Planning};
use microbatch::trainer::spec::{NetSource, NetState, SolverSpec};
use microbatch::trainer::{Net, NetError, NetRun, Stop, Training};
use microbatch::{cudnn_layers::conv::ProfileOptions, trainer::layers::BuildOptions};
use std::{path::Path, time::Duration};

const SOLVERS: [&str; 3] = [
    include_str!("../../models/lenet/solver.prototxt"),
    include_str!("../../models/cifar10_quick/solver.prototxt"),
    include_str!("../../models/resnet18/solver.prototxt"),
];

const POLICIES: [&str; 8] = [
    "'fixed'",
    "'step' gamma: G stepsize: N",
    "'exp' gamma: G",
    "'inv' gamma: G power: G",
    "'multistep' gamma: G stepvalue: 1 stepvalue: N",
    "'poly' power: G",
    "'cosine' min_lr: G",
    "'sigmoid' gamma: G stepsize: N",
];

/// A solver with a small net in it.
fn solver(random: &mut Random) -> String {
    let mut number =
        || if one_in(random, 6) { extreme(random).to_owned() } else { format!("0.{}", below(random, 100)) };
    let (rate, gamma) = (number(), number());
    let count = extent(random);
    let policy = pick(random, &POLICIES).replace('G', &gamma).replace('N', &count);
    let mut text = format!("base_lr: {rate} lr_policy: {policy}\nnet_param {{ {} }}\n", net(random));
    for field in [
        "max_iter",
        "iter_size",
        "test_iter",
        "test_interval",
        "average_loss",
        "display",
        "snapshot",
        "random_seed",
        "momentum",
        "weight_decay",
        "clip_gradients",
        "test_initialization",
        "regularization_type",
        "type",
        "momentum2",
        "delta",
        "larc",
        "warmup_iter",
    ] {
        let value = match field {
            "momentum" | "momentum2" | "delta" | "weight_decay" | "clip_gradients" if !one_in(random, 6) => {
                format!("0.{}", below(random, 100))
            }
            "test_initialization" | "larc" => pick(random, &["true", "false"]).to_string(),
            "type" => pick(random, &["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW"])
                .to_string(),
            "regularization_type" => pick(random, &["'L1'", "'L2'"]).to_string(),
            _ => extent(random),
        };
        if one_in(random, 3) || field == "max_iter" {
            text += &format!("{field}: {value}\n");
        }
    }
    text
}

/// A small training, measured as briefly as possible, and laid out.
pub(crate) fn prepare(
    spec: SolverSpec,
    build: &BuildOptions,
    recorded: Option<PlanRecord>,
) -> Result<(Training, NetRun), NetError> {
    let options = PlanOptions { limit: Bytes::mib(1), ..PlanOptions::default() };
    let profile = ProfileOptions {
        repeats: 1,
        at_least: Duration::ZERO,
        largest_workspace: Bytes::mib(1),
        every_algorithm: false,
    };
    let (training, mut nets) = Training::build(spec, build)?;
    let recorded = recorded.map(|record| record.plans(&mut nets, |_| options.clone()).0).unwrap_or_default();
    let mut recorded = recorded.into_iter();
    let mut planning = Planning::new(&build.device, profile);
    let mut plans = Vec::new();
    for net in &mut nets {
        let kernels = net.kernels();
        plans.push(match recorded.next().flatten() {
            Some(plan) => plan,
            None => {
                planning.complete(&kernels, &options, |_| ())?;
                planning.plan(&kernels, None, &options)?
            }
        });
    }
    Ok((training, NetRun::lay_out(nets, plans, true)?))
}

fn check_rates(spec: &SolverSpec, random: &mut Random) {
    for iteration in [0, 1, below(random, 1_000_000) as u64, u64::MAX] {
        let rate = spec.rate(iteration);
        assert!(rate >= 0.0, "the learning rate of iteration {iteration} is {rate}");
    }
}

fn use_up(spec: SolverSpec, input: &mut Input<'_>) -> Verdict {
    let random = &mut input.random;
    check_rates(&spec, random);
    let device = device(random);
    let build = build_options(&device, random);
    let small = |source: &NetSource,
                 state: &NetState,
                 training: bool|
     -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let mut net = Net::new(&source.load()?.for_state(state), &build, training)?;
        let kernels = net.kernels();
        Ok(is_small(&net, &kernels))
    };
    let mut runs = spec.iter_size <= 4 && small(&spec.train_net, &spec.train_state, true)?;
    for test in &spec.tests {
        runs &= test.iterations <= 4 && small(&test.net, &test.state, false)?;
    }
    if !runs || spec.tests.len() > 4 {
        return Ok(Accepted::Huge);
    }
    let tests = spec.tests.len();
    let (training, run) = prepare(spec, &build_options(&device, random), None)?;
    input.foretold = run.memory().arena.0 + run.memory().host.0;
    let mut solver = training.start(run)?;
    solver.step()?;
    for test in 0..tests {
        solver.test(test, &Stop::default(), |_| ())?;
    }
    solver.step()?;
    Ok(Accepted::Used)
}

#[test]
fn solvers() {
    let corpus = Corpus::new(SOLVERS);
    let make = |random: &mut Random| match below(random, 6) {
        0 => corpus.text(random),
        1 | 2 => {
            let solver = solver(random);
            corpus.damage_text(solver.into_bytes(), random)
        }
        _ => solver(random).into_bytes(),
    };
    // Nets that are named lie beside this one's.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/lenet/solver.prototxt");
    fuzz("solvers", 2000, make, |input| {
        let read = SolverSpec::parse(&file, &input.text());
        use_up(read.map_err(|error| from_file(error, &file.display().to_string()))?, input)
    });
}
