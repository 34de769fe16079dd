//! Batch normalisation whose moving averages lag behind the training.

use crate::spec::{LayerKind, NetSpec};

/// How far a test's loss must be above that of training to be worth a word.
const FAR: f64 = 1.5;

/// The `moving_average_fraction` that is advised.
const REMEDY: f32 = 0.9;

/// The moving averages that tests use instead of a mini-batch's statistics.
pub struct MovingAverages {
    /// The largest `moving_average_fraction` of the net, until it was told of.
    fraction: Option<f32>,
}

impl MovingAverages {
    /// Those of `net`.
    pub fn of(net: &NetSpec) -> Self {
        let fractions = net.layers.iter().filter_map(|layer| match &layer.kind {
            LayerKind::BatchNorm(params) => Some(params.moving_average_fraction),
            _ => None,
        });
        // At 1 all iterations count alike, and no other fraction would be a remedy.
        Self { fraction: fractions.filter(|&fraction| fraction < 1.0).max_by(f32::total_cmp) }
    }

    /// Why a test after `iteration` iterations has a loss of `test`, where the last one of training is `train`: once,
    /// and only as long as the averages still hold much of the beginning, from 2 / (1 - fraction) iterations ago and
    /// more.
    pub fn hint(&mut self, iteration: u64, train: f64, test: f64) -> Option<String> {
        let fraction = self.fraction.filter(|&fraction| fraction > REMEDY)?;
        let span = 1.0 / (1.0 - f64::from(fraction));
        let is_far = test >= FAR * train;
        if iteration == 0 || iteration as f64 > 2.0 * span || !is_far {
            return None;
        }
        self.fraction = None;
        Some(format!(
            "the test loss {test:.3} is far above the training loss {train:.3}: batch norm tests with averages over about \
             {span:.0} iterations, of which {iteration} are done; `moving_average_fraction: {REMEDY}` in \
             batch_norm_param follows faster"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_averages_are_told_of_once_and_only_where_they_may_be_the_cause() {
        let of = |fraction| MovingAverages { fraction };
        assert_eq!(of(None).hint(100, 0.1, 3.0), None, "there is no batch norm");
        assert_eq!(of(Some(0.9)).hint(100, 0.1, 3.0), None, "its averages have long followed");
        assert_eq!(of(Some(0.9)).hint(10, 0.1, 3.0), None, "it is the remedy itself");
        assert_eq!(of(Some(0.999)).hint(0, 0.1, 3.0), None, "nothing was trained");
        assert_eq!(of(Some(0.999)).hint(100, 1.0, 1.2), None, "the losses are alike");
        let mut slow = of(Some(0.999));
        let hint = slow.hint(100, 0.1, 3.0).unwrap();
        assert!(hint.contains("about 1000 iterations, of which 100 are done"), "{hint}");
        assert_eq!(slow.hint(200, 0.1, 3.0), None, "it was said");
    }
}
