//! Options, errors and the form of a plan.

use crate::synthetic::*;
use planner::*;

fn two_layers() -> (Vec<Kernel>, CostTable) {
    let kernels = vec![kernel(64, 128), kernel(192, 256)];
    let models: Vec<(Kernel, Vec<Affine>)> =
        kernels.iter().map(|kernel| (kernel.clone(), fft_and_gemm())).collect();
    (kernels, table(&models, BatchSizePolicy::PowerOfTwo))
}

fn message(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> String {
    plan(kernels, table, options).unwrap_err().to_string()
}

#[test]
fn a_kernel_whose_undivided_form_does_not_run_is_rescued() {
    // Nothing at 256, as when a library refuses more than 2^31 elements.
    let (kernels, mut table) = two_layers();
    table.insert(kernels[1].id, 256, vec![]).unwrap();
    let plan = plan(&kernels, &table, &PlanOptions::default()).unwrap();
    assert_eq!(plan.kernels[1].configuration.mini_batch(), 256);
    assert_eq!((plan.kernels[1].undivided.clone(), plan.kernels[1].gain()), (None, None));
    assert!(plan.kernels[0].gain().is_some() && plan.gain().is_none());
}

#[test]
fn an_infeasible_limit_names_the_kernel_and_the_smallest_that_would_do() {
    let kernels = [kernel(64, 4)];
    let hungry = Affine { name: "GEMM", call_ms: 0.0, sample_ms: 1.0, call_bytes: 1000, sample_bytes: 603 };
    let table = table(&[(kernels[0].clone(), vec![hungry])], BatchSizePolicy::PowerOfTwo);
    let at = |policy, limit| message(&kernels, &table, &options(policy, WorkspacePolicy::Wr, limit));
    assert_eq!(
        at(BatchSizePolicy::PowerOfTwo, Bytes(0)),
        "conv64 Forward has no algorithm within the workspace limit of 0 B under the powerOfTwo policy: \
         the smallest feasible limit is 1.6 KiB (1603 bytes)"
    );
    assert!(at(BatchSizePolicy::Undivided, Bytes(2 << 10)).ends_with("limit is 3.3 KiB (3412 bytes)"));
    let wd = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wd, Bytes(3000));
    // A kernel alone has a segment, too: the total that is named is one with a plan.
    let alone = |total| plan(&kernels, &table, &PlanOptions { limit: Bytes(total), ..wd.clone() });
    let named = "the smallest feasible limit is 1.8 KiB (1792 bytes)";
    assert!(alone(1603).unwrap_err().to_string().ends_with(named) && alone(1792).is_ok());
    let twice = [kernels[0].clone(), kernels[0].clone()];
    assert_eq!(
        message(&twice, &table, &wd),
        "2 kernels do not fit the total workspace of 2.9 KiB (3000 bytes) together: the smallest feasible total is \
         3.5 KiB, of which conv64 Forward takes 1.8 KiB (1792 bytes)"
    );
}

#[test]
fn of_several_kernels_the_one_that_sets_the_smallest_limit_is_named() {
    let hungry =
        |call_bytes| Affine { name: "GEMM", call_ms: 0.0, sample_ms: 1.0, call_bytes, sample_bytes: 0 };
    let kernels = [kernel(1, 4), kernel(2, 4), kernel(3, 4)];
    let needs = [1000, 5000, 3000];
    let table = table(
        &std::array::from_fn::<_, 3, _>(|index| (kernels[index].clone(), vec![hungry(needs[index])])),
        BatchSizePolicy::PowerOfTwo,
    );
    let at = |policy| message(&kernels, &table, &options(BatchSizePolicy::PowerOfTwo, policy, Bytes(500)));
    for policy in [WorkspacePolicy::Wr, WorkspacePolicy::Ws] {
        let message = at(policy);
        assert!(
            message.starts_with("conv2 Forward") && message.ends_with("4.9 KiB (5000 bytes)"),
            "{message}"
        );
    }
    // Segments are aligned: 1024 + 5120 + 3072.
    let divided = at(WorkspacePolicy::Wd);
    assert!(
        divided.contains("smallest feasible total is 9 KiB, of which conv2 Forward takes 5 KiB"),
        "{divided}"
    );
}

