//! Learning curves.

use crate::draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row};

/// A number that a training says again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningCurve {
    /// Whose it is and what: `train loss`.
    pub name: String,
    /// Whether it is a loss; all others, accuracies and the like, are drawn together.
    pub is_loss: bool,
    /// Iterations and values.
    pub points: Vec<[f64; 2]>,
}

/// Losses above, and everything else below, over iterations.
pub fn learning_curves(curves: &[LearningCurve]) -> Figure {
    let mut data = Data::new("curve iteration value");
    for curve in curves {
        curve.points.iter().for_each(|&[iteration, value]| row!(data; curve.name.as_str(), iteration, value));
    }
    let last = curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).fold(1.0, f64::max);
    let panel = |title: &str, is_loss: bool| {
        let of_kind = || curves.iter().filter(move |curve| curve.is_loss == is_loss).enumerate();
        let values = || of_kind().flat_map(|(_, curve)| &curve.points).map(|point| point[1]);
        values().next()?;
        let most = values().filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
        let line = |(place, curve): (usize, &LearningCurve)| {
            Drawn::new(Form::Line, curve.points.clone(), Tone::of(place))
        };
        let key = of_kind().map(|(place, curve)| (Tone::of(place), curve.name.as_str()));
        let (x, y) = (Axis::from_zero("iteration", last), Axis::from_zero(title, most));
        Some(Panel::new(x, y, of_kind().map(line).collect(), 220.0).with_key(key))
    };
    Figure {
        name: "learning".to_owned(),
        title: "Learning curves".to_owned(),
        caption: String::new(),
        source: String::new(),
        width: Figure::PAGE,
        panels: [panel("loss", true), panel("accuracy", false)].into_iter().flatten().collect(),
        data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_accuracies_have_panels_of_their_own() {
        let curve = |name: &str, is_loss| LearningCurve {
            name: name.to_owned(),
            is_loss,
            points: vec![[0.0, 2.0], [10.0, 1.0]],
        };
        let both = learning_curves(&[curve("train loss", true), curve("test accuracy", false)]);
        assert_eq!((both.panels.len(), both.data.rows.len()), (2, 4));
        let svg = both.svg();
        assert!(["train loss", "test accuracy", "iteration"].iter().all(|text| svg.contains(text)), "{svg}");
        assert_eq!(learning_curves(&[curve("loss", true)]).panels.len(), 1);
    }
}
