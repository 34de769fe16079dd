//! Solver files.

use crate::spec::{LearningRate, LrPolicy, NetSource, NetState, Phase, Rampup, Regularization, SolverSpec};
use std::path::{Path, PathBuf};

const LEAST: &str = "net: 'net.prototxt' base_lr: 0.1 lr_policy: 'fixed' max_iter: 10\n";

fn solver(fields: &str) -> SolverSpec {
    SolverSpec::parse(Path::new("folder/solver.prototxt"), fields).unwrap()
}

fn error(text: &str) -> String {
    SolverSpec::parse(Path::new("solver.prototxt"), text).unwrap_err().to_string()
}

#[test]
fn a_solver_has_caffes_defaults() {
    let spec = solver(LEAST);
    assert_eq!(spec.warnings, []);
    assert_eq!(spec.train_net, NetSource::File(PathBuf::from("folder/net.prototxt")));
    assert_eq!((spec.tests.len(), spec.test_interval, spec.test_initialization), (0, 0, true));
    assert_eq!((spec.display, spec.average_loss, spec.iter_size, spec.max_iter), (0, 1, 1, 10));
    assert_eq!((spec.momentum, spec.weight_decay, spec.clip_gradients), (0.0, 0.0, None));
    assert_eq!((spec.regularization, spec.random_seed), (Regularization::L2, None));
    assert_eq!((spec.snapshot.interval, spec.snapshot.after_train), (0, true));
    assert_eq!(spec.snapshot.prefix, Path::new("folder/solver"));
    assert_eq!((spec.learning_rate.base_lr, spec.learning_rate.policy), (0.1, LrPolicy::Fixed));
}

#[test]
fn everything_can_be_said() {
    let spec = solver(
        "net: 'net.prototxt' test_iter: 100 test_interval: 500 test_initialization: false base_lr: 0.01
         lr_policy: 'multistep' gamma: 0.1 stepvalue: 10 stepvalue: 20 display: 20 average_loss: 40 max_iter: 30
         iter_size: 2 momentum: 0.9 weight_decay: 0.0005 regularization_type: 'L1' clip_gradients: 35 snapshot: 5
         snapshot_prefix: 'out/net' snapshot_after_train: false random_seed: 7 solver_mode: GPU type: 'SGD'",
    );
    assert_eq!(spec.warnings, []);
    assert_eq!((spec.tests[0].iterations, spec.test_interval, spec.test_initialization), (100, 500, false));
    assert_eq!(spec.tests[0].state, NetState::phase(Phase::Test));
    let LearningRate { policy, gamma, stepvalues, .. } = &spec.learning_rate;
    assert_eq!((*policy, *gamma, &stepvalues[..]), (LrPolicy::Multistep, 0.1, &[10, 20][..]));
    assert_eq!((spec.display, spec.average_loss, spec.iter_size), (20, 40, 2));
    assert_eq!((spec.momentum, spec.weight_decay, spec.regularization), (0.9, 0.0005, Regularization::L1));
    assert_eq!((spec.clip_gradients, spec.random_seed), (Some(35.0), Some(7)));
    assert_eq!((spec.snapshot.interval, spec.snapshot.after_train), (5, false));
    assert_eq!(spec.snapshot.prefix, Path::new("out/net"));
}

#[test]
fn every_policy_reads_its_own_parameters() {
    let cases = [
        ("'step' gamma: 0.1 stepsize: 5", (LrPolicy::Step, 0.1, 0.0, 5)),
        ("'exp' gamma: 0.9", (LrPolicy::Exp, 0.9, 0.0, 0)),
        ("'inv' gamma: 0.1 power: 0.75", (LrPolicy::Inv, 0.1, 0.75, 0)),
        ("'poly' power: 2", (LrPolicy::Poly, 0.0, 2.0, 0)),
        ("'sigmoid' gamma: -0.1 stepsize: 5", (LrPolicy::Sigmoid, -0.1, 0.0, 5)),
    ];
    for (text, expected) in cases {
        let spec = solver(&format!("net: 'n' base_lr: 1 max_iter: 10 lr_policy: {text}"));
        let LearningRate { policy, gamma, power, stepsize, .. } = spec.learning_rate;
        assert_eq!(((policy, gamma, power, stepsize), spec.warnings), (expected, vec![]), "{text}");
    }
}

