//! What a recorded device may take for shapes and mini-batches that were not measured on it.
//!
//! An algorithm's time is taken to be proportional to its multiplications from the nearest recorded shape on, at the
//! number of samples that comes nearest to the same amount of work there: a device that a call does not fill is as
//! badly filled then. Its workspace is taken to be proportional to the operands. How far that holds is told by leaving
//! out each recorded kernel. A convolution in groups is like one with the channels of a group.

use super::profiler::{Profiler, ProfilerError, Request};
use crate::model::{
    Algorithm, BatchSizePolicy, Bytes, ConvShape, Dtype, KernelId, Layout, Math, Measurement,
};
use crate::table::CostTable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A mini-batch this many times larger than what was recorded is not estimated any more.
const FARTHEST: u32 = 16;

/// Groups of fewer channels are not estimated from dense convolutions: reading and writing prevails then.
const FEWEST_CHANNELS: u32 = 16;

/// Workspaces below this are no measure of an estimate: a few indices, whatever the shape.
const LEAST_WORKSPACE: Bytes = Bytes::mib(1);

/// Measurements of one kernel: of each algorithm by rising size.
type Series = BTreeMap<Algorithm, Vec<Measurement>>;

/// Of each algorithm the kernel whose measurements stand in for another's.
type Sources = BTreeMap<Algorithm, KernelId>;

/// Stands in for the device of a recorded table. What was measured it gives as it was; the rest it estimates.
#[derive(Clone, Debug)]
pub struct Estimator {
    known: BTreeMap<KernelId, Series>,
    /// The largest mini-batch of these.
    largest: u32,
    /// The fastest call that was measured in each arithmetic and format: none takes less, however little work it is.
    least_ms: BTreeMap<Form, f64>,
    /// What the kernels that were asked for are estimated from, whatever the samples.
    sources: BTreeMap<KernelId, Sources>,
}

/// Arithmetic and format.
type Form = (Dtype, Math, Layout);

fn form(id: &KernelId) -> Form {
    (id.dtype, id.math, id.layout)
}

/// How far estimates are from what was measured, as factors of at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstimateError {
    /// Half of the estimated times are nearer than this factor.
    pub time_median: f64,
    /// Nine of ten are.
    pub time_nine_of_ten: f64,
    /// Half of the estimated workspaces of a MiB or more are nearer than this factor.
    pub workspace_median: f64,
    /// Nine of ten are.
    pub workspace_nine_of_ten: f64,
}

impl Estimator {
    /// Estimates from `table`.
    pub fn new(table: &CostTable) -> Self {
        let (mut known, mut least_ms) = (BTreeMap::<KernelId, Series>::new(), BTreeMap::new());
        let mut largest = 0;
        for (id, size, rows) in table.iter() {
            largest = size.max(largest);
            let series = known.entry(*id).or_default();
            let least = least_ms.entry(form(id)).or_insert(f64::MAX);
            rows.iter().for_each(|row| series.entry(row.algorithm.clone()).or_default().push(row.clone()));
            *least = rows.iter().fold(*least, |least, row| row.time_ms.min(least));
        }
        Self { known, largest, least_ms, sources: BTreeMap::new() }
    }

    /// Which recorded kernel each algorithm of `kernel` is estimated from: the nearest of those that `may` be used.
    fn sources(&self, kernel: &KernelId, may: impl Fn(&KernelId) -> bool) -> Sources {
        let usable = self.known.iter().filter(|(id, _)| may(id));
        let near = usable.filter_map(|(id, series)| Some((distance(kernel, id)?, id, series)));
        let mut near: Vec<_> = near.collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        // What was not recorded of the kernel itself does not run on its shape, whatever the samples.
        if near.first().is_some_and(|(_, id, _)| *id == kernel) {
            near.truncate(1);
        }
        let mut sources = Sources::new();
        for (farther, (_, id, series)) in near.into_iter().enumerate() {
            for algorithm in series.keys() {
                // Every shape has engines of its own, the best of hundreds: the best of many shapes' would be too good.
                let applies = (farther == 0 || !algorithm.as_str().contains("ENG"))
                    && (!is_of_one_filter(algorithm) || filter(&id.shape) == filter(&kernel.shape));
                if applies && !sources.contains_key(algorithm) {
                    sources.insert(algorithm.clone(), *id);
                }
            }
        }
        sources
    }

    /// Every algorithm of `kernel` on so many samples.
    fn estimate(&self, kernel: &KernelId, samples: u32, sources: &Sources) -> Vec<Measurement> {
        let least_ms = self.least_ms.get(&form(kernel)).copied().unwrap_or_default();
        let rows = sources.iter().filter_map(|(algorithm, id)| {
            let row = scaled(&self.known[id][algorithm], &id.shape, &kernel.shape, samples)?;
            Some(Measurement { time_ms: row.time_ms.max(least_ms), ..row })
        });
        rows.collect()
    }

    /// How far estimates in the arithmetic and format of `like` are off, leaving out each kernel; none without neighbours.
    pub fn error(&self, like: &KernelId) -> Option<EstimateError> {
        let (mut times, mut workspaces) = (Vec::new(), Vec::new());
        for (id, series) in self.known.iter().filter(|(id, _)| form(id) == form(like)) {
            let rows = series.values().flatten();
            let largest = rows.clone().map(|row| row.micro_batch).max().unwrap_or(0);
            let sources = self.sources(id, |other| other != id);
            for size in BatchSizePolicy::PowerOfTwo.sizes(largest) {
                let estimates = self.estimate(id, size, &sources);
                for row in rows.clone().filter(|row| row.micro_batch == size) {
                    let same = |estimate: &&Measurement| estimate.algorithm == row.algorithm;
                    let Some(estimate) = estimates.iter().find(same) else { continue };
                    times.push(factor(estimate.time_ms, row.time_ms));
                    if row.workspace >= LEAST_WORKSPACE {
                        workspaces.push(factor(estimate.workspace.0 as f64, row.workspace.0 as f64));
                    }
                }
            }
        }
        let [time_median, time_nine_of_ten] = quantiles(times)?;
        let [workspace_median, workspace_nine_of_ten] = quantiles(workspaces).unwrap_or([1.0; 2]);
        Some(EstimateError { time_median, time_nine_of_ten, workspace_median, workspace_nine_of_ten })
    }
}

