//! Timing calls on the CPU.

use super::{ProfileOptions, Trial, bench::Bench};
use crate::conv::{Convolver, Result};
use planner::Bytes;
use std::time::{Duration, Instant};

/// Calls of this length are timed twice at most: what disturbs a measurement is short beside them.
const LONG: Duration = Duration::from_millis(25);

/// Most timed calls of one measurement, however short they are.
const MOST_REPEATS: usize = 25;

/// Skip algorithms that take this many times as long as one that needs no more workspace, judged by the cold warm-up
/// call and by the first call after it.
const HOPELESS_WARM_UP: f64 = 2.0;
const HOPELESS: f64 = 1.3;

/// Times one trial after the other, the smallest workspace first: whatever comes later has to be faster to be of use.
/// Each prepares the filter for itself; that part of its time is what it would share with other micro-batches.
pub(super) fn time(mut trials: Vec<&mut Trial>, bench: &mut Bench, options: &ProfileOptions) -> Result<()> {
    trials.sort_by_key(|trial| trial.convolver.facts().workspace);
    let mut best = Duration::MAX;
    for trial in trials {
        let time = median_call(options, || call(bench, &*trial.convolver), best)?;
        best = best.min(time.call);
        trial.time_ms = Some(time.call.as_secs_f64() * 1e3);
        trial.shared_ms = time.preparing.as_secs_f64() * 1e3;
    }
    Ok(())
}

/// How long one call took, and the beginning of it: preparing the filter, which further micro-batches of a kernel find
/// done.
///
/// They save a little more than that, for preparing drives other things out of the caches. But the difference between
/// long calls with and without it is lost in noise, and what seems to be saved counts once for every micro-batch: too
/// much of it makes plans slow, too little only misses a chance.
#[derive(Clone, Copy, Debug)]
struct CallTime {
    call: Duration,
    preparing: Duration,
}

impl CallTime {
    /// Whether further micro-batches take more than `limit` times as long as `best`.
    fn is_hopeless(&self, limit: f64, best: Duration) -> bool {
        (self.call - self.preparing).as_secs_f64() > limit * best.as_secs_f64()
    }
}

/// The median times of a call, after a warm-up; those of a single one if it is hopelessly above `best`.
fn median_call(
    options: &ProfileOptions,
    mut call: impl FnMut() -> Result<CallTime>,
    best: Duration,
) -> Result<CallTime> {
    let warm_up = call()?;
    if warm_up.is_hopeless(HOPELESS_WARM_UP, best) {
        return Ok(warm_up);
    }
    let first = call()?;
    if first.is_hopeless(HOPELESS, best) {
        return Ok(first);
    }
    let repeats = if first.call < LONG { options.repeats } else { options.repeats.min(2) };
    let mut times = Vec::with_capacity(MOST_REPEATS);
    times.push(first);
    let mut total = first.call;
    while times.len() < repeats || (total < options.at_least && times.len() < MOST_REPEATS) {
        times.push(call()?);
        total += times[times.len() - 1].call;
    }
    // No preparing takes longer than its call, so neither does their median.
    Ok(CallTime { call: median(&times, |time| time.call), preparing: median(&times, |time| time.preparing) })
}

fn median(times: &[CallTime], of: impl Fn(&CallTime) -> Duration) -> Duration {
    let mut sorted: Vec<Duration> = times.iter().map(of).collect();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) / 2]
}

fn call(bench: &mut Bench, convolver: &dyn Convolver) -> Result<CallTime> {
    let (operands, out, mut workspace) = bench.next(convolver);
    let start = Instant::now();
    convolver.prepare(operands[1], workspace.reborrow());
    let preparing = if convolver.facts().prepared > Bytes(0) { start.elapsed() } else { Duration::ZERO };
    convolver.run(operands, out, workspace)?;
    Ok(CallTime { call: start.elapsed(), preparing })
}
