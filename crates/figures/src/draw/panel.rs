//! Where everything goes: margins as wide as what stands in them, names of lines that keep clear of each other.

use super::figure::{Drawn, Figure, Form, Panel};
use super::{axis::Axis, canvas::Canvas, font::width, tone::Tone};
use plotters_backend::{DrawingBackend, text_anchor::HPos};

/// Sizes of text, in pixels.
const TITLE: f64 = 15.0;
const TEXT: f64 = 12.5;
const SMALL: f64 = 11.0;

/// Room around everything.
const EDGE: f64 = 12.0;
/// Room between a line and its words.
const GAP: f64 = 6.0;
/// From a line's end to its name, a piece in its colour.
const LEAD: f64 = 14.0;
/// Of a dot.
const RADIUS: f64 = 4.0;
/// From one line of the title to the next.
const HEAD_LEADING: f64 = 19.0;
/// From one line of text to the next.
pub(crate) const LEADING: f64 = 15.0;
/// From a panel's lower ticks to what follows.
const BELOW: f64 = 16.0;

/// A panel on the canvas, and the frame that its axes are.
struct Area<'p> {
    panel: &'p Panel,
    frame: Frame,
}

impl Figure {
    pub(super) fn height(&self) -> f64 {
        let panels: f64 = self.panels.iter().map(Panel::outer_height).sum();
        let [head, foot] = [(&self.title, TITLE), (&self.source, SMALL)]
            .map(|(text, size)| self.lines(text, size).len() as f64);
        EDGE + head * HEAD_LEADING + panels + foot * LEADING + EDGE
    }

    /// `text` in as many lines as it takes.
    fn lines(&self, text: &str, size: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split(' ') {
            let longer = lines.last().map(|line| format!("{line} {word}"));
            match longer.filter(|line| width(line, size) <= self.width - 2.0 * EDGE) {
                Some(line) => *lines.last_mut().expect("it was made longer") = line,
                None => lines.push(word.to_owned()),
            }
        }
        lines
    }

    pub(super) fn draw_panels<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        let mut top = EDGE;
        for line in self.lines(&self.title, TITLE) {
            canvas.text(&line, [EDGE, top + HEAD_LEADING / 2.0], TITLE, Tone::Ink, HPos::Left);
            top += HEAD_LEADING;
        }
        // Panels have their axes below each other.
        let widest_of = |widths: &dyn Fn(&Panel) -> f64| self.panels.iter().map(widths).fold(0.0, f64::max);
        let left = EDGE + widest_of(&|panel| widest(panel.y.ticks.iter().map(|tick| &tick.1))) + GAP;
        let names = widest_of(&|panel| widest(panel.named_lines().map(|mark| &mark.text)));
        // What stands under the right corner needs half of its width there.
        let corner = widest_of(&|panel| panel.last_tick() / 2.0);
        let right = self.width - EDGE - corner.max(if names > 0.0 { LEAD + GAP + names } else { 0.0 });
        for panel in &self.panels {
            let first = top + panel.above();
            let frame = Frame { left, right, top: first, bottom: first + panel.height };
            Area { panel, frame }.draw(canvas);
            top += panel.outer_height();
        }
        for text in self.lines(&self.source, SMALL) {
            canvas.text(&text, [EDGE, top + LEADING / 2.0], SMALL, Tone::Faint, HPos::Left);
            top += LEADING;
        }
    }
}

impl Panel {
    /// Room for the axis' title and the key.
    fn above(&self) -> f64 {
        12.0 + title_height(&self.y) + if self.key.is_empty() { 0.0 } else { 18.0 }
    }

    /// The width of what is written at the end of the axis.
    fn last_tick(&self) -> f64 {
        let last = self.x.ticks.last().filter(|(value, _)| self.x.part(*value) > 0.9);
        last.map_or(0.0, |(_, text)| width(text, TEXT))
    }

    fn outer_height(&self) -> f64 {
        self.above() + self.height + GAP + LEADING + title_height(&self.x) + BELOW
    }

