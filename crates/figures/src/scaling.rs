//! What several GPUs bring that train one net together.

use crate::draw::{Axis, Drawn, Figure, Form, Panel, Tone};
use crate::number::{ms, percent};
use crate::table::Table;
use serde::Serialize;
use std::fmt;

/// Predictions for up to so many GPUs, each with a mini-batch of its own.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingReport {
    /// Microseconds from one GPU to the next, and GB/s between them.
    pub link: [f64; 2],
    /// One GPU, and twice as many again and again.
    pub points: Vec<ScalingPoint>,
}

/// A number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScalingPoint {
    /// How many.
    pub gpus: usize,
    /// An iteration, in milliseconds.
    pub step_ms: f64,
    /// Samples of all of them a second.
    pub images_per_s: f64,
    /// That as a part of what so many would do alone.
    pub efficiency: f64,
    /// What adding up all gradients takes, in milliseconds.
    pub sums_ms: f64,
    /// The part of it that is done before the backward pass has ended.
    pub hidden: f64,
}

impl ScalingReport {
    /// `passes` has the milliseconds of each layer's backward pass in their order, and the bytes of gradients that
    /// are added up after it, if any; `rest_ms` is the rest of an iteration of `samples`. A ring of n GPUs adds up in
    /// 2 (n - 1) steps, in each of which every GPU passes on the n-th part of these.
    pub fn new(link: [f64; 2], gpus: usize, passes: &[(f64, f64)], (rest_ms, samples): (f64, usize)) -> Self {
        let alone = step(0.0, 0.0, passes)[0] + rest_ms;
        let point = |gpus: usize| {
            let (steps, [latency_us, gb_per_s]) = (2.0 * (gpus - 1) as f64, link);
            let ms_per_byte = steps / gpus as f64 / gb_per_s / 1e6;
            let [end_ms, sums_ms, exposed_ms] = step(steps * latency_us / 1e3, ms_per_byte, passes);
            let step_ms = end_ms + rest_ms;
            ScalingPoint {
                gpus,
                step_ms,
                images_per_s: (gpus * samples) as f64 / step_ms * 1e3,
                efficiency: alone / step_ms,
                sums_ms,
                hidden: if sums_ms > 0.0 { (1.0 - exposed_ms / sums_ms).max(0.0) } else { 1.0 },
            }
        };
        let sizes = std::iter::successors(Some(1), |&size| (size < gpus).then_some((2 * size).min(gpus)));
        Self { link, points: sizes.map(point).collect() }
    }
}

/// When backward pass and sums have ended, what the sums take, and what of that comes after the backward pass, in
/// milliseconds; each sum takes `latency_ms` and a time for each byte.
fn step(latency_ms: f64, ms_per_byte: f64, backward: &[(f64, f64)]) -> [f64; 3] {
    let (mut now, mut free, mut sums_ms) = (0.0, 0.0f64, 0.0);
    for (pass_ms, bytes) in backward {
        now += pass_ms;
        if *bytes > 0.0 {
            let sum_ms = latency_ms + bytes * ms_per_byte;
            (free, sums_ms) = (free.max(now) + sum_ms, sums_ms + sum_ms);
        }
    }
    [free.max(now), sums_ms, (free - now).max(0.0)]
}

impl fmt::Display for ScalingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [latency_us, gb_per_s] = self.link;
        writeln!(f, "PREDICTION for several GPUs, a ring of links of {latency_us} µs and {gb_per_s} GB/s")?;
        let mut table = Table::new([">GPUs", ">ms", ">images/s", ">efficiency", ">sums ms", ">hidden"]);
        for point in &self.points {
            let [efficiency, hidden] = [point.efficiency, point.hidden].map(percent);
            let (gpus, speed) = (point.gpus.to_string(), format!("{:.0}", point.images_per_s));
            table.row([gpus, ms(point.step_ms), speed, efficiency, ms(point.sums_ms), hidden]);
        }
        write!(f, "{table}")
    }
}

/// Images a second, and what remains of each GPU, over the number of GPUs, each of which trains `subject`.
pub fn scaling_figure(scaling: &ScalingReport, subject: &str, source: &str) -> Figure {
    let alone = scaling.points.first().map_or(1.0, |one| one.images_per_s);
    let least = scaling.points.iter().map(|point| point.images_per_s).fold(alone, f64::min);
    let most = scaling.points.last().map_or(1, |last| last.gpus);
    let sizes = |title| Axis::counts(title, u32::try_from(most).unwrap_or(u32::MAX));
    let line = |name: &str, tone, value: &dyn Fn(&ScalingPoint) -> f64| {
        let points = scaling.points.iter().map(|point| [point.gpus as f64, value(point)]);
        Drawn::new(Form::Line, points, tone).named(name)
    };
    let speeds = vec![
        line("without sums", Tone::Grey, &|point| point.gpus as f64 * alone),
        line("predicted", Tone::Blue, &|point| point.images_per_s),
    ];
    let parts = vec![
        line("sums hidden", Tone::Green, &|point| 100.0 * point.hidden),
        line("efficiency", Tone::Blue, &|point| 100.0 * point.efficiency),
    ];
    let [latency_us, gb_per_s] = scaling.link;
    let ring = format!("a ring of links of {latency_us} µs and {gb_per_s} GB/s");
    let title = format!("{subject} on each of up to {most} GPUs, {ring}");
    let images = |most| Axis::decades("images / s", [least, most]);
    let panels = vec![
        Panel::new(sizes(""), images, speeds, 190.0),
        Panel::new(sizes("GPUs"), |_| Axis::from_zero("%", 100.0), parts, 130.0),
    ];
    Figure::new(title, source.to_owned(), panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_early_is_hidden_and_the_last_bucket_is_not() {
        let mb = (1 << 20) as f64;
        // 30 MiB after 10 ms, another 30 MiB at the end of 20 ms; 5 ms beside that.
        let backward = [(10.0, 30.0 * mb), (10.0, 30.0 * mb)];
        let report = ScalingReport::new([500.0, 30.0 * mb / 1e6], 3, &backward, (5.0, 8));
        let [one, two, three] = report.points[..] else { panic!("{report:?}") };
        assert_eq!((one.gpus, one.step_ms, one.images_per_s, one.sums_ms), (1, 25.0, 320.0, 0.0));
        // Two steps of half a millisecond and half of a bucket, which takes a millisecond as a whole: twice, one of
        // them late.
        assert_eq!((two.gpus, two.sums_ms, two.step_ms, two.hidden), (2, 4.0, 27.0, 0.5));
        assert!(
            (two.efficiency - 25.0 / 27.0).abs() < 1e-12 && (two.images_per_s - 16.0 / 27e-3).abs() < 1e-6
        );
        assert!((three.sums_ms - 2.0 * (2.0 + 4.0 / 3.0)).abs() < 1e-9, "{three:?}");
        // Sums that take longer than the backward pass wait for each other.
        let slow = ScalingReport::new([0.0, 1.0], 2, &backward, (0.0, 8)).points[1];
        assert!((slow.step_ms - (10.0 + slow.sums_ms)).abs() < 1e-9 && slow.hidden < 0.2, "{slow:?}");
        // Two that are slower than one are drawn so.
        let slower = ScalingReport::new([0.0, 1e-3], 2, &backward, (0.0, 8));
        let drawn = &scaling_figure(&slower, "", "").panels[0].y;
        assert!(
            drawn.range[0] <= slower.points[1].images_per_s,
            "{:?} from {:?}",
            slower.points,
            drawn.range
        );
    }
}
