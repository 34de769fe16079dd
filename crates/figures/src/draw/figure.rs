//! What a drawing consists of, as plain data.

use super::{axis::Axis, tone::Tone};
use crate::table::Table;
use planner::{Bytes, Curve};
use serde::Serialize;

/// A drawing with its words and numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The name of its files, without an ending, where its numbers are kept beside it.
    pub name: String,
    /// What it shows, in a line above it.
    pub title: String,
    /// What is to be seen in it, in a few sentences; all numbers in it are computed.
    pub caption: String,
    /// Whose measurements these are, in a line below it.
    pub source: String,
    /// Width of the drawing, in pixels of 1/96 inch.
    #[serde(skip)]
    pub width: f64,
    /// From top to bottom.
    #[serde(skip)]
    pub(crate) panels: Vec<Panel>,
    /// The numbers behind it.
    #[serde(flatten)]
    pub data: Table,
}

/// An area with axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// From left to right.
    pub(crate) x: Axis,
    /// From bottom to top.
    pub(crate) y: Axis,
    /// What is drawn, the first lowest.
    pub(crate) marks: Vec<Drawn>,
    /// What colours mean where marks cannot carry their names.
    pub(crate) key: Vec<(Tone, String)>,
    /// Height of the area, in pixels.
    pub(crate) height: f64,
}

/// Something drawn at some points, in values of the axes, with a name or text if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) form: Form,
    pub(crate) points: Vec<[f64; 2]>,
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// What is drawn, and where its text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Straight lines from point to point, or a single dot, named to the right of the panel.
    Line,
    /// The same, broken.
    Dashes,
    /// A rectangle between two corners, with a text in it if there is room.
    Bar,
    /// What a closed line surrounds.
    Area,
    /// Dots, named beside the first if there is room.
    Dot,
    /// A text beside a place.
    Note,
}

/// A bar of a group: parts one after the other from 0 on, and what is written at the end.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    group: String,
    parts: Vec<Part>,
    text: String,
}

/// Length, colour and text.
type Part = (f64, Tone, String);

impl Drawn {
    /// This form at these points, without a text.
    pub(crate) fn new(form: Form, points: impl IntoIterator<Item = [f64; 2]>, tone: Tone) -> Self {
        Self { form, points: points.into_iter().collect(), tone, text: String::new() }
    }

    /// The staircase of `curve` within a range of limits.
    pub(crate) fn steps(curve: &Curve, [from, to]: [Bytes; 2], tone: Tone) -> Self {
        let inside = curve.points().iter().map(|point| point.workspace).filter(|&at| from < at && at <= to);
        let ends: Vec<Bytes> = [from].into_iter().chain(inside).chain([to]).collect();
        let step = |ends: &[Bytes]| {
            curve.time_ms(ends[0]).map(|level| [ends[0], ends[1]].map(|at| [at.0 as f64, level]))
        };
        Self::new(Form::Line, ends.windows(2).filter_map(step).flatten(), tone)
    }

    pub(crate) fn named(self, text: impl ToString) -> Self {
        Self { text: text.to_string(), ..self }
    }

    /// Whether its name stands to the right of the panel.
    pub(super) fn is_named_line(&self) -> bool {
        matches!(self.form, Form::Line | Form::Dashes) && !self.text.is_empty()
    }
}

impl Bar {
    /// Of a single part.
    pub(crate) fn new(group: impl ToString, length: f64, tone: Tone, text: impl ToString) -> Self {
        Self::of_parts(group, [(length, tone, String::new())], text)
    }

    /// Of several.
    pub(crate) fn of_parts(group: impl ToString, parts: impl Into<Vec<Part>>, text: impl ToString) -> Self {
        Self { group: group.to_string(), parts: parts.into(), text: text.to_string() }
    }
}

