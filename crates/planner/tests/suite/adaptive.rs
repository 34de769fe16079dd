//! The adaptive batch-size policy against `all`.

use crate::synthetic::*;
use planner::*;

/// How costs deviate from a straight line.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Not at all.
    Affine,
    /// Time is paid for whole tiles of this many samples.
    Tiles(u32),
    /// Time per sample wavers by up to this part.
    Noise(f64),
}

/// Algorithms of AlexNet-like kernels, one kernel per number of output channels.
struct Model {
    shape: Shape,
    algorithms: Vec<Vec<Affine>>,
    measured: usize,
}

/// Multiply-adds and outputs per sample about as in AlexNet's five layers.
const LAYERS: [(f64, f64); 5] = [(70.0, 194.0), (224.0, 140.0), (112.0, 65.0), (149.0, 43.0), (100.0, 43.0)];

impl Model {
    /// Three kernels per layer that differ a little, with five algorithms, each faster and hungrier than the
    /// one before.
    fn alexnet(shape: Shape) -> Model {
        let kinds = [
            ("IMPLICIT_GEMM", 1.0, 0.0, 0.01),
            ("IM2COL_GEMM", 0.8, 1.0, 0.02),
            ("WINOGRAD", 0.55, 4.0, 0.03),
            ("FFT_TILING", 0.4, 9.0, 0.06),
            ("FFT", 0.35, 16.0, 0.1),
        ];
        let kernel = |index: usize| {
            let (multiply_adds, outputs) = LAYERS[index / 3];
            let factor = 1.0 + 0.1 * (index % 3) as f64;
            let algorithm = |&(name, time, workspace, call_ms): &(&'static str, f64, f64, f64)| Affine {
                name,
                call_ms,
                sample_ms: time * factor * multiply_adds / 10_000.0,
                call_bytes: if workspace > 2.0 { 3 << 20 } else { 0 },
                sample_bytes: (workspace * outputs * 4000.0 / factor) as u64,
            };
            kinds.iter().map(algorithm).collect()
        };
        Model { shape, algorithms: (0..15).map(kernel).collect(), measured: 0 }
    }

    fn kernels(&self, mini_batch: u32) -> Vec<Kernel> {
        (0..self.algorithms.len()).map(|index| kernel(index as u32, mini_batch)).collect()
    }
}

impl Profiler for Model {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let Request { kernel: id, micro_batch, .. } = *request;
        self.measured += 1;
        let row = |algorithm: &Affine| {
            let row = algorithm.at(micro_batch);
            let time_ms = match self.shape {
                Shape::Affine => row.time_ms,
                Shape::Tiles(tile) => algorithm.at(micro_batch.next_multiple_of(tile)).time_ms,
                Shape::Noise(part) => {
                    let seed = (u64::from(id.shape.k) << 32) + u64::from(micro_batch) * 64;
                    let salt = algorithm.name.len() as u64;
                    row.time_ms * (1.0 + part * (Random(seed + salt).unit() - 0.5))
                }
            };
            Measurement { time_ms, ..row }
        };
        Ok(self.algorithms[id.shape.k as usize].iter().map(row).collect())
    }
}

/// Adaptive's time over that of `all`, and its coverage.
fn compare(shape: Shape, mini_batch: u32, workspace: WorkspacePolicy, limit: Bytes) -> (f64, Coverage) {
    let mut model = Model::alexnet(shape);
    let kernels = model.kernels(mini_batch);
    let mut table = CostTable::default();
    let adaptive = options(BatchSizePolicy::Adaptive, workspace, limit);
    profile(&mut table, &kernels, &adaptive, &mut model, |_| ()).unwrap();
    let coverage = planner::coverage(&table, &kernels, &adaptive);
    assert_eq!(coverage.measured, model.measured);
    assert_eq!(coverage.time_ms, Some(plan(&kernels, &table, &adaptive).unwrap().time_ms));

    let all = options(BatchSizePolicy::All, workspace, limit);
    profile(&mut table, &kernels, &all, &mut model, |_| ()).unwrap();
    let full = planner::coverage(&table, &kernels, &all);
    assert_eq!((full.measured, full.share(), full.gap()), (coverage.all, 1.0, Some(0.0)));
    (coverage.time_ms.unwrap() / full.time_ms.unwrap(), coverage)
}

const LIMITS: [u64; 5] = [8, 30, 64, 100, 256];

fn check(shape: Shape, workspace: WorkspacePolicy, per_kernel: u64) {
    for limit in LIMITS {
        let (ratio, coverage) = compare(shape, 256, workspace, Bytes::mib(limit * per_kernel));
        assert!(ratio <= 1.01, "{shape:?} {workspace} {limit} MiB: {ratio} times as slow as all");
        assert!(coverage.share() <= 0.15, "{shape:?} {workspace} {limit} MiB: {coverage:?}");
        assert!(coverage.gap().unwrap() <= 0.01, "{shape:?} {workspace} {limit} MiB: {coverage:?}");
    }
}

#[test]
fn it_is_as_good_as_all_on_affine_costs() {
    check(Shape::Affine, WorkspacePolicy::Wr, 1);
    check(Shape::Affine, WorkspacePolicy::Wd, 15);
}

#[test]
fn it_is_as_good_as_all_where_time_comes_in_tiles() {
    check(Shape::Tiles(4), WorkspacePolicy::Wr, 1);
    check(Shape::Tiles(8), WorkspacePolicy::Wd, 15);
}

#[test]
fn it_is_as_good_as_all_under_noise() {
    check(Shape::Noise(0.01), WorkspacePolicy::Wr, 1);
    check(Shape::Noise(0.01), WorkspacePolicy::Wd, 15);
}

