//! AccUDNN as published (J. Guo et al., "AccUDNN: A GPU Memory Efficient Accelerator for Training Ultra-deep Neural
//! Networks", 2019): all feature maps are swapped in three streams but those that would be late, and of the
//! mini-batches that fit so the largest is chosen. A baseline.
//!
//! The faults of the printed algorithm 1 (memory in use that never falls, a ready time that may lie before the one
//! before, a need compared with all bytes and not with those that lack) are mended by simulating the events.

use super::plan::{BelowFloor, Fitting, MemoryPlan};
use super::{MemoryPolicy, costs::Costs, problem::Problem, trial::Choice};
use crate::layout::ArenaLayout;
use crate::outline::Outline;
use planner::{ARENA_ALIGNMENT, Bytes, Cost, Curve};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

impl Problem<'_> {
    /// The plan that swaps everything but what computation would have to wait for, which is pinned on the device as far as
    /// there is room within `budget` bytes, with its choice, carried out for as much memory as its buffers can then be
    /// placed in.
    pub(super) fn swapped(&self, budget: Bytes) -> Result<(Choice, u64, MemoryPlan), BelowFloor> {
        let mut capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
        loop {
            let choice = self.pin(capacity);
            let actions = self.carry_out(&choice, capacity, true).actions(self);
            let lacks = match Fitting::new(self.outline, self.costs, actions).within(budget) {
                Ok(plan) => return Ok((choice, capacity, plan)),
                // Nothing is pinned any more, and copies are waited for at once.
                Err(below) if capacity == 0 => return Err(below),
                Err(below) => below.floor.0 - budget.0,
            };
            capacity = capacity.saturating_sub(lacks.max(capacity / 64).next_multiple_of(ARENA_ALIGNMENT));
            capacity = if capacity < budget.0 / 2 { 0 } else { capacity };
        }
    }

    /// The choice to offload everything but what is waited for, in the order in which that happens, as far as it fits.
    pub(super) fn pin(&self, capacity: u64) -> Choice {
        let mut choice = self.all(true, false);
        loop {
            let trial = self.carry_out(&choice, capacity, true);
            let before = choice.clone();
            for tensor in trial.waited {
                choice.offloaded[tensor] = false;
                if self.carry_out(&choice, capacity, true).peak > capacity {
                    choice.offloaded[tensor] = true;
                }
            }
            if choice == before {
                return choice;
            }
        }
    }
}

/// What a layer computes at the mini-batch of its outline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerWork {
    /// Its type: layers of a type have one speed.
    pub kind: String,
    /// Floating-point operations of its forward and its backward pass.
    pub flops: [f64; 2],
}

/// Times of all layers at one mini-batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedSize {
    /// The mini-batch, in parts of the outline's.
    pub part: f64,
    /// Of every layer the forward and the backward pass, in milliseconds.
    pub ms: Vec<[f64; 2]>,
}

/// The performance model: for each type of layer and pass the speed as a function of the work, which rises with it and
/// is flat in the end, `peak * work / (work + half)`. The time is then a line, `(work + half) / peak`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    /// By type, for forward and backward: the line's start and slope.
    lines: BTreeMap<String, [[f64; 2]; 2]>,
}

impl Speeds {
    /// The speeds that fit samples best, in relative error.
    pub fn fit(layers: &[LayerWork], samples: &[TimedSize]) -> Self {
        let line = |kind: &String, pass: usize| {
            let points = samples.iter().flat_map(|sample| {
                let layers = layers.iter().zip(&sample.ms).filter(|(layer, _)| layer.kind == *kind);
                layers.map(|(layer, ms)| [layer.flops[pass] * sample.part, ms[pass]])
            });
            fit_line(points.filter(|point| point[1] > 0.0))
        };
        let kinds: BTreeSet<&String> = layers.iter().map(|layer| &layer.kind).collect();
        let lines = kinds.into_iter().map(|kind| (kind.clone(), [line(kind, 0), line(kind, 1)]));
        Self { lines: lines.collect() }
    }

    /// The time of a pass (0 forward, 1 backward) of a layer whose work is `part` of what it says, in milliseconds.
    pub fn ms(&self, layer: &LayerWork, pass: usize, part: f64) -> f64 {
        let [start, slope] = self.lines.get(&layer.kind).map_or([0.0, 0.0], |both| both[pass]);
        start + slope * layer.flops[pass] * part
    }

    /// The costs at a mini-batch that is `part` of that of `base`: each pass takes so many times longer as the model
    /// says, with the workspaces that it has there, as a kernel can always go on in micro-batches of the same size.
    pub fn costs(&self, layers: &[LayerWork], part: f64, base: &Costs) -> Costs {
        let mut costs = base.clone();
        for (layer, passes) in layers.iter().zip(&mut costs.nodes) {
            for (pass, costs) in passes.iter_mut().enumerate() {
                let before_ms = self.ms(layer, pass, 1.0);
                let times = if before_ms > 0.0 { self.ms(layer, pass, part) / before_ms } else { 1.0 };
                costs.fixed_ms *= times;
                let slower = |point: &Cost| Cost { time_ms: point.time_ms * times, ..*point };
                costs.front = Curve::new(costs.front.points().iter().map(slower));
            }
        }
        costs
    }

