//! What there is to watch of a training: how far it is, what its net says, how good tests were. Snapshots keep counts.

use super::{Solver, TestOutput};
use crate::error::Result;
use std::collections::BTreeMap;

/// The bits of the lowest loss of a test.
const LOSS: &str = "best_loss";
/// The iterations done before it.
const ITERATION: &str = "best_iteration";
/// Tests since then.
const SINCE: &str = "tests_since_best";
/// The iterations done before the last of them: a resumed training may make that test again.
const JUDGED: &str = "judged_iteration";
/// How the names of the last losses begin, each with its place.
const RECENT: &str = "recent_loss_";

impl Solver {
    /// The seed of everything random.
    pub fn seed(&self) -> u64 {
        self.training.seed
    }

    /// How often the training data have been seen by now, if they are a data set.
    pub fn epoch(&self) -> Option<f64> {
        let (_, loader) = self.net().loaders().next()?;
        Some(loader.position() as f64 / loader.dataset().facts().len as f64)
    }

    /// The outputs of the net that is trained that are single numbers and no losses, such as an accuracy.
    ///
    /// # Errors
    /// As [`Net::check`](crate::Net::check).
    pub fn outputs(&self) -> Result<Vec<TestOutput>> {
        let mut outputs = self.running.outputs(0)?;
        outputs.retain(|output| output.loss_weight == 0.0 && output.values.len() == 1);
        Ok(outputs)
    }

    /// Whether every parameter is a finite number: what has diverged is not worth a snapshot.
    pub fn is_finite(&self) -> bool {
        let is_finite = |span| {
            self.running.arena.read::<f32>(span).is_ok_and(|values| values.iter().all(|w| w.is_finite()))
        };
        self.running.params().all(|(_, spans)| is_finite(spans.data))
    }

    /// Whether a test's `loss` is a number, and lower than all before it.
    pub fn is_best(&self, loss: f64) -> bool {
        let best = self.counters.get(LOSS).map(|&best| f64::from_bits(best)).filter(|best| !best.is_nan());
        !loss.is_nan() && best.is_none_or(|best| loss < best)
    }

    /// Takes note of a test's `loss`; says how many tests ago the lowest was, 0 for this one.
    pub fn judge(&mut self, loss: f64) -> u64 {
        let (is_new, is_best) = (self.counters.get(JUDGED) != Some(&self.iteration), self.is_best(loss));
        let before = self.counters.get(SINCE).copied().unwrap_or(0);
        let since = if is_best { 0 } else { before.saturating_add(u64::from(is_new)) };
        let mut noted = vec![(JUDGED, self.iteration), (SINCE, since)];
        if is_best {
            noted.extend([(LOSS, loss.to_bits()), (ITERATION, self.iteration)]);
        }
        self.counters.extend(noted.into_iter().map(|(name, value)| (name.to_owned(), value)));
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
        let (recent, others): (BTreeMap<_, _>, _) =
            saved.clone().into_iter().partition(|(name, _)| name.starts_with(RECENT));
        self.counters = others;
        self.recent = recent.into_values().map(f64::from_bits).collect();
        self.recent.drain(..self.recent.len().saturating_sub(self.training.spec.average_loss));
    }
}
