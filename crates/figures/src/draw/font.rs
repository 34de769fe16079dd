//! The one font of figures, measured for layout and drawn into PNGs; an SVG names the reader's sans-serif.

use super::tone::Tone;
use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, FontFamily, text_anchor::Pos,
};
use std::{convert::Infallible, sync::LazyLock};

static SANS: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("sans.ttf")).expect("the font is part of the crate")
});

/// Height of capitals, as a part of the size.
const CAPITALS: f32 = 0.73;
/// Size of DejaVu's line, ascender to descender, as a part of the size.
const LINE: f32 = 1.164;
/// plotters' SVG divides sizes by this.
const SVG_SIZE: f64 = 1.24;

/// How a text is set, or how wide a line is, in units of the canvas.
pub(super) struct Pen {
    pub(super) size: f64,
    pub(super) tone: Tone,
    pub(super) anchor: Pos,
}

/// The width of `text` at `size`.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let font = SANS.as_scaled(PxScale::from(size as f32 * LINE));
    text.chars().map(|letter| f64::from(font.h_advance(font.glyph_id(letter)))).sum()
}

impl BackendStyle for Pen {
    fn color(&self) -> BackendColor {
        self.tone.on_paper()
    }

    fn stroke_width(&self) -> u32 {
        self.size as u32
    }
}

impl BackendTextStyle for Pen {
    type FontError = Infallible;

    fn color(&self) -> BackendColor {
        self.tone.on_paper()
    }

    fn size(&self) -> f64 {
        self.size * SVG_SIZE
    }

    fn anchor(&self) -> Pos {
        self.anchor
    }

    fn family(&self) -> FontFamily<'_> {
        FontFamily::SansSerif
    }

    fn layout_box(&self, text: &str) -> Result<(BackendCoord, BackendCoord), Infallible> {
        let height = self.size * f64::from(CAPITALS);
        Ok(((0, 0), (width(text, self.size).ceil() as i32, height.ceil() as i32)))
    }

    fn draw<E, DrawFunc: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
        &self,
        text: &str,
        (x, y): BackendCoord,
        mut draw: DrawFunc,
    ) -> Result<Result<(), E>, Infallible> {
        let font = SANS.as_scaled(PxScale::from(self.size as f32 * LINE));
        let (mut caret, baseline) = (x as f32, y as f32 + self.size as f32 * CAPITALS);
        let mut drawn = Ok(());
        for letter in text.chars() {
            let id = font.glyph_id(letter);
            let glyph = Glyph { id, scale: font.scale(), position: point(caret, baseline) };
            caret += font.h_advance(id);
            let Some(outline) = font.outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, coverage| {
                let alpha = f64::from(coverage.clamp(0.0, 1.0));
                let at = (corner.x as i32 + x as i32, corner.y as i32 + y as i32);
                if drawn.is_ok() && alpha > 0.0 {
                    drawn = draw(at.0, at.1, BackendColor { alpha, ..self.tone.on_paper() });
                }
            });
        }
        Ok(drawn)
    }
}
