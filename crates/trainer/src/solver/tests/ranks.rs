//! Several ranks train as one device does with the whole mini-batch.

use super::{
    LABELS_OF_A_LAYER, Prepared, SGD, Solver, assert_near, digits, head, layer, losses, parameters, plain,
    planned, solver, start, start_on,
};
use crate::testing::{Forced, plan_options};
use crate::{NetError, group::Launched, snapshot::state_path, spec::SolverSpec, stop::Stop};
use planner::{BatchSizePolicy, WorkspacePolicy};
use std::{sync::atomic::Ordering, thread};
use tensor::{Cpu, Device, cuda::probe};

/// The parameters of a net.
type Weights = Vec<Vec<f32>>;

/// What `lead` returns of rank 0, whom the others follow, one on each of `devices`; and how they end.
fn together<T: Send>(
    devices: &[Device],
    spec: &SolverSpec,
    prepare: impl Fn(&mut Solver) + Sync,
    lead: impl FnOnce(&mut Solver) -> T + Send,
) -> (T, Vec<Result<Weights, NetError>>) {
    let mut ranks = Launched::here(devices.len()).unwrap().into_iter().zip(devices);
    let start = |(rank, device): (Launched, &Device)| {
        let group = rank.join().unwrap();
        let spec = SolverSpec { share: group.share(), ..spec.clone() };
        let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
        let Prepared { training, run } =
            planned(spec, device, |net| Forced::IMPLICIT_GEMM.install(net, &plan));
        let mut solver = training.start(run.in_group(group.clone())).unwrap();
        prepare(&mut solver);
        (solver, group)
    };
    thread::scope(|scope| {
        let first = ranks.next().unwrap();
        let follow = |rank| {
            scope.spawn(move || {
                let (mut solver, group) = start(rank);
                let result = solver.follow();
                group.finish(result.as_ref().map(|&()| ()));
                result.map(|()| parameters(&solver))
            })
        };
        let others: Vec<_> = ranks.map(follow).collect();
        let (mut solver, group) = start(first);
        let led = lead(&mut solver);
        group.finish(Ok::<(), NetError>(()));
        (led, others.into_iter().map(|other| other.join().unwrap()).collect())
    })
}

fn cpus(ranks: usize) -> Vec<Device> {
    (0..ranks).map(|_| Device::Cpu(Cpu::new(1))).collect()
}

const ITERATIONS: usize = 6;
/// Sums in another order round differently.
const TOLERANCE: f64 = 2e-5;

/// As one device trains with the samples of all, whatever follows from the gradients; and all ranks have the same
/// weights.
fn ranks_train_as_one_device(devices: &[Device], tolerance: f64) {
    let (ranks, all) = (devices.len(), 12 / devices.len() * devices.len());
    for fields in [
        SGD.to_owned(),
        format!("{SGD} iter_size: 2 clip_gradients: 0.5"),
        format!("{SGD} type: 'Adam' momentum2: 0.9"),
        format!("{SGD} larc: true larc_policy: 'clip' iter_size: 3"),
    ] {
        let mut one = start_on(&devices[0], solver(&plain(all), &fields));
        let expected = losses(&mut one, ITERATIONS);
        let lead = |solver: &mut Solver| (losses(solver, ITERATIONS), parameters(solver));
        let ((found, own), others) = together(devices, &solver(&plain(all / ranks), &fields), |_| (), lead);
        assert_near(&found, &expected, tolerance, &format!("{ranks} ranks, {fields}"));
        assert_ne!(expected[0], expected[ITERATIONS - 1]);
        assert!(others.into_iter().all(|theirs| theirs.unwrap() == own), "{ranks} ranks, {fields}");
    }
}

#[test]
fn two_and_three_ranks_train_as_one_device() {
    ranks_train_as_one_device(&cpus(2), TOLERANCE);
    ranks_train_as_one_device(&cpus(3), TOLERANCE);
}

/// Shuffled, with the last mini-batch of an epoch across its end, and tests on the way: on other numbers of ranks from
/// one snapshot to the next.
#[test]
fn a_training_goes_on_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("s");
    let test = "layer { name: 'digits' type: 'Data' top: 'data' top: 'label' include { phase: TEST }";
    let net = |batch| {
        let train = digits(batch).replace("'label' ", "'label' include { phase: TRAIN } ");
        let tested = digits(10).replace("layer { name: 'digits' type: 'Data' top: 'data' top: 'label'", test);
        format!("{train}{tested}{}", head("data", 10))
    };
    let fields = format!("{SGD} test_iter: 2 test_interval: 2 snapshot_prefix: '{}'", prefix.display());
    let part = |solver: &mut Solver| {
        let mut all = losses(solver, 2);
        all.extend(solver.tested().iter().flat_map(|output| output.values.clone()));
        solver.snapshot().unwrap();
        all
    };
    let mut one = start(solver(&net(12), &fields));
    let expected: Vec<f64> = (0..4).flat_map(|_| part(&mut one)).collect();
    let mut found = Vec::new();
    for (index, ranks) in [2, 3, 1, 2].into_iter().enumerate() {
        let snapshot = state_path(&prefix, 2 * index as u64);
        let prepare = |solver: &mut Solver| {
            if index > 0 {
                solver.restore(&snapshot).unwrap();
                // The test before the snapshot is made again.
                solver.tested();
            }
        };
        found.extend(together(&cpus(ranks), &solver(&net(12 / ranks), &fields), prepare, part).0);
    }
    assert_near(&found, &expected, TOLERANCE, "2, 3, 1 and 2 ranks");
}

