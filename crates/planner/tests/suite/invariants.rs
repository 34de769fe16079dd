//! What every plan must fulfil, on random tables.

use crate::synthetic::*;
use planner::*;
use proptest::prelude::*;

const LIMITS: std::ops::Range<u64> = 0..200_000;

fn net() -> impl Strategy<Value = (Vec<Kernel>, CostTable)> {
    (any::<u64>(), 1..8usize, 1..24u32)
        .prop_map(|(seed, count, mini_batch)| random_net(seed, count, mini_batch))
}

fn batch_size_policy() -> impl Strategy<Value = BatchSizePolicy> {
    prop_oneof![Just(BatchSizePolicy::PowerOfTwo), Just(BatchSizePolicy::All)]
}

fn not_slower(a_ms: f64, b_ms: f64) -> bool {
    a_ms <= b_ms * (1.0 + 1e-9)
}

/// Under WD every kernel has a segment; otherwise they share the largest workspace.
fn check_arena(plan: &Plan) {
    let workspaces = || plan.kernels.iter().map(|planned| planned.workspace);
    let total = if plan.options.workspace_policy == WorkspacePolicy::Wd {
        workspaces().map(|workspace| workspace.aligned()).sum()
    } else {
        workspaces().max().unwrap_or_default()
    };
    assert_eq!(plan.workspace_total(), total);
}