#[test]
fn every_kernel_may_have_a_limit_of_its_own() {
    let (kernels, table) = two_layers();
    let kernels = [kernels[0].clone(), kernels[0].clone(), kernels[1].clone()];
    let limits = [Bytes::mib(8), Bytes::mib(32), Bytes::mib(3)];
    let fronts = Fronts::new(&kernels, &table, &PlanOptions::default()).unwrap();
    let within = fronts.plan_within(&limits, &PlanOptions::default()).unwrap();
    for (index, planned) in within.kernels.iter().enumerate() {
        let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wr, limits[index]);
        let alone = plan(&kernels[index..=index], &table, &options).unwrap();
        assert_eq!(planned.configuration, alone.kernels[0].configuration);
        assert_eq!((planned.available, &planned.explanation), (limits[index], &alone.kernels[0].explanation));
    }
    assert_eq!(
        (within.options.workspace_policy, within.options.limit),
        (WorkspacePolicy::Ws, Bytes::mib(32))
    );
}

#[test]
fn the_fastest_that_was_not_chosen_is_named_with_what_it_lacked() {
    let (kernels, table) = two_layers();
    let at = |limit| {
        let plan = plan(&kernels[..1], &table, &PlanOptions { limit, ..PlanOptions::default() }).unwrap();
        plan.kernels[0].explanation.clone()
    };
    let lacking = |limit| match at(limit) {
        Explanation::LacksWorkspace { configuration, lacking, .. } => (configuration.to_string(), lacking),
        Explanation::FastestMeasured => panic!("there is something faster"),
    };
    // FFT_TILING needs 1 MiB for each sample and spreads its millisecond over them.
    assert_eq!(lacking(Bytes::mib(64)), ("128 FFT_TILING".to_owned(), Bytes::mib(64)));
    assert_eq!(lacking(Bytes::mib(127)), ("128 FFT_TILING".to_owned(), Bytes::mib(1)));
    assert_eq!(at(Bytes::mib(128)), Explanation::FastestMeasured);
}

#[test]
fn what_was_not_measured_is_not_guessed() {
    let (kernels, table) = two_layers();
    assert_eq!(
        message(&kernels, &table, &options(BatchSizePolicy::All, WorkspacePolicy::Wr, Bytes::mib(64))),
        "conv64 Forward was not measured at micro-batch 3, which the all policy needs for mini-batch 128; \
         measured were 1, 2, 4, 8, 16, 32, 64, 128"
    );
    let all = options(BatchSizePolicy::All, WorkspacePolicy::Wr, Bytes::mib(64));
    let of_256 = [kernels[1].clone()];
    assert!(message(&of_256, &table, &all).ends_with("measured were 1, 2, 4, 8, 16, 32, 64, 128, 256"));
    assert!(
        message(&[kernel(5, 4)], &table, &all).ends_with("mini-batch 4; the kernel was not measured at all")
    );
    assert_eq!(
        message(&[kernel(7, 0)], &table, &PlanOptions::default()),
        "conv7 Forward has an empty mini-batch"
    );
}

#[test]
fn accuracy_and_determinism_can_be_demanded() {
    let kernels = [kernel(64, 8)];
    let mut table = CostTable::default();
    let row = |name: &'static str, time_ms, max_error, deterministic| Measurement {
        algorithm: name.into(),
        micro_batch: 8,
        time_ms,
        shared_ms: 0.0,
        workspace: Bytes(0),
        max_error,
        deterministic,
    };
    let rows = vec![
        row("WINOGRAD", 1.0, 1e-4, true),
        row("ATOMIC", 2.0, 1e-6, false),
        row("DIRECT", 3.0, 1e-6, true),
    ];
    table.insert(kernels[0].id, 8, rows).unwrap();
    let base = options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr, Bytes(0));
    let chosen = |max_error, deterministic_only| {
        let options = PlanOptions { max_error, deterministic_only, ..base.clone() };
        plan(&kernels, &table, &options).map(|plan| plan.kernels[0].configuration.to_string())
    };
    assert_eq!(chosen(None, false).unwrap(), "8 WINOGRAD");
    assert_eq!(chosen(Some(1e-5), false).unwrap(), "8 ATOMIC");
    assert_eq!(chosen(Some(1e-5), true).unwrap(), "8 DIRECT");
    assert_eq!(
        chosen(Some(1e-8), true).unwrap_err().to_string(),
        "conv64 Forward has no algorithm that covers mini-batch 8 under the undivided policy \
         with a maximum error of 1e-8 and deterministic algorithms only"
    );
}

