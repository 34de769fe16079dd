//! Division by the exact method and by the ILP: against enumeration, a table over all capacities, and each other.

use crate::recorded::{recorded_kernels, recorded_tables};
use crate::synthetic::*;
use planner::*;

/// Like the desirable sets of real kernels: time falls convexly with workspace, with noise, from a random
/// time without workspace.
fn front(random: &mut Random, size: usize) -> Vec<Cost> {
    let slowest_ms = 0.05 * 160f64.powf(random.unit());
    let most_bytes = 5.0 * 100f64.powf(random.unit()) * f64::from(1 << 20);
    let mut group: Vec<Cost> = (0..size)
        .map(|index| {
            let part = index as f64 / size.max(2) as f64;
            let noise = 1.0 + 0.02 * random.unit();
            let workspace = Bytes((part * most_bytes) as u64 / 256 * 256);
            Cost { time_ms: slowest_ms * noise / (1.0 + 4.0 * part), workspace }
        })
        .collect();
    group.reverse();
    group
}

fn fronts(random: &mut Random, groups: usize, size: usize) -> Vec<Vec<Cost>> {
    (0..groups).map(|_| front(random, size)).collect()
}

/// Integers with many ties, in no order, with dominated alternatives.
fn coarse(random: &mut Random, groups: usize, size: u64) -> Vec<Vec<Cost>> {
    let mut alternative = |_| Cost { time_ms: random.below(20) as f64, workspace: Bytes(random.below(12)) };
    (0..groups).map(|_| (0..size).map(&mut alternative).collect()).collect()
}

fn share_of_most(groups: &[Vec<Cost>], share: f64) -> Bytes {
    let most = groups.iter().map(|group| group.iter().map(|a| a.workspace.0).max().unwrap_or(0)).sum::<u64>();
    Bytes((share * most as f64) as u64)
}

/// Least time of every total up to `most` bytes: the textbook table.
fn textbook(groups: &[Vec<Cost>], most: usize) -> Vec<f64> {
    let mut best = vec![0.0; most + 1];
    for group in groups {
        let mut next = vec![f64::INFINITY; most + 1];
        for alternative in group {
            let workspace = alternative.workspace.0 as usize;
            for total in workspace..=most {
                next[total] = f64::min(next[total], best[total - workspace] + alternative.time_ms);
            }
        }
        best = next;
    }
    best
}

fn check(groups: &[Vec<Cost>], total: Bytes, division: &Division) {
    assert_eq!(division.picks.len(), groups.len());
    assert!(division.workspace(groups) <= total);
    let time_ms: f64 =
        std::iter::zip(groups, &division.picks).map(|(group, &pick)| group[pick].time_ms).sum();
    assert!(close(time_ms, division.time_ms));
    assert!(division.lower_bound_ms <= division.time_ms * (1.0 + 1e-12) + 1e-12);
}

fn enumerate(groups: &[Vec<Cost>], total: u64) -> Option<f64> {
    let Some((group, rest)) = groups.split_first() else { return Some(0.0) };
    let fitting = group.iter().filter(|alternative| alternative.workspace.0 <= total);
    let times = fitting.filter_map(|a| Some(a.time_ms + enumerate(rest, total - a.workspace.0)?));
    times.min_by(f64::total_cmp)
}

#[test]
fn tiny_instances_equal_enumeration() {
    let mut random = Random(11);
    for _ in 0..2000 {
        let (count, size) = (random.below(5) as usize, 1 + random.below(4));
        let groups = coarse(&mut random, count, size);
        let total = random.below(40);
        let division = divide_exact(&groups, Bytes(total));
        assert_eq!(division.as_ref().map(|division| division.time_ms), enumerate(&groups, total));
        if let Some(division) = division {
            check(&groups, Bytes(total), &division);
        }
    }
}

#[test]
fn coarse_instances_equal_the_textbook_table_at_every_total() {
    let mut random = Random(12);
    for size in [2, 5, 9] {
        for _ in 0..3 {
            let groups = coarse(&mut random, 40, size);
            for (total, &expected_ms) in textbook(&groups, 450).iter().enumerate() {
                let division = divide_exact(&groups, Bytes(total as u64));
                let found_ms = division.map_or(f64::INFINITY, |division| division.time_ms);
                assert_eq!(found_ms, expected_ms, "total {total}");
            }
        }
    }
}

#[test]
fn hard_correlated_and_identical_groups_equal_the_textbook_table() {
    let mut random = Random(13);
    // Every byte is worth the same but for a constant: the relaxation says almost nothing.
    let correlated: Vec<Vec<Cost>> = (0..60)
        .map(|_| {
            let mut workspace = 0;
            let mut group = vec![Cost { time_ms: 200.0, workspace: Bytes(0) }];
            group.extend((0..4).map(|_| {
                workspace += 3 + random.below(20);
                Cost { time_ms: 190.0 - workspace as f64, workspace: Bytes(workspace) }
            }));
            group
        })
        .collect();
    let group = coarse(&mut random, 1, 9);
    let identical: Vec<Vec<Cost>> = (0..60).map(|_| group[0].clone()).collect();
    for groups in [correlated, identical] {
        let table = textbook(&groups, 1500);
        for total in (0..=1500).step_by(37) {
            let division = divide_exact(&groups, Bytes(total as u64));
            let found_ms = division.map_or(f64::INFINITY, |division| division.time_ms);
            assert!(found_ms == table[total] || close(found_ms, table[total]), "total {total}");
        }
    }
}

