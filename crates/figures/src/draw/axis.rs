//! Axes: from values to a part of the way, and the values that are written along it.

use planner::Bytes;

/// Most powers that are written along an axis.
const MOST_POWERS: usize = 7;

/// One axis of a panel.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What it measures, with its unit.
    pub(crate) title: String,
    /// Where it begins and ends.
    pub(crate) range: [f64; 2],
    /// Values with what is written there.
    pub(crate) ticks: Vec<(f64, String)>,
    /// Whether equal distances are equal ratios.
    is_logarithmic: bool,
}

impl Axis {
    /// With these ticks, and equal distances for equal differences.
    pub(crate) fn new(title: &str, range: [f64; 2], ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        Self { title: title.to_owned(), range, ticks: ticks.into_iter().collect(), is_logarithmic: false }
    }

    /// From 0 to at least `most`, by round steps.
    pub(crate) fn from_zero(title: &str, most: f64) -> Self {
        Self::around_zero(title, [0.0, most], 1.0)
    }

    /// Bytes from 0 on, by round steps of a unit.
    pub(crate) fn bytes_from_zero(title: &str, most: f64) -> Self {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (power, unit) = units.into_iter().find(|unit| most >= 2_f64.powi(unit.0)).unwrap_or((0, "B"));
        Self::around_zero(&format!("{title} ({unit})"), [0.0, most], 2_f64.powi(power))
    }

    /// From at most `least`, which is not above 0, to at least `most`, by round steps of a unit.
    pub(crate) fn around_zero(title: &str, [least, most]: [f64; 2], unit: f64) -> Self {
        let step = unit * round_step((most - least) / unit / 5.0);
        let (first, last) = ((least / step + 1e-9).floor(), (most / step - 1e-9).ceil().max(1.0));
        let values = (first as i32..=last as i32).map(|tick| f64::from(tick) * step);
        let ticks = values.map(|value| (value, plain(value / unit)));
        Self::new(title, [first, last].map(|tick| tick * step), ticks)
    }

    /// Bytes by powers of two.
    pub(crate) fn bytes(title: &str, range: [Bytes; 2]) -> Self {
        let range = range.map(|bytes| bytes.0.max(1) as f64);
        Self::powers(title, 2.0, range, |bytes| Bytes(bytes as u64).to_string())
    }

    /// A count from 1 on, by powers of two.
    pub(crate) fn counts(title: &str, most: u32) -> Self {
        Self::powers(title, 2.0, [1.0, f64::from(most.max(2))], plain)
    }

    /// Anything by powers of ten.
    pub(crate) fn decades(title: &str, [from, to]: [f64; 2]) -> Self {
        let first = from.log10().floor();
        let last = to.log10().ceil().max(first + 1.0);
        Self::powers(title, 10.0, [first, last].map(|power| 10_f64.powf(power)), plain)
    }

    /// The powers of `base` in a range, some of them if they are many, at distances by their ratio.
    fn powers(title: &str, base: f64, range: [f64; 2], text: impl Fn(f64) -> String) -> Self {
        let [first, last] = range.map(|end| end.log(base));
        let exponents = (first - 1e-9).ceil() as i32..=(last + 1e-9).floor() as i32;
        let step = exponents.clone().count().div_ceil(MOST_POWERS).max(1);
        let ticks = exponents.step_by(step).map(|power| base.powi(power)).map(|value| (value, text(value)));
        Self { is_logarithmic: true, ..Self::new(title, range, ticks) }
    }

    /// One place for each name, at 0, 1, 2, ... from the end of the axis to its beginning.
    pub(super) fn names(names: impl IntoIterator<Item = String>) -> Self {
        let ticks: Vec<_> = (0..).map(f64::from).zip(names).collect();
        Self::new("", [ticks.len() as f64 - 0.5, -0.5], ticks)
    }

    /// How far along the axis `value` is: 0 at its beginning, 1 at its end, and no farther.
    pub(super) fn part(&self, value: f64) -> f64 {
        let is_log = self.is_logarithmic;
        let scale = |value: f64| if is_log { value.max(f64::MIN_POSITIVE).log2() } else { value };
        let [from, to] = self.range.map(scale);
        ((scale(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// A round number not below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|&step| step >= rough * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// Without digits that say nothing.
fn plain(value: f64) -> String {
    crate::six_digits((value * 1e9).round() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_what_is_drawn() {
        let texts = |axis: &Axis| axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>();
        let axis = Axis::from_zero("ms", 34.7);
        assert_eq!((axis.range, texts(&axis).join(" ")), ([0.0, 40.0], "0 10 20 30 40".to_owned()));
        assert_eq!(texts(&Axis::around_zero("loss", [-3.2, 5.9], 1.0)), ["-4", "-2", "0", "2", "4", "6"]);
        assert_eq!(texts(&Axis::from_zero("ms", 0.47)), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        let axis = Axis::bytes("limit", [Bytes::mib(1), Bytes::mib(64)]);
        assert_eq!(texts(&axis), ["1 MiB", "2 MiB", "4 MiB", "8 MiB", "16 MiB", "32 MiB", "64 MiB"]);
        assert_eq!((axis.part(0.0), axis.part(f64::from(8 << 20)), axis.part(1e99)), (0.0, 0.5, 1.0));
        let axis = Axis::bytes_from_zero("memory", 2500.0 * f64::from(1 << 20));
        assert_eq!(
            (axis.title.as_str(), texts(&axis).join(" ")),
            ("memory (GiB)", "0 0.5 1 1.5 2 2.5".to_owned())
        );
        assert_eq!(axis.part(f64::from(5u32 << 28)), 0.5);
    }
}
