//! Making WD's ILP small before a solver sees it, without changing its answer.
//!
//! Some division is known, and the question is whether there is a faster one. It would differ from the known one by
//! *changes*, each with a difference in workspace and in time: in all less time, and no more workspace than the
//! known division leaves free. Three rules make the question smaller:
//!
//! - **Price.** At the price of a byte at which the linear relaxation ends, every alternative but a group's cheapest
//!   raises the lower bound by its reduced cost. What raises it to the known time is in no faster division.
//! - **Probe.** Suppose that a faster division makes a certain change. Then the relaxation of all *other* groups
//!   within the bytes that are left bounds its time. If that is no gain, the change is in no faster division. What
//!   one probe removes makes the bounds of others better, so this goes on until nothing is removed.
//! - **Join.** Two groups are one whose changes are all pairs of theirs. Of these only the undominated are needed: for
//!   a pair there may be another that takes no more workspace and no more time. So two identical kernels no longer
//!   differ by which of them does what, for which branch and bound would have to try both; and the probe knows two
//!   groups exactly where it had relaxed one.
//!
//! Probing alone leaves most problems small. Where it does not, groups are joined, those with the fewest changes
//! first, until the solver has little to do, but never all into one: what is left is a problem of several sets.
//!
//! The better the known division, the fewer changes are left. So it is the one of our own exact method. But the rules
//! hold whatever division was known, as long as that fits: were ours not the fastest, everything that a faster one
//! needs would still be here.

use crate::dp::faster;
use crate::knapsack::{Alternative, Division, fastest};
use crate::relaxation::{Hulls, Point, Relaxation, Relaxed, difference};
use crate::units::Bytes;

/// Groups are joined while more changes than this are left. Of so many there are at most 4096 choices: a solver is done
/// in milliseconds.
const FEW_CHANGES: usize = 12;

/// Two sets are not joined if they have more pairs than this.
const MOST_PAIRS: usize = 1 << 18;

/// What is left of the problem.
pub(crate) struct Reduced {
    /// A division that fits; the fastest, unless changes make it faster.
    pub(crate) known: Division,
    /// Bytes of the total that it leaves.
    pub(crate) free: i64,
    /// Of every group, or groups joined into one, the changes to the known division that a faster one may make, no
    /// change among them if a faster one may leave the group alone: a front whose indices are those of `origins`.
    /// There is no set if no division is faster.
    sets: Vec<Vec<Point>>,
    origins: Vec<Origin>,
}

/// Where a change is from.
#[derive(Clone, Copy)]
enum Origin {
    /// A group takes the alternative of this index.
    Pick { group: usize, index: usize },
    /// Two changes of sets that were joined.
    Both(usize, usize),
}

impl Reduced {
    /// The reduced problem; `None` if a group is empty or the least workspaces do not fit.
    pub(crate) fn new(groups: &[Vec<Alternative>], total: Bytes) -> Option<Reduced> {
        let relaxation = Relaxation::new(groups, total)?;
        Some(Reduced::around(groups, &relaxation, &fastest(&relaxation)))
    }

    /// The same where the division with these positions is known, which fits but need not be the fastest.
    pub(crate) fn around(
        groups: &[Vec<Alternative>],
        relaxation: &Relaxation,
        positions: &[usize],
    ) -> Reduced {
        let known = Division::new(groups, relaxation, positions);
        let free = relaxation.total - known.workspace(groups).0 as i64;
        let mut reduced = Reduced { known, free, sets: Vec::new(), origins: Vec::new() };
        for (group, &known) in positions.iter().enumerate() {
            reduced.add_group(relaxation, group, known);
        }
        reduced.probe();
        while reduced.changes().count() > FEW_CHANGES && reduced.join() {
            reduced.probe();
        }
        reduced
    }

