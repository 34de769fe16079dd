//! Repeating what a plan rests on.

use crate::synthetic::*;
use planner::*;

/// A device whose calls are now and then slowed down by others.
struct Busy {
    table: Recorded,
    random: Random,
    /// One of so many measurements is disturbed; none if it is zero.
    every: u64,
    calls: usize,
    requests: Vec<Request>,
}

impl Profiler for Busy {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        self.calls += 1;
        self.requests.push(request.clone());
        let mut rows = self.table.measure(request)?;
        for row in &mut rows {
            if self.every > 0 && self.random.below(self.every) == 0 {
                row.time_ms *= 1.0 + self.random.unit();
            }
        }
        Ok(rows)
    }
}

fn net() -> (Vec<Kernel>, CostTable) {
    let kernels: Vec<Kernel> = (1..=6).map(|k| kernel(k, 64)).collect();
    let algorithms = |k: u32| {
        let mut algorithms = fft_and_gemm();
        algorithms[0].sample_ms += 0.005 * f64::from(k);
        algorithms
    };
    let of_kernels: Vec<_> =
        kernels.iter().zip(1..).map(|(kernel, k)| (kernel.clone(), algorithms(k))).collect();
    let table = table(&of_kernels, BatchSizePolicy::PowerOfTwo);
    (kernels, table)
}

fn profiled(every: u64, seed: u64) -> (CostTable, Noise, usize, usize) {
    let (kernels, truth) = net();
    let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wr, Bytes::mib(20));
    let mut busy =
        Busy { table: Recorded(truth), random: Random(seed), every, calls: 0, requests: Vec::new() };
    let mut table = CostTable::default();
    profile(&mut table, &kernels, &options, &mut busy, |_| ()).unwrap();
    let first = busy.calls;
    let noise = repeat(&mut table, &kernels, &options, &mut busy, |_, _| true, |_| ()).unwrap();
    (table, noise, first, busy.calls - first)
}

#[test]
fn a_quiet_device_shows_no_noise_and_little_is_repeated() {
    let (table, noise, first, again) = profiled(0, 1);
    assert_eq!((noise.median, noise.largest), (0.0, 0.0));
    assert!(noise.repeated == again && (1..=first / 8).contains(&again), "{again} of {first}");
    assert_eq!(table, net().1);
}

/// What a plan really takes: its micro-batches at the times of `truth`.
fn true_ms(plan: &Plan, truth: &CostTable) -> f64 {
    let of_run = |id: &KernelId, run: &Run| {
        let rows = truth.measurements(id, run.micro.micro_batch).unwrap();
        let row = rows.iter().find(|row| row.algorithm == run.micro.algorithm).unwrap();
        f64::from(run.count) * row.time_ms
    };
    let kernels = plan.kernels.iter().map(|planned| (&planned.kernel.id, &planned.configuration));
    kernels.flat_map(|(id, chosen)| chosen.runs().iter().map(move |run| of_run(id, run))).sum()
}

#[test]
fn a_busy_device_is_noticed_and_its_plans_come_nearer_to_the_truth() {
    let (kernels, truth) = net();
    let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wr, Bytes::mib(20));
    let (mut before_ms, mut after_ms, mut noisy) = (0.0, 0.0, 0);
    for seed in 0..40 {
        let mut busy = Busy {
            table: Recorded(truth.clone()),
            random: Random(seed),
            every: 3,
            calls: 0,
            requests: Vec::new(),
        };
        let mut table = CostTable::default();
        profile(&mut table, &kernels, &options, &mut busy, |_| ()).unwrap();
        before_ms += true_ms(&plan(&kernels, &table, &options).unwrap(), &truth);
        let noise = repeat(&mut table, &kernels, &options, &mut busy, |_, _| true, |_| ()).unwrap();
        after_ms += true_ms(&plan(&kernels, &table, &options).unwrap(), &truth);
        noisy += usize::from(noise.largest > 0.03);
    }
    assert!(noisy > 30 && after_ms <= before_ms, "{noisy} noisy, {before_ms} and then {after_ms} ms");
}

