//! SVG and PNG of a figure.

use super::{
    canvas::{Canvas, FINE},
    figure::Figure,
    tone::{Tone, dark_mode},
};
use plotters_bitmap::BitMapBackend;
use plotters_svg::SVGBackend;

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
        let ([width, height], ratio) = (self.size().map(|length| length * FINE), FINE / PNG_SCALE);
        let mut fine = vec![0; (width * height * 3) as usize];
        self.draw(&mut Canvas { backend: BitMapBackend::with_buffer(&mut fine, (width, height)) });
        let mut encoded = Vec::new();
        let mut encoder = png::Encoder::new(&mut encoded, width / ratio, height / ratio);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().expect("writing into memory does not fail");
        let pixels = coarser(&fine, width as usize, ratio as usize);
        writer.write_image_data(&pixels).expect("as many pixels as announced");
        drop(writer);
        encoded
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

/// The means of squares of `ratio` pixels, which smooth what plotters draws with hard edges.
fn coarser(fine: &[u8], width: usize, ratio: usize) -> Vec<u8> {
    let mut coarse = Vec::new();
    for rows in fine.chunks_exact(3 * width * ratio) {
        for (column, colour) in (0..width / ratio).flat_map(|column| [0, 1, 2].map(|colour| (column, colour)))
        {
            let first = 3 * ratio * column + colour;
            let lines = rows.chunks_exact(3 * width).map(|row| row[first..].iter().step_by(3).take(ratio));
            let sum: usize = lines.flatten().map(|&value| usize::from(value)).sum();
            coarse.push((sum / (ratio * ratio)) as u8);
        }
    }
    coarse
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
