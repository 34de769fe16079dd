//! Colours, on white paper and on a dark screen.

use plotters_backend::BackendColor;

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

/// Of every tone in order, the colour on paper and on a dark screen, as red, green and blue.
#[rustfmt::skip]
const SHADES: [[u32; 2]; 11] = [
    [0x22_22_22, 0xe8_e8_e8], [0x5a_5a_5a, 0xa8_ae_b4], [0xe3_e3_e3, 0x3a_40_46], [0xff_ff_ff, 0x15_19_1d],
    [0x00_72_b2, 0x4d_ac_e8], [0xd5_5e_00, 0xff_8f_4d], [0x00_9e_73, 0x2f_c9_9b], [0xb8_57_90, 0xe6_9c_c6],
    [0x56_b4_e9, 0x8c_cf_f5], [0xe6_9f_00, 0xf7_c2_4a], [0x8a_8a_8a, 0x7d_85_8c],
];

/// What is compared is told apart by these.
const COMPARED: [Tone; 7] =
    [Tone::Blue, Tone::Orange, Tone::Green, Tone::Purple, Tone::Sky, Tone::Yellow, Tone::Grey];

impl Tone {
    /// The colour of the number `place` of several things that are compared.
    pub(crate) fn of(place: usize) -> Self {
        COMPARED[place % COMPARED.len()]
    }

    pub(super) fn on_paper(self) -> BackendColor {
        let [_, red, green, blue] = SHADES[self as usize][0].to_be_bytes();
        BackendColor { alpha: 1.0, rgb: (red, green, blue) }
    }
}

/// Rules that give every colour of a drawing its other shade where the reader's screen is dark.
pub(super) fn dark_mode() -> String {
    let rules = SHADES.map(|[paper, screen]| {
        format!(
            "[fill=\"#{paper:06X}\"]{{fill:#{screen:06x}}}[stroke=\"#{paper:06X}\"]{{stroke:#{screen:06x}}}"
        )
    });
    format!("@media (prefers-color-scheme: dark){{{}}}", rules.concat())
}