impl Profiler for Estimator {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let (Request { kernel, micro_batch, .. }, largest) = (request, self.largest);
        if largest > 0 && *micro_batch > largest.saturating_mul(FARTHEST) {
            return Err(format!("over {FARTHEST} times the {largest} samples that were recorded").into());
        }
        if !self.sources.contains_key(kernel) {
            self.sources.insert(*kernel, self.sources(kernel, |_| true));
        }
        let mut rows = self.estimate(kernel, *micro_batch, &self.sources[kernel]);
        if rows.is_empty() {
            let KernelId { op, math, shape: ConvShape { groups, .. }, .. } = kernel;
            return Err(format!("nothing recorded resembles it ({op}, {math}, {groups} groups)").into());
        }
        rows.retain(|row| request.asks_for(row.algorithm.as_str()));
        Ok(rows)
    }
}

/// One algorithm of `from`, taken to be as good for `to`.
fn scaled(series: &[Measurement], from: &ConvShape, to: &ConvShape, samples: u32) -> Option<Measurement> {
    let work = f64::from(samples) * multiplications(to);
    let part = |row: &Measurement| work / (f64::from(row.micro_batch) * multiplications(from));
    let nearest = |row: &&Measurement| part(row).ln().abs();
    let above = series.partition_point(|row| part(row) > 1.0);
    let beside = series[above.saturating_sub(1)..].iter().take(2);
    let row = beside.min_by(|a, b| nearest(a).total_cmp(&nearest(b)))?;
    let operands = operands(to, samples) / operands(from, row.micro_batch);
    Some(Measurement {
        micro_batch: samples,
        time_ms: row.time_ms * part(row),
        shared_ms: row.shared_ms * part(row),
        workspace: Bytes((row.workspace.0 as f64 * operands) as u64),
        ..row.clone()
    })
}

/// How unlike a kernel and a recorded one are: none if nothing follows for it. One that reads blocks of pixels says
/// nothing of one that has to make them.
fn distance(a: &KernelId, b: &KernelId) -> Option<f64> {
    let comparable = |id: &KernelId| (id.op, id.dtype, id.math, id.layout, id.shape.dilation);
    let differ_in_groups = a.shape.groups != b.shape.groups;
    let has_few = |ConvShape { c, k, groups, .. }: &ConvShape| c.min(k) / groups.max(&1) < FEWEST_CHANNELS;
    if comparable(a) != comparable(b)
        || a.shape.pack < b.shape.pack
        || differ_in_groups && [a, b].iter().any(|id| has_few(&id.shape))
    {
        return None;
    }
    let sizes = |shape: &ConvShape| {
        let [c, k, r, s, groups] = [shape.c, shape.k, shape.r, shape.s, shape.groups].map(f64::from);
        let [h, w] = shape.output();
        [c / groups, k / groups, h * w, r * s]
    };
    let apart = std::iter::zip(sizes(&a.shape), sizes(&b.shape)).map(|(a, b)| (a / b).ln().abs());
    // Another filter or stride is farther than another number of groups, and that than any number of channels.
    let differs = filter(&a.shape) != filter(&b.shape);
    let penalty = |differs, farther| if differs { farther } else { 0.0 };
    Some(apart.sum::<f64>() + penalty(differs, 200.0) + penalty(differ_in_groups, 100.0))
}

/// What algorithms that transform their operands are made for.
fn filter(shape: &ConvShape) -> (u32, u32, [u32; 2]) {
    (shape.r, shape.s, shape.stride)
}

/// Whether an algorithm's cost on a filter says nothing of others: it transforms tiles or blocks, or runs on some only.
fn is_of_one_filter(algorithm: &Algorithm) -> bool {
    ["FFT", "WINOGRAD", "S2D"].iter().any(|transform| algorithm.as_str().contains(transform))
}

/// Multiplications for one sample.
fn multiplications(shape: &ConvShape) -> f64 {
    let [h, w] = shape.output();
    weights(shape) * h * w
}

fn weights(shape: &ConvShape) -> f64 {
    let ConvShape { c, k, r, s, groups, .. } = *shape;
    [c, k, r, s].map(f64::from).iter().product::<f64>() / f64::from(groups.max(1))
}

/// Elements of all operands.
fn operands(shape: &ConvShape, samples: u32) -> f64 {
    let ConvShape { c, h, w, k, .. } = *shape;
    let [out_h, out_w] = shape.output();
    let sample = [c, h, w].map(f64::from).iter().product::<f64>() + f64::from(k) * out_h * out_w;
    f64::from(samples) * sample + weights(shape)
}

/// By which factor `a` is above or below `b`.
fn factor(a: f64, b: f64) -> f64 {
    (a.max(f64::MIN_POSITIVE) / b).ln().abs().exp()
}

/// The median, and what nine of ten do not exceed.
fn quantiles(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get((values.len() as f64 * part) as usize).copied();
    Some([at(0.5)?, at(0.9)?])
}
