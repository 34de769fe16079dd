//! How time depends on workspace.

use crate::model::{Bytes, Configuration, Cost, DesirableSet};
use serde::{Deserialize, Serialize};

/// Planned time as a function of a limit, of workspace or of device memory: a staircase that falls at each of its
/// points and is level between them. At each point `workspace` is the limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve {
    points: Vec<Cost>,
}

impl Curve {
    /// The curve through `points`, which come by rising limit; those that are no faster than an earlier one are left
    /// out, and of equal limits the fastest stays.
    pub fn new(points: impl IntoIterator<Item = Cost>) -> Self {
        let mut curve = Self::default();
        for point in points {
            match curve.points.last_mut() {
                Some(last) if last.time_ms <= point.time_ms => (),
                Some(last) if last.workspace == point.workspace => *last = point,
                _ => curve.points.push(point),
            }
        }
        curve
    }

    /// The time of all that `curves` tell of, each under the same limit: it begins where the last of them does.
    pub fn sum(curves: &[Self]) -> Self {
        let numbered = curves.iter().enumerate();
        let points = numbered.flat_map(|(curve, Self { points })| std::iter::repeat(curve).zip(points));
        let mut points: Vec<(usize, &Cost)> = points.collect();
        points.sort_by_key(|(_, point)| point.workspace);
        // Of each curve, under the limit that is reached.
        let mut times_ms = vec![f64::INFINITY; curves.len()];
        Self::new(points.chunk_by(|a, b| a.1.workspace == b.1.workspace).filter_map(|reached| {
            reached.iter().for_each(|&(curve, point)| times_ms[curve] = point.time_ms);
            let time_ms: f64 = times_ms.iter().sum();
            time_ms.is_finite().then_some(Cost { workspace: reached[0].1.workspace, time_ms })
        }))
    }

    /// Where time falls, by rising limit and strictly falling time.
    pub fn points(&self) -> &[Cost] {
        &self.points
    }

    /// The point that holds under `limit`, `None` below the smallest one.
    #[inline]
    pub fn within(&self, limit: Bytes) -> Option<&Cost> {
        self.split(limit).0.last()
    }

    /// Time under `limit`, `None` below the smallest one.
    pub fn time_ms(&self, limit: Bytes) -> Option<f64> {
        self.within(limit).map(|point| point.time_ms)
    }

    /// The price of a MiB at `limit`: the most milliseconds that each MiB more could save, if the right number of them
    /// were added. Zero where nothing is to be saved, infinite below the smallest limit.
    pub fn price_ms_per_mib(&self, limit: Bytes) -> f64 {
        let (within, beyond) = self.split(limit);
        let Some(here) = within.last() else { return f64::INFINITY };
        // Where less than a MiB is lacking, one saves no more.
        let mib = |point: &Cost| point.workspace.saturating_sub(limit).as_mib().max(1.0);
        let rate = |point: &Cost| (here.time_ms - point.time_ms) / mib(point);
        beyond.iter().map(rate).fold(0.0, f64::max)
    }

    /// Milliseconds per MiB along the straight line that joins the points around `limit`: what each MiB more saves if
    /// fractions of a step count. As [`price_ms_per_mib`](Curve::price_ms_per_mib) at the ends.
    pub(crate) fn slope_ms_per_mib(&self, limit: Bytes) -> f64 {
        match self.split(limit) {
            ([], _) => f64::INFINITY,
            (_, []) => 0.0,
            ([.., from], [to, ..]) => {
                (from.time_ms - to.time_ms) / to.workspace.saturating_sub(from.workspace).as_mib()
            }
        }
    }

    /// The points up to `limit` and those beyond.
    #[inline]
    fn split(&self, limit: Bytes) -> (&[Cost], &[Cost]) {
        self.points.split_at(self.points.partition_point(|point| point.workspace <= limit))
    }
}

impl DesirableSet {
    /// The kernel's time as a function of its workspace limit.
    pub fn curve(&self) -> Curve {
        Curve::new(self.iter().map(Configuration::cost))
    }
}
