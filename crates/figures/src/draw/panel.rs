//! Where everything goes: margins as wide as what stands in them, names that keep clear of each other and of marks.

use super::figure::{Drawn, Figure, Form, Panel};
use super::svg::{Svg, png, width};
use super::tone::Tone;
use std::iter;

/// Sizes of text, in pixels.
const TITLE: f64 = 15.0;
const TEXT: f64 = 12.5;
const SMALL: f64 = 11.0;

/// Room around everything.
const EDGE: f64 = 12.0;
/// Room between a line and its words.
const GAP: f64 = 6.0;
/// From a mark to its name.
const BESIDE: f64 = 8.0;
/// From a line's end to its name, a piece in its colour.
const LEAD: f64 = 14.0;
/// Of a dot.
const RADIUS: f64 = 4.0;
/// From one line of text to the next.
pub(crate) const LEADING: f64 = 15.0;
/// From one panel to the next.
const BELOW: f64 = 16.0;
/// The most that names on each side of panels take of a figure's width.
const BESIDE_PANELS: f64 = 0.3;

/// A panel, and the frame that its axes are.
struct Area<'p> {
    panel: &'p Panel,
    frame: Frame,
}

impl Figure {
    /// An SVG document, whose colours follow the reader's dark mode.
    pub fn svg(&self) -> String {
        let mut svg = Svg::default();
        let mut top = self.paragraph(&mut svg, EDGE, &self.title, (TITLE, Tone::Ink));
        let mut panels = self.panels.clone();
        for panel in &mut panels {
            let ticks = panel.y.ticks.iter_mut().map(|tick| &mut tick.1);
            let names = panel.marks.iter_mut().filter(|mark| mark.is_named_line()).map(|mark| &mut mark.text);
            ticks.chain(names).for_each(|name| *name = shortened(name, TEXT, BESIDE_PANELS * self.width));
        }
        // Panels have their axes below each other.
        let widest_of = |words: &dyn Fn(&Panel) -> f64| panels.iter().map(words).fold(0.0, f64::max);
        let left = EDGE + widest_of(&|panel| widest(panel.y.ticks.iter().map(|tick| &tick.1))) + GAP;
        let names = widest_of(&|panel| widest(panel.named_lines().map(|line| &line.text)));
        // What stands under the right corner needs half of its width there.
        let corner = widest_of(&|Panel { x, .. }| {
            widest(x.ticks.iter().filter(|tick| x.part(tick.0) > 0.9).map(|tick| &tick.1)) / 2.0
        });
        let right = self.width - EDGE - corner.max(if names > 0.0 { LEAD + GAP + names } else { 0.0 });
        for panel in &panels {
            top = panel.draw(&mut svg, [left, right], top);
        }
        let bottom = self.paragraph(&mut svg, top, &self.source, (SMALL, Tone::Faint)) + EDGE;
        svg.document(&self.title, &self.caption, [self.width, bottom.ceil()])
    }

    /// A PNG with twice the layout's pixels.
    pub fn png(&self) -> Vec<u8> {
        png(&self.svg())
    }

    /// Writes `text` from a height on, in as many lines as it takes, and says where they end.
    fn paragraph(&self, svg: &mut Svg, mut top: f64, text: &str, (size, tone): (f64, Tone)) -> f64 {
        for line in wrapped(text, size, self.width - 2.0 * EDGE) {
            top += size + 4.0;
            svg.text(&line, [EDGE, top - size / 2.0 - 2.0], size, tone, "start");
        }
        top
    }
}