#[test]
fn the_end_of_a_training_is_the_end_of_its_rate() {
    let mut spec = solver("net: 'n' base_lr: 0.01 lr_policy: 'poly' power: 1 max_iter: 4");
    let rates = |spec: &SolverSpec| [0, 2, 4].map(|iteration| spec.rate(iteration));
    assert_eq!(rates(&spec), [0.01, 0.005, 0.0]);
    spec.max_iter = 8;
    assert_eq!(rates(&spec), [0.01, 0.0075, 0.005]);
}

#[test]
fn nvidias_fields_of_the_rate_are_honoured() {
    let spec = solver(&format!("{LEAST}min_lr: 0.01 rampup_interval: 5 rampup_lr: 0.02"));
    let (rate, rampup) = (&spec.learning_rate, Rampup { rampup_lr: 0.02, interval: 5 });
    assert_eq!((rate.min_lr, rate.rampup, spec.warnings), (0.01, Some(rampup), vec![]));
    // Their defaults leave everything as it is.
    let fields =
        "rampup_interval: 0 min_lr: 0 larc: false momentum_policy: 'fixed' weight_decay_policy: 'fixed'";
    assert_eq!(solver(&format!("{LEAST}{fields}")), SolverSpec { file: spec.file, ..solver(LEAST) });
}

#[test]
fn solvers_refuse_what_cannot_work() {
    let policy = |text: &str| format!("net: 'n' base_lr: 1 max_iter: 10\nlr_policy: {text}");
    let least = |text: &str| format!("{LEAST}{text}");
    let cases = [
        (
            least("type: 'Adamax'"),
            2,
            "type is \"Adamax\", expected SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam or AdamW",
        ),
        (least("type: 'SGD'\nsolver_type: ADAM"), 3, "type says it already: give one of them"),
        (least("type: 'AdaGrad'\nmomentum: 0.9"), 3, "momentum is 0.9, but must be 0 with the type AdaGrad"),
        (least("type: 'Adam' momentum2: 1"), 2, "momentum2 is 1, but must be from 0 to below 1"),
        (least("type: 'RMSProp' rms_decay: -1"), 2, "rms_decay is -1, but must be from 0 to below 1"),
        (least("type: 'Adam' delta: 0"), 2, "delta is 0, but must be above 0"),
        (
            least("type: 'AdamW' regularization_type: 'L1'"),
            2,
            "regularization_type is \"L1\", but must be L2 with the type AdamW",
        ),
        (least("momentum: 1"), 2, "momentum is 1, but must be from 0 to below 1"),
        (least("weight_decay: -1"), 2, "weight_decay is -1, but must be from 0"),
        (least("iter_size: 0"), 2, "iter_size is 0, but must be at least 1"),
        (least("average_loss: 0"), 2, "average_loss is 0, but must be at least 1"),
        (least("clip_gradients: 0"), 2, "clip_gradients is 0, but must be above 0, or -1 not to clip"),
        (least("regularization_type: 'L3'"), 2, "regularization_type is \"L3\", expected L1 or L2"),
        (least("test_iter: 0 test_interval: 1"), 2, "test_iter is 0, but must be at least 1"),
        (least("test_iter: 5"), 1, "test_interval must be at least 1 where there is a test"),
        (least("test_net: 'a'"), 1, "test_iter is given 0 times, but there are 1 nets to test"),
        (
            least("train_net: 'n'"),
            1,
            "exactly one of net, net_param, train_net and train_net_param must be given",
        ),
        (
            least("test_iter: 1 test_interval: 1\ntest_state { } test_state { }"),
            3,
            "test_state is given 2 times, but test_iter 1 times",
        ),
        (least("momentum: 0.9\nmomentum: 0.8"), 3, "'momentum' was already given in line 2"),
        (
            least("local_lr_auto: true"),
            2,
            "local_lr_auto is true, but must be false; rates of each layer's own are larc's here",
        ),
        (
            policy("'plateau'"),
            2,
            "lr_policy is \"plateau\", expected fixed, step, exp, inv, multistep, poly, cosine or sigmoid",
        ),
        (policy("'step' gamma: 0.1"), 1, "stepsize is missing"),
        (policy("'step' gamma: 0.1 stepsize: 0"), 2, "stepsize is 0, but must be at least 1"),
        (policy("'step' gamma: -1 stepsize: 1"), 2, "gamma is -1, but must be from 0"),
        (policy("'multistep' gamma: 0.1"), 1, "stepvalue must be given"),
        (
            policy("'multistep' gamma: 0.1 stepvalue: 5 stepvalue: 5"),
            2,
            "stepvalue is 5, 5, but must be larger than the one before it",
        ),
        (policy("'poly'"), 1, "power is missing"),
        (least("min_lr: 0.2"), 2, "min_lr is 0.2, but must be from 0 to base_lr"),
        (least("min_lr: nan"), 2, "min_lr is nan, expected a finite number"),
        (least("rampup_interval: 1 rampup_lr: -1"), 2, "rampup_lr is -1, but must be from 0"),
        (least("larc: true larc_policy: 'trust'"), 2, "larc_policy is \"trust\", expected scale or clip"),
        (least("larc: true larc_eta: 0"), 2, "larc_eta is 0, but must be above 0"),
        (
            least("larc: true larc_turbo: true"),
            2,
            "larc_turbo is true, but must be false; the other update is not supported",
        ),
        (
            least("rampup_interval: 3\nwarmup_iter: 3"),
            3,
            "warmup_iter is 3, but must be 0 beside rampup_interval, another rise at the start",
        ),
        (least("warmup_iter: 1 warmup_start_lr: -1"), 2, "warmup_start_lr is -1, but must be from 0"),
        (
            least("momentum_policy: 'poly' max_momentum: 0.95"),
            2,
            "momentum_policy is \"poly\", but must be fixed; the other policies are not supported",
        ),
        (
            least("weight_decay_policy: 'poly'"),
            2,
            "weight_decay_policy is \"poly\", but must be fixed; the other policies are not supported",
        ),
        (policy("'sigmoid' gamma: inf stepsize: 1"), 2, "gamma is inf, expected a finite number"),
    ];
    for (text, line, expected) in cases {
        assert_eq!(error(&text), format!("solver.prototxt:{line}: the solver: {expected}"), "{text}");
    }
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let fields = "gamma: 0.1\nsnapshot_format: HDF5\nlarc_eta: 0.1\nrms_decay: 0.98\nrampup_lr: 1\nmax_momentum: 0.99\ndelta: 1";
    let spec = solver(&format!("{LEAST}{fields}"));
    let warnings: Vec<_> = spec.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        (2, "gamma"),
        (4, "larc_eta"),
        (5, "rms_decay"),
        (6, "rampup_lr"),
        (7, "max_momentum"),
        (8, "delta"),
    ];
    let expected = expected.map(|(line, field)| {
        format!("folder/solver.prototxt:{line}: field '{field}' of the solver has no effect here")
    });
    assert_eq!(warnings, expected);
}