    /// The changes with the set that makes them; at most one of each set can be made.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (usize, Point)> {
        let sets = self.sets.iter().enumerate();
        sets.flat_map(|(set, points)| {
            points.iter().filter(|point| is_change(point)).map(move |&to| (set, to))
        })
    }

    /// The known division with these changes made.
    pub(crate) fn with_changes(
        &self,
        groups: &[Vec<Alternative>],
        changes: impl Iterator<Item = Point>,
    ) -> Division {
        let mut picks = self.known.picks.clone();
        let mut origins: Vec<usize> = changes.map(|change| change.index).collect();
        while let Some(origin) = origins.pop() {
            match self.origins[origin] {
                Origin::Pick { group, index } => picks[group] = index,
                Origin::Both(one, other) => origins.extend([one, other]),
            }
        }
        self.known.with_picks(groups, picks)
    }

    /// Adds what the price leaves of a group.
    fn add_group(&mut self, relaxation: &Relaxation, group: usize, known: usize) {
        let (front, base) = (&relaxation.fronts[group], relaxation.base[group]);
        let mut set = Vec::new();
        for position in relaxation.open(front, base, self.known.time_ms) {
            let (workspace, time_ms) = difference(front[known], front[position]);
            set.push(self.point(workspace, time_ms, Origin::Pick { group, index: front[position].index }));
        }
        self.sets.push(set);
    }

    fn point(&mut self, workspace: i64, time_ms: f64, origin: Origin) -> Point {
        self.origins.push(origin);
        Point { workspace, time_ms, index: self.origins.len() - 1 }
    }

    /// Whether such a change, with the best that `others` can do beside it, makes the known division faster.
    fn may_improve(&self, workspace: i64, time_ms: f64, others: &Relaxed) -> bool {
        let changed_ms = time_ms + others.time_ms(self.free.saturating_sub(workspace));
        faster(self.known.time_ms + changed_ms, self.known.time_ms)
    }

    /// Removes every change that is in no faster division as far as the other sets' relaxation tells, and sets that
    /// have nothing to change.
    fn probe(&mut self) {
        let mut before = usize::MAX;
        while self.sets.iter().map(Vec::len).sum::<usize>() < before {
            before = self.sets.iter().map(Vec::len).sum();
            let hulls = Hulls::new(&self.sets);
            for set in 0..self.sets.len() {
                let others = hulls.relaxed(|other| other != set);
                let mut points = std::mem::take(&mut self.sets[set]);
                points.retain(|point| self.may_improve(point.workspace, point.time_ms, &others));
                if points.is_empty() {
                    // Any faster division would have to do something here.
                    return self.sets.clear();
                }
                self.sets[set] = points;
            }
            self.sets.retain(|set| set.iter().any(is_change));
        }
    }

    /// Joins the two sets with the fewest changes, if there are more than two and it does not get too large.
    fn join(&mut self) -> bool {
        self.sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
        let [.., one, other] = &self.sets[..] else { return false };
        if self.sets.len() == 2 || one.len() * other.len() > MOST_PAIRS {
            return false;
        }
        let others = Hulls::new(&self.sets).relaxed(|set| set + 2 < self.sets.len());
        let mut pairs = Vec::new();
        for one in one {
            for other in other {
                let workspace = one.workspace.saturating_add(other.workspace);
                let time_ms = one.time_ms + other.time_ms;
                if self.may_improve(workspace, time_ms, &others) {
                    pairs.push((workspace, time_ms, Origin::Both(one.index, other.index)));
                }
            }
        }
        self.sets.truncate(self.sets.len() - 2);
        let joined = self.undominated(pairs);
        self.sets.push(joined);
        true
    }

    /// The pairs that take less time than every one with less workspace.
    fn undominated(&mut self, mut pairs: Vec<(i64, f64, Origin)>) -> Vec<Point> {
        pairs.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut fastest_ms = f64::INFINITY;
        let mut points = Vec::new();
        for (workspace, time_ms, origin) in pairs {
            if time_ms < fastest_ms {
                fastest_ms = time_ms;
                points.push(self.point(workspace, time_ms, origin));
            }
        }
        points
    }
}

/// Whether it changes anything.
fn is_change(point: &Point) -> bool {
    point.workspace != 0 || point.time_ms != 0.0
}
