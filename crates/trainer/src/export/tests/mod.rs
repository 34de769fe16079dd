//! What other programs read is what the net is.

mod onnx;
mod torchvision;

use crate::{Net, layers::BuildOptions, spec::NetSpec};
use tensor::Device;

/// The net of `spec`, which is not trained.
fn build(device: &Device, spec: &NetSpec) -> Net {
    Net::new(spec, &BuildOptions { device: device.clone(), seed: 1, synthetic: None }, false).unwrap()
}

/// Different values for each parameter of `net`, above 0.
fn values(net: &Net) -> Vec<Vec<f32>> {
    let params = net.graph().params.iter().enumerate();
    let numbers = |(index, count)| (0..count).map(|at| 1.0 + index as f32 + at as f32 / 1024.0).collect();
    params.map(|(index, param)| numbers((index, param.declaration.shape.count()))).collect()
}
