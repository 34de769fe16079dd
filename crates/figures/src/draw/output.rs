//! SVG and PNG of a figure.

use super::{
    canvas::{Canvas, FINE},
    figure::Figure,
    tone::{Tone, dark_mode},
};
use image::{ImageFormat, RgbImage, imageops::thumbnail};
use plotters_bitmap::BitMapBackend;
use plotters_svg::SVGBackend;
use std::io::Cursor;

/// Pixels of a PNG in a pixel of the layout.
const PNG_SCALE: u32 = 2;

impl Figure {
    /// An SVG document, whose colours follow the reader's dark mode.
    pub fn svg(&self) -> String {
        let size = self.size().map(|length| length * FINE);
        let mut drawn = String::new();
        self.draw(&mut Canvas { backend: SVGBackend::with_string(&mut drawn, size.into()) });
        // plotters' first line, the only one about the document as a whole, says nothing for a reader's software.
        let marks = drawn.split_once('\n').map_or("", |(_, marks)| marks);
        let [width, height] = self.size();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {} {}\" \
             role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<style>{}</style>\n{marks}",
            size[0],
            size[1],
            escaped(&self.title),
            escaped(&self.caption),
            dark_mode()
        )
    }

    /// A PNG with twice the layout's pixels.
    pub fn png(&self) -> Vec<u8> {
        let [width, height] = self.size().map(|length| length * FINE);
        let mut fine = RgbImage::new(width, height);
        self.draw(&mut Canvas { backend: BitMapBackend::with_buffer(&mut fine, (width, height)) });
        // The means of squares smooth what plotters draws with hard edges.
        let ratio = FINE / PNG_SCALE;
        let mut encoded = Cursor::new(Vec::new());
        let written =
            thumbnail(&fine, width / ratio, height / ratio).write_to(&mut encoded, ImageFormat::Png);
        written.expect("writing into memory does not fail");
        encoded.into_inner()
    }

    fn size(&self) -> [u32; 2] {
        [self.width, self.height()].map(|length| length.ceil() as u32)
    }

    fn draw<B: plotters_backend::DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        let [width, height] = self.size().map(f64::from);
        canvas.rectangle([0.0; 2], [width, height], Tone::Paper);
        self.draw_panels(canvas);
        canvas.backend.present().expect("drawing into memory does not fail");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
