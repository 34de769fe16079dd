//! The `all` batch-size policy without measuring what cannot matter.
//!
//! Of all sizes and algorithms few ever become part of a desirable configuration: an algorithm that is twice as slow as
//! one with less workspace at 32 samples and at 64 will not be the best at 48. So the sizes of `powerOfTwo` are measured
//! whole. In between every time is *judged* by the measured times of the same algorithm around it, and what is measured
//! is what would make some configuration of the mini-batch faster, under whatever limit, if it took a little less
//! than judged: first some of it, which tells about the sizes around. Measurements change judgements, so this is
//! repeated until nothing is left to measure. Workspaces are not judged but asked for, which costs next to nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::cost_table::CostTable;
use crate::dp::{Sweep, faster};
use crate::error::ProfileError;
use crate::estimate::{Series, hull_ms, largest};
use crate::kernel::{Kernel, KernelId};
use crate::measuring::{Measuring, Progress, Wanted};
use crate::micro::{Algorithm, Measurement};
use crate::plan::PlanOptions;
use crate::policy::BatchSizePolicy;
use crate::profiler::{Candidate, Profiler};

/// By how much a call may be faster than judged, as a part of its time: what is left unmeasured would not matter if it
/// were. With it plans from recorded tables of an H200 are at most 0.2 % slower than those of the whole tables.
const DOUBT: f64 = 0.03;

/// Between measured sizes that are near each other doubt is less: this part of their distance over the size.
const DOUBT_OF_DISTANCE: f64 = 0.25;

/// Into so many parts a gap between measured sizes is divided at once.
const PARTS: u32 = 8;

/// What can run of one kernel at every size, by algorithm and then by size.
type Candidates = BTreeMap<Algorithm, BTreeMap<u32, Candidate>>;

impl CostTable {
    /// Measures what a plan of `kernels` under `all` with the restrictions of `options` may use, whatever the limit.
    pub(crate) fn profile_relevant(
        &mut self,
        kernels: &[Kernel],
        options: &PlanOptions,
        profiler: &mut dyn Profiler,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), ProfileError> {
        let missing = self.missing(kernels, BatchSizePolicy::All);
        let unknown: BTreeSet<KernelId> = missing.iter().map(|(kernel, _)| kernel.id).collect();
        let mut measuring = Measuring::new(self, profiler, progress, 0);
        let all: Vec<Wanted<'_>> =
            missing.into_iter().map(|(kernel, size)| Wanted::all(kernel, size)).collect();
        match measuring.candidates(&all)? {
            None => {
                measuring.expect(all.len());
                measuring.measure(&all)?;
            }
            Some(candidates) => {
                let mut search = Search::new(kernels, &unknown, options);
                search.learn(&all, candidates);
                search.run(&mut measuring)?;
            }
        }
        measuring.finish();
        Ok(())
    }
}

/// The kernels that have sizes of which not everything is measured.
struct Search<'k> {
    options: &'k PlanOptions,
    kernels: Vec<&'k Kernel>,
    candidates: BTreeMap<KernelId, Candidates>,
    /// What was asked for: not all that is a candidate runs in the end.
    asked: BTreeSet<(KernelId, u32, Algorithm)>,
}

