//! Desirable sets against all-pairs dominance.

use crate::synthetic::*;
use planner::*;

fn point(time_ms: f64, workspace: u64) -> Measurement {
    Measurement {
        algorithm: "A".into(),
        micro_batch: 1,
        time_ms,
        shared_ms: 0.0,
        workspace: Bytes(workspace),
        max_error: 0.0,
        deterministic: true,
    }
}

fn random_points(seed: u64, count: usize, grid: u64) -> Vec<Measurement> {
    let mut random = Random(seed);
    (0..count).map(|_| point(random.below(grid) as f64, random.below(grid))).collect()
}

fn set(points: &[Measurement]) -> DesirableSet {
    desirable_set(points, 1, Bytes::MAX)
}

/// The distinct (time, workspace) pairs that no other pair dominates.
fn undominated(points: &[Measurement]) -> Vec<(f64, Bytes)> {
    let pair = |point: &Measurement| (point.time_ms, point.workspace);
    let better = |a: (f64, Bytes), b: (f64, Bytes)| a != b && a.0 <= b.0 && a.1 <= b.1;
    let mut best: Vec<(f64, Bytes)> =
        points.iter().map(pair).filter(|&b| !points.iter().any(|a| better(pair(a), b))).collect();
    best.sort_by_key(|pair| pair.1);
    best.dedup();
    best
}

#[test]
fn ten_thousand_random_points_leave_exactly_the_undominated_ones() {
    // The coarse grid is rich in ties, the fine one in points of the front; the last has both on a slope.
    let sloped = |point: &Measurement| {
        let rest = 10_000.0 - point.workspace.0 as f64;
        self::point(rest + point.time_ms, point.workspace.0)
    };
    let fine = random_points(4, 10_000, 10_000);
    let slope = random_points(5, 10_000, 300).iter().map(sloped).collect();
    for points in [random_points(3, 10_000, 100), fine, slope] {
        let set = set(&points);
        let found: Vec<(f64, Bytes)> = set.iter().map(|point| (point.time_ms(), point.workspace())).collect();
        assert_eq!(found, undominated(&points));
    }
}

#[test]
fn the_fastest_within_a_limit_is_the_last_that_fits() {
    let set = set(&[point(9.0, 0), point(5.0, 10), point(2.0, 30)]);
    let fastest = |limit| set.fastest_within(Bytes(limit)).map(Configuration::time_ms);
    assert_eq!(
        [fastest(0), fastest(9), fastest(10), fastest(29), fastest(99)].map(Option::unwrap),
        [9.0, 9.0, 5.0, 5.0, 2.0]
    );
    let hungry = self::set(&[point(1.0, 10)]);
    assert!(hungry.fastest_within(Bytes(9)).is_none());
    assert!(DesirableSet::default().fastest_within(Bytes::MAX).is_none());
}

#[test]
fn of_equal_points_one_stays() {
    let set = set(&[point(1.0, 1), point(1.0, 1), point(1.0, 2), point(2.0, 1), point(0.5, 1)]);
    assert_eq!((set.len(), set[0].time_ms()), (1, 0.5));
}
