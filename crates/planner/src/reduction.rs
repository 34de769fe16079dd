//! Making WD's ILP small before a solver sees it, without changing its answer.
//!
//! For a price λ of a byte, the time of any division is at least its Lagrangian bound
//! `Σ min (time + λ workspace) - λ total`. The best λ is the one the linear relaxation ends at, as every group's
//! choice is integral, and the bound there is the relaxation's. Taking another alternative than the group's
//! cheapest one raises the bound by its *reduced cost*; where that reaches the time of a division already
//! known, no better division takes the alternative, and its variable is zero.
//!
//! The better the known division, the fewer variables are left. So it is the one of our own exact method, and
//! what is left is the proof: it holds whatever division was known, as long as that fits. Were ours not the fastest,
//! everything a faster one takes would still be here.

use crate::knapsack::{Alternative, Division, fastest};
use crate::relaxation::Relaxation;
use crate::units::Bytes;

/// What is left of the problem.
pub(crate) struct Reduced {
    /// The pick of every group in the relaxed solution.
    pub(crate) base: Vec<usize>,
    /// Of every group what it may take instead: the alternatives that may improve on the known division, and
    /// that one's own.
    pub(crate) others: Vec<Vec<usize>>,
    /// A division that fits; the fastest, unless one of what is left is faster.
    pub(crate) known: Division,
}

impl Reduced {
    /// The reduced problem; `None` if a group is empty or the least workspaces do not fit.
    pub(crate) fn new(groups: &[Vec<Alternative>], total: Bytes) -> Option<Reduced> {
        let relaxation = Relaxation::new(groups, total)?;
        let known = fastest(&relaxation);
        let known_ms = relaxation.time_ms(&known);
        let others = |group: usize| -> Vec<usize> {
            let (front, base) = (&relaxation.fronts[group], relaxation.base[group]);
            let open = relaxation.open(front, base, known_ms);
            let mut positions: Vec<usize> = open.filter(|&position| position != base).collect();
            if known[group] != base && !positions.contains(&known[group]) {
                positions.push(known[group]);
            }
            positions.into_iter().map(|position| front[position].index).collect()
        };
        Some(Reduced {
            base: relaxation.picks(&relaxation.base),
            others: (0..groups.len()).map(others).collect(),
            known: Division::new(groups, &relaxation, &known),
        })
    }
}