/// `text` in as many lines as it takes, none wider than `most` pixels, broken behind spaces and commas.
fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', ',']) {
        match lines.last_mut().filter(|line| width(format!("{line}{word}").trim_end(), size) <= most) {
            Some(line) => line.push_str(word),
            None => lines.push(shortened(word, size, most)),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// `text` without as much of its middle as makes it wider than `most` pixels.
fn shortened(text: &str, size: f64, most: f64) -> String {
    let letters: Vec<char> = text.chars().collect();
    let of = |kept: usize| -> String {
        let (head, tail) = (&letters[..kept.div_ceil(2)], &letters[letters.len() - kept / 2..]);
        head.iter().chain(&['…']).chain(tail).collect()
    };
    let shorter = (0..letters.len()).rev().map(of);
    iter::once(text.to_owned()).chain(shorter).find(|text| width(text, size) <= most).unwrap_or_default()
}

impl Panel {
    /// Draws it between `left` and `right` from a height on, and says where it ends.
    fn draw(&self, svg: &mut Svg, [left, right]: [f64; 2], mut top: f64) -> f64 {
        top += GAP;
        let mut across = EDGE;
        for (tone, name) in &self.key {
            svg.rectangle([across, top + 1.0], [across + 10.0, top + 11.0], *tone);
            svg.text(name, [across + 14.0, top + 6.0], TEXT, Tone::Ink, "start");
            across += 14.0 + width(name, TEXT) + 14.0;
        }
        top += if self.key.is_empty() { 0.0 } else { 18.0 };
        svg.text(&self.y.title, [EDGE, top + LEADING / 2.0], TEXT, Tone::Faint, "start");
        top += GAP + if self.y.title.is_empty() { 0.0 } else { LEADING };
        let frame = Frame { left, right, top, bottom: top + self.height };
        let area = Area { panel: self, frame };
        area.axes(svg);
        self.marks.iter().for_each(|mark| area.mark(svg, mark));
        area.texts(svg);
        area.names(svg);
        frame.bottom + GAP + LEADING + if self.x.title.is_empty() { 0.0 } else { LEADING } + BELOW
    }

    /// Lines whose names stand to the right of them.
    fn named_lines(&self) -> impl Iterator<Item = &Drawn> {
        self.marks.iter().filter(|mark| mark.is_named_line())
    }
}

impl Area<'_> {
    fn at(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let Area { panel, frame: Frame { left, right, top, bottom } } = *self;
        [left + panel.x.part(x) * (right - left), bottom - panel.y.part(y) * (bottom - top)]
    }

    fn points(&self, mark: &Drawn) -> Vec<[f64; 2]> {
        mark.points.iter().map(|&point| self.at(point)).collect()
    }

    fn axes(&self, svg: &mut Svg) {
        let Area { panel: Panel { x, y, .. }, frame: Frame { left, right, top, bottom } } = *self;
        for (value, text) in &y.ticks {
            let height = self.at([x.range[0], *value])[1];
            // Between names there is nothing to read off.
            if !y.title.is_empty() {
                svg.line(&[[left, height], [right, height]], Tone::Grid, 1.0);
            }
            svg.text(text, [left - GAP, height], TEXT, Tone::Faint, "end");
        }
        let below = bottom + GAP + LEADING / 2.0;
        for (value, text) in &x.ticks {
            let across = self.at([*value, y.range[0]])[0];
            svg.line(&[[across, top], [across, bottom]], Tone::Grid, 1.0);
            svg.text(text, [across, below], TEXT, Tone::Faint, "middle");
        }
        svg.line(&[[left, bottom], [right, bottom]], Tone::Faint, 1.0);
        svg.text(&x.title, [(left + right) / 2.0, below + LEADING], TEXT, Tone::Faint, "middle");
    }

    fn mark(&self, svg: &mut Svg, mark: &Drawn) {
        let (points, tone) = (self.points(mark), mark.tone);
        match mark.form {
            Form::Line | Form::Dashes if points.len() == 1 => svg.dot(points[0], RADIUS, tone),
            Form::Line => svg.line(&points, tone, 2.0),
            Form::Dashes => svg.dashes(&points, tone, 2.0),
            Form::Bar => {
                let Frame { left, right, top, bottom } = Frame::between(points[0], points[1]);
                // A hair of paper between it and the next.
                let hair = if right - left > 2.0 { 0.75 } else { 0.0 };
                svg.rectangle([left, top], [right - hair, bottom], tone);
                if width(&mark.text, SMALL) + 4.0 < right - left && bottom - top > 12.0 {
                    let middle = [(left + right) / 2.0, (top + bottom) / 2.0];
                    svg.text(&mark.text, middle, SMALL, Tone::Paper, "middle");
                }
            }
            Form::Area => svg.polygon(&points, tone),
            Form::Dot => points.iter().for_each(|&at| svg.dot(at, RADIUS, tone)),
            Form::Note => (),
        }
    }

    /// Texts beside dots and places, where they meet nothing that is there: first those to the right or the left, as
    /// one above or below is the farther from its dot, then these. A name that finds no room is left out; a remark then
    /// stands to the right whatever is there, and loses words that would leave the panel.
    fn texts(&self, svg: &mut Svg) {
        let is_dot = |mark: &&Drawn| mark.form == Form::Dot;
        let marks = self.panel.marks.iter();
        let mut taken: Vec<Frame> = marks.clone().flat_map(|mark| self.taken(mark)).collect();
        let dots: Vec<Frame> = marks.clone().filter(is_dot).flat_map(|mark| self.taken(mark)).collect();
        let is_beside = |mark: &&Drawn| (is_dot(mark) || mark.form == Form::Note) && !mark.text.is_empty();
        let mut waiting: Vec<&Drawn> = marks.filter(is_beside).collect();
        // Farther away, nobody could tell what it belongs to.
        for row in [0.0_f64, -1.0, 1.0, -1.4, 1.4] {
            // Nor may it be as near to another dot as to its own, or to one that nearly covers that.
            let gap = row.abs() * LEADING - LEADING / 2.0 - RADIUS;
            waiting.retain(|mark| {
                let own = self.at(mark.points[0]);
                let others = dots.iter().filter(|dot| row != 0.0 && !dot.meets(&Frame::between(own, own)));
                let is_near = |frame: &Frame| others.clone().any(|dot| dot.meets(&frame.grown(BESIDE, gap)));
                let free = |frame: &Frame| !is_near(frame) && !taken.iter().any(|other| other.meets(frame));
                let Some(frame) = self.beside(mark, row).find(free) else { return true };
                let middle = (frame.top + frame.bottom) / 2.0;
                svg.text(&mark.text, [frame.left, middle], TEXT, mark.tone, "start");
                taken.push(frame);
                false
            });
        }
        for mark in waiting.into_iter().filter(|mark| !is_dot(mark)) {
            let [x, y] = self.at(mark.points[0]);
            let mut lines = wrapped(&mark.text, TEXT, self.frame.right - x - BESIDE - GAP);
            if lines.len() > 1 {
                lines[0] += " …";
            }
            svg.text(&lines[0], [x + BESIDE, y], TEXT, mark.tone, "start");
        }
    }

    /// Where the text of `mark` fits so many lines below its place: to the right, to the left, in the middle.
    fn beside(&self, mark: &Drawn, row: f64) -> impl Iterator<Item = Frame> + use<> {
        let ([x, y], long) = (self.at(mark.points[0]), width(&mark.text, TEXT));
        let (middle, half) = (y + row * LEADING, LEADING / 2.0);
        let Frame { left: first, right, top, bottom } = self.frame;
        let fits = middle - half >= top - GAP && middle + half <= bottom;
        [x + BESIDE, x - BESIDE - long, x - long / 2.0]
            .into_iter()
            .map(move |left| Frame { left, right: left + long, top: middle - half, bottom: middle + half })
            .filter(move |frame| fits && frame.left >= first && frame.right <= right + GAP)
    }

    /// What texts keep clear of: dots, bars, and pieces of lines.
    fn taken(&self, mark: &Drawn) -> Vec<Frame> {
        let points = self.points(mark);
        let pieces = points.windows(2).map(|pair| Frame::between(pair[0], pair[1]));
        match mark.form {
            Form::Dot => points.iter().map(|&at| Frame::between(at, at).grown(RADIUS, RADIUS)).collect(),
            Form::Bar => pieces.collect(),
            Form::Line | Form::Dashes => pieces.map(|piece| piece.grown(RADIUS, RADIUS)).collect(),
            Form::Area | Form::Note => Vec::new(),
        }
    }

    /// The names of lines, at the heights of their ends or as near as they keep clear of each other.
    fn names(&self, svg: &mut Svg) {
        let named = self.panel.named_lines();
        let mut names: Vec<(f64, &Drawn)> =
            named.filter_map(|line| Some((self.at(*line.points.last()?)[1], line))).collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Frame { right, top, bottom, .. } = self.frame;
        let heights = spread(names.iter().map(|name| name.0).collect(), [top, bottom]);
        for ((end, Drawn { text, tone, .. }), height) in names.into_iter().zip(heights) {
            // Not every colour can be read as a text. A lead is thinner than its line and apart, not to be read as it.
            svg.line(&[[right + LEAD / 3.0, end], [right + LEAD, height]], *tone, 1.0);
            svg.text(text, [right + LEAD + GAP, height], TEXT, Tone::Ink, "start");
        }
    }
}

