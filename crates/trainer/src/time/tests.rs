//! Times that agree with each other, on every device.

use super::{TimeReport, time};
use crate::run::NetRun;
use crate::testing::{Forced, build_on, own_gpu, plan_options, root};
use planner::{BatchSizePolicy, WorkspacePolicy};
use tensor::{Cpu, Device};

/// A net on `data`, large enough that its layers take longer than looking at the clock.
fn net(data: &str) -> String {
    format!(
        "{data}
        layer {{ name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
          convolution_param {{ num_output: 32 kernel_size: 3 pad: 1 weight_filler {{ type: 'msra' }} }} }}
        layer {{ name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }}
        layer {{ name: 'norm' type: 'LRN' bottom: 'conv' top: 'norm' }}
        layer {{ name: 'pool' type: 'Pooling' bottom: 'norm' top: 'pool'
          pooling_param {{ kernel_size: 2 stride: 2 }} }}
        layer {{ name: 'drop' type: 'Dropout' bottom: 'pool' top: 'pool' }}
        layer {{ name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'
          inner_product_param {{ num_output: 10 weight_filler {{ type: 'xavier' }} }} }}
        layer {{ name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }}"
    )
}

/// The same images in every iteration, other ones made up for each, and those of a data set. A mini-batch of `large`
/// keeps the device busier than whoever asks for the work.
fn sources(large: usize) -> [String; 3] {
    let dummy = |batch, filler: &str| {
        format!(
            "layer {{ name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {{
              shape {{ dim: {batch} dim: 8 dim: 32 dim: 32 }} shape {{ dim: {batch} }}
              data_filler {{ {filler} }} data_filler {{ value: 3 }} }} }}"
        )
    };
    let digits = root().join("data/digits").display().to_string();
    let digits = format!(
        "layer {{ name: 'data' type: 'Data' top: 'data' top: 'label' transform_param {{ scale: 0.004 }}
          data_param {{ source: '{digits}' batch_size: 512 }} }}"
    );
    [dummy(large, "value: 0.5"), dummy(16, "type: 'uniform' min: -1"), digits]
}

const ITERATIONS: usize = 6;

fn check(report: &TimeReport) {
    assert!(report.initial_loss.is_finite() && report.update_ms > Some(0.0), "{report:?}");
    assert_eq!((report.iterations_ms.len(), report.layers.len()), (ITERATIONS, 8));
    let layers_ms: f64 = report.layers.iter().map(|layer| layer.forward_ms + layer.backward_ms).sum();
    let iteration_ms = report.forward_backward_ms;
    assert!((layers_ms / iteration_ms - 1.0).abs() < 0.05, "{layers_ms} of {iteration_ms}: {report:?}");
    let kernels_ms = &report.kernels_ms;
    assert_eq!(kernels_ms.len(), 2, "forward and backward filter");
    assert!(kernels_ms.iter().all(|&ms| ms > 0.0), "{report:?}");
    assert!(kernels_ms.iter().sum::<f64>() < iteration_ms, "{report:?}");
}

/// Times a net twice, as `--compare` does: whatever the first run leaves behind, the second one runs.
fn times_agree_on(device: &Device) {
    let large = if matches!(device, Device::Cpu(_)) { 16 } else { 1024 };
    for data in sources(large) {
        let mut net = build_on(device, &net(&data)).unwrap();
        for batch in [BatchSizePolicy::Undivided, BatchSizePolicy::PowerOfTwo] {
            let plan = Forced::IMPLICIT_GEMM.install(&mut net, &plan_options(batch, WorkspacePolicy::Wr));
            let mut observed = 0;
            let run = NetRun::lay_out(vec![net], vec![plan], true).unwrap();
            let report;
            (report, net) = time(run, ITERATIONS, 1, || observed += 1).unwrap();
            check(&report);
            assert_eq!(observed, ITERATIONS);
            match device {
                Device::Cpu(_) => assert!(report.replayed_ms.is_empty()),
                Device::Cuda(_) => {
                    assert_eq!(report.replayed_ms.len(), ITERATIONS);
                    assert!(report.replayed_ms.iter().all(|&ms| ms > 0.0), "{report:?}");
                }
            }
        }
    }
}

#[test]
fn layers_add_up_to_the_iteration() {
    times_agree_on(&Device::Cpu(Cpu::new(2)));
}

/// Also of data that is read anew for each iteration, which recorded work cannot do. Recording forbids others to use
/// the stream, so the GPU is this test's own.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_layers_add_up_to_the_iteration_and_it_is_replayed() {
    times_agree_on(&own_gpu());
}