    /// How far the model is from the times of `samples`, relative to these: the median, and the most.
    pub fn errors(&self, layers: &[LayerWork], samples: &[TimedSize]) -> [f64; 2] {
        let of_sample = |sample: &TimedSize| {
            let passes = layers.iter().zip(&sample.ms).flat_map(|(layer, ms)| {
                [0, 1].map(|pass| (self.ms(layer, pass, sample.part) / ms[pass] - 1.0).abs())
            });
            passes.filter(|error| error.is_finite()).collect::<Vec<_>>()
        };
        let mut errors: Vec<f64> = samples.iter().flat_map(of_sample).collect();
        errors.sort_unstable_by(f64::total_cmp);
        [errors.get(errors.len() / 2), errors.last()].map(|error| error.copied().unwrap_or(0.0))
    }
}

/// The line through points (x, y) with the least squares of relative errors, with neither start nor slope below zero.
fn fit_line(points: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    // With weights 1 / y²: sums of 1, x, x², y and x y.
    let mut sums = [0.0; 5];
    for [x, y] in points {
        sums.iter_mut().zip([1.0, x, x * x, y, x * y]).for_each(|(sum, term)| *sum += term / (y * y));
    }
    let [one, x, xx, y, xy] = sums;
    let (determinant, mean) = (one * xx - x * x, if one > 0.0 { y / one } else { 0.0 });
    if determinant > 1e-9 * one * xx {
        let (start, slope) = ((y * xx - x * xy) / determinant, (one * xy - x * y) / determinant);
        if start >= 0.0 && slope >= 0.0 {
            return [start, slope];
        }
        if slope < 0.0 {
            return [mean, 0.0];
        }
    }
    if xx > 0.0 { [0.0, xy / xx] } else { [mean, 0.0] }
}

/// The largest mini-batch that trains without a stall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Samples.
    pub mini_batch: u32,
    /// The iteration at that mini-batch.
    pub plan: MemoryPlan,
    /// Samples per second, if times are as the model says.
    pub samples_per_s: f64,
}

/// Algorithm 2: the largest mini-batch within `budget` bytes, of all that a run takes, at which swapping stalls nothing.
/// `outline` and `layers` are those of mini-batch `base`, as are `costs`. `None` if not even one sample trains so.
pub fn tune(
    (outline, base): (&Outline, u32),
    (layers, speeds): (&[LayerWork], &Speeds),
    costs: &Costs,
    budget: Bytes,
) -> Option<Tuned> {
    let tuned = |mini_batch: u32| {
        let costs = speeds.costs(layers, f64::from(mini_batch) / f64::from(base), costs);
        let outline = outline.scaled(mini_batch, base);
        let beside = ArenaLayout::base(std::slice::from_ref(&outline));
        let plan = MemoryPolicy::Accudnn.plan(&outline, &costs, budget.saturating_sub(beside), 0).ok()?;
        let stalls = plan.timeline.stall_ms > 1e-3 * plan.planned_ms();
        let samples_per_s = 1e3 * f64::from(mini_batch) / plan.planned_ms();
        (!stalls).then_some(Tuned { mini_batch, plan, samples_per_s })
    };
    // The paper goes down one by one; what stalls at one mini-batch does so at larger ones.
    let (mut best, mut above) = (tuned(1)?, 2);
    while let Some(larger) = tuned(above).filter(|_| above < 1 << 20) {
        (best, above) = (larger, 2 * above);
    }
    while best.mini_batch + 1 < above {
        let middle = u32::midpoint(best.mini_batch, above);
        match tuned(middle) {
            Some(larger) => best = larger,
            None => above = middle,
        }
    }
    Some(best)
}

/// The learning rate for a mini-batch that is `times` as large as that of rate `base`, where `convexity` says how soon
/// larger steps stop to help: `(1 - (1 - base c)^times) / c`. Near 0 that is `times * base`; its limit is 1/c.
pub fn learning_rate(base: f64, times: f64, convexity: f64) -> f64 {
    if convexity <= 0.0 {
        return times * base;
    }
    // (1 - base c)^times - 1 to the last digits, however small c is.
    -f64::exp_m1(times * f64::ln_1p(-(base * convexity).min(1.0))) / convexity
}

impl Outline {
    /// The outline at another mini-batch than its own, which is `base`: blobs, what is kept, and scratch scale.
    pub fn scaled(&self, mini_batch: u32, base: u32) -> Self {
        let scale = |bytes: Bytes| {
            let scaled = (u128::from(bytes.0) * u128::from(mini_batch)).div_ceil(u128::from(base.max(1)));
            Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
        };
        let mut outline = self.clone();
        let values = outline.values.iter_mut().map(|value| &mut value.bytes);
        let nodes =
            outline.nodes.iter_mut().flat_map(|node| node.scratch.iter_mut().chain([&mut node.saved]));
        values.chain(nodes).chain([&mut outline.staged]).for_each(|bytes| *bytes = scale(*bytes));
        outline
    }
}