    /// Lines whose names stand to the right of them.
    fn named_lines(&self) -> impl Iterator<Item = &Drawn> {
        self.marks.iter().filter(|mark| mark.form == Form::Line && !mark.text.is_empty())
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

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        self.axes(canvas);
        self.key(canvas);
        self.panel.marks.iter().for_each(|mark| self.mark(canvas, mark));
        self.texts(canvas);
        self.names(canvas);
    }

    fn axes<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        let Area { panel: Panel { x, y, .. }, frame: Frame { left, right, top, bottom } } = *self;
        for (value, text) in &y.ticks {
            let height = self.at([x.range[0], *value])[1];
            if y.grid {
                canvas.line(&[[left, height], [right, height]], Tone::Grid, 1.0);
            }
            canvas.text(text, [left - GAP, height], TEXT, Tone::Faint, HPos::Right);
        }
        let below = bottom + GAP + LEADING / 2.0;
        for (value, text) in &x.ticks {
            let across = self.at([*value, y.range[0]])[0];
            if x.grid {
                canvas.line(&[[across, top], [across, bottom]], Tone::Grid, 1.0);
            }
            canvas.text(text, [across, below], TEXT, Tone::Faint, HPos::Center);
        }
        canvas.line(&[[left, bottom], [right, bottom]], Tone::Faint, 1.0);
        canvas.text(&x.title, [(left + right) / 2.0, below + LEADING], TEXT, Tone::Faint, HPos::Center);
        canvas.text(&y.title, [EDGE, top - GAP - 8.0], TEXT, Tone::Faint, HPos::Left);
    }

    fn key<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        let (mut across, middle) = (EDGE, self.frame.top - GAP - 12.0 - title_height(&self.panel.y));
        for (tone, name) in &self.panel.key {
            canvas.rectangle([across, middle - 5.0], [across + 10.0, middle + 5.0], *tone);
            canvas.text(name, [across + 14.0, middle], TEXT, Tone::Ink, HPos::Left);
            across += 14.0 + width(name, TEXT) + 14.0;
        }
    }

    fn mark<B: DrawingBackend>(&self, canvas: &mut Canvas<B>, mark: &Drawn) {
        let (points, tone) = (self.points(mark), mark.tone);
        match (mark.form, &points[..]) {
            (Form::Line, _) => canvas.line(&points, tone, 2.0),
            (Form::Bar, &[a, b]) => {
                let Frame { left, right, top, bottom } = Frame::between(a, b);
                // A hair of paper between it and the next.
                let hair = if right - left > 2.0 { 0.75 } else { 0.0 };
                canvas.rectangle([left, top], [right - hair, bottom], tone);
                if width(&mark.text, SMALL) + 4.0 < right - left && bottom - top > 12.0 {
                    let middle = [(left + right) / 2.0, (top + bottom) / 2.0];
                    canvas.text(&mark.text, middle, SMALL, Tone::Paper, HPos::Center);
                }
            }
            (Form::Area, _) => canvas.polygon(&points, tone),
            (Form::Dot, _) => points.iter().for_each(|&at| canvas.dot(at, RADIUS, tone)),
            _ => (),
        }
    }

    /// Texts beside dots and places, where they meet nothing that is there: first those to the right or the left, as
    /// one above or below is the farther from its dot, then these. A name that finds no room is left out; a remark then
    /// stands where it meets something, and loses words that would leave the panel.
    fn texts<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        let (mut taken, dots) = (self.taken(|_| true), self.taken(|form| form == Form::Dot));
        let is_beside = |mark: &&Drawn| matches!(mark.form, Form::Dot | Form::Note) && !mark.text.is_empty();
        let mut waiting: Vec<&Drawn> = self.panel.marks.iter().filter(is_beside).collect();
        // Farther away, nobody could tell what it belongs to.
        for row in [0.0_f64, -1.0, 1.0, -1.4, 1.4] {
            // Nor may it be as near to another dot as to its own, or to one that nearly covers that.
            let gap = row.abs() * LEADING - LEADING / 2.0 - RADIUS;
            waiting.retain(|mark| {
                let own = self.at(mark.points[0]);
                let others = dots.iter().filter(|dot| row != 0.0 && !dot.meets(&Frame::between(own, own)));
                let is_near =
                    |frame: &Frame| others.clone().any(|dot| dot.meets(&frame.grown(GAP + 2.0, gap)));
                let free = |frame: &Frame| !is_near(frame) && !taken.iter().any(|other| other.meets(frame));
                let Some(frame) = self.beside(mark, &mark.text, row).find(free) else { return true };
                frame.write(canvas, &mark.text, mark.tone);
                taken.push(frame);
                false
            });
        }
        for mark in waiting.into_iter().filter(|mark| mark.form == Form::Note) {
            let words = mark.text.rmatch_indices(' ').map(|(at, _)| format!("{} …", &mark.text[..at]));
            let mut texts = std::iter::once(mark.text.clone()).chain(words);
            let place = self.at(mark.points[0])[0];
            let found = texts.find_map(|text| {
                Some((self.beside(mark, &text, 0.0).find(|frame| frame.left > place)?, text))
            });
            found.iter().for_each(|(frame, text)| frame.write(canvas, text, mark.tone));
        }
    }

    /// Where `text` could stand in the panel so many lines below the place of `mark`: to the right, to the left, in the
    /// middle.
    fn beside(&self, mark: &Drawn, text: &str, row: f64) -> impl Iterator<Item = Frame> + use<> {
        let ([x, y], long) = (self.at(mark.points[0]), width(text, TEXT));
        let (middle, half) = (y + row * LEADING, LEADING / 2.0);
        let Frame { left: first, right, top, bottom } = self.frame;
        let fits = middle - half >= top - GAP && middle + half <= bottom;
        [x + GAP + 2.0, x - GAP - 2.0 - long, x - long / 2.0]
            .into_iter()
            .map(move |left| Frame { left, right: left + long, top: middle - half, bottom: middle + half })
            .filter(move |frame| fits && frame.left >= first && frame.right <= right + GAP)
    }

    /// What texts keep clear of: dots, bars, and pieces of lines; those of some forms.
    fn taken(&self, is_meant: impl Fn(Form) -> bool) -> Vec<Frame> {
        let mut taken = Vec::new();
        for mark in self.panel.marks.iter().filter(|mark| is_meant(mark.form)) {
            let points = self.points(mark);
            let around = |a, b| Frame::between(a, b).grown(RADIUS, RADIUS);
            match mark.form {
                Form::Dot => taken.extend(points.iter().map(|&at| around(at, at))),
                Form::Bar => taken.push(Frame::between(points[0], points[1])),
                Form::Line => taken.extend(points.windows(2).map(|pair| around(pair[0], pair[1]))),
                _ => (),
            }
        }
        taken
    }

    /// The names of lines, at the heights of their ends or as near as they keep clear of each other.
    fn names<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) {
        let named = self.panel.named_lines();
        let mut names: Vec<(f64, &Drawn)> =
            named.filter_map(|line| Some((self.at(*line.points.last()?)[1], line))).collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Frame { right, top, bottom, .. } = self.frame;
        let heights = spread(names.iter().map(|name| name.0).collect(), [top, bottom]);
        for ((end, Drawn { text, tone, .. }), height) in names.into_iter().zip(heights) {
            // Not every colour can be read as a text. A lead is thinner than its line and apart from it, so that it
            // is not read as its course.
            canvas.line(&[[right + LEAD / 3.0, end], [right + LEAD, height]], *tone, 1.0);
            canvas.text(text, [right + LEAD + GAP, height], TEXT, Tone::Ink, HPos::Left);
        }
    }
}

/// Room that a text or a dot takes.
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

    /// A text as long as the frame is wide.
    fn write<B: DrawingBackend>(&self, canvas: &mut Canvas<B>, text: &str, tone: Tone) {
        canvas.text(text, [self.left, (self.top + self.bottom) / 2.0], TEXT, tone, HPos::Left);
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

fn title_height(axis: &Axis) -> f64 {
    if axis.title.is_empty() { 0.0 } else { LEADING }
}

fn widest<'t>(texts: impl Iterator<Item = &'t String>) -> f64 {
    texts.map(|text| width(text, TEXT)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let text = &svg[..svg.find(&format!("{name}\n")).unwrap()];
            let at = text.rfind(" y=\"").unwrap() + 4;
            text[at..].split('"').next().unwrap().parse().unwrap()
        };
        assert!(height("lower") > height("upper"), "{svg}");
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
