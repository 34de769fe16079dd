//! An SVG as it is written, and the PNG that is drawn from it.

use super::tone::{Tone, dark_mode};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::sync::LazyLock;
use ttf_parser::Face;

/// The font that texts are measured by and that PNGs have; an SVG names the reader's sans-serif.
static FONT: &[u8] = include_bytes!("sans.ttf");
static SANS: LazyLock<Face<'static>> =
    LazyLock::new(|| Face::parse(FONT, 0).expect("the font is part of the crate"));

/// Pixels of a PNG in a pixel of the layout.
const PNG_SCALE: f32 = 2.0;

/// The elements of an SVG.
#[derive(Default)]
pub(super) struct Svg(String);

impl Svg {
    pub(super) fn rectangle(&mut self, [x, y]: [f64; 2], [right, bottom]: [f64; 2], tone: Tone) {
        let ([width, height], fill) = ([right - x, bottom - y], tone.on_paper());
        self.0 += &format!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>\n"
        );
    }

    pub(super) fn line(&mut self, points: &[[f64; 2]], tone: Tone, width: f64) {
        self.polyline(points, tone, width, "");
    }

    pub(super) fn dashes(&mut self, points: &[[f64; 2]], tone: Tone, width: f64) {
        self.polyline(points, tone, width, " stroke-dasharray=\"7 4\"");
    }

    fn polyline(&mut self, points: &[[f64; 2]], tone: Tone, width: f64, dashes: &str) {
        let (points, stroke) = (places(points), tone.on_paper());
        self.0 += &format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dashes}/>\n"
        );
    }

    pub(super) fn polygon(&mut self, points: &[[f64; 2]], tone: Tone) {
        self.0 += &format!("<polygon points=\"{}\" fill=\"{}\"/>\n", places(points), tone.on_paper());
    }

    pub(super) fn dot(&mut self, [x, y]: [f64; 2], radius: f64, tone: Tone) {
        let fill = tone.on_paper();
        self.0 += &format!("<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius}\" fill=\"{fill}\"/>\n");
    }

    /// A line of text with the middle of its capitals at its place, and across its `start`, `middle` or `end`.
    pub(super) fn text(&mut self, text: &str, [x, y]: [f64; 2], size: f64, tone: Tone, anchor: &str) {
        let (baseline, fill, text) = (y + 0.365 * size, tone.on_paper(), escaped(text));
        self.0 += &format!(
            "<text x=\"{x:.2}\" y=\"{baseline:.2}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
             fill=\"{fill}\">{text}</text>\n"
        );
    }

    /// The document of these elements, so wide and high, whose colours follow the reader's dark mode.
    pub(super) fn document(self, title: &str, description: &str, [width, height]: [f64; 2]) -> String {
        let ([title, description], paper) = ([title, description].map(escaped), Tone::Paper.on_paper());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" font-family=\"sans-serif\">\n<title>{title}</title>\n<desc>{description}</desc>\n\
             <style>polyline{{stroke-linejoin:round}}{}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>\n{}</svg>\n",
            dark_mode(),
            self.0,
        )
    }
}

/// The width of `text` at `size`.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let advance = |letter| SANS.glyph_hor_advance(SANS.glyph_index(letter).unwrap_or_default());
    let units: f64 = text.chars().filter_map(advance).map(f64::from).sum();
    units * size / f64::from(SANS.units_per_em())
}

/// The pixels of an SVG of ours, light, as a PNG.
pub(super) fn png(svg: &str) -> Vec<u8> {
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = Tree::from_str(svg, &options).expect("what is written here is SVG");
    let [width, height] = [tree.size().width(), tree.size().height()].map(|length| PNG_SCALE * length);
    let mut pixels = Pixmap::new(width as u32, height as u32).expect("a figure has pixels");
    resvg::render(&tree, Transform::from_scale(PNG_SCALE, PNG_SCALE), &mut pixels.as_mut());
    pixels.encode_png().expect("writing into memory does not fail")
}

fn places(points: &[[f64; 2]]) -> String {
    points.iter().map(|[x, y]| format!("{x:.2},{y:.2}")).collect::<Vec<_>>().join(" ")
}

/// A layer may be called anything, and XML has no way to write control characters.
fn escaped(text: &str) -> String {
    let text =
        text.replace(|letter: char| letter.is_control() || "\u{fffe}\u{ffff}".contains(letter), "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_layer_is_called_can_be_drawn() {
        for name in ["a\0\u{1b}\u{7f}b", "two\nlines\ttwo\u{fffe}\u{ffff}", "<&\"'>]]>", "\u{10ffff}層"] {
            let mut svg = Svg::default();
            svg.text(name, [10.0, 10.0], 12.0, Tone::Ink, "start");
            let drawn = png(&svg.document(name, name, [40.0, 20.0]));
            assert_eq!(drawn[1..4], *b"PNG", "{name:?}");
        }
    }
}
