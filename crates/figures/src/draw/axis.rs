//! Axes: from values to a part of the way, and the values that are written along it.

use planner::Bytes;

/// One axis of a panel.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it measures, with its unit.
    pub title: String,
    /// Where it begins and ends.
    pub range: [f64; 2],
    /// Values with what is written there; a line break begins a second line.
    pub ticks: Vec<(f64, String)>,
    /// Whether a line across the panel marks each tick.
    pub grid: bool,
    /// Whether equal distances are equal ratios.
    pub is_logarithmic: bool,
}

impl Axis {
    fn new(
        title: &str,
        range: [f64; 2],
        ticks: impl Iterator<Item = (f64, String)>,
        is_logarithmic: bool,
    ) -> Self {
        Self { title: title.to_owned(), range, ticks: ticks.collect(), grid: true, is_logarithmic }
    }

    /// From 0 to at least `most`, by round steps.
    pub fn from_zero(title: &str, most: f64) -> Self {
        let step = round_step(most / 5.0);
        let last = (most / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=last as u32).map(|tick| f64::from(tick) * step).map(|value| (value, plain(value)));
        Self::new(title, [0.0, last * step], ticks, false)
    }

    /// Bytes by powers of two, with about six of them written.
    pub fn bytes(title: &str, range: [Bytes; 2]) -> Self {
        let range = range.map(|bytes| bytes.0.max(1));
        let ticks = powers(range, 7).map(|bytes| (bytes as f64, Bytes(bytes).to_string()));
        Self::new(title, range.map(|bytes| bytes as f64), ticks, true)
    }

    /// Bytes from 0 on, by round steps of a unit.
    pub fn bytes_from_zero(title: &str, most: Bytes) -> Self {
        let unit = [1u64 << 30, 1 << 20, 1 << 10].into_iter().find(|&unit| most.0 >= unit).unwrap_or(1);
        let name = Bytes(unit).to_string();
        let name = name.trim_start_matches(['1', ' ']);
        let plain = Self::from_zero(&format!("{title} ({name})"), most.0 as f64 / unit as f64);
        let scale = |value: f64| value * unit as f64;
        let ticks = plain.ticks.into_iter().map(|(value, text)| (scale(value), text)).collect();
        Self { range: plain.range.map(scale), ticks, ..plain }
    }

    /// By powers of two of a count.
    pub fn counts(title: &str, most: u32) -> Self {
        let ticks = powers([1, most.into()], 9).map(|power| (power as f64, power.to_string()));
        Self::new(title, [1.0, f64::from(most.max(2))], ticks, true)
    }

    /// By powers of ten of anything.
    pub fn decades(title: &str, range: [f64; 2]) -> Self {
        let first = range[0].log10().floor() as i32;
        let last = (range[1].log10().ceil() as i32).max(first + 1);
        let ticks = (first..=last).map(|power| 10_f64.powi(power)).map(|value| (value, plain(value)));
        Self::new(title, [first, last].map(|power| 10_f64.powi(power)), ticks, true)
    }

    /// One place for each name, at 0, 1, 2, ...
    pub fn names<S: Into<String>>(title: &str, names: impl IntoIterator<Item = S>) -> Self {
        let ticks: Vec<_> =
            names.into_iter().enumerate().map(|(at, name)| (at as f64, name.into())).collect();
        let range = [-0.5, ticks.len() as f64 - 0.5];
        Self { grid: false, ..Self::new(title, range, ticks.into_iter(), false) }
    }

    /// The other way round.
    #[must_use]
    pub fn reversed(self) -> Self {
        let [from, to] = self.range;
        Self { range: [to, from], ..self }
    }

    /// How far along the axis `value` is: 0 at its beginning, 1 at its end, and no farther.
    pub(super) fn part(&self, value: f64) -> f64 {
        let scale =
            |value: f64| if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log2() } else { value };
        let [from, to] = self.range.map(scale);
        ((scale(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// At most so many powers of two in a range.
fn powers([from, to]: [u64; 2], most: usize) -> impl Iterator<Item = u64> {
    let inside = (0..63).map(|power| 1 << power).filter(move |power| (from..=to).contains(power));
    let step = inside.clone().count().div_ceil(most).max(1);
    inside.step_by(step)
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
        assert_eq!(texts(&Axis::from_zero("ms", 0.47)), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        let axis = Axis::bytes("limit", [Bytes::mib(1), Bytes::mib(64)]);
        assert_eq!(texts(&axis), ["1 MiB", "2 MiB", "4 MiB", "8 MiB", "16 MiB", "32 MiB", "64 MiB"]);
        assert_eq!((axis.part(0.0), axis.part(f64::from(8 << 20)), axis.part(1e99)), (0.0, 0.5, 1.0));
        let axis = Axis::bytes_from_zero("memory", Bytes::mib(2500));
        assert_eq!(
            (axis.title.as_str(), texts(&axis).join(" ")),
            ("memory (GiB)", "0 0.5 1 1.5 2 2.5".to_owned())
        );
        assert_eq!(axis.part(f64::from(5u32 << 28)), 0.5);
    }
}
