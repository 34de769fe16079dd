//! What scores say of classes.

use serde::Serialize;

/// The `most` classes of the highest `scores`, the highest first; of equal ones the higher class, as accuracies count.
pub fn best_classes(scores: &[f64], most: usize) -> Vec<(usize, f64)> {
    let mut classes: Vec<(usize, f64)> = scores.iter().copied().enumerate().collect();
    classes.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(b.cmp(a)));
    classes.truncate(most);
    classes
}

/// How often samples of each class are taken for each class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// The names of the classes, in order; none where they have none.
    pub names: Vec<String>,
    /// For each true class a row, with a count for each class that it was taken for.
    pub counts: Vec<Vec<u64>>,
}

impl Confusion {
    /// Counts samples whose scores lie one after the other; those whose label is no class or `ignored`, or whose scores are
    /// no numbers, do not count.
    pub fn count(&mut self, scores: &[f64], labels: &[f64], ignored: Option<i32>) {
        let classes = scores.len() / labels.len().max(1);
        let known = classes.max(self.counts.len());
        self.counts.resize(known, Vec::new());
        self.counts.iter_mut().for_each(|row| row.resize(known, 0));
        for (scores, &label) in scores.chunks_exact(classes.max(1)).zip(labels) {
            let is_ignored = ignored.is_some_and(|ignored| label == f64::from(ignored));
            let is_counted = label >= 0.0 && !is_ignored && !scores.iter().any(|score| score.is_nan());
            let row = self.counts.get_mut(label as usize).filter(|_| is_counted);
            if let (Some(row), Some((taken_for, _))) = (row, best_classes(scores, 1).pop()) {
                row[taken_for] += 1;
            }
        }
    }

    /// Of a class's samples the share that was recognised, of those taken for it the share that was right; 0 of none.
    pub fn recall_and_precision(&self, class: usize) -> [f64; 2] {
        let right = self.counts[class][class];
        let taken: u64 = self.counts.iter().map(|row| row[class]).sum();
        let all = self.counts[class].iter().sum::<u64>();
        [all, taken].map(|count| right as f64 / count.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_class_and_by_what_they_are_taken_for() {
        let mut confusion = Confusion::default();
        let scores = [[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]];
        confusion.count(&scores[..3].concat(), &[1.0, 0.0, 0.0], None);
        confusion.count(&scores[2..].concat(), &[9.0, 0.0], None);
        confusion.count(&scores[2..].concat(), &[2.0, 2.0], Some(2));
        confusion.count(&[0.1, f64::NAN, 0.2], &[0.0], None);
        // Of equal scores the higher class counts; label 9 is none, and with what is no number nothing is best.
        assert_eq!(confusion.counts, [[1, 1, 1], [0, 1, 0], [0, 0, 0]]);
        assert_eq!(confusion.recall_and_precision(0), [1.0 / 3.0, 1.0]);
        assert_eq!(confusion.recall_and_precision(1), [1.0, 0.5]);
        assert_eq!(confusion.recall_and_precision(2), [0.0, 0.0]);
        assert_eq!(best_classes(&scores[1], 2), [(0, 0.5), (2, 0.3)]);
        // What was counted stays, whatever comes then.
        confusion.count(&[], &[], None);
        confusion.count(&[0.0, 1.0], &[1.0], Some(0));
        assert_eq!(confusion.counts, [[1, 1, 1], [0, 2, 0], [0, 0, 0]]);
        confusion.count(&[0.0, 0.0, 0.0, 1.0], &[1.0], None);
        assert_eq!(confusion.counts, [[1, 1, 1, 0], [0, 2, 0, 1], [0; 4], [0; 4]]);
    }
}
