//! What trainings say, drawn over their course.

use crate::draw::{Axis, Drawn, Figure, Form, LEADING, Panel, Tone};

/// A number that a training says again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningCurve {
    /// Whose it is and what: `train loss`.
    pub name: String,
    /// Whether it is a loss; all others, accuracies and the like, are drawn together.
    pub is_loss: bool,
    /// Places, such as iterations, and values.
    pub points: Vec<[f64; 2]>,
}

/// Losses above, and everything else below, over what `place` says.
pub fn learning_curves(curves: &[LearningCurve], place: &str) -> Figure {
    let last =
        curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).fold(f64::MIN_POSITIVE, f64::max);
    let panel = |title: &str, is_loss: bool| {
        let of_kind = || curves.iter().filter(move |curve| curve.is_loss == is_loss).enumerate();
        of_kind().flat_map(|(_, curve)| &curve.points).next()?;
        let marks = |(at, curve): (usize, &LearningCurve)| {
            let drawn = |form| Drawn::new(form, curve.points.clone(), Tone::of(at));
            // What was said once makes no line, but has its name where lines have theirs.
            let dot = (curve.points.len() == 1).then(|| drawn(Form::Dot));
            [drawn(Form::Line).named(curve.name.as_str())].into_iter().chain(dot)
        };
        let height = (LEADING * of_kind().count() as f64).max(220.0);
        let least = of_kind().flat_map(|(_, curve)| &curve.points).map(|point| point[1]).fold(0.0, f64::min);
        let (x, y) = (Axis::from_zero(place, last), |most| Axis::around_zero(title, [least, most], 1.0));
        Some(Panel::new(x, y, of_kind().flat_map(marks).collect(), height))
    };
    let panels = [panel("loss", true), panel("accuracy", false)].into_iter().flatten().collect();
    Figure { width: Figure::PAGE, ..Figure::new("Learning curves".to_owned(), String::new(), panels) }
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
        let both = learning_curves(&[curve("train loss", true), curve("test accuracy", false)], "iteration");
        assert_eq!(both.panels.len(), 2);
        let svg = both.svg();
        assert!(["train loss", "test accuracy", "iteration"].iter().all(|text| svg.contains(text)), "{svg}");
        assert_eq!(learning_curves(&[curve("loss", true)], "iteration").panels.len(), 1);
    }

    #[test]
    fn what_was_said_once_is_a_dot_with_its_name_beside_whatever_line() {
        let curve = |name: &str, points| LearningCurve { name: name.to_owned(), is_loss: true, points };
        let [once, often] =
            [curve("train loss", vec![[0.0, 2.4]]), curve("test loss", vec![[0.0, 2.35], [38.0, 0.4]])];
        for curves in [vec![once.clone()], vec![once, often]] {
            let svg = learning_curves(&curves, "iteration").svg();
            assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
            assert!(curves.iter().all(|curve| svg.contains(&curve.name)), "{svg}");
        }
    }
}
