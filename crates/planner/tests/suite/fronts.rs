//! Curves and prices against plans.

use crate::synthetic::*;
use planner::*;
use proptest::prelude::*;

fn fronts((kernels, table): &(Vec<Kernel>, CostTable)) -> Fronts {
    let options = options(BatchSizePolicy::All, WorkspacePolicy::Wr, Bytes(0));
    Fronts::new(kernels, table, &options).unwrap()
}

fn planned(
    (kernels, table): &(Vec<Kernel>, CostTable),
    policy: WorkspacePolicy,
    limit: Bytes,
) -> Option<Plan> {
    plan(kernels, table, &options(BatchSizePolicy::All, policy, limit)).ok()
}

/// Time on the straight line between the points around `limit`.
fn line_ms(curve: &Curve, limit: Bytes) -> f64 {
    let here = curve.points().iter().rfind(|point| point.workspace <= limit).unwrap();
    let Some(beyond) = curve.points().iter().find(|point| point.workspace > limit) else {
        return here.time_ms;
    };
    let part = (limit.0 - here.workspace.0) as f64 / (beyond.workspace.0 - here.workspace.0) as f64;
    here.time_ms + part * (beyond.time_ms - here.time_ms)
}

/// A random net whose kernels all need some workspace.
fn hungry_net() -> impl Strategy<Value = (Vec<Kernel>, CostTable)> {
    (any::<u64>(), 1..6usize, 1..12u32).prop_map(|(seed, count, mini_batch)| {
        let (kernels, table) = random_net(seed, count, mini_batch);
        let mut hungry = CostTable::default();
        for (id, size, rows) in table.iter() {
            let hungrier =
                |row: &Measurement| Measurement { workspace: row.workspace + Bytes(700), ..row.clone() };
            hungry.insert(*id, size, rows.iter().map(hungrier).collect()).unwrap();
        }
        (kernels, hungry)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_curve_of_equal_limits_is_the_time_of_every_plan(net in hungry_net(), limit in 0..80_000u64) {
        for policy in [WorkspacePolicy::Wr, WorkspacePolicy::Ws] {
            let curve = fronts(&net).curve(policy);
            let time_ms = |limit| planned(&net, policy, limit).map(|plan| plan.time_ms);
            let mut limits = vec![Bytes(limit), Bytes::MAX];
            for point in curve.points() {
                limits.extend([point.workspace, Bytes(point.workspace.0 - 1)]);
            }
            for limit in limits {
                match (curve.time_ms(limit), time_ms(limit)) {
                    (Some(curve), Some(plan)) => prop_assert!(close(curve, plan), "{curve} at {limit}, not {plan}"),
                    (curve, plan) => prop_assert_eq!(curve, plan),
                }
            }
        }
    }

    #[test]
    fn the_curve_of_division_is_exact_at_its_points_and_bounds_the_rest(net in hungry_net(), limit in 0..80_000u64) {
        let curve = fronts(&net).curve(WorkspacePolicy::Wd);
        let time_ms = |limit| planned(&net, WorkspacePolicy::Wd, limit).map(|plan| plan.time_ms);
        for point in curve.points() {
            prop_assert!(close(point.time_ms, time_ms(point.workspace).unwrap()));
        }
        let smallest = curve.points()[0].workspace;
        prop_assert_eq!(time_ms(Bytes(smallest.0 - 1)), None);
        let Some(staircase_ms) = curve.time_ms(Bytes(limit)) else {
            prop_assert_eq!(time_ms(Bytes(limit)), None);
            return Ok(());
        };
        let plan = planned(&net, WorkspacePolicy::Wd, Bytes(limit)).unwrap();
        prop_assert!(plan.time_ms <= staircase_ms * (1.0 + 1e-9));
        let line_ms = line_ms(&curve, Bytes(limit));
        prop_assert!(line_ms <= plan.division.unwrap().lower_bound_ms * (1.0 + 1e-9));
    }

    #[test]
    fn nobody_saves_more_than_the_price(
        net in hungry_net(), policy in workspace_policy(), limit in 0..80_000u64, more in 1..80_000u64,
    ) {
        let fronts = fronts(&net);
        let price = fronts.price_ms_per_mib(policy, Bytes(limit));
        let Some(plan) = planned(&net, policy, Bytes(limit)) else {
            prop_assert_eq!(price, f64::INFINITY);
            return Ok(());
        };
        let richer = planned(&net, policy, Bytes(limit + more)).unwrap();
        // Under WD the price is that of the relaxation, which starts from its own solution.
        let relaxed_ms = || line_ms(&fronts.curve(policy), Bytes(limit));
        let from_ms = if policy == WorkspacePolicy::Wd { relaxed_ms() } else { plan.time_ms };
        let fastest = planned(&net, policy, Bytes::MAX).unwrap();
        // Of the relaxation any part of a MiB has its price; otherwise a MiB is the least that has, and costs no more than
        // there is to save.
        let is_relaxed = policy == WorkspacePolicy::Wd;
        let mib = if is_relaxed { Bytes(more).as_mib() } else { Bytes(more).as_mib().max(1.0) };
        prop_assert!(from_ms - price * mib <= richer.time_ms * (1.0 + 1e-9));
        prop_assert!(is_relaxed || price <= (from_ms - fastest.time_ms) * (1.0 + 1e-9));
        prop_assert_eq!(price > 0.0, !close(from_ms, fastest.time_ms));
    }

    #[test]
    fn the_smallest_limit_is_named_with_its_kernel(net in hungry_net(), policy in workspace_policy()) {
        let fronts = fronts(&net);
        let (limit, kernel) = fronts.smallest_limit(policy).unwrap();
        prop_assert_eq!(fronts.curve(policy).points()[0].workspace, limit);
        prop_assert!(planned(&net, policy, limit).is_some() && planned(&net, policy, Bytes(limit.0 - 1)).is_none());
        let least = |set: &DesirableSet| set.iter().next().unwrap().workspace();
        let most = fronts.iter().map(|(_, set)| least(set)).max().unwrap();
        prop_assert!(fronts.iter().any(|(each, set)| each == kernel && least(set) == most));
    }
}

#[test]
fn the_price_of_a_mebibyte_is_the_steepest_step_ahead() {
    let kernels = [kernel(64, 4)];
    let rows = |name, time_ms, mib| Measurement {
        algorithm: Algorithm::from(name),
        micro_batch: 4,
        time_ms,
        shared_ms: 0.0,
        workspace: Bytes::mib(mib),
        max_error: 0.0,
        deterministic: true,
    };
    let mut table = CostTable::default();
    table.insert(kernels[0].id, 4, vec![rows("A", 10.0, 0), rows("B", 8.0, 4), rows("C", 2.0, 10)]).unwrap();
    let options = options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr, Bytes(0));
    let fronts = Fronts::new(&kernels, &table, &options).unwrap();
    let (_, set) = fronts.iter().next().unwrap();
    let prices = |limit| {
        let (one, net) = (set.curve(), fronts.price_ms_per_mib(WorkspacePolicy::Wr, Bytes::mib(limit)));
        assert_eq!(one.price_ms_per_mib(Bytes::mib(limit)), net);
        net
    };
    // Eight of ten milliseconds for ten MiB; from two MiB on the same for eight; then six for six.
    assert_eq!([prices(0), prices(2), prices(4), prices(9), prices(10)], [0.8, 1.0, 1.0, 6.0, 0.0]);
    // The relaxation goes straight from the first to the last.
    let dual = |limit| fronts.price_ms_per_mib(WorkspacePolicy::Wd, Bytes::mib(limit));
    assert_eq!(
        [dual(0), dual(2), dual(9), dual(10)].map(|price| (price * 1e9).round() / 1e9),
        [0.8, 0.8, 0.8, 0.0]
    );
    assert_eq!(fronts.smallest_limit(WorkspacePolicy::Wd), Some((Bytes(0), &kernels[0])));
}

#[test]
fn a_net_without_convolutions_has_no_curve() {
    let fronts = Fronts::new(&[], &CostTable::default(), &PlanOptions::default()).unwrap();
    for policy in WorkspacePolicy::ALL {
        assert_eq!(fronts.smallest_limit(policy), None);
    }
    assert!(fronts.curve(WorkspacePolicy::Wr).points().is_empty());
}