/// The first labels of the digits are 2, 8, 0, 4: only the second rank meets one that is no class.
fn a_fault_of_one_rank_changes_no_weights_on_any(devices: &[Device]) {
    let net = format!("{}{LABELS_OF_A_LAYER}{}", digits(1), head("data", 5));
    let lead = |solver: &mut Solver| {
        let before = parameters(solver);
        let error = solver.step().unwrap_err().to_string();
        assert_eq!((solver.iteration(), parameters(solver)), (0, before));
        error
    };
    let (error, others) = together(devices, &solver(&net, SGD), |_| (), lead);
    let theirs = others[0].as_ref().unwrap_err().to_string();
    assert!(theirs.contains("label 8 of sample 0 is none of the classes 0 to 4"), "{theirs}");
    assert_eq!(error, format!("rank 1 of 2 failed: {theirs}"));
}

#[test]
fn a_fault_of_one_rank_changes_no_weights() {
    a_fault_of_one_rank_changes_no_weights_on_any(&cpus(2));
}

#[test]
fn ranks_that_diverge_say_so() {
    let spec = solver(&plain(4), "base_lr: 1e30 lr_policy: 'fixed'");
    let lead = |solver: &mut Solver| (0..9).find_map(|_| solver.step().err()).expect("such a rate diverges");
    let (error, others) = together(&cpus(2), &spec, |_| (), lead);
    assert!(matches!(error, NetError::Diverged { iteration: 1.., .. }), "{error}");
    assert!(matches!(others[0], Err(NetError::Diverged { .. })), "{:?}", others[0]);
}

/// A mini-batch that rank 0 gives up all give up.
#[test]
fn ranks_stop_between_the_mini_batches_of_an_iteration() {
    let net = format!("{}{}", digits(3), head("data", 10));
    let spec = solver(&net, &format!("{SGD} iter_size: 2"));
    let whole = together(&cpus(2), &spec, |_| (), |solver| losses(solver, 4)).0;
    let lead = |solver: &mut Solver| {
        let mut all = losses(solver, 2);
        let stop = Stop::default();
        stop.number.store(2, Ordering::SeqCst);
        assert_eq!(solver.step_unless(&stop).unwrap(), None);
        all.extend(losses(solver, 2));
        all
    };
    let (stopped, others) = together(&cpus(2), &spec, |_| (), lead);
    assert_eq!(stopped, whole);
    assert!(others[0].is_ok());
}

/// If both drew the same, their mean would be what one rank has alone.
#[test]
fn each_rank_draws_random_numbers_of_its_own() {
    let data = |filler: &str| {
        format!(
            "layer {{ name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {{
  shape {{ dim: 2 dim: 8 }} shape {{ dim: 2 }} data_filler {{ {filler} }} data_filler {{ value: 1 }} }} }}\n"
        )
    };
    let dropout = layer("Dropout", "drop", "data", "data", "");
    for net in [data("value: 1") + &dropout, data("type: 'uniform' min: -1")] {
        let spec = solver(&(net + &head("data", 10)), SGD);
        let (found, _) = together(&cpus(2), &spec, |_| (), |solver| losses(solver, 2));
        let (again, _) = together(&cpus(2), &spec, |_| (), |solver| losses(solver, 2));
        let one = losses(&mut start(spec), 2);
        assert!(found == again && found[0] != one[0] && found[1] != one[1], "{found:?} {one:?}");
    }
}

/// The GPUs of this machine, if there are two.
fn two_gpus() -> Option<Vec<Device>> {
    let gpus = probe().unwrap();
    if gpus.devices.len() < 2 {
        eprintln!("skipped: it needs two GPUs, and there is one");
        return None;
    }
    Some((0..2).map(|gpu| Device::Cuda(gpus.open(gpu).unwrap())).collect())
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn cuda_ranks_train_as_one_device() {
    two_gpus().iter().for_each(|gpus| ranks_train_as_one_device(gpus, 1e-4));
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn cuda_a_fault_of_one_rank_changes_no_weights() {
    two_gpus().iter().for_each(|gpus| a_fault_of_one_rank_changes_no_weights_on_any(gpus));
}