#[test]
fn nets_for_training_and_testing() {
    let rest = "base_lr: 1 lr_policy: 'fixed' max_iter: 1 test_interval: 1";
    let spec = solver(&format!(
        "train_net: 'train' test_net: 'a' test_net: 'b' test_iter: 1 test_iter: 2
         test_state {{ stage: 'x' }} test_state {{ level: 3 }} train_state {{ stage: 'y' }} {rest}"
    ));
    let tests: Vec<_> = spec.tests.iter().map(|test| (&test.net, test.iterations)).collect();
    let file = |name: &str| NetSource::File(Path::new("folder").join(name));
    assert_eq!(spec.train_net, file("train"));
    assert_eq!(tests, [(&file("a"), 1), (&file("b"), 2)]);
    assert_eq!((&spec.tests[0].state.stages[..], spec.tests[1].state.level), (&["x".to_owned()][..], 3));
    assert_eq!((spec.train_state.phase, &spec.train_state.stages[..]), (Phase::Train, &["y".to_owned()][..]));

    let spec = solver(&format!("net: 'n' test_net: 'a' test_iter: 1 test_iter: 2 {rest}"));
    let tests: Vec<_> = spec.tests.iter().map(|test| test.net.clone()).collect();
    assert_eq!(tests, [file("a"), file("n")]);

    let inline = "net_param {\n layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'y' extra: 1 } }";
    let spec = solver(&format!("{inline} test_iter: 1 {rest}"));
    let net = spec.train_net.load().unwrap();
    assert_eq!((net.layers[0].name.as_str(), spec.tests[0].net.load().unwrap()), ("r", net.clone()));
    let warning = spec.warnings[0].to_string();
    assert_eq!(warning, "folder/solver.prototxt:2: field 'extra' of layer 'r' has no effect here");
}

#[test]
fn a_net_is_looked_for_beside_the_solver_first() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net.prototxt");
    std::fs::write(&net, "layer { type: 'ReLU' bottom: 'x' top: 'y' }").unwrap();
    let spec = SolverSpec::parse(&folder.path().join("solver.prototxt"), LEAST).unwrap();
    assert_eq!(spec.train_net, NetSource::File(net));
    assert_eq!(spec.train_net.load().unwrap().layers.len(), 1);
}
