//! What was not recorded, from what was.

use crate::recorded::recorded_tables;
use planner::*;

fn kernel(k: u32, r: u32) -> KernelId {
    let shape = ConvShape { c: 8, h: 16, w: 16, k, r, s: r, pad: [r / 2; 2], ..ConvShape::default() };
    KernelId { op: ConvOp::Forward, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw }
}

fn row(algorithm: &str, micro_batch: u32, time_ms: f64, workspace: u64) -> Measurement {
    let (algorithm, workspace) = (Algorithm::from(algorithm), Bytes(workspace));
    Measurement {
        algorithm,
        micro_batch,
        time_ms,
        shared_ms: 0.0,
        workspace,
        max_error: 1e-6,
        deterministic: true,
    }
}

/// 8 filters of 3x3: twice as long for twice the samples, but for a start of 1 ms.
fn table() -> CostTable {
    let mut table = CostTable::default();
    for size in [1, 2, 4, 8] {
        let time_ms = 1.0 + f64::from(size);
        let rows =
            vec![row("GEMM", size, time_ms, 0), row("FFT", size, 0.5 * time_ms, 1000 * u64::from(size))];
        table.insert(kernel(8, 3), size, rows).unwrap();
    }
    table
}

fn estimate(id: KernelId, samples: u32) -> Vec<(String, f64, u64)> {
    let rows = Estimator::new(&table()).measure(&Request::all(id, samples)).unwrap();
    rows.into_iter().map(|row| (row.algorithm.to_string(), row.time_ms, row.workspace.0)).collect()
}

#[test]
fn times_follow_the_work_and_workspaces_the_operands() {
    // What was recorded stands as it is.
    assert_eq!(estimate(kernel(8, 3), 4), [("FFT".into(), 2.5, 4000), ("GEMM".into(), 5.0, 0)]);
    // Beyond it, in proportion to the largest.
    assert_eq!(estimate(kernel(8, 3), 16)[1], ("GEMM".into(), 18.0, 0));
    // Twice the filters on 4 samples are the work of 8: their time; operands are (2048 + 4096) * 4 + 1152 elements
    // there and (2048 + 2048) * 8 + 576 here.
    let [fft, gemm] = &estimate(kernel(16, 3), 4)[..] else { panic!("two algorithms") };
    assert_eq!((gemm.1, fft.1, fft.2), (9.0, 4.5, 8000 * 25728 / 33344));
}

#[test]
fn a_transform_says_nothing_of_another_filter_and_nothing_of_another_operation() {
    let names: Vec<String> = estimate(kernel(8, 5), 8).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["GEMM"]);
    let mut estimator = Estimator::new(&table());
    let backward = KernelId { op: ConvOp::BackwardData, ..kernel(8, 3) };
    assert!(estimator.measure(&Request::all(backward, 8)).unwrap_err().to_string().contains("resembles"));
    assert!(estimator.measure(&Request::all(kernel(8, 3), 129)).unwrap_err().to_string().contains("over 16"));
    assert_eq!(estimator.error(&kernel(8, 3)), None, "a kernel alone has nothing to be told from");
    let mut of_nothing = Estimator::new(&CostTable::default());
    assert!(
        of_nothing.measure(&Request::all(kernel(8, 3), 8)).unwrap_err().to_string().contains("resembles")
    );
}

#[test]
fn what_does_not_run_on_a_kernel_is_not_estimated_for_more_samples_of_it() {
    let mut table = table();
    table.insert(kernel(16, 3), 8, vec![row("GEMM", 8, 20.0, 0)]).unwrap();
    let rows = Estimator::new(&table).measure(&Request::all(kernel(16, 3), 16)).unwrap();
    assert_eq!(rows, [row("GEMM", 16, 40.0, 0)], "FFT was recorded of a kernel like it only");
}

