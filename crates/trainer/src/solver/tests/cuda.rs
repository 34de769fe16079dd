//! Trainings on a GPU: the losses of the processor, whatever the plan, and its errors.

use super::{
    LABELS_OF_A_LAYER, SGD, assert_near, assert_within, digits, head, layer, losses, parameters, plain,
    planned, residual, solver, start, start_on,
};
use crate::testing::{
    Candidates, FIRST_LOSSES, Forced, gpu, lenet_loss_tolerance, own_gpu, plan_options, quick_profile, root,
};
use crate::{net::Net, planning::Planning, snapshot::state_path, spec::SolverSpec};
use planner::{BatchSizePolicy, PlanOptions, PlannedKernel, WorkspacePolicy};
use std::{path::Path, process::Command};
use tensor::testing::{COMPARABLE_ERROR, assert_close};
use tensor::{Cpu, Device};

/// Deterministic algorithms that can be compared with the processor's.
fn options(batch: BatchSizePolicy, workspace: WorkspacePolicy) -> PlanOptions {
    PlanOptions {
        max_error: Some(COMPARABLE_ERROR),
        deterministic_only: true,
        ..plan_options(batch, workspace)
    }
}

/// `models/lenet`, without its tests.
pub(super) fn lenet() -> SolverSpec {
    let file = root().join("models/lenet/solver.prototxt");
    SolverSpec { tests: Vec::new(), ..SolverSpec::load(&file).unwrap() }
}

/// What is measured to be fastest, under every pair of policies, over 50 iterations.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn lenet_on_digits_has_the_losses_of_the_processor_under_every_policy() {
    const ITERATIONS: usize = 50;
    let expected = losses(&mut start(lenet()), ITERATIONS);
    assert!(expected[49] < 0.5 * expected[0], "50 iterations teach it something: {expected:?}");
    let mut planning = Planning::new(&gpu(), quick_profile());
    for batch in [BatchSizePolicy::All, BatchSizePolicy::PowerOfTwo, BatchSizePolicy::Undivided] {
        for workspace in WorkspacePolicy::ALL {
            let plan = options(batch, workspace);
            let prepared = planned(lenet(), &gpu(), |net| {
                // The first time for all sizes; then there is nothing left to measure.
                planning.profile_sizes(&net.kernels(), batch, |_| ()).unwrap();
                planning.plan(&net.kernels(), None, &plan).unwrap()
            });
            let found = losses(&mut prepared.start().unwrap(), ITERATIONS);
            assert_within(&found, &expected, lenet_loss_tolerance, &format!("{batch} {workspace}"));
        }
    }
}

