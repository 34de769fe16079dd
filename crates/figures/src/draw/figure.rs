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
    pub marks: Vec<Mark>,
    /// What colours mean where marks cannot carry their names.
    pub key: Vec<(Tone, String)>,
    /// Height of the area, in pixels.
    pub height: f64,
}

/// Something drawn, in values of the axes.
#[derive(Clone, Debug)]
pub enum Mark {
    /// Straight lines from point to point, named at the last.
    Line {
        /// The points.
        points: Vec<[f64; 2]>,
        /// Its colour.
        tone: Tone,
        /// Its name.
        label: String,
    },
    /// A thin broken line.
    Dashes {
        /// Its ends.
        ends: [[f64; 2]; 2],
        /// Its colour.
        tone: Tone,
    },
    /// A rectangle, with a text in it if there is room.
    Bar {
        /// From left to right.
        x: [f64; 2],
        /// From bottom to top.
        y: [f64; 2],
        /// Its colour.
        tone: Tone,
        /// Its text.
        label: String,
    },
    /// What lies between two lines.
    Area {
        /// The upper one, and the lower one back.
        outline: Vec<[f64; 2]>,
        /// Its colour.
        tone: Tone,
    },
    /// A dot with its name beside it.
    Dot {
        /// Where.
        at: [f64; 2],
        /// Its colour.
        tone: Tone,
        /// Its name.
        label: String,
    },
    /// A short text over a place.
    Above {
        /// The place.
        at: [f64; 2],
        /// Its colour.
        tone: Tone,
        /// The text.
        text: String,
    },
    /// A remark, to the right of a place, or to the left if that is where there is room.
    Note {
        /// The place.
        at: [f64; 2],
        /// Its colour.
        tone: Tone,
        /// The remark.
        text: String,
    },
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
    /// No rows yet.
    pub fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "one cell for each column");
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.pad(text),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Bytes> for Cell {
    fn from(bytes: Bytes) -> Self {
        Self::Count(bytes.0)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<f64> for Cell {
    /// With six digits: more are not known of any time.
    fn from(number: f64) -> Self {
        Self::Number(crate::six_digits(number).parse().unwrap_or(number))
    }
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

impl Figure {
    /// Width of a drawing for a column of a paper.
    pub const COLUMN: f64 = 500.0;
    /// Width of a drawing for a whole page.
    pub const PAGE: f64 = 860.0;
}
