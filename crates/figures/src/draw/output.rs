//! SVG and PNG of a figure.

use super::canvas::{Canvas, FINE};
use super::figure::Figure;
use super::tone::{Tone, dark_mode};
use plotters_bitmap::BitMapBackend;
use plotters_svg::SVGBackend;

/// Pixels of a PNG in a pixel of the layout.
const PNG_SCALE: u32 = 2;

impl Figure {
    /// An SVG document, whose colours follow the reader's dark mode.
    pub fn svg(&self) -> String {
        let size = self.size().map(|length| length * FINE);
        let mut drawn = String::new();
        let backend = SVGBackend::with_string(&mut drawn, size.into());
        self.draw(&mut Canvas { backend, in_pieces: false });
        // plotters' first line, the only one about the document as a whole, says nothing for a reader's software.
        let marks = drawn.split_once('\n').map_or("", |(_, marks)| marks);
        let ([width, height], [across, down]) = (self.size(), size);
        let ([title, caption], rules) = ([&self.title, &self.caption].map(|text| escaped(text)), dark_mode());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {across} {down}\" \
             role=\"img\">\n<title>{title}</title>\n<desc>{caption}</desc>\n<style>polyline{{stroke-linejoin:round}}{rules}\
             </style>\n{marks}"
        )
    }

    /// A PNG with twice the layout's pixels.
    pub fn png(&self) -> Vec<u8> {
        let ([width, height], ratio) = (self.size().map(|length| length * FINE), FINE / PNG_SCALE);
        let mut fine = vec![0; (width * height * 3) as usize];
        let backend = BitMapBackend::with_buffer(&mut fine, (width, height));
        self.draw(&mut Canvas { backend, in_pieces: true });
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
        let colours = |column: usize| [0, 1, 2].map(|colour| 3 * ratio * column + colour);
        for first in (0..width / ratio).flat_map(colours) {
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

#[cfg(test)]
mod tests {
    use crate::draw::{Axis, Drawn, Figure, Form, Panel, Tone};

    #[test]
    fn a_line_that_turns_back_has_no_spike() {
        // Up and down within less than the line's width.
        let points = (0..100).map(|at| [50.0 + f64::from(at) * 0.01, f64::from(10 + at % 2 * (40 + at % 7))]);
        let line = Drawn::new(Form::Line, points, Tone::Blue);
        let panel =
            Panel::new(Axis::from_zero("x", 100.0), |_| Axis::from_zero("y", 100.0), vec![line], 200.0);
        let figure = Figure::new(String::new(), String::new(), vec![panel]);
        let png = figure.png();
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let width = reader.next_frame(&mut pixels).unwrap().width as usize;
        let is_blue = |row: &[u8]| row.chunks_exact(3).any(|pixel| pixel[2] > pixel[0].saturating_add(60));
        let rows: Vec<usize> = (0..)
            .zip(pixels.chunks_exact(3 * width))
            .filter(|(_, row)| is_blue(row))
            .map(|(at, _)| at)
            .collect();
        // From 10 to 56 of 100, of 400 pixels, and the line's own width.
        let tall = rows[rows.len() - 1] - rows[0];
        assert!((180..190).contains(&tall), "{tall}");
    }
}
