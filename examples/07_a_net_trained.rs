//! A net and its solver in a program, trained on handwritten digits within 128 KiB of workspace for each kernel.
//!
//! `cargo run --release --example 07_a_net_trained`

use microbatch::planner::{Bytes, PlanOptions};
use microbatch::tensor::{Cpu, Device};
use microbatch::trainer::{NetRun, Training};
use microbatch::{
    cudnn_layers::conv::ProfileOptions, trainer::layers::BuildOptions, trainer::planning::Planning,
    trainer::spec::SolverSpec,
};
use std::{error::Error, path::Path};

const SOLVER: &str = "
base_lr: 0.05 lr_policy: 'fixed' momentum: 0.9 max_iter: 40 random_seed: 1
net_param {
  layer { name: 'digits' type: 'Data' top: 'data' top: 'label' transform_param { scale: 0.00390625 }
          data_param { source: 'DIGITS' batch_size: 32 } }
  layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'
          convolution_param { num_output: 8 kernel_size: 5 pad: 2 weight_filler { type: 'xavier' } } }
  layer { name: 'relu1' type: 'ReLU' bottom: 'conv1' top: 'conv1' }
  layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1' pooling_param { kernel_size: 2 stride: 2 } }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'pool1' top: 'ip'
          inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
}";

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::Cpu(Cpu::new(2));
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits");
    let spec = SolverSpec::parse(Path::new("solver.prototxt"), &SOLVER.replace("DIGITS", digits))?;
    let (training, mut nets) =
        Training::build(spec, &BuildOptions { device: device.clone(), seed: 1, synthetic: None })?;

    // Measure, plan, lay out: then all memory that training takes is known, and nothing is allocated any more.
    let options = PlanOptions { limit: Bytes(128 << 10), ..PlanOptions::default() };
    let kernels = nets[0].kernels();
    let mut planning = Planning::new(&device, ProfileOptions::on(&device));
    planning.complete(&kernels, &options, |_| ())?;
    let plan = planning.plan(&kernels, None, &options)?;
    plan.kernels.iter().for_each(|planned| println!("{:<20} {}", planned.kernel, planned.configuration));
    let run = NetRun::lay_out(nets, vec![plan], true)?;
    println!("one arena of {}", run.memory().arena);

    let mut solver = training.start(run)?;
    let mut losses = Vec::new();
    for _ in 0..solver.spec().max_iter {
        let step = solver.step()?;
        losses.push(step.smoothed_loss);
        if step.iteration % 10 == 0 {
            println!("iteration {:>3}, loss {:.3}", step.iteration, step.loss);
        }
    }
    assert!(losses.last() < losses.first());
    Ok(())
}
