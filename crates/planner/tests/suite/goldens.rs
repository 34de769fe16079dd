//! Affine costs, whose answers can be written down.

use crate::synthetic::*;
use planner::*;

/// One algorithm with a cost per call and workspace per sample: as few calls as the limit allows are best.
fn one_algorithm() -> Affine {
    Affine { name: "FFT", call_ms: 3.0, sample_ms: 0.5, call_bytes: 0, sample_bytes: 100 }
}

fn fastest_ms(mini_batch: u32, sizes: &[u32], samples_within_limit: u32) -> f64 {
    let micros: Vec<Measurement> = sizes.iter().map(|&size| one_algorithm().at(size)).collect();
    let set = desirable_set(&micros, mini_batch, Bytes(100 * u64::from(samples_within_limit)));
    set.iter().last().unwrap().time_ms()
}

#[test]
fn all_needs_the_fewest_calls_that_cover_the_mini_batch() {
    for mini_batch in 1..=40 {
        let sizes = BatchSizePolicy::All.sizes(mini_batch);
        for within in 1..=mini_batch {
            let calls = mini_batch.div_ceil(within);
            let expected_ms = 3.0 * f64::from(calls) + 0.5 * f64::from(mini_batch);
            assert!(close(fastest_ms(mini_batch, &sizes, within), expected_ms), "{mini_batch} by {within}");
        }
    }
}

#[test]
fn power_of_two_needs_the_binary_digits_of_the_rest() {
    for mini_batch in 1..=100u32 {
        let sizes = BatchSizePolicy::PowerOfTwo.sizes(mini_batch);
        for within in 1..=mini_batch {
            let largest = 1 << within.ilog2();
            let divided = mini_batch / largest + (mini_batch % largest).count_ones();
            let calls = if within == mini_batch { 1 } else { divided };
            let expected_ms = 3.0 * f64::from(calls) + 0.5 * f64::from(mini_batch);
            assert!(close(fastest_ms(mini_batch, &sizes, within), expected_ms), "{mini_batch} by {within}");
        }
    }
}

#[test]
fn the_desirable_set_has_one_point_for_every_useful_number_of_calls() {
    for mini_batch in [1, 2, 7, 30, 64, 100, 1024] {
        let micros: Vec<Measurement> = (1..=mini_batch).map(|size| one_algorithm().at(size)).collect();
        let set = desirable_set(&micros, mini_batch, Bytes::MAX);
        // With q calls the largest has at least ceil(N / q) samples; q is useful if fewer calls need more.
        let mut expected: Vec<(u64, f64)> = (1..=mini_batch)
            .rev()
            .filter(|&calls| calls == 1 || mini_batch.div_ceil(calls - 1) > mini_batch.div_ceil(calls))
            .map(|calls| {
                let time_ms = 3.0 * f64::from(calls) + 0.5 * f64::from(mini_batch);
                (100 * u64::from(mini_batch.div_ceil(calls)), time_ms)
            })
            .collect();
        expected.dedup_by_key(|point| point.0);
        let found: Vec<(u64, f64)> = set.iter().map(|point| (point.workspace().0, point.time_ms())).collect();
        assert_eq!(found.len(), expected.len(), "mini-batch {mini_batch}");
        for (found, expected) in std::iter::zip(found, expected) {
            assert!(found.0 == expected.0 && close(found.1, expected.1), "{found:?} is not {expected:?}");
        }
    }
}

