//! The linear relaxation of the multiple-choice knapsack, and the greedy division that follows it.
//!
//! With fractions allowed only the corners of each group's lower convex hull in (workspace, time) matter. Starting from
//! every group's least workspace, take the steps between neighbouring corners in order of milliseconds saved per byte
//! until one does not fit; a fraction of that one fills the total exactly, and the sum is a lower bound.

use crate::model::{Bytes, Cost, faster};

/// An alternative that is worth its workspace, or how it differs from another one of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Workspace in bytes. Signed, as the search works with differences.
    pub(crate) workspace: i64,
    pub(crate) time_ms: f64,
    /// Its index in the group as given; of a difference, its position.
    pub(crate) index: usize,
}

/// The relaxed problem and its solution. A *position* is an index into a group's front.
pub(crate) struct Relaxation {
    pub(crate) total: i64,
    /// Of every group the undominated alternatives by rising workspace.
    pub(crate) fronts: Vec<Vec<Point>>,
    /// Position of every group in the relaxed solution, its one fractional step left out.
    pub(crate) base: Vec<usize>,
    /// Position of every group in the greedy division.
    pub(crate) greedy: Vec<usize>,
    /// What a byte is worth: milliseconds saved by the step that did not fit, zero if all did.
    pub(crate) price: f64,
    pub(crate) lower_bound_ms: f64,
}

/// From one corner of a group's hull to the next.
struct Step {
    group: usize,
    to: usize,
    workspace: i64,
    saved_ms: f64,
    saved_per_byte: f64,
}

impl Relaxation {
    /// Relaxes the division of `total` among `groups`, by the steps of all hulls in order of what they save per byte;
    /// `None` if not even the least workspaces fit.
    pub(crate) fn new(groups: &[Vec<Cost>], total: Bytes) -> Option<Self> {
        let total = i64::try_from(total.0).unwrap_or(i64::MAX);
        let (fronts, used, mut time_ms) = least(groups, total)?;
        let mut free = (used <= total).then(|| total - used)?;
        let mut position = vec![0; fronts.len()];
        let mut blocked = vec![false; fronts.len()];
        let mut relaxed = None;
        for step in steps(&fronts) {
            if blocked[step.group] {
                continue;
            }
            if step.workspace <= free {
                free -= step.workspace;
                time_ms -= step.saved_ms;
                position[step.group] = step.to;
            } else {
                blocked[step.group] = true;
                let price = step.saved_per_byte;
                relaxed.get_or_insert_with(|| (position.clone(), price, time_ms - price * free as f64));
            }
        }
        let (base, price, lower_bound_ms) = relaxed.unwrap_or_else(|| {
            let sum = std::iter::zip(&fronts, &position).map(|(front, &at)| front[at].time_ms).sum();
            (position.clone(), 0.0, sum)
        });
        Some(Self { total, fronts, base, greedy: position, price, lower_bound_ms })
    }

    /// Sum of times at these positions.
    pub(crate) fn time_ms(&self, positions: &[usize]) -> f64 {
        std::iter::zip(&self.fronts, positions).map(|(front, &at)| front[at].time_ms).sum()
    }

    /// By how much the lower bound rises if a group's relaxed position is left for one that differs by so much: its
    /// workspace at the price of a byte, and its time.
    pub(crate) fn reduced_cost_ms(&self, difference: &Point) -> f64 {
        difference.time_ms + self.price * difference.workspace as f64
    }

    /// Whether a division whose bound is raised by so much can be faster than `known_ms`.
    pub(crate) fn may_improve(&self, raised_ms: f64, known_ms: f64) -> bool {
        faster(self.lower_bound_ms + raised_ms, known_ms)
    }

    /// How the positions of a group that may be part of a division faster than `known_ms` differ from its relaxed one,
    /// which is among them.
    pub(crate) fn open(&self, front: &[Point], base: usize, known_ms: f64) -> Vec<Point> {
        let differences = front.iter().enumerate().map(|(index, point)| Point {
            workspace: point.workspace - front[base].workspace,
            time_ms: point.time_ms - front[base].time_ms,
            index,
        });
        differences
            .filter(|point| point.index == base || self.may_improve(self.reduced_cost_ms(point), known_ms))
            .collect()
    }
}

/// The divisions that are the relaxed solution of their own total, by rising total: from the least workspaces on, one
/// step of a hull after the other. Empty if a group is.
pub(crate) fn relaxed_divisions(groups: &[Vec<Cost>]) -> Vec<Cost> {
    let Some((fronts, workspace, time_ms)) = least(groups, i64::MAX) else { return Vec::new() };
    let first = (workspace, time_ms);
    let rest = steps(&fronts).into_iter().scan(first, |corner, step| {
        *corner = (corner.0.saturating_add(step.workspace), corner.1 - step.saved_ms);
        Some(*corner)
    });
    let corners = std::iter::once(first).chain(rest);
    corners.map(|(bytes, time_ms)| Cost { workspace: Bytes(bytes as u64), time_ms }).collect()
}

/// The fronts of all groups, with the sums of their least workspaces and of the times in these; `None` if one is empty.
fn least(groups: &[Vec<Cost>], total: i64) -> Option<(Vec<Vec<Point>>, i64, f64)> {
    let fronts: Vec<Vec<Point>> = groups.iter().map(|group| front(group, total)).collect();
    let sum = fronts.iter().try_fold((0i64, 0.0), |(workspace, time_ms), front| {
        let least = front.first()?;
        Some((workspace.checked_add(least.workspace)?, time_ms + least.time_ms))
    });
    sum.map(|(workspace, time_ms)| (fronts, workspace, time_ms))
}

/// The alternatives within `total` that are faster than every one with less workspace.
fn front(group: &[Cost], total: i64) -> Vec<Point> {
    let within = group.iter().enumerate().filter_map(|(index, &Cost { time_ms, workspace })| {
        let workspace = i64::try_from(workspace.0).ok().filter(|&workspace| workspace <= total)?;
        Some(Point { workspace, time_ms, index })
    });
    let mut points: Vec<Point> = within.collect();
    points.sort_by(|a, b| a.workspace.cmp(&b.workspace).then(a.time_ms.total_cmp(&b.time_ms)));
    points.dedup_by(|point, fastest| point.time_ms >= fastest.time_ms);
    points
}

/// The steps along all hulls, the most saving per byte first; within a group in order, as its hull is convex.
fn steps(fronts: &[Vec<Point>]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (group, front) in fronts.iter().enumerate() {
        let corners = hull(front);
        steps.extend(corners.windows(2).map(|pair| {
            let (from, to) = (front[pair[0]], front[pair[1]]);
            let (workspace, saved_ms) = (to.workspace - from.workspace, from.time_ms - to.time_ms);
            Step { group, to: pair[1], workspace, saved_ms, saved_per_byte: saved_ms / workspace as f64 }
        }));
    }
    // Stable, so that equal steps stay in order of group and workspace.
    steps.sort_by(|a, b| b.saved_per_byte.total_cmp(&a.saved_per_byte));
    steps
}

/// Positions of the corners of a front's lower convex hull.
fn hull(front: &[Point]) -> Vec<usize> {
    let saved_per_byte = |from: usize, to: usize| {
        let (from, to) = (front[from], front[to]);
        (from.time_ms - to.time_ms) / (to.workspace - from.workspace) as f64
    };
    let mut corners: Vec<usize> = Vec::with_capacity(front.len());
    for next in 0..front.len() {
        while let [.., before, last] = corners[..]
            && saved_per_byte(before, last) <= saved_per_byte(last, next)
        {
            corners.pop();
        }
        corners.push(next);
    }
    corners
}
