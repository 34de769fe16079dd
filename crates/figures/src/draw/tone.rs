//! Colours, on white paper and on a dark screen.

/// What a mark is coloured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Text and axes.
    Ink,
    /// What is said in passing: ticks, sources.
    Faint,
    /// Lines to read off.
    Grid,
    /// The ground.
    Paper,
    // What is compared.
    Blue,
    Orange,
    Green,
    Purple,
    Sky,
    Yellow,
    /// What is the background of the others.
    Grey,
}

/// Of every tone in order, the colour on paper and on a dark screen.
#[rustfmt::skip]
const SHADES: [[&str; 2]; 11] = [
    ["#222222", "#e8e8e8"], ["#5a5a5a", "#a8aeb4"], ["#e3e3e3", "#3a4046"], ["#ffffff", "#15191d"],
    ["#0072b2", "#2b86c5"], ["#d55e00", "#ff8f4d"], ["#009e73", "#2fc99b"], ["#b85790", "#e69cc6"],
    ["#56b4e9", "#8ccff5"], ["#e69f00", "#f7c24a"], ["#8a8a8a", "#7d858c"],
];

/// What is compared is told apart by these.
const COMPARED: [Tone; 7] =
    [Tone::Blue, Tone::Orange, Tone::Green, Tone::Purple, Tone::Sky, Tone::Yellow, Tone::Grey];

impl Tone {
    /// The colour of the number `place` of several things that are compared.
    pub(crate) fn of(place: usize) -> Self {
        COMPARED[place % COMPARED.len()]
    }

    pub(super) fn on_paper(self) -> &'static str {
        SHADES[self as usize][0]
    }
}

/// Rules that give every colour of a drawing its other shade where the reader's screen is dark.
pub(super) fn dark_mode() -> String {
    let rules = SHADES.map(|[paper, screen]| {
        format!("[fill=\"{paper}\"]{{fill:{screen}}}[stroke=\"{paper}\"]{{stroke:{screen}}}")
    });
    format!("@media (prefers-color-scheme: dark){{{}}}", rules.concat())
}