#[test]
fn two_runs_in_a_row_give_plans_that_are_worth_the_same() {
    // 4x16 FFT is the best by a fifth: a disturbed measurement of 16 costs as much.
    let affine = |name, call_ms, sample_ms, sample_bytes| Affine {
        name,
        call_ms,
        sample_ms,
        call_bytes: 0,
        sample_bytes,
    };
    let algorithms = vec![affine("FFT", 0.2, 0.05, 1 << 20), affine("GEMM", 0.05, 0.15, 0)];
    let kernels: Vec<Kernel> = (1..=6).map(|k| kernel(k, 64)).collect();
    let of_kernels: Vec<_> = kernels.iter().map(|kernel| (kernel.clone(), algorithms.clone())).collect();
    let truth = table(&of_kernels, BatchSizePolicy::PowerOfTwo);
    let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wr, Bytes::mib(20));
    // One of twenty measurements is up to twice too long: a machine with something else to do now and then.
    let planned = |seed| {
        let mut busy = Busy {
            table: Recorded(truth.clone()),
            random: Random(seed),
            every: 20,
            calls: 0,
            requests: Vec::new(),
        };
        let mut table = CostTable::default();
        profile(&mut table, &kernels, &options, &mut busy, |_| ()).unwrap();
        repeat(&mut table, &kernels, &options, &mut busy, |_, _| true, |_| ()).unwrap();
        true_ms(&plan(&kernels, &table, &options).unwrap(), &truth)
    };
    let mut apart: Vec<f64> = (0..100).map(|run| planned(2 * run) / planned(2 * run + 1)).collect();
    apart.iter_mut().for_each(|ratio| *ratio = ratio.max(1.0 / *ratio));
    apart.sort_by(f64::total_cmp);
    assert!(apart[94] < 1.03, "{} in the worst case but five", apart[94]);
}

#[test]
fn what_may_not_be_repeated_is_not_and_without_a_plan_nothing_is() {
    let (kernels, truth) = net();
    let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wr, Bytes::mib(20));
    let mut busy =
        Busy { table: Recorded(truth.clone()), random: Random(1), every: 2, calls: 0, requests: Vec::new() };
    let mut table = truth.clone();
    let noise = repeat(&mut table, &kernels, &options, &mut busy, |_, _| false, |_| ()).unwrap();
    assert_eq!((noise, busy.calls), (Noise::default(), 0));
    let empty =
        repeat(&mut CostTable::default(), &kernels, &options, &mut busy, |_, _| true, |_| ()).unwrap();
    assert_eq!((empty, busy.calls), (Noise::default(), 0));
    let once = |id: &KernelId, size: u32| *id == kernels[0].id && size == 16;
    repeat(&mut table, &kernels, &options, &mut busy, once, |_| ()).unwrap();
    assert!(busy.calls <= 1);
    assert_eq!(table, truth, "what disturbs makes slower, and the faster stays");
}

#[test]
fn what_is_repeated_comes_kernel_by_kernel_the_largest_first_as_parts_of_the_mini_batch() {
    let kernels: Vec<Kernel> = (1..=6).map(|k| kernel(k, 64)).collect();
    let of_kernels: Vec<_> = kernels.iter().map(|kernel| (kernel.clone(), fft_and_gemm())).collect();
    let truth = table(&of_kernels, BatchSizePolicy::All);
    let options = options(BatchSizePolicy::All, WorkspacePolicy::Wr, Bytes::mib(20));
    let mut busy =
        Busy { table: Recorded(truth), random: Random(5), every: 2, calls: 0, requests: Vec::new() };
    let mut table = CostTable::default();
    profile(&mut table, &kernels, &options, &mut busy, |_| ()).unwrap();
    let first = std::mem::take(&mut busy.requests);
    busy.every = 0;
    repeat(&mut table, &kernels, &options, &mut busy, |_, _| true, |_| ()).unwrap();
    let again = std::mem::take(&mut busy.requests);
    let place = |request: &Request| (request.kernel, std::cmp::Reverse(request.micro_batch));
    let breaks =
        |requests: &[Request]| requests.windows(2).filter(|pair| place(&pair[0]) >= place(&pair[1])).count();
    // There are up to three rounds.
    assert!(again.len() > 2 * kernels.len() && breaks(&again) < 3, "{} in {}", breaks(&again), again.len());
    assert_eq!(breaks(&first), 0);
    assert!(first.iter().chain(&again).all(|request| request.mini_batch == 64));
}
