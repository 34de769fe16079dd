//! What a program asks of an execution: data of its own, and what is refused.

use super::*;
use tensor::{AxisOrder, Format};

/// Blobs that the program fills: 12 scores of three classes in two places of two samples, and their labels.
const INPUTS: &str = "
  layer { name: 'in' type: 'Input' top: 'x' top: 'label'
    input_param { shape { dim: 2 dim: 3 dim: 2 dim: 1 } shape { dim: 2 dim: 1 dim: 2 dim: 1 } } }
  layer { name: 'relu' type: 'ReLU' bottom: 'x' top: 'y' }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'label' top: 'loss' }";

fn what_a_program_puts_into_blobs_is_what_iterations_read_on(device: &Device) {
    let Running(mut running) = running_net(device, INPUTS, |_, layout| layout);
    for (round, labels) in [[0, 1, 2, 1], [2, 2, 0, 0]].iter().enumerate() {
        // Small whole numbers, which every format has exactly: element (n, c, h) at (n * 3 + c) * 2 + h.
        let x: Vec<f32> = (0..12).map(|at| ((at * 5 + round * 3) % 7) as f32 - 3.0).collect();
        running.set_blob(0, "x", &x).unwrap();
        running.set_blob(0, "label", &labels.map(|label| label as f32)).unwrap();
        let of_place = |place: usize| {
            let score = |class: usize| f64::from(x[(place / 2 * 3 + class) * 2 + place % 2]);
            (0..3).map(|class| score(class).exp()).sum::<f64>().ln() - score(labels[place])
        };
        let loss = (0..4).map(of_place).sum::<f64>() / 4.0;
        let y: Vec<f64> = x.iter().map(|&x| f64::from(x.max(0.0))).collect();
        // On a GPU done, recorded and replayed.
        for number in 0..4 {
            running.iterate(0, MiniBatch::new(number)).unwrap();
            assert_eq!(running.blob(0, "y").unwrap(), y);
            assert!(
                (running.loss(0).unwrap() / loss - 1.0).abs() < 1e-5,
                "{} of {loss}",
                running.loss(0).unwrap()
            );
        }
    }
    let mut error = |name, values: &[f32]| running.set_blob(0, name, values).unwrap_err().to_string();
    assert_eq!(error("x", &[0.0; 5]), "net '': blob 'x' has 12 elements, but 5 are given");
    let none = "net '': 'y' is no blob that a layer fills once, as Input does";
    assert_eq!((error("y", &[0.0; 12]), error("z", &[])), (none.to_owned(), none.replace("'y'", "'z'")));
    let Running(mut anew) = self::running(device, |_, layout| layout);
    assert!(
        anew.set_blob(0, "data", &[0.0; 288]).unwrap_err().to_string().contains("'data' is no blob that")
    );
}

#[test]
fn what_a_program_puts_into_blobs_is_what_iterations_read() {
    what_a_program_puts_into_blobs_is_what_iterations_read_on(&Device::Cpu(Cpu::new(2)));
}

/// Recording forbids others to use the stream, so the GPU is this test's own.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_what_a_program_puts_into_blobs_is_what_iterations_read() {
    for format in [Format::F32, Format::BF16.in_order(AxisOrder::Nhwc)] {
        let mut device = own_gpu();
        device.set_format(format);
        what_a_program_puts_into_blobs_is_what_iterations_read_on(&device);
    }
}

/// It would learn nothing, without a word.
#[test]
fn an_update_of_a_run_without_updates_is_refused() {
    let mut net = build_on(&Device::Cpu(Cpu::new(2)), NET).unwrap();
    let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
    let plan = Forced::IMPLICIT_GEMM.install(&mut net, &options);
    let mut running = NetRun::lay_out(vec![net], vec![plan], false).unwrap().start(1).unwrap();
    let rule = Rule::default();
    let update = Some(Update { rule, weight_decay: 0.0, rates: rule.rates(0.1, 0) });
    let error = running.iterate(0, MiniBatch { update, ..MiniBatch::new(0) }).unwrap_err().to_string();
    assert_eq!(error, "net '': it cannot be updated, as it is laid out without updates");
    running.iterate(0, MiniBatch::new(0)).unwrap();
}

#[test]
#[should_panic(expected = "there is a net to run")]
fn no_nets_are_not_laid_out() {
    let _ = NetRun::lay_out(Vec::new(), Vec::new(), false);
}