impl<'k> Search<'k> {
    fn new(kernels: &'k [Kernel], unknown: &BTreeSet<KernelId>, options: &'k PlanOptions) -> Search<'k> {
        let kernels = largest(kernels).into_values().filter(|kernel| unknown.contains(&kernel.id)).collect();
        Search { options, kernels, candidates: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Takes over what can run for each of `wanted`.
    fn learn(&mut self, wanted: &[Wanted<'_>], candidates: Vec<Vec<Candidate>>) {
        for (Wanted { request, .. }, of_size) in std::iter::zip(wanted, candidates) {
            let of_kernel = self.candidates.entry(request.kernel).or_default();
            for candidate in of_size {
                let sizes = of_kernel.entry(candidate.algorithm.clone()).or_default();
                sizes.insert(request.micro_batch, candidate);
            }
        }
    }

    /// Measures until everything that is left does not matter.
    fn run(&mut self, measuring: &mut Measuring<'_>) -> Result<(), ProfileError> {
        let mut wanted = self.start(measuring.table());
        while !wanted.is_empty() {
            measuring.expect(wanted.len());
            measuring.measure(&wanted)?;
            let changed: BTreeSet<KernelId> = wanted.iter().map(|wanted| wanted.request.kernel).collect();
            let changed = self.kernels.clone().into_iter().filter(|kernel| changed.contains(&kernel.id));
            wanted = changed.flat_map(|kernel| self.wanted(measuring.table(), kernel)).collect();
        }
        // A plan under `all` looks at every size.
        for kernel in &self.kernels {
            for size in BatchSizePolicy::All.sizes(kernel.mini_batch) {
                let nothing = measuring.table_mut().insert_some(kernel.id, size, Vec::new());
                nothing.expect("nothing is valid");
            }
        }
        Ok(())
    }

    /// What judgement needs to begin with: the sizes of `powerOfTwo` whole, and of every algorithm the first and the last
    /// size that it runs at. If those are known, what they say.
    fn start(&mut self, table: &CostTable) -> Vec<Wanted<'k>> {
        let mut start = Vec::new();
        for kernel in self.kernels.clone() {
            let missing = table.missing(std::slice::from_ref(kernel), BatchSizePolicy::PowerOfTwo);
            let whole: BTreeSet<u32> = missing.iter().map(|&(_, size)| size).collect();
            let mut of_kernel: Vec<Wanted<'_>> =
                missing.into_iter().map(|(_, size)| Wanted::all(kernel, size)).collect();
            let mut ends: BTreeSet<(u32, Algorithm)> = BTreeSet::new();
            for (algorithm, sizes) in self.candidates.get(&kernel.id).into_iter().flatten() {
                let is_known = |size: u32| {
                    is_measured(table, kernel, size, algorithm)
                        || (whole.contains(&size) && sizes.contains_key(&size))
                };
                let known: Vec<u32> = (1..=kernel.mini_batch).filter(|&size| is_known(size)).collect();
                let outside =
                    |size: &u32| known.first().is_none_or(|first| size < first) || known.last() < Some(size);
                let of_algorithm = [sizes.keys().next(), sizes.keys().next_back()];
                let of_algorithm = of_algorithm.into_iter().flatten().copied().filter(outside);
                ends.extend(of_algorithm.map(|size| (size, algorithm.clone())));
            }
            of_kernel.extend(self.ask(kernel, ends));
            match of_kernel.is_empty() {
                true => start.extend(self.wanted(table, kernel)),
                false => start.extend(of_kernel),
            }
        }
        start
    }

    /// What to measure of `kernel` next.
    fn wanted(&mut self, table: &CostTable, kernel: &'k Kernel) -> Vec<Wanted<'k>> {
        let judgement = self.judge(table, kernel);
        let relevant = judgement.relevant(kernel.mini_batch);
        self.ask(kernel, relevant.into_iter().map(|pair| judgement.stand_in(pair)).collect())
    }

    /// Requests for these sizes and algorithms, the largest size first, and never again.
    fn ask(&mut self, kernel: &'k Kernel, pairs: BTreeSet<(u32, Algorithm)>) -> Vec<Wanted<'k>> {
        let mut by_size: BTreeMap<u32, Vec<Algorithm>> = BTreeMap::new();
        for (size, algorithm) in pairs {
            if self.asked.insert((kernel.id, size, algorithm.clone())) {
                by_size.entry(size).or_default().push(algorithm);
            }
        }
        let by_size = by_size.into_iter().rev();
        by_size.map(|(size, algorithms)| Wanted::some(kernel, size, algorithms)).collect()
    }

    /// The admitted measurements of `kernel`, and judgements of what was not measured.
    fn judge(&self, table: &CostTable, kernel: &Kernel) -> Judgement {
        let measured = table.sizes(&kernel.id).into_iter().flat_map(BTreeMap::values);
        let measured = measured.flat_map(|group| &group.rows).filter(|row| self.options.admits(row));
        let measured: Vec<&Measurement> = measured.collect();
        let mut series: BTreeMap<&Algorithm, Series<'_>> = BTreeMap::new();
        measured.iter().for_each(|row| series.entry(&row.algorithm).or_default().push(row));
        let mut rows: Vec<Measurement> = measured.into_iter().cloned().collect();
        let mut judged = BTreeMap::new();
        for (algorithm, sizes) in self.candidates.get(&kernel.id).into_iter().flatten() {
            let series = series.get(algorithm).map_or(&[][..], Vec::as_slice);
            for (&size, candidate) in sizes {
                let is_known = series.binary_search_by_key(&size, |row| row.micro_batch).is_ok();
                if !is_known && !self.asked.contains(&(kernel.id, size, algorithm.clone())) {
                    let shared_ms = series.first().map_or(0.0, |row| row.shared_ms);
                    let time_ms = judged_ms(series, size).max(shared_ms);
                    let row = Measurement { shared_ms, ..candidate.taking(size, time_ms) };
                    if self.options.admits(&row) {
                        rows.push(row);
                        judged.insert((size, algorithm.clone()), gap(series, size, kernel.mini_batch));
                    }
                }
            }
        }
        Judgement { rows, judged }
    }
}

/// Whether the table has this algorithm there.
fn is_measured(table: &CostTable, kernel: &Kernel, size: u32, algorithm: &Algorithm) -> bool {
    let rows = table.measurements(&kernel.id, size).unwrap_or_default();
    rows.iter().any(|row| row.algorithm == *algorithm)
}

/// What an algorithm likely takes at `size`: by interpolation, or, outside of what was measured, by the time per sample
/// there. Nothing if nothing was measured: then everything has to be.
fn judged_ms(series: &[&Measurement], size: u32) -> f64 {
    let split = series.partition_point(|row| row.micro_batch < size);
    match (split.checked_sub(1).map(|below| series[below]), series.get(split)) {
        (Some(below), Some(above)) => hull_ms(series, below, above, size),
        (Some(near), None) | (None, Some(&near)) => f64::from(size) * near.time_per_sample_ms(),
        (None, None) => 0.0,
    }
}

/// The measured sizes around `size`; zero and the mini-batch where there is none.
fn gap(series: &[&Measurement], size: u32, mini_batch: u32) -> (u32, u32) {
    let split = series.partition_point(|row| row.micro_batch < size);
    let below = split.checked_sub(1).map_or(0, |below| series[below].micro_batch);
    (below, series.get(split).map_or(mini_batch, |row| row.micro_batch))
}

/// All that a kernel may run, at measured or judged times.
struct Judgement {
    rows: Vec<Measurement>,
    /// What is only judged, and the measured sizes around it.
    judged: BTreeMap<(u32, Algorithm), (u32, u32)>,
}

impl Judgement {
    /// What is only judged, and would make a configuration of the mini-batch faster, under some limit, if it were as much
    /// faster as there is doubt.
    fn relevant(&self, mini_batch: u32) -> BTreeSet<(u32, Algorithm)> {
        let mut sweep = Sweep::new(&self.rows, mini_batch);
        let mut relevant = BTreeSet::new();
        let mut open: Vec<usize> = Vec::new();
        while let Some(workspace) = sweep.next_workspace() {
            let seen = sweep.admitted().len();
            let improves = sweep.raise_limit(workspace);
            let admitted = sweep.admitted();
            let key = |index: usize| (admitted[index].micro_batch, admitted[index].algorithm.clone());
            // Where no covering has become faster, what did not matter before still does not.
            let unchanged = if improves { 0 } else { open.len() };
            open.extend((seen..admitted.len()).filter(|&index| self.judged.contains_key(&key(index))));
            let matters = |&index: &usize| {
                let least_ms = (1.0 - self.doubt(&key(index))) * admitted[index].time_ms;
                sweep.time_ms().is_finite() && faster(sweep.time_with_ms(index, least_ms), sweep.time_ms())
            };
            let (found, rest): (Vec<usize>, Vec<usize>) =
                open.split_off(unchanged).into_iter().partition(matters);
            open.extend(rest);
            relevant.extend(found.into_iter().map(key));
        }
        relevant
    }

    /// What to measure for something judged: not all neighbours at once, as some of them tell about the others.
    fn stand_in(&self, (size, algorithm): (u32, Algorithm)) -> (u32, Algorithm) {
        let (below, above) = self.judged[&(size, algorithm.clone())];
        let step = ((above - below) / PARTS).max(1);
        let near = (below + (size - below + step / 2) / step * step, algorithm);
        if self.judged.contains_key(&near) { near } else { (size, near.1) }
    }

    /// By how much a judged call may be faster.
    fn doubt(&self, pair: &(u32, Algorithm)) -> f64 {
        let (below, above) = self.judged[pair];
        DOUBT.min(DOUBT_OF_DISTANCE * f64::from(above - below) / f64::from(pair.0))
    }
}