/// Checks that the ILP gives what the exact method gives.
fn compare_with_ilp(groups: &[Vec<Cost>], total: Bytes) {
    let Some(exact) = divide_exact(groups, total) else {
        assert!(divide_ilp(groups, total).unwrap_err().starts_with("microlp failed"), "total {total}");
        return;
    };
    let ilp = divide_ilp(groups, total).unwrap();
    check(groups, total, &exact);
    check(groups, total, &ilp);
    let kernels = groups.len();
    let difference_ms = (exact.time_ms - ilp.time_ms).abs();
    assert!(
        difference_ms <= 1e-7 * exact.time_ms.max(1.0),
        "{kernels} kernels, total {total}: exact {} ms, ILP {} ms",
        exact.time_ms,
        ilp.time_ms
    );
}

fn compare_random(seed: u64, groups: usize, size: usize, shares: &[f64]) {
    let groups = fronts(&mut Random(seed), groups, size);
    for &share in shares {
        compare_with_ilp(&groups, share_of_most(&groups, share));
    }
}

#[test]
fn the_ilp_agrees_on_thousands_of_small_instances() {
    let mut random = Random(14);
    for round in 0..4000 {
        let (count, size) = (1 + random.below(6) as usize, 1 + random.below(5));
        let groups =
            if round % 2 == 0 { coarse(&mut random, count, size) } else { fronts(&mut random, count, 6) };
        compare_with_ilp(&groups, share_of_most(&groups, random.unit()));
    }
}

#[test]
fn the_ilp_agrees_on_the_size_of_real_nets() {
    let mut random = Random(16);
    for seed in 0..100 {
        compare_random(1000 + seed, 10 + random.below(10) as usize, 8, &[0.1 * random.unit()]);
    }
    for (seed, kernels, size) in [(1, 60, 6), (2, 60, 30), (3, 100, 12)] {
        compare_random(seed, kernels, size, &[0.05]);
    }
}

/// On the nets of the paper: on larger ones a general solver takes minutes.
#[test]
fn the_ilp_agrees_on_recorded_tables() {
    let is_of_paper =
        |name: &str| ["alexnet", "resnet18", "resnet50-32"].iter().any(|net| name.starts_with(net));
    for (name, table) in recorded_tables().into_iter().filter(|(name, _)| is_of_paper(name)) {
        for math in [Math::Fp32, Math::Tf32] {
            let kernels = recorded_kernels(&table, math);
            let sizes = if name.contains("all") { BatchSizePolicy::All } else { BatchSizePolicy::PowerOfTwo };
            for mib_each in [1, 8] {
                let limit = Bytes::mib(mib_each * kernels.len() as u64);
                let time_ms = |wd_solver| {
                    let options = options(sizes, WorkspacePolicy::Wd, limit);
                    plan(&kernels, &table, &PlanOptions { wd_solver, ..options }).unwrap().time_ms
                };
                let (exact_ms, ilp_ms) = (time_ms(WdSolver::Exact), time_ms(WdSolver::Ilp));
                assert!(
                    (exact_ms - ilp_ms).abs() <= 1e-7 * exact_ms,
                    "{name} {math} {limit}: {exact_ms}, {ilp_ms}"
                );
            }
        }
    }
}

#[test]
fn large_instances_respect_their_bounds() {
    for (seed, kernels, size) in [(21, 60, 70), (22, 159, 30), (23, 159, 70), (24, 480, 30)] {
        let groups = fronts(&mut Random(seed), kernels, size);
        for share in [0.01, 0.1, 0.5, 1.0] {
            let total = share_of_most(&groups, share);
            let division = divide_exact(&groups, total).unwrap();
            check(&groups, total, &division);
            assert!(division.time_ms <= division.lower_bound_ms * 1.02, "the gap cannot be that large");
        }
    }
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let groups = vec![vec![Cost { time_ms: 1.0, workspace: Bytes(10) }]; 3];
    assert!(divide_exact(&groups, Bytes(29)).is_none());
    assert!(divide_ilp(&groups, Bytes(29)).unwrap_err().starts_with("microlp failed"));
    assert_eq!(divide_exact(&groups, Bytes(30)).unwrap().picks, [0, 0, 0]);
    assert!(divide_exact(&[vec![]], Bytes::MAX).is_none());
    assert_eq!(divide_exact(&[], Bytes(0)).unwrap().time_ms, 0.0);
    assert_eq!(divide_ilp(&[], Bytes(0)).unwrap().time_ms, 0.0);
}
