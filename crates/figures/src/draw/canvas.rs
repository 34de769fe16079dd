//! A canvas in pixels over plotters' backends, whose coordinates are whole numbers: four of theirs are a pixel.

use super::{font::Pen, tone::Tone};
use plotters_backend::text_anchor::{HPos, Pos, VPos};
use plotters_backend::{BackendCoord, DrawingBackend};
use std::fmt::Debug;

/// Units of the backend in a pixel.
pub(super) const FINE: u32 = 4;

/// What figures are drawn on. Both backends draw into memory, which does not fail.
pub(super) struct Canvas<B: DrawingBackend> {
    pub(super) backend: B,
    /// Whether lines are drawn piece by piece: where a line turns back, plotters' own joins of pixels are spikes.
    pub(super) in_pieces: bool,
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
        drawn(self.backend.draw_rect(place(from), place(to), &tone.on_paper(), true));
    }

    pub(super) fn line(&mut self, points: &[[f64; 2]], tone: Tone, width: f64) {
        let pen = Pen { tone, size: f64::from(fine(width)), anchor: Pos::default() };
        match points {
            [from, to] => drawn(self.backend.draw_line(place(*from), place(*to), &pen)),
            _ if self.in_pieces => points.windows(2).for_each(|pair| {
                self.line(pair, tone, width);
                self.dot(pair[1], width / 2.0, tone);
            }),
            _ => drawn(self.backend.draw_path(points.iter().copied().map(place), &pen)),
        }
    }

    pub(super) fn polygon(&mut self, points: &[[f64; 2]], tone: Tone) {
        drawn(self.backend.fill_polygon(points.iter().copied().map(place), &tone.on_paper()));
    }

    pub(super) fn dot(&mut self, at: [f64; 2], radius: f64, tone: Tone) {
        drawn(self.backend.draw_circle(place(at), fine(radius) as u32, &tone.on_paper(), true));
    }

    /// A line of text, its middle at the height of `at`, and its left end, middle or right end there.
    pub(super) fn text(&mut self, text: &str, at: [f64; 2], size: f64, tone: Tone, across: HPos) {
        let pen = Pen { tone, size: size * f64::from(FINE), anchor: Pos::new(across, VPos::Center) };
        drawn(self.backend.draw_text(text, &pen, place(at)));
    }
}
