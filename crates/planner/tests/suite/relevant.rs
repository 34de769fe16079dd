//! The `all` policy where the profiler can say what runs without measuring it.

use planner::*;

use crate::synthetic::*;

/// A device with these times, which counts the calls that it times.
struct Counting {
    table: CostTable,
    timed: usize,
    /// An algorithm that claims to run and does not.
    refuses: Option<&'static str>,
}

impl Counting {
    fn of(table: CostTable) -> Counting {
        Counting { table, timed: 0, refuses: None }
    }
}

impl Profiler for Counting {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let mut rows = self.table.measure(request)?;
        rows.retain(|row| Some(row.algorithm.as_str()) != self.refuses);
        self.timed += rows.len();
        Ok(rows)
    }

    fn candidates(&mut self, requests: &[Request]) -> Result<Option<Vec<Vec<Candidate>>>, RequestError> {
        self.table.candidates(requests)
    }
}

/// Each algorithm faster and hungrier than the one before; time is paid for whole tiles and wavers a little.
fn device(kernels: &[Kernel], tile: u32, noise: f64) -> CostTable {
    let kinds = [
        ("IMPLICIT_GEMM", 0.10, 0, 0.02),
        ("PRECOMP_GEMM", 0.06, 1, 0.03),
        ("WINOGRAD", 0.03, 400_000, 0.06),
        ("FFT_TILING", 0.025, 900_000, 0.10),
        ("FFT", 0.022, 1_600_000, 0.15),
    ];
    let mut table = CostTable::default();
    for kernel in kernels {
        let factor = 1.0 + 0.3 * f64::from(kernel.id.shape.k);
        for size in 1..=kernel.mini_batch {
            let row = |&(name, time, bytes, call_ms): &(&'static str, f64, u64, f64)| {
                let affine = Affine {
                    name,
                    call_ms,
                    sample_ms: time * factor,
                    call_bytes: if bytes > 1 { 3 << 20 } else { 0 },
                    sample_bytes: bytes,
                };
                let seed = u64::from(size) * 8 + name.len() as u64 + (u64::from(kernel.id.shape.k) << 32);
                let wavers = 1.0 + noise * (Random(seed).unit() - 0.5);
                let time_ms = affine.at(size.next_multiple_of(tile)).time_ms * wavers;
                Measurement { time_ms, ..affine.at(size) }
            };
            table.insert(kernel.id, size, kinds.iter().map(row).collect()).unwrap();
        }
    }
    table
}

fn rows(table: &CostTable) -> usize {
    table.iter().map(|(_, _, rows)| rows.len()).sum()
}

fn wr(limit: Bytes) -> PlanOptions {
    options(BatchSizePolicy::All, WorkspacePolicy::Wr, limit)
}

#[test]
fn what_is_left_out_does_not_matter_under_any_limit() {
    let kernels: Vec<Kernel> = (1..=4).map(|k| kernel(k, 128)).collect();
    for (tile, noise) in [(1, 0.0), (4, 0.0), (8, 0.01), (1, 0.02)] {
        let whole = device(&kernels, tile, noise);
        let mut counting = Counting::of(whole.clone());
        let mut table = CostTable::default();
        // The limit is the plan's affair.
        table.profile_for(&kernels, &wr(Bytes(1)), &mut counting, |_| ()).unwrap();
        let share = counting.timed as f64 / rows(&whole) as f64;
        assert!(share < 0.75, "tiles of {tile}, noise {noise}: {share} of all is timed");
        assert_eq!(rows(&table), counting.timed, "and nothing twice");
        for limit in (0..40).map(|step| Bytes(step * step * 160_000)) {
            let time_ms = |table| plan(&kernels, table, &wr(limit)).unwrap().time_ms;
            let ratio = time_ms(&table) / time_ms(&whole);
            assert!(
                (1.0 - 1e-9..=1.002).contains(&ratio),
                "tiles of {tile}, noise {noise}, {limit}: {ratio}"
            );
        }
        let coverage = table.coverage(&kernels, &wr(Bytes::mib(16)));
        assert!(coverage.measured <= coverage.all && coverage.all == 4 * 128, "{coverage:?}");
    }
}

#[test]
fn nothing_is_measured_again_and_other_demands_measure_what_they_need() {
    let kernels = [kernel(1, 64), kernel(2, 64), kernel(1, 64)];
    let whole = device(&kernels, 4, 0.0);
    let mut counting = Counting::of(whole.clone());
    let mut table = CostTable::default();
    let mut last = (0, 0);
    table
        .profile_for(&kernels, &wr(Bytes::mib(8)), &mut counting, |progress| {
            last = (progress.done, progress.total);
        })
        .unwrap();
    assert!(last.0 == last.1 && last.0 > 0);
    // What was read back is as good.
    let mut table = CostTable::from_json_lines(&table.to_json_lines()).unwrap();
    let timed = counting.timed;
    table.profile_for(&kernels, &wr(Bytes::mib(30)), &mut counting, |_| ()).unwrap();
    assert_eq!(counting.timed, timed);
    // Without WINOGRAD and the FFTs other sizes of GEMM matter.
    let mut inexact = whole.clone();
    for (id, size, rows) in whole.iter() {
        let max_error = |row: &Measurement| if row.algorithm.as_str().contains("GEMM") { 1e-7 } else { 1e-5 };
        let rows = rows.iter().map(|row| Measurement { max_error: max_error(row), ..row.clone() });
        inexact.insert(*id, size, rows.collect()).unwrap();
    }
    let mut counting = Counting::of(inexact.clone());
    let mut table = CostTable::default();
    table.profile_for(&kernels, &wr(Bytes(50)), &mut counting, |_| ()).unwrap();
    let exact = PlanOptions { max_error: Some(1e-6), ..wr(Bytes(50)) };
    table.profile_for(&kernels, &exact, &mut counting, |_| ()).unwrap();
    let time_ms = |table| plan(&kernels, table, &exact).unwrap().time_ms;
    assert!(time_ms(&table) <= 1.002 * time_ms(&inexact));
}

#[test]
fn an_algorithm_that_runs_at_odd_sizes_only_is_measured() {
    let kernels = [kernel(1, 30)];
    let mut whole = device(&kernels, 1, 0.0);
    for size in [9, 10, 11] {
        let odd = Affine { name: "ODD", call_ms: 0.01, sample_ms: 0.001, call_bytes: 0, sample_bytes: 0 };
        whole.insert_some(kernels[0].id, size, vec![odd.at(size)]).unwrap();
    }
    let mut table = CostTable::default();
    table.profile_for(&kernels, &wr(Bytes(0)), &mut Counting::of(whole), |_| ()).unwrap();
    let plan = plan(&kernels, &table, &wr(Bytes(0))).unwrap();
    // Three calls, of whichever sizes.
    assert!(close(plan.time_ms, 3.0 * 0.01 + 30.0 * 0.001), "{}", plan.kernels[0].configuration);
}

#[test]
fn an_algorithm_that_refuses_after_all_is_not_asked_for_ever() {
    let kernels = [kernel(1, 40)];
    let mut counting = Counting { refuses: Some("FFT"), ..Counting::of(device(&kernels, 1, 0.0)) };
    let mut table = CostTable::default();
    table.profile_for(&kernels, &wr(Bytes::mib(64)), &mut counting, |_| ()).unwrap();
    assert!(table.iter().all(|(_, _, rows)| rows.iter().all(|row| row.algorithm.as_str() != "FFT")));
    assert!(plan(&kernels, &table, &wr(Bytes::mib(64))).is_ok());
}