#[test]
fn policies_take_different_totals() {
    let (kernels, table) = two_layers();
    let totals = |policy, limit| {
        let plan = plan(&kernels, &table, &options(BatchSizePolicy::PowerOfTwo, policy, limit)).unwrap();
        (plan.workspace_total(), plan.workspace_separate())
    };
    let mib = Bytes::mib;
    // WR and WS share one arena; under WD every kernel has a segment.
    for shared in [WorkspacePolicy::Wr, WorkspacePolicy::Ws] {
        assert_eq!(totals(shared, mib(64)), (mib(64), mib(128)));
    }
    assert_eq!(totals(WorkspacePolicy::Wd, mib(96)), (mib(96), mib(96)));
}

#[test]
fn a_plan_survives_json() {
    let (kernels, table) = two_layers();
    for policy in WorkspacePolicy::ALL {
        let options = options(BatchSizePolicy::PowerOfTwo, policy, Bytes(77_777_777));
        let plan = plan(&kernels, &table, &options).unwrap();
        let json = serde_json::to_string_pretty(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

#[test]
fn a_net_without_convolutions_has_an_empty_plan() {
    for policy in WorkspacePolicy::ALL {
        let options = options(BatchSizePolicy::PowerOfTwo, policy, Bytes(0));
        let plan = plan(&[], &CostTable::default(), &options).unwrap();
        assert_eq!((plan.kernels.len(), plan.time_ms, plan.workspace_total()), (0, 0.0, Bytes(0)));
    }
}

#[test]
fn either_solver_divides_the_total() {
    let (kernels, table) = two_layers();
    let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wd, Bytes::mib(96));
    let exact = plan(&kernels, &table, &options).unwrap();
    let by_ilp = PlanOptions { wd_solver: "ILP".parse().unwrap(), ..options };
    let ilp = plan(&kernels, &table, &by_ilp).unwrap();
    assert_eq!((exact.kernels, exact.time_ms), (ilp.kernels, ilp.time_ms));
    // A total that does not suffice is refused in the same words, and nothing divides well.
    assert!(plan(&[], &table, &by_ilp).unwrap().kernels.is_empty());
    let mut hungry = CostTable::default();
    for (id, size, rows) in table.iter() {
        let rows =
            rows.iter().map(|row| Measurement { workspace: row.workspace + Bytes(700), ..row.clone() });
        hungry.insert(*id, size, rows.collect()).unwrap();
    }
    let table = hungry;
    let refused_by = |options: &PlanOptions| {
        message(&kernels, &table, &PlanOptions { limit: Bytes(100), ..options.clone() })
    };
    let exact = PlanOptions { wd_solver: WdSolver::Exact, ..by_ilp.clone() };
    assert_eq!(refused_by(&by_ilp), refused_by(&exact));
    assert!(refused_by(&by_ilp).contains("do not fit the total workspace"));
    assert_eq!(
        "glpk".parse::<WdSolver>().unwrap_err().to_string(),
        "\"glpk\" is no WD solver: choose exact or ilp"
    );
}

#[test]
fn kernels_describe_themselves() {
    let shape =
        ConvShape { c: 96, h: 27, w: 31, k: 256, r: 5, s: 3, pad: [2, 1], groups: 2, ..ConvShape::default() };
    assert_eq!(shape.to_string(), "96x27x31, 256 filters 5x3, pad 2x1, 2 groups");
    let strided = ConvShape { stride: [2, 2], dilation: [1, 2], ..ConvShape::default() };
    assert_eq!(strided.to_string(), "1x1x1, 1 filters 1x1, stride 2, dilation 1x2");
    assert_eq!(kernel(64, 8).to_string(), "conv64 Forward");
    assert_eq!(format!("{:<15}|", ConvOp::BackwardFilter), "BackwardFilter |");
}
