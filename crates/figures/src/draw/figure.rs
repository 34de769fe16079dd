//! What a drawing consists of, as plain data.

use super::{axis::Axis, tone::Tone};
use planner::{Bytes, Curve};
use serde::Serialize;
use std::fmt;

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
    /// A thin broken line from the first point to the second.
    Dashes,
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

    /// A bar from 0 to `end` in the row at `place`.
    pub fn across(place: f64, end: f64, tone: Tone) -> Self {
        Self::bar([0.0, end], [place - 0.36, place + 0.36], tone)
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
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A whole number.
    Count(u64),
    /// Any other number.
    Number(f64),
}

impl Data {
    /// No rows yet under columns with these names, separated by spaces.
    pub fn new(columns: &str) -> Self {
        Self { columns: columns.split(' ').map(str::to_owned).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column (see `row!`).
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "one cell for each column");
        self.rows.push(cells.into());
    }
}

/// Adds a row of anything that makes a [`Cell`] to [`Data`].
macro_rules! row {
    ($data:expr; $($cell:expr),+ $(,)?) => { $data.row([$($crate::draw::Cell::from($cell)),+]) };
}
pub(crate) use row;

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.pad(text),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// What a cell is made of, and how.
macro_rules! cells {
    ($($from:ty => $make:expr),*) => {
        $(impl From<$from> for Cell {
            fn from(value: $from) -> Self {
                $make(value)
            }
        })*
    };
}

cells! {
    &str => |text: &str| Self::Text(text.to_owned()),
    String => Self::Text,
    Bytes => |bytes: Bytes| Self::Count(bytes.0),
    u32 => |count: u32| Self::Count(count.into()),
    usize => |count: usize| Self::Count(count as u64),
    // Six digits: more are not known of any time. A sum of nothing is -0.
    f64 => |number: f64| Self::Number(crate::six_digits(number + 0.0).parse().unwrap_or(number))
}

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
