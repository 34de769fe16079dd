//! What trainings say, drawn over their course.

use crate::draw::{Axis, Drawn, Figure, Form, LEADING, Panel, Tone};

/// A number that a training says again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningCurve {
    /// The number of its log, from 0 on.
    pub log: usize,
    /// Whether tests say it.
    pub is_test: bool,
    /// Whose it is and what: `train loss`.
    pub name: String,
    /// Whether it is a loss; all others, accuracies and the like, are drawn together.
    pub is_loss: bool,
    /// Places, such as iterations, and values.
    pub points: Vec<[f64; 2]>,
}

/// Losses above, and everything else below, over what `place` says.
pub fn learning_curves(curves: &[LearningCurve], place: &str) -> Figure {
    let last = curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).fold(0.0, f64::max);
    let last = if last > 0.0 { last } else { 1.0 };
    // Of several logs each has its colour, and tests are dashed.
    let are_several = curves.iter().any(|curve| curve.log > 0);
    let panel = |title: &str, is_loss: bool| {
        let of_kind = || curves.iter().filter(move |curve| curve.is_loss == is_loss).enumerate();
        of_kind().flat_map(|(_, curve)| &curve.points).next()?;
        let mark = |(at, curve): (usize, &LearningCurve)| {
            let tone = Tone::of(if are_several { curve.log } else { at });
            let form = if are_several && curve.is_test { Form::Dashes } else { Form::Line };
            Drawn::new(form, curve.points.clone(), tone).named(curve.name.as_str())
        };
        let height = (LEADING * of_kind().count() as f64).max(220.0);
        let least = of_kind().flat_map(|(_, curve)| &curve.points).map(|point| point[1]).fold(0.0, f64::min);
        let (x, y) = (Axis::from_zero(place, last), |most| Axis::around_zero(title, [least, most], 1.0));
        Some(Panel::new(x, y, of_kind().map(mark).collect(), height))
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
            log: 0,
            is_test: false,
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
    fn of_several_logs_each_has_its_colour_and_what_is_tested_is_dashed() {
        let curve = |log, name: &str| LearningCurve {
            log,
            is_test: name.starts_with("test"),
            name: name.to_owned(),
            is_loss: true,
            points: vec![[0.0, 2.0], [1.0, 1.0]],
        };
        let lines = |logs: usize| {
            let curves: Vec<_> =
                (0..logs).flat_map(|log| [curve(log, "train loss"), curve(log, "test loss")]).collect();
            let svg = learning_curves(&curves, "iteration").svg();
            let lines = svg.lines().filter(|line| line.contains("stroke-width=\"2\""));
            lines
                .map(|line| (line.split('"').nth(5).unwrap().to_owned(), line.contains("dash")))
                .collect::<Vec<_>>()
        };
        let [blue, orange] = ["#0072b2", "#d55e00"].map(str::to_owned);
        assert_eq!(lines(1), [(blue.clone(), false), (orange.clone(), false)]);
        assert_eq!(lines(2), [(blue.clone(), false), (blue, true), (orange.clone(), false), (orange, true)]);
    }

    #[test]
    fn a_training_that_ended_at_once_has_an_axis() {
        let curve = LearningCurve {
            log: 0,
            is_test: false,
            name: "train loss".to_owned(),
            is_loss: true,
            points: vec![[0.0, 2.0]],
        };
        assert_eq!(learning_curves(&[curve], "iteration").panels[0].x.range, [0.0, 1.0]);
    }

    #[test]
    fn what_was_said_once_is_a_dot_with_its_name_beside_whatever_line() {
        let curve = |name: &str, points| LearningCurve {
            log: 0,
            is_test: false,
            name: name.to_owned(),
            is_loss: true,
            points,
        };
        let [once, often] =
            [curve("train loss", vec![[0.0, 2.4]]), curve("test loss", vec![[0.0, 2.35], [38.0, 0.4]])];
        for curves in [vec![once.clone()], vec![once, often]] {
            let svg = learning_curves(&curves, "iteration").svg();
            assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
            assert!(curves.iter().all(|curve| svg.contains(&curve.name)), "{svg}");
        }
    }
}
