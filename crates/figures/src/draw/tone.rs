//! Colours, on white paper and on a dark screen.

use plotters_backend::BackendColor;
use serde::Serialize;

/// What a mark is coloured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// Text and axes.
    Ink,
    /// What is said in passing: ticks, sources.
    Faint,
    /// Lines to read off.
    Grid,
    /// The ground.
    Paper,
    /// The first to the seventh of what is compared.
    Blue,
    /// Of the seven.
    Orange,
    /// Of the seven.
    Green,
    /// Of the seven.
    Purple,
    /// Of the seven.
    Sky,
    /// Of the seven.
    Yellow,
    /// Of the seven: for what is the background of the others.
    Grey,
}

const ALL: [Tone; 11] = [
    Tone::Ink,
    Tone::Faint,
    Tone::Grid,
    Tone::Paper,
    Tone::Blue,
    Tone::Orange,
    Tone::Green,
    Tone::Purple,
    Tone::Sky,
    Tone::Yellow,
    Tone::Grey,
];

impl Tone {
    /// The colour of the number `place` of several things that are compared.
    pub fn of(place: usize) -> Self {
        ALL[4 + place % 7]
    }

    /// On paper and on a dark screen, as red, green and blue.
    fn shades(self) -> [u32; 2] {
        match self {
            Tone::Ink => [0x22_22_22, 0xe8_e8_e8],
            Tone::Faint => [0x5a_5a_5a, 0xa8_ae_b4],
            Tone::Grid => [0xe3_e3_e3, 0x3a_40_46],
            Tone::Paper => [0xff_ff_ff, 0x15_19_1d],
            Tone::Blue => [0x00_72_b2, 0x4d_ac_e8],
            Tone::Orange => [0xd5_5e_00, 0xff_8f_4d],
            Tone::Green => [0x00_9e_73, 0x2f_c9_9b],
            Tone::Purple => [0xb8_57_90, 0xe6_9c_c6],
            Tone::Sky => [0x56_b4_e9, 0x8c_cf_f5],
            Tone::Yellow => [0xe6_9f_00, 0xf7_c2_4a],
            Tone::Grey => [0x8a_8a_8a, 0x7d_85_8c],
        }
    }

    pub(super) fn on_paper(self) -> BackendColor {
        let [_, red, green, blue] = self.shades()[0].to_be_bytes();
        BackendColor { alpha: 1.0, rgb: (red, green, blue) }
    }
}

/// Rules that give every colour of a drawing its other shade where the reader's screen is dark.
pub(super) fn dark_mode() -> String {
    let rules = ALL.map(|tone| {
        let [paper, screen] = tone.shades();
        format!(
            "[fill=\"#{paper:06X}\"]{{fill:#{screen:06x}}}[stroke=\"#{paper:06X}\"]{{stroke:#{screen:06x}}}"
        )
    });
    format!("@media (prefers-color-scheme: dark){{{}}}", rules.concat())
}