/// Room that a text or a mark takes.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn between(a: [f64; 2], b: [f64; 2]) -> Self {
        Self { left: a[0].min(b[0]), right: a[0].max(b[0]), top: a[1].min(b[1]), bottom: a[1].max(b[1]) }
    }

    /// With so much more room on each side, and above and below.
    fn grown(self, x: f64, y: f64) -> Self {
        let Self { left, right, top, bottom } = self;
        Self { left: left - x, right: right + x, top: top - y, bottom: bottom + y }
    }

    fn meets(&self, other: &Frame) -> bool {
        let across = self.left < other.right && other.left < self.right;
        across && self.top < other.bottom && other.top < self.bottom
    }
}

/// Rising heights at least a line apart, near the given ones and within a range.
fn spread(mut heights: Vec<f64>, [top, bottom]: [f64; 2]) -> Vec<f64> {
    let mut least = top;
    for height in &mut heights {
        *height = height.max(least);
        least = *height + LEADING;
    }
    let mut most = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(most);
        most = *height - LEADING;
    }
    heights
}

fn widest<'t>(texts: impl Iterator<Item = &'t String>) -> f64 {
    texts.map(|text| width(text, TEXT)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Axis;
    use resvg::tiny_skia::{Pixmap, PremultipliedColorU8};

    #[test]
    fn names_keep_a_line_apart_and_stay_in_the_panel() {
        assert_eq!(spread(vec![10.0, 100.0], [0.0, 200.0]), [10.0, 100.0]);
        assert_eq!(spread(vec![50.0, 51.0, 52.0], [0.0, 200.0]), [50.0, 65.0, 80.0]);
        assert_eq!(spread(vec![198.0, 199.0, 200.0], [0.0, 200.0]), [170.0, 185.0, 200.0]);
    }

    fn figure(marks: Vec<Drawn>, height: f64) -> Figure {
        let panel = Panel::new(Axis::from_zero("x", 100.0), |_| Axis::from_zero("y", 2.0), marks, height);
        let source = "a source with words enough to fill more than a line of it".to_owned();
        Figure { width: 260.0, ..Figure::new("A & B".to_owned(), source, vec![panel]) }
    }

    #[test]
    fn a_name_is_beside_its_own_dot_before_another_is_above_it() {
        let dot = |x: f64, y: f64, name: &str| Drawn::new(Form::Dot, [[x, y]], Tone::Blue).named(name);
        // The lower dot lies on a line, so that there is no room beside it, and comes first.
        let line = Drawn::new(Form::Line, [[0.0, 1.0], [100.0, 1.0]], Tone::Blue);
        let svg = figure(vec![line, dot(31.0, 1.0, "lower"), dot(30.0, 1.25, "upper")], 120.0).svg();
        let height = |name: &str| -> f64 {
            let text = &svg[..svg.find(&format!(">{name}<")).unwrap()];
            let at = text.rfind(" y=\"").unwrap() + 4;
            text[at..].split('"').next().unwrap().parse().unwrap()
        };
        assert!(height("lower") > height("upper"), "{svg}");
    }

    #[test]
    fn a_line_that_turns_back_has_no_spike() {
        // Up and down within less than the line's width.
        let points = (0..100).map(|at| [50.0 + f64::from(at) * 0.01, f64::from(10 + at % 2 * (40 + at % 7))]);
        let line = Drawn::new(Form::Line, points, Tone::Blue);
        let axis = || Axis::from_zero("", 100.0);
        let panel = Panel::new(axis(), |_| axis(), vec![line], 200.0);
        let pixels =
            Pixmap::decode_png(&Figure::new(String::new(), String::new(), vec![panel]).png()).unwrap();
        let is_blue = |pixel: &PremultipliedColorU8| pixel.blue() > pixel.red().saturating_add(60);
        let rows = pixels.pixels().chunks_exact(pixels.width() as usize);
        let blue: Vec<usize> =
            (0..).zip(rows).filter(|(_, row)| row.iter().any(is_blue)).map(|(at, _)| at).collect();
        // From 10 to 56 of 100, of 400 pixels, and the line's own width.
        let tall = blue[blue.len() - 1] - blue[0];
        assert!((180..190).contains(&tall), "{tall}");
    }

    #[test]
    fn names_of_any_length_leave_the_panel_room() {
        let name = |end: &str| format!("a/folder/with/many/parts/{}/{end}", "of-a-path".repeat(20));
        let line =
            |end: &str| Drawn::new(Form::Line, [[0.0, 1.0], [100.0, 2.0]], Tone::Blue).named(name(end));
        let svg = figure(vec![line("first"), line("last")], 120.0).svg();
        let ends: Vec<f64> = svg
            .match_indices("stroke-width=\"2\"")
            .map(|(at, _)| {
                let points = &svg[svg[..at].rfind("points").unwrap()..at];
                points.split([' ', ',', '"']).nth(3).unwrap().parse().unwrap()
            })
            .collect();
        assert!(ends.len() == 2 && ends.iter().all(|&end| end > 120.0), "{ends:?} in {svg}");
        assert!(svg.contains("…/first") || svg.contains("/first<"), "{svg}");
        assert_eq!(wrapped("n=256,c=64,h=27", TEXT, 60.0), ["n=256,", "c=64,", "h=27"]);
    }

    #[test]
    fn a_remark_loses_the_words_that_would_leave_the_panel() {
        let remark = Drawn::new(Form::Note, [[40.0, 1.0]], Tone::Ink);
        let remark = remark.named("5x39 WINOGRAD_NONFUSED + 19 WINOGRAD_NONFUSED");
        let bar = Drawn::new(Form::Bar, [[0.0, 0.5], [40.0, 1.5]], Tone::Blue);
        let svg = figure(vec![bar, remark], 120.0).svg();
        assert!(svg.contains(" …") && !svg.contains("+ 19 WINOGRAD_NONFUSED"), "{svg}");
    }

    #[test]
    fn a_name_that_finds_no_room_is_left_out_and_a_remark_is_not() {
        let drawing = |form: Form| {
            let dot = |x: f64| Drawn::new(Form::Dot, [[x, 1.0]], Tone::Blue);
            let mut marks: Vec<Drawn> = (0..200).map(|at| dot(f64::from(at) / 2.0)).collect();
            marks.extend((1..20).map(|at| dot(50.0).named(format!("dot {at}"))));
            marks.push(Drawn::new(form, [[50.0, 1.0]], Tone::Blue).named("the last <1>"));
            figure(marks, 40.0).svg()
        };
        assert!(
            !drawing(Form::Dot).contains("the last") && drawing(Form::Note).contains("the last &lt;1&gt;")
        );
        assert!(drawing(Form::Dot).contains("<title>A &amp; B</title>"));
    }
}
