//! What snapshots count besides iterations: how good tests were, and the losses behind the average that is shown.

use super::Solver;
use std::collections::BTreeMap;

/// The bits of the lowest loss of a test.
const LOSS: &str = "best_loss";
/// The iterations done before it.
const ITERATION: &str = "best_iteration";
/// Tests since then.
const SINCE: &str = "tests_since_best";
/// How the names of the last losses begin, each with its place.
const RECENT: &str = "recent_loss_";

impl Solver {
    /// Whether a test's `loss` is lower than all before it.
    pub fn is_best(&self, loss: f64) -> bool {
        self.counters.get(LOSS).is_none_or(|&best| loss < f64::from_bits(best))
    }

    /// Takes note of a test's `loss`; says how many tests ago the lowest was, 0 for this one.
    pub fn judge(&mut self, loss: f64) -> u64 {
        let since = match self.is_best(loss) {
            true => {
                let best = [(LOSS, loss.to_bits()), (ITERATION, self.iteration)];
                self.counters.extend(best.map(|(name, value)| (name.to_owned(), value)));
                0
            }
            false => self.counters.get(SINCE).copied().unwrap_or(0) + 1,
        };
        self.counters.insert(SINCE.to_owned(), since);
        since
    }

    /// The iterations done before the test with the lowest loss, if there was any.
    pub fn best(&self) -> Option<u64> {
        self.counters.get(ITERATION).copied()
    }

    pub(super) fn counters_to_save(&self) -> BTreeMap<String, u64> {
        let recent = self.recent.iter().enumerate();
        let recent = recent.map(|(place, loss)| (format!("{RECENT}{place:09}"), loss.to_bits()));
        self.counters.clone().into_iter().chain(recent).collect()
    }

    pub(super) fn restore_counters(&mut self, saved: &BTreeMap<String, u64>) {
        let (recent, others) = saved.clone().into_iter().partition(|(name, _)| name.starts_with(RECENT));
        self.counters = others;
        let recent: BTreeMap<String, u64> = recent;
        self.recent = recent.into_values().map(f64::from_bits).collect();
        self.recent.truncate(self.spec.average_loss);
    }
}
