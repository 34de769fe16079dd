//! What a drawing consists of, as plain data.

use super::{axis::Axis, tone::Tone};
use planner::{Bytes, Curve};
use serde::Serialize;
use serde_json::{Value, json};

/// A drawing with its words and numbers.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file's name, without an ending.
    pub name: String,
    /// What it shows, in a line above it.
    pub title: String,
    /// What is to be seen in it, in a few sentences; all numbers in it are computed.
    pub caption: String,
    /// Whose measurements these are, in a line below it.
    pub source: String,
    /// Width of the drawing, in pixels of 1/96 inch.
    pub width: f64,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// The numbers behind it.
    pub data: Data,
}

/// An area with axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn, the first lowest.
    pub marks: Vec<Drawn>,
    /// What colours mean where marks cannot carry their names.
    pub key: Vec<(Tone, String)>,
    /// Height of the area, in pixels.
    pub height: f64,
}

/// Something drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// What it is.
    pub form: Form,
    /// Where, in values of the axes.
    pub points: Vec<[f64; 2]>,
    /// Its colour.
    pub tone: Tone,
    /// Its name or text, if it has one.
    pub text: String,
}

/// What is drawn, and where its text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Straight lines from point to point, named to the right of the panel.
    Line,
    /// A rectangle between two corners, with a text in it if there is room.
    Bar,
    /// What a closed line surrounds.
    Area,
    /// A dot, named beside it if there is room.
    Dot,
    /// A text beside a place.
    Note,
    /// A short text over a place.
    Above,
}

impl Drawn {
    /// This form at these points, without a text.
    pub fn new(form: Form, points: impl Into<Vec<[f64; 2]>>, tone: Tone) -> Self {
        Self { form, points: points.into(), tone, text: String::new() }
    }

    /// A rectangle from left to right and from bottom to top.
    pub fn bar(x: [f64; 2], y: [f64; 2], tone: Tone) -> Self {
        Self::new(Form::Bar, [[x[0], y[0]], [x[1], y[1]]], tone)
    }

    /// A text at a place.
    pub fn text(form: Form, at: [f64; 2], text: impl Into<String>) -> Self {
        Self::new(form, [at], Tone::Ink).named(text)
    }

    /// The same with a name.
    #[must_use]
    pub fn named(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }
}

/// Rows of numbers and words.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Data {
    /// The columns' names, with units.
    pub columns: Vec<String>,
    /// One cell for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Data {
    /// No rows yet under columns with these names, separated by spaces.
    pub fn new(columns: &str) -> Self {
        Self { columns: columns.split(' ').map(str::to_owned).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column (see `row!`).
    pub(crate) fn row<const N: usize>(&mut self, cells: [Value; N]) {
        debug_assert_eq!(N, self.columns.len(), "one cell for each column");
        // Six digits: more are not known of any time. A sum of nothing is -0.
        let rounded = |cell: Value| match cell.as_f64().filter(|_| cell.is_f64()) {
            Some(number) => json!(crate::six_digits(number + 0.0).parse().unwrap_or(number)),
            None => cell,
        };
        self.rows.push(cells.map(rounded).into());
    }

    /// The rows as text, without quotes.
    pub fn texts(&self) -> impl Iterator<Item = Vec<String>> {
        let text = |cell: &Value| match (cell, cell.as_f64()) {
            (Value::String(text), _) => text.clone(),
            (Value::Null, _) => String::new(),
            // Without a fraction where there is none.
            (_, Some(number)) => number.to_string(),
            _ => cell.to_string(),
        };
        self.rows.iter().map(move |row| row.iter().map(text).collect())
    }
}

/// Adds a row of anything that serialises to [`Data`].
macro_rules! row {
    ($data:expr; $($cell:expr),+ $(,)?) => { $data.row([$(serde_json::json!($cell)),+]) };
}
pub(crate) use row;

/// The corners of a staircase from `range[0]` to `range[1]`.
pub fn steps(curve: &Curve, range: [Bytes; 2]) -> Vec<[f64; 2]> {
    let x = |bytes: Bytes| bytes.0 as f64;
    let mut corners: Vec<[f64; 2]> = Vec::new();
    for point in curve.points().iter().filter(|point| point.workspace <= range[1]) {
        let at = x(point.workspace.max(range[0]));
        match corners.last() {
            Some(&[before, _]) if before == at => corners.truncate(corners.len() - 1),
            Some(&[_, level]) => corners.push([at, level]),
            None => (),
        }
        corners.push([at, point.time_ms]);
    }
    corners.extend(corners.last().map(|&[_, level]| [x(range[1]), level]));
    corners
}

impl Panel {
    /// An area with axes, so many pixels high.
    pub fn new(x: Axis, y: Axis, marks: Vec<Drawn>, height: f64) -> Self {
        Self { x, y, marks, key: Vec::new(), height }
    }

    /// Bars from 0 in rows, so many pixels high: the name of each, where it ends, what is written there, its colour.
    pub(crate) fn bars(
        x: Axis,
        bars: impl Iterator<Item = (String, f64, String, Tone)>,
        height: f64,
    ) -> Self {
        let (mut names, mut marks) = (Vec::new(), Vec::new());
        for (place, (name, end, text, tone)) in bars.enumerate() {
            let place = place as f64;
            names.push(name);
            marks.push(Drawn::bar([0.0, end], [place - 0.36, place + 0.36], tone));
            marks.push(Drawn::text(Form::Note, [end, place], text));
        }
        let height = height * names.len() as f64;
        Self::new(x, Axis::names("", names).reversed(), marks, height)
    }

    /// The same with a key.
    #[must_use]
    pub fn with_key<S: Into<String>>(self, key: impl IntoIterator<Item = (Tone, S)>) -> Self {
        Self { key: key.into_iter().map(|(tone, name)| (tone, name.into())).collect(), ..self }
    }
}

impl Figure {
    /// Width of a drawing for a column of a paper.
    pub const COLUMN: f64 = 500.0;
    /// Width of a drawing for a whole page.
    pub const PAGE: f64 = 860.0;
}