#[test]
fn a_rest_that_no_large_micro_batch_covers_goes_to_another_algorithm() {
    let kernels = [kernel(192, 256)];
    let table = table(&[(kernels[0].clone(), fft_and_gemm())], BatchSizePolicy::All);
    let plan =
        plan(&kernels, &table, &options(BatchSizePolicy::All, WorkspacePolicy::Wr, Bytes::mib(60))).unwrap();
    let planned = plan.kernel("conv192", ConvOp::Forward).unwrap();
    assert_eq!(planned.configuration.to_string(), "4x60 FFT_TILING + 16 IMPLICIT_GEMM");
    assert_eq!(planned.explanation.to_string(), "FFT_TILING at 256 is 1.14x faster but lacks 196 MiB");
    assert_eq!(planned.workspace, Bytes::mib(60));
    assert_eq!(planned.undivided.as_ref().unwrap().algorithm.as_str(), "IMPLICIT_GEMM");
    // 4 (1 + 6) + 16 * 0.15 against 256 * 0.15.
    assert!(close(plan.time_ms, 30.4) && close(plan.gain().unwrap(), 38.4 / 30.4));

    let offsets: Vec<(u32, u32)> =
        micro_batches(&planned.configuration).map(|(offset, micro)| (offset, micro.micro_batch)).collect();
    assert_eq!(offsets, [(0, 60), (60, 60), (120, 60), (180, 60), (240, 16)]);
}

#[test]
fn the_fastest_measured_is_said_to_be_so() {
    let kernels = [kernel(192, 256)];
    let table = table(&[(kernels[0].clone(), fft_and_gemm())], BatchSizePolicy::PowerOfTwo);
    let plan =
        plan(&kernels, &table, &PlanOptions { limit: Bytes::mib(256), ..PlanOptions::default() }).unwrap();
    assert_eq!(plan.kernels[0].configuration.to_string(), "256 FFT_TILING");
    assert_eq!(plan.kernels[0].explanation, Explanation::FastestMeasured);
    assert_eq!(plan.kernels[0].gain(), Some(1.0));
}

#[test]
fn one_byte_less_costs_a_division_and_not_the_algorithm() {
    let kernels = [kernel(192, 256)];
    let table = table(&[(kernels[0].clone(), fft_and_gemm())], BatchSizePolicy::All);
    let limit = Bytes(Bytes::mib(256).0 - 1);
    let plan = plan(&kernels, &table, &options(BatchSizePolicy::All, WorkspacePolicy::Wr, limit)).unwrap();
    // One sample by GEMM costs 0.15 ms where a second FFT call would cost 1 ms.
    assert_eq!(plan.kernels[0].configuration.to_string(), "255 FFT_TILING + 1 IMPLICIT_GEMM");
    assert_eq!(plan.kernels[0].explanation.to_string(), "FFT_TILING at 256 is 1.00x faster but lacks 1 B");
}

#[test]
fn division_gives_the_total_to_the_kernel_that_gains_most() {
    // The first kernel gains 12.8 - 1 ms from 256 MiB, the second, ten times as slow, 128 - 10 ms.
    let slow: Vec<Affine> = fft_and_gemm()
        .into_iter()
        .map(|a| Affine { call_ms: 10.0 * a.call_ms, sample_ms: 10.0 * a.sample_ms, ..a })
        .collect();
    let kernels = [kernel(64, 256), kernel(192, 256)];
    let models = [(kernels[0].clone(), fft_and_gemm()), (kernels[1].clone(), slow)];
    let table = table(&models, BatchSizePolicy::PowerOfTwo);
    let options = options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wd, Bytes::mib(256 + 40));
    let plan = plan(&kernels, &table, &options).unwrap();
    let configurations: Vec<String> = plan.kernels.iter().map(|k| k.configuration.to_string()).collect();
    // Eight calls of 32 save 256 * 0.05 - 8 = 4.8 ms. The 8 MiB left over are no use, but count as available.
    assert_eq!(configurations, ["8x32 FFT_TILING", "256 FFT_TILING"]);
    assert_eq!(plan.workspace_total(), Bytes::mib(288));
    assert_eq!(
        plan.kernels[0].explanation.to_string(),
        "FFT_TILING at 256 is 1.26x faster but lacks 216 MiB"
    );
    let division = plan.division.unwrap();
    assert!(division.lower_bound_ms <= plan.time_ms);
    // Undivided, the same total also goes to the second kernel.
    assert!(close(plan.undivided_time_ms.unwrap(), 38.4 + 266.0));
}
