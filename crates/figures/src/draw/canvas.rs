//! A canvas in pixels over plotters' backends, whose coordinates are whole numbers: four of theirs are a pixel.

use super::{font::TextStyle, tone::Tone};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, DrawingBackend,
    text_anchor::{HPos, Pos, VPos},
};
use std::fmt::Debug;

/// Units of the backend in a pixel.
pub(super) const FINE: u32 = 4;

/// What figures are drawn on. Both backends draw into memory, which does not fail.
pub(super) struct Canvas<B: DrawingBackend> {
    pub(super) backend: B,
}

/// A colour, and the width of lines; areas have none.
struct Stroke(Tone, u32);

impl BackendStyle for Stroke {
    fn color(&self) -> BackendColor {
        self.0.on_paper()
    }

    fn stroke_width(&self) -> u32 {
        self.1
    }
}

fn fine(pixels: f64) -> i32 {
    (pixels * f64::from(FINE)).round() as i32
}

fn place([x, y]: [f64; 2]) -> BackendCoord {
    (fine(x), fine(y))
}

/// What a backend returns of drawing.
fn drawn<E: Debug>(result: Result<(), E>) {
    result.expect("drawing into memory does not fail");
}

impl<B: DrawingBackend> Canvas<B> {
    pub(super) fn rectangle(&mut self, from: [f64; 2], to: [f64; 2], tone: Tone) {
        drawn(self.backend.draw_rect(place(from), place(to), &Stroke(tone, 0), true));
    }

    pub(super) fn line(&mut self, points: &[[f64; 2]], tone: Tone, width: f64) {
        let style = Stroke(tone, fine(width) as u32);
        match points {
            [from, to] => drawn(self.backend.draw_line(place(*from), place(*to), &style)),
            _ => drawn(self.backend.draw_path(points.iter().copied().map(place), &style)),
        }
    }

    pub(super) fn polygon(&mut self, points: &[[f64; 2]], tone: Tone) {
        drawn(self.backend.fill_polygon(points.iter().copied().map(place), &Stroke(tone, 0)));
    }

    pub(super) fn dot(&mut self, at: [f64; 2], radius: f64, tone: Tone) {
        drawn(self.backend.draw_circle(place(at), fine(radius) as u32, &Stroke(tone, 0), true));
    }

    /// A line of text, its middle at the height of `at`, and its left end, middle or right end there.
    pub(super) fn text(&mut self, text: &str, at: [f64; 2], size: f64, tone: Tone, across: HPos) {
        let size = size * f64::from(FINE);
        let style = TextStyle { size, tone, anchor: Pos::new(across, VPos::Center) };
        drawn(self.backend.draw_text(text, &style, place(at)));
    }
}