/// Algorithms whose time and workspace rise with the size at random, and whose time per sample falls.
fn random_monotone(random: &mut Random, mini_batch: u32) -> Vec<Measurement> {
    let mut micros = Vec::new();
    for name in ["A", "B", "C", "D"].into_iter().take(1 + random.below(4) as usize) {
        let mut time_ms = 0.1 + random.unit();
        let mut workspace = if name == "A" { 0 } else { random.below(1000) };
        for micro_batch in 1..=mini_batch {
            let fits = |time_ms: f64| Measurement {
                algorithm: name.into(),
                micro_batch,
                time_ms,
                shared_ms: 0.0,
                workspace: Bytes(workspace),
                max_error: 1e-6,
                deterministic: true,
            };
            micros.push(fits(time_ms));
            // At most as much more time as one more sample at the present rate takes.
            time_ms += time_ms / f64::from(micro_batch) * random.unit();
            workspace += if name == "A" { 0 } else { random.below(1000) };
        }
    }
    micros
}

#[test]
fn its_bound_holds_on_monotone_costs() {
    let mut random = Random(31);
    for round in 0..200 {
        let kernels: Vec<Kernel> = (0..3).map(|k| kernel(k, 1 + random.below(40) as u32)).collect();
        let mut recorded = CostTable::default();
        for kernel in &kernels {
            insert_micros(&mut recorded, kernel, &random_monotone(&mut random, kernel.mini_batch));
        }
        let policy = WorkspacePolicy::ALL[round % 3];
        let limit = Bytes(random.below(60_000));
        let time_ms = |table, sizes| plan(&kernels, table, &options(sizes, policy, limit)).unwrap().time_ms;
        let all_ms = time_ms(&recorded, BatchSizePolicy::All);
        let powers_ms = time_ms(&recorded, BatchSizePolicy::PowerOfTwo);

        let mut table = CostTable::default();
        let adaptive = options(BatchSizePolicy::Adaptive, policy, limit);
        profile(&mut table, &kernels, &adaptive, &mut Recorded(recorded.clone()), |_| ()).unwrap();
        let coverage = planner::coverage(&table, &kernels, &adaptive);
        let bound_ms = coverage.lower_bound_ms.unwrap();
        assert!(bound_ms <= all_ms * (1.0 + 1e-9), "{bound_ms} is no bound of {all_ms}");
        assert!(all_ms <= coverage.time_ms.unwrap() * (1.0 + 1e-9));
        assert!(coverage.time_ms.unwrap() <= powers_ms * (1.0 + 1e-9));
        let affordable = (0.15 * coverage.all as f64) as usize;
        let start = CostTable::default().missing(&kernels, BatchSizePolicy::PowerOfTwo).len();
        assert!(coverage.measured <= affordable.max(start));
    }
}

#[test]
fn progress_counts_what_was_done_and_a_second_time_measures_nothing() {
    let mut model = Model::alexnet(Shape::Affine);
    let kernels = model.kernels(64);
    let mut table = CostTable::default();
    let adaptive = options(BatchSizePolicy::Adaptive, WorkspacePolicy::Wr, Bytes::mib(20));
    let mut last = None;
    profile(&mut table, &kernels, &adaptive, &mut model, |step| {
        assert!(step.done <= step.total);
        last = Some(step.done);
    })
    .unwrap();
    let measured = model.measured;
    assert_eq!(last, Some(measured - 1));
    profile(&mut table, &kernels, &adaptive, &mut model, |_| ()).unwrap();
    assert_eq!((table.len(), model.measured), (measured, measured));
}

#[test]
fn an_infeasible_limit_ends_the_search_and_is_reported_by_the_plan() {
    let mut model = Model::alexnet(Shape::Affine);
    model.algorithms.iter_mut().for_each(|algorithms| algorithms.retain(|a| a.sample_bytes > 0));
    let kernels = model.kernels(64);
    let mut table = CostTable::default();
    let adaptive = options(BatchSizePolicy::Adaptive, WorkspacePolicy::Wr, Bytes(0));
    profile(&mut table, &kernels, &adaptive, &mut model, |_| ()).unwrap();
    let coverage = coverage(&table, &kernels, &adaptive);
    assert_eq!((coverage.time_ms, coverage.gap()), (None, None));
    let error = plan(&kernels, &table, &adaptive).unwrap_err();
    assert!(
        error.to_string().contains("under the adaptive policy: the smallest feasible limit is"),
        "{error}"
    );
}

#[test]
fn an_algorithm_that_runs_at_some_sizes_only_is_found() {
    // The fast one refuses more than 200 samples, which no power of two says.
    struct Refusing;
    impl Profiler for Refusing {
        fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
            let micro_batch = request.micro_batch;
            let fast = Affine { name: "FAST", call_ms: 5.0, sample_ms: 0.1, call_bytes: 0, sample_bytes: 0 };
            let slow = Affine { name: "SLOW", call_ms: 0.0, sample_ms: 0.4, call_bytes: 0, sample_bytes: 0 };
            let admitted = if micro_batch <= 200 { vec![fast, slow] } else { vec![slow] };
            Ok(admitted.iter().map(|algorithm| algorithm.at(micro_batch)).collect())
        }
    }
    let kernels = [kernel(1, 390)];
    let mut table = CostTable::default();
    let adaptive = options(BatchSizePolicy::Adaptive, WorkspacePolicy::Wr, Bytes(0));
    profile(&mut table, &kernels, &adaptive, &mut Refusing, |_| ()).unwrap();
    let planned = plan(&kernels, &table, &adaptive).unwrap();
    // Two calls of at most 200 samples.
    assert!(close(planned.time_ms, 2.0 * 5.0 + 390.0 * 0.1), "{}", planned.kernels[0].configuration);
}