/// Every algorithm, undivided and divided into 3 + 2 + 1, alone and with others.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_configuration_gives_the_losses_of_the_processor() {
    let mut candidates = Candidates::on(&gpu());
    for net in [plain, residual] {
        let expected = losses(&mut start(solver(&net(6), SGD)), 5);
        let plan = options(BatchSizePolicy::All, WorkspacePolicy::Ws);
        for algorithm in 0..6 {
            for (mixed, sizes) in [(false, &[6][..]), (false, &[3, 2, 1]), (true, &[3, 2, 1])] {
                let configuration = Forced { algorithm, mixed, sizes };
                let prepared = planned(solver(&net(6), SGD), &gpu(), |net| {
                    configuration.install_from(&mut candidates, net, &plan)
                });
                let found = losses(&mut prepared.start().unwrap(), 5);
                assert_near(&found, &expected, FIRST_LOSSES, &format!("{configuration:?}"));
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn equal_configurations_give_equal_bits_whatever_the_workspace_policy() {
    let mut candidates = Candidates::on(&gpu());
    for net in [plain, residual] {
        for algorithm in 0..3 {
            let configuration = Forced { algorithm, mixed: true, sizes: &[4, 1] };
            let mut run = |workspace| {
                let plan = options(BatchSizePolicy::All, workspace);
                let prepared = planned(solver(&net(6), SGD), &gpu(), |net| {
                    configuration.install_from(&mut candidates, net, &plan)
                });
                let kernels = prepared.plans()[0].kernels.iter();
                let configurations: Vec<_> = kernels.map(|kernel| kernel.configuration.clone()).collect();
                let mut solver = prepared.start().unwrap();
                (configurations, losses(&mut solver, 20), parameters(&solver))
            };
            let expected = run(WorkspacePolicy::Wr);
            assert!(expected.0.iter().all(|kernel| kernel.to_string().contains('+')), "{:?}", expected.0);
            assert!(run(WorkspacePolicy::Wr) == expected, "the same once more differs");
            assert!(run(WorkspacePolicy::Wd) == expected, "WD differs from WR");
            assert!(run(WorkspacePolicy::Ws) == expected, "WS differs from WR");
        }
    }
}

/// A net of every layer type that computes anything, most of them twice.
pub(super) fn every_layer() -> String {
    let conv = |name: &str, bottom: &str, params: &str| {
        let params =
            format!("convolution_param {{ num_output: 8 {params} weight_filler {{ type: 'msra' }} }}");
        layer("Convolution", name, bottom, name, &params)
    };
    let eltwise = |name: &str, [left, right]: [&str; 2], fields: &str| {
        format!(
            "layer {{ name: '{name}' type: 'Eltwise' bottom: '{left}' bottom: '{right}' top: '{name}'
  eltwise_param {{ {fields} }} }}\n"
        )
    };
    let within = "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }";
    let average = "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }";
    let hidden =
        "inner_product_param { num_output: 12 weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }";
    [
        digits(6),
        conv("conv1", "data", "kernel_size: 3 pad: 1"),
        layer("LRN", "across", "conv1", "across", "lrn_param { local_size: 3 alpha: 0.5 }"),
        layer("Pooling", "pool1", "across", "pool1", "pooling_param { kernel_size: 3 stride: 2 }"),
        conv("left", "pool1", "kernel_size: 3 pad: 1 group: 2 bias_term: false"),
        layer("BatchNorm", "bn", "left", "bn", "batch_norm_param { moving_average_fraction: 0.9 }"),
        layer("Scale", "scale", "bn", "bn", "scale_param { bias_term: true }"),
        layer("ReLU", "relu1", "bn", "bn", ""),
        conv("right", "pool1", "kernel_size: 1 bias_term: false"),
        layer("BatchNorm", "bn2", "right", "bn2", "batch_norm_param { scale_bias: true }"),
        layer("LRN", "within", "bn2", "within", within),
        eltwise("sum", ["bn", "bn2"], "coeff: 1 coeff: 0.5"),
        eltwise("max", ["sum", "within"], "operation: MAX"),
        eltwise("product", ["sum", "within"], "operation: PROD"),
        "layer { name: 'split' type: 'Split' bottom: 'max' top: 'max1' top: 'max2' }\n".to_owned(),
        eltwise("both", ["max1", "max2"], ""),
        "layer { name: 'join' type: 'Concat' bottom: 'product' bottom: 'both' bottom: 'within' top: 'join' }\n"
            .to_owned(),
        layer("Pooling", "average", "join", "average", average),
        layer("Dropout", "drop", "average", "average", "dropout_param { dropout_ratio: 0.3 }"),
        layer("Flatten", "flat", "average", "flat", ""),
        layer("InnerProduct", "ip1", "flat", "ip1", hidden),
        layer("ReLU", "relu2", "ip1", "ip1", "relu_param { negative_slope: 0.1 }"),
        layer("Reshape", "shape", "ip1", "shape", "reshape_param { shape { dim: 0 dim: -1 } }"),
        head("shape", 10),
        layer("Softmax", "soft", "ip", "soft", ""),
        "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' }\n".to_owned(),
    ]
    .concat()
}

/// Three iterations in several micro-batches and by all kinds of algorithms end in the weights that undivided
/// convolutions of the processor end in. Small enough for compute-sanitizer.
fn every_layer_is_the_undivided_processors(device: &Device) {
    let fields = format!("{SGD} clip_gradients: 5 iter_size: 2 test_iter: 2 test_interval: 1");
    let plan = options(BatchSizePolicy::All, WorkspacePolicy::Ws);
    let configuration = Forced { algorithm: 1, mixed: true, sizes: &[4, 2] };
    let install = |net: &mut Net| configuration.install(net, &plan);
    let found = planned(solver(&every_layer(), &fields), device, install);
    let divided = |kernel: &PlannedKernel| kernel.configuration.to_string().contains('+');
    assert!(found.plans()[0].kernels.iter().all(divided));
    let (mut found, mut expected) = (found.start().unwrap(), start(solver(&every_layer(), &fields)));
    let (here, there) = (losses(&mut found, 3), losses(&mut expected, 3));
    assert_near(&here, &there, FIRST_LOSSES, "the losses");
    for (found, expected) in found.tested().iter().zip(expected.tested()) {
        assert_eq!(found.name, expected.name);
        assert_near(&found.values, &expected.values, FIRST_LOSSES, &found.name);
    }
    let names = expected.net().graph().params.iter().map(|param| &param.name);
    for (name, (found, expected)) in names.zip(parameters(&found).iter().zip(parameters(&expected))) {
        let expected: Vec<f64> = expected.iter().map(|&value| f64::from(value)).collect();
        assert_close(found, &expected, FIRST_LOSSES, name);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_iteration_of_every_layer_is_the_processors() {
    every_layer_is_the_undivided_processors(&gpu());
}

/// Without a GPU: what the test above compares can be compared.
#[test]
fn an_iteration_of_every_layer_is_the_undivided_one() {
    every_layer_is_the_undivided_processors(&Device::Cpu(Cpu::new(2)));
}

/// As on the processor, but that a GPU does not know which layer it was.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_label_that_is_no_class_is_named_with_its_sample() {
    // The first labels of the digits are 2, 8, 0.
    let net = format!("{}{LABELS_OF_A_LAYER}{}", digits(3), head("data", 5));
    let mut solver = start_on(&own_gpu(), solver(&net, SGD));
    let before = parameters(&solver);
    let error = solver.step().unwrap_err().to_string();
    assert_eq!(error, "a loss or an accuracy: the label 8 of sample 1 is none of the classes 0 to 4");
    assert_eq!((solver.iteration(), parameters(&solver)), (0, before));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_loss_that_is_no_number_ends_the_training() {
    let mut solver = start_on(&gpu(), solver(&plain(8), "base_lr: 1e30 lr_policy: 'fixed'"));
    let error = (0..9).find_map(|_| solver.step().err()).expect("such a rate diverges");
    assert!(matches!(error, crate::NetError::Diverged { iteration: 1.., .. }), "{error}");
}

/// Names the folder of the snapshots to the process in which the GPU fails.
const BROKEN: &str = "MICROBATCH_TEST_BROKEN_GPU";

/// The GPU fails in a process of its own, as nothing runs on it there any more: every call is an error, and the
/// snapshot before it is as good as ever.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_gpu_that_fails_is_a_sentence_and_keeps_the_snapshots() {
    let name = "solver::tests::cuda::a_gpu_that_fails_is_a_sentence_and_keeps_the_snapshots";
    if let Some(folder) = std::env::var_os(BROKEN) {
        return fail_in(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut itself = Command::new(std::env::current_exe().unwrap());
    let output = itself.args([name, "--exact", "--ignored"]).env(BROKEN, folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut solver = start_on(&own_gpu(), snapshotting(folder.path()));
    solver.restore(&state_path(&folder.path().join("net"), 2)).unwrap();
    assert_eq!(solver.iteration(), 2);
    solver.step().unwrap();
}

pub(super) fn snapshotting(folder: &Path) -> SolverSpec {
    solver(&plain(8), &format!("{SGD} snapshot_prefix: '{}'", folder.join("net").display()))
}

fn fail_in(folder: &Path) {
    let device = own_gpu();
    let mut solver = start_on(&device, snapshotting(folder));
    losses(&mut solver, 2);
    solver.snapshot().unwrap();
    let Device::Cuda(cuda) = &device else { unreachable!("it is a GPU") };
    tensor::testing::break_down(cuda);
    let error = (0..2).find_map(|_| solver.step().err()).expect("the GPU has failed").to_string();
    assert!(!error.contains('\n'), "{error}");
    assert!(solver.step().is_err() && solver.snapshot().is_err() && solver.parameter("conv1.0").is_none());
}