/// Of many shapes' engines the best would be far better than any that a shape has.
#[test]
fn engines_are_those_of_the_nearest_shape() {
    let mut table = table();
    let engines = [("ENG1_K0=1", 9.0), ("ENG2", 8.0)].map(|(name, time_ms)| row(name, 8, time_ms, 0));
    table.insert_some(kernel(8, 3), 8, engines.to_vec()).unwrap();
    table.insert(kernel(64, 3), 8, vec![row("ENG3", 8, 0.1, 0), row("GEMM", 8, 0.1, 0)]).unwrap();
    let rows = Estimator::new(&table).measure(&Request::all(kernel(16, 3), 8)).unwrap();
    let names: Vec<String> = rows.iter().map(|row| row.algorithm.to_string()).collect();
    assert_eq!(names, ["ENG1", "ENG2", "FFT", "GEMM"]);
}

/// What has its images as blocks does not make them; what makes them takes no less.
#[test]
fn kernels_that_read_blocks_are_no_measure_of_those_that_make_them() {
    let plain = kernel(8, 3);
    let packed = KernelId { shape: ConvShape { pack: 8, ..plain.shape }, ..plain };
    for (recorded, asked, is_estimated) in [(packed, plain, false), (plain, packed, true)] {
        let mut table = CostTable::default();
        table.insert(recorded, 8, vec![row("S2D_ENG1", 8, 1.0, 0)]).unwrap();
        assert_eq!(Estimator::new(&table).measure(&Request::all(asked, 8)).is_ok(), is_estimated);
    }
}

#[test]
fn how_far_estimates_are_off_is_told_of_each_format() {
    let mut table = table();
    let nhwc = |channels| KernelId { layout: Layout::Nhwc, ..kernel(channels, 3) };
    // With the work of twice the channels, times are twice as long: estimates of these are exact.
    for (channels, time_ms) in [(8, 1.0), (16, 2.0)] {
        table.insert(nhwc(channels), 8, vec![row("GEMM", 8, time_ms, 0)]).unwrap();
    }
    let estimator = Estimator::new(&table);
    assert_eq!(estimator.error(&kernel(8, 3)), None);
    assert!((estimator.error(&nhwc(8)).unwrap().time_nine_of_ten - 1.0).abs() < 1e-9);
}

#[test]
fn groups_are_like_dense_convolutions_with_the_channels_of_one() {
    let shape = |channels: u32, groups| ConvShape { c: channels, k: channels, groups, ..kernel(8, 3).shape };
    let id = |channels, groups| KernelId { shape: shape(channels, groups), ..kernel(8, 3) };
    let mut table = CostTable::default();
    for (channels, time_ms) in [(16, 1.0), (32, 5.0)] {
        table.insert(id(channels, 1), 4, vec![row("GEMM", 4, time_ms, 0)]).unwrap();
    }
    let mut estimator = Estimator::new(&table);
    let mut time_ms = |channels, groups| -> Result<f64, String> {
        let rows = estimator.measure(&Request::all(id(channels, groups), 4)).map_err(|e| e.to_string())?;
        Ok(rows[0].time_ms)
    };
    assert_eq!(time_ms(32, 2), Ok(2.0), "two of 16 channels, though 32 were recorded");
    assert_eq!(time_ms(64, 2), Ok(10.0));
    let refused = time_ms(32, 4).unwrap_err();
    assert!(refused.contains("nothing recorded resembles it (Forward, FP32, 4 groups)"), "{refused}");
}

#[test]
fn estimates_of_a_recorded_gpu_are_right_within_a_fifth_half_of_the_time() {
    let mut all = CostTable::default();
    for (_, table) in recorded_tables().into_iter().filter(|(name, _)| name.ends_with("fp32")) {
        table.iter().for_each(|(&id, size, rows)| all.insert(id, size, rows.to_vec()).unwrap());
    }
    let error = Estimator::new(&all).error(&kernel(8, 3)).unwrap();
    assert!(error.time_median < 1.2 && error.workspace_median < 1.1, "{error:?}");
    assert!(error.time_median < error.time_nine_of_ten, "{error:?}");
}
