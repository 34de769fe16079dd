//! Drawings: a [`Figure`] is plain data, of which come an SVG, a PNG, and the numbers behind it.
//!
//! ```text
//! Figure ─┬─► svg   (colours change with the reader's dark mode) ──► png
//!         └─► data  (rows of numbers, for CSV and JSON)
//! ```
//!
//! Lines carry their names, no legend is to be looked up; colours are Okabe and Ito's, for any colour vision.

mod axis;
mod figure;
mod panel;
mod svg;
mod tone;

pub(crate) use axis::Axis;
pub use figure::Figure;
pub(crate) use figure::{Bar, Drawn, Form, Panel};
pub(crate) use panel::LEADING;
pub(crate) use tone::Tone;