/// What a refused limit should have been, as the error says.
fn smallest_feasible(plan: &Result<Plan, PlanError>) -> Option<Bytes> {
    let message = plan.as_ref().err()?.to_string();
    let (_, said) =
        ["feasible limit is ", "feasible total is "].iter().find_map(|said| message.split_once(said))?;
    let said = said.split(',').next()?;
    let exact = said.split_once(" (").map_or(said, |(_, exact)| exact.trim_end_matches(" bytes)"));
    Some(exact.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_covers_every_mini_batch_and_stays_within_its_limit(
        (kernels, table) in net(), sizes in batch_size_policy(), workspace in workspace_policy(),
        limit in LIMITS,
    ) {
        let options = options(sizes, workspace, Bytes(limit));
        let plan = plan(&kernels, &table, &options).unwrap();
        for (kernel, planned) in std::iter::zip(&kernels, &plan.kernels) {
            prop_assert_eq!(kernel, &planned.kernel);
            let mut next = 0;
            for (offset, micro) in micro_batches(&planned.configuration) {
                prop_assert_eq!(offset, next);
                prop_assert!(table.measurements(&kernel.id, micro.micro_batch).unwrap().contains(micro));
                prop_assert!(sizes.sizes(kernel.mini_batch).contains(&micro.micro_batch));
                next += micro.micro_batch;
            }
            prop_assert_eq!(next, kernel.mini_batch);
            prop_assert!(planned.workspace <= options.limit);
            prop_assert_eq!(planned.workspace, planned.configuration.workspace());
        }
        prop_assert!(plan.workspace_total() <= options.limit);
        check_arena(&plan);
    }

    #[test]
    fn a_plan_is_never_slower_than_undivided(
        (kernels, table) in net(), sizes in batch_size_policy(), workspace in workspace_policy(),
        limit in LIMITS,
    ) {
        let plan = plan(&kernels, &table, &options(sizes, workspace, Bytes(limit))).unwrap();
        if let Some(undivided_ms) = plan.undivided_time_ms {
            prop_assert!(not_slower(plan.time_ms, undivided_ms));
        }
        for planned in plan.kernels.iter().filter(|_| workspace != WorkspacePolicy::Wd) {
            prop_assert!(planned.gain().is_none_or(|gain| not_slower(1.0, gain)));
        }
    }

    #[test]
    fn more_workspace_is_never_slower(
        (kernels, table) in net(), sizes in batch_size_policy(), workspace in workspace_policy(),
        limit in LIMITS, more in LIMITS,
    ) {
        let time_ms = |limit| plan(&kernels, &table, &options(sizes, workspace, Bytes(limit))).unwrap().time_ms;
        prop_assert!(not_slower(time_ms(limit + more), time_ms(limit)));
    }

    #[test]
    fn all_is_never_slower_than_power_of_two(
        (kernels, table) in net(), workspace in workspace_policy(), limit in LIMITS,
    ) {
        let time_ms = |sizes| plan(&kernels, &table, &options(sizes, workspace, Bytes(limit))).unwrap().time_ms;
        prop_assert!(not_slower(time_ms(BatchSizePolicy::All), time_ms(BatchSizePolicy::PowerOfTwo)));
    }

    #[test]
    fn one_shared_arena_is_never_slower_than_dividing_the_same_total(
        (kernels, table) in net(), sizes in batch_size_policy(), limit in LIMITS,
    ) {
        let options = |workspace| options(sizes, workspace, Bytes(limit));
        let time_ms = |workspace| plan(&kernels, &table, &options(workspace)).unwrap().time_ms;
        prop_assert!(not_slower(time_ms(WorkspacePolicy::Ws), time_ms(WorkspacePolicy::Wd)));
    }

    #[test]
    fn dividing_what_equal_limits_add_up_to_is_never_slower(
        (kernels, table) in net(), sizes in batch_size_policy(), limit in LIMITS,
    ) {
        let plan_at = |workspace, limit| plan(&kernels, &table, &options(sizes, workspace, limit)).unwrap();
        let count = kernels.len() as u64;
        let equal = plan_at(WorkspacePolicy::Wr, Bytes(limit));
        // A kernel's segment is its workspace rounded up, so the sum of unrounded limits may not do ...
        let segments = Bytes(count * limit.next_multiple_of(ARENA_ALIGNMENT));
        prop_assert!(not_slower(plan_at(WorkspacePolicy::Wd, segments).time_ms, equal.time_ms));
        // ... but it does for limits rounded down, and so does what the plan takes itself.
        let whole = plan_at(WorkspacePolicy::Wr, Bytes(limit / ARENA_ALIGNMENT * ARENA_ALIGNMENT));
        prop_assert!(not_slower(plan_at(WorkspacePolicy::Wd, Bytes(count * limit)).time_ms, whole.time_ms));
        let taken = equal.kernels.iter().map(|kernel| kernel.workspace.aligned()).sum();
        prop_assert!(not_slower(plan_at(WorkspacePolicy::Wd, taken).time_ms, equal.time_ms));
        // One arena is the same limit for everybody: but for the name it is the same plan.
        let arena = plan_at(WorkspacePolicy::Ws, Bytes(limit));
        prop_assert_eq!(&arena.kernels, &equal.kernels);
        prop_assert_eq!(arena.workspace_total(), equal.workspace_total());
        prop_assert_eq!(taken, equal.workspace_separate());
    }

    #[test]
    fn limits_of_their_own_hold_for_every_kernel(
        (kernels, table) in net(), sizes in batch_size_policy(), seed in any::<u64>(), more in LIMITS,
    ) {
        let mut random = Random(seed);
        let limits: Vec<Bytes> = kernels.iter().map(|_| Bytes(random.below(LIMITS.end))).collect();
        let richer: Vec<Bytes> = limits.iter().map(|&limit| limit + Bytes(random.below(more + 1))).collect();
        let options = options(sizes, WorkspacePolicy::Ws, Bytes(LIMITS.end));
        let fronts = Fronts::new(&kernels, &table, &options).unwrap();
        let plan_within = |limits: &[Bytes]| fronts.plan_within(limits, &options).unwrap();
        let plan = plan_within(&limits);
        for (index, planned) in plan.kernels.iter().enumerate() {
            prop_assert!(planned.workspace <= limits[index]);
            prop_assert_eq!(planned.configuration.mini_batch(), kernels[index].mini_batch);
            prop_assert!(planned.gain().is_none_or(|gain| not_slower(1.0, gain)));
        }
        prop_assert!(not_slower(plan_within(&richer).time_ms, plan.time_ms));
    }

    #[test]
    fn an_explanation_holds_when_its_workspace_is_granted(
        (kernels, table) in net(), sizes in batch_size_policy(), limit in LIMITS,
    ) {
        let plan_at = |limit| plan(&kernels, &table, &options(sizes, WorkspacePolicy::Wr, limit)).unwrap();
        for (index, planned) in plan_at(Bytes(limit)).kernels.iter().enumerate() {
            let granted = match &planned.explanation {
                Explanation::FastestMeasured => plan_at(Bytes::MAX).kernels[index].time_ms(),
                Explanation::LacksWorkspace { speedup, lacking, .. } => {
                    prop_assert!(*speedup > 1.0 && *lacking > Bytes(0));
                    plan_at(Bytes(limit) + *lacking).kernels[index].time_ms() * speedup
                }
            };
            prop_assert!(close(granted, planned.time_ms()));
        }
    }

    #[test]
    fn the_smallest_feasible_limit_is_feasible_and_smallest(
        seed in any::<u64>(), mini_batch in 1..12u32, workspace in workspace_policy(),
        sizes in batch_size_policy(),
    ) {
        let kernels = [kernel(1, mini_batch), kernel(2, mini_batch), kernel(1, mini_batch)];
        let mut table = CostTable::default();
        let mut random = Random(seed);
        insert_micros(&mut table, &kernels[0], &random_micros(&mut random, mini_batch, false));
        insert_micros(&mut table, &kernels[1], &random_micros(&mut random, mini_batch, false));
        let plan_at = |limit| plan(&kernels, &table, &options(sizes, workspace, limit));
        let mut limit = Bytes(0);
        if let Some(smallest) = smallest_feasible(&plan_at(limit)) {
            prop_assert!(smallest > limit);
            limit = smallest;
            prop_assert!(plan_at(Bytes(limit.0 - 1)).is_err());
        }
        let coverable = kernels.iter().all(|kernel| {
            let rows = table.iter().filter(|(id, ..)| **id == kernel.id).flat_map(|(_, _, rows)| rows);
            !desirable_set(rows, mini_batch, Bytes::MAX).is_empty()
        });
        match plan_at(limit) {
            Ok(_) => prop_assert!(coverable),
            Err(error) => {
                let uncovered = error.to_string().contains("no algorithm that covers");
                prop_assert!(uncovered && plan_at(Bytes::MAX) == Err(error));
                prop_assert!(!coverable || sizes != BatchSizePolicy::All);
            }
        }
    }

    #[test]
    fn both_methods_of_division_give_the_same_time((kernels, table) in net(), limit in LIMITS) {
        let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wd, Bytes(limit));
        let plan = |wd_solver| plan(&kernels, &table, &PlanOptions { wd_solver, ..options.clone() }).unwrap();
        let (exact, ilp) = (plan(WdSolver::Exact), plan(WdSolver::Ilp));
        prop_assert!((exact.time_ms - ilp.time_ms).abs() <= 1e-7 * exact.time_ms);
        prop_assert_eq!(exact.undivided_time_ms.is_some(), ilp.undivided_time_ms.is_some());
        let undivided_ms = exact.undivided_time_ms.zip(ilp.undivided_time_ms);
        prop_assert!(undivided_ms.is_none_or(|(exact, ilp)| (exact - ilp).abs() <= 1e-7 * exact));
        prop_assert!(ilp.division.unwrap().lower_bound_ms <= ilp.time_ms * (1.0 + 1e-9));
    }
}
