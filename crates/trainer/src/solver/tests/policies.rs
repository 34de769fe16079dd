//! However a mini-batch is divided, and whatever runs it, training is the same.

use super::{
    SGD, assert_near, digits, forced, head, layer, losses, measured, parameters, plain, residual, solver,
    start,
};
use crate::testing::{Forced, plan_options};
use planner::{BatchSizePolicy, Plan, WorkspacePolicy};

const ITERATIONS: usize = 20;

/// Twenty updates carry the largest rounding error of any algorithm (1e-5 of an output) to less than this part of the
/// loss.
const TOLERANCE: f64 = 1e-4;

/// A net of this mini-batch.
type NetOf = fn(usize) -> String;

const NETS: [NetOf; 2] = [plain, residual];

/// What is measured to be fastest, under every pair of policies.
#[test]
fn every_policy_gives_the_same_losses() {
    for net in NETS {
        let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
        let mut reference = forced(solver(&net(6), SGD), 2, Forced::IMPLICIT_GEMM, &plan).start().unwrap();
        let expected = losses(&mut reference, ITERATIONS);
        assert!(updates_matter(net, &expected), "with a tolerance this large, nothing is compared");
        for batch in BatchSizePolicy::ALL {
            for workspace in WorkspacePolicy::ALL {
                let plan = plan_options(batch, workspace);
                let prepared = measured(solver(&net(6), SGD), &plan);
                let found = losses(&mut prepared.start().unwrap(), ITERATIONS);
                assert_near(&found, &expected, TOLERANCE, &format!("{batch} {workspace}"));
            }
        }
    }
}

/// Whether losses without updates would be beyond the tolerance.
fn updates_matter(net: NetOf, expected: &[f64]) -> bool {
    let untrained = losses(&mut start(solver(&net(6), "base_lr: 0 lr_policy: 'fixed'")), ITERATIONS);
    untrained.iter().zip(expected).any(|(a, b)| (a - b).abs() > 100.0 * TOLERANCE * b)
}

/// Every algorithm, undivided and divided into 3 + 2 + 1, alone and with others.
#[test]
fn every_configuration_gives_the_same_losses() {
    for net in NETS {
        let plan = plan_options(BatchSizePolicy::All, WorkspacePolicy::Ws);
        let run = |forced_plan| {
            let mut solver = forced(solver(&net(6), SGD), 2, forced_plan, &plan).start().unwrap();
            losses(&mut solver, ITERATIONS)
        };
        let expected = run(Forced { sizes: &[6], ..Forced::IMPLICIT_GEMM });
        for algorithm in 0..7 {
            for (mixed, sizes) in [(false, &[6][..]), (false, &[3, 2, 1]), (true, &[3, 2, 1])] {
                let configuration = Forced { algorithm, mixed, sizes };
                assert_near(&run(configuration), &expected, TOLERANCE, &format!("{configuration:?}"));
            }
        }
    }
}

fn configurations(plan: &Plan) -> Vec<String> {
    plan.kernels.iter().map(|kernel| kernel.configuration.to_string()).collect()
}

#[test]
fn equal_configurations_give_equal_bits_whatever_the_workspace_policy() {
    let configuration = Forced { algorithm: 2, mixed: true, sizes: &[4, 1] };
    for net in NETS {
        let run = |workspace| {
            let plan = plan_options(BatchSizePolicy::All, workspace);
            let prepared = forced(solver(&net(6), SGD), 2, configuration, &plan);
            let configurations = configurations(&prepared.plans()[0]);
            let mut solver = prepared.start().unwrap();
            (configurations, losses(&mut solver, ITERATIONS), parameters(&solver))
        };
        let expected = run(WorkspacePolicy::Wr);
        assert!(expected.0.iter().all(|configuration| configuration.contains('+')), "{:?}", expected.0);
        assert_eq!(run(WorkspacePolicy::Wd), expected);
        assert_eq!(run(WorkspacePolicy::Ws), expected);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for net in NETS {
        for algorithm in 0..7 {
            let run = |threads| {
                let configuration = Forced { algorithm, mixed: false, sizes: &[4, 2] };
                let plan = plan_options(BatchSizePolicy::All, WorkspacePolicy::Ws);
                let mut solver = forced(solver(&net(6), SGD), threads, configuration, &plan).start().unwrap();
                (losses(&mut solver, 5), parameters(&solver))
            };
            let expected = run(1);
            assert_eq!(run(2), expected, "algorithm {algorithm}");
            assert_eq!(run(3), expected, "algorithm {algorithm}");
        }
    }
}

/// Gradients of two half mini-batches, accumulated, are those of the whole one.
#[test]
fn iter_size_of_two_is_one_mini_batch_of_twice_the_size() {
    let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
    let run = |batch, fields: &str| {
        let spec = solver(&plain(batch), &format!("{SGD} {fields}"));
        losses(&mut forced(spec, 2, Forced::IMPLICIT_GEMM, &plan).start().unwrap(), ITERATIONS)
    };
    assert_near(&run(4, "iter_size: 2"), &run(8, ""), 1e-5, "iter_size 2");
    // The norm is clipped before the mean is taken, so twice the limit is the same.
    let (halves, whole) = (run(4, "iter_size: 2 clip_gradients: 0.2"), run(8, "clip_gradients: 0.1"));
    assert_near(&halves, &whole, 1e-5, "iter_size 2, clipped");
    assert_ne!(whole, run(8, ""));
}

/// Each half of a mini-batch under `iter_size` draws a dropout mask of its own.
#[test]
fn dropout_draws_anew_for_each_part_of_an_iteration() {
    let net = |batch| {
        let dropout = layer("Dropout", "drop", "data", "drop", "");
        let same = digits(batch).replace("'data'", "'image'");
        // The same image for every sample, so that only the masks can differ.
        let still =
            "layer { name: 'still' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 1 dim: 9 }
            data_filler { value: 1 } } }\n";
        format!("{same}{still}{dropout}{}", head("drop", 10))
    };
    let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
    let rate = "base_lr: 0 lr_policy: 'fixed'";
    let run = |fields: &str, iterations| {
        let spec = solver(&net(1), &format!("{rate} {fields}"));
        losses(&mut forced(spec, 2, Forced::IMPLICIT_GEMM, &plan).start().unwrap(), iterations)
    };
    let (each, pairs) = (run("", 8), run("iter_size: 2", 4));
    let means: Vec<f64> = each.chunks(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
    assert_eq!(pairs, means);
}