impl Panel {
    /// An area so many pixels high, whose vertical axis is made for the largest value of the marks.
    pub(crate) fn new(x: Axis, y: impl FnOnce(f64) -> Axis, marks: Vec<Drawn>, height: f64) -> Self {
        let values = marks.iter().flat_map(|mark| &mark.points).map(|point| point[1]);
        let y = y(values.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max));
        Self { x, y, marks, key: Vec::new(), height }
    }

    /// Bars below each other, closer within a group, each group so many pixels high; the axis is made for the longest.
    pub(crate) fn bars(x: impl FnOnce(f64) -> Axis, bars: &[Bar], height: f64) -> Self {
        let (mut marks, mut most) = (Vec::new(), f64::MIN_POSITIVE);
        let groups: Vec<&[Bar]> = bars.chunk_by(|a, b| a.group == b.group).collect();
        let thick = 0.84 / groups.iter().map(|group| group.len()).max().unwrap_or(1) as f64;
        for (place, group) in groups.iter().enumerate() {
            let mut top = place as f64 - 0.5 * thick * group.len() as f64;
            for Bar { parts, text, .. } in *group {
                let mut end = 0.0;
                for (length, tone, text) in parts {
                    let corners = [[end, top], [end + length, top + 0.9 * thick]];
                    marks.push(Drawn::new(Form::Bar, corners, *tone).named(text));
                    end += length;
                }
                marks.push(Drawn::new(Form::Note, [[end, top + 0.45 * thick]], Tone::Ink).named(text));
                (top, most) = (top + thick, most.max(end));
            }
        }
        let names = Axis::names(groups.iter().map(|group| group[0].group.clone()));
        Self::new(x(most), |_| names, marks, height * groups.len() as f64)
    }

    pub(crate) fn with_key<S: ToString>(self, key: impl IntoIterator<Item = (Tone, S)>) -> Self {
        Self { key: key.into_iter().map(|(tone, name)| (tone, name.to_string())).collect(), ..self }
    }
}

impl Figure {
    /// Width of a drawing for a column of a paper.
    pub(crate) const COLUMN: f64 = 500.0;
    /// Width of a drawing for a whole page.
    pub(crate) const PAGE: f64 = 860.0;

    /// A drawing as wide as a column, without a caption, and without numbers that are to be kept under a name.
    pub(crate) fn new(title: String, source: String, panels: Vec<Panel>) -> Self {
        let [name, caption] = [String::new(), String::new()];
        Self { name, title, caption, source, width: Self::COLUMN, panels, data: Table::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::Cost;
    use serde_json::json;

    #[test]
    fn bars_of_a_group_lie_below_each_other_and_their_parts_behind_each_other() {
        let parts = vec![(2.0, Tone::Blue, "a".to_owned()), (3.0, Tone::Grey, String::new())];
        let bars = [
            Bar::of_parts("one", parts, "both"),
            Bar::new("one", 4.0, Tone::Green, 4),
            Bar::new("two", 1.0, Tone::Blue, 1),
        ];
        let panel = Panel::bars(|most| Axis::from_zero("ms", most), &bars, 40.0);
        assert_eq!((panel.x.range[1], panel.height, panel.y.ticks[1].1.as_str()), (5.0, 80.0, "two"));
        let bars: Vec<_> = panel.marks.iter().filter(|mark| mark.form == Form::Bar).collect();
        let across: Vec<_> = bars.iter().map(|bar| [bar.points[0][0], bar.points[1][0]]).collect();
        assert_eq!(across, [[0.0, 2.0], [2.0, 5.0], [0.0, 4.0], [0.0, 1.0]]);
        let down: Vec<_> = bars.iter().map(|bar| [bar.points[0][1], bar.points[1][1]]).collect();
        assert!(down[0] == down[1] && down[1][1] < down[2][0] && down[2][1] < 0.5 && down[3][0] > 0.5);
        let notes: Vec<_> = panel.marks.iter().filter(|mark| mark.form == Form::Note).collect();
        assert_eq!((notes[0].points[0][0], notes[0].text.as_str()), (5.0, "both"));
    }

    #[test]
    fn a_staircase_begins_at_its_level_there_and_goes_on_to_the_end() {
        let costs = [(0, 8.0), (10, 4.0), (20, 2.0), (40, 1.0)]
            .map(|(bytes, time_ms)| Cost { workspace: Bytes(bytes), time_ms });
        let curve: Curve = serde_json::from_value(json!(costs)).unwrap();
        let corners = |range: [u64; 2]| Drawn::steps(&curve, range.map(Bytes), Tone::Blue).points;
        assert_eq!(corners([15, 30]), [[15.0, 4.0], [20.0, 4.0], [20.0, 2.0], [30.0, 2.0]]);
        assert_eq!(corners([20, 25]), [[20.0, 2.0], [25.0, 2.0]]);
    }
}
