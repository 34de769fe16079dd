//! What other programs read is what the net is.

mod onnx;
mod torchvision;

use super::state_dict;
use crate::layers::{BuildOptions, SyntheticData};
use crate::snapshot::{Weights, save_tensors};
use crate::{Net, spec::NetSpec};
use std::{collections::BTreeMap, path::Path};
use tensor::Device;

/// The net of `spec`, which is not trained.
fn build(device: &Device, spec: &NetSpec) -> Net {
    Net::new(spec, &BuildOptions { device: device.clone(), seed: 1, synthetic: None }, false).unwrap()
}

/// Filters are turned behind whatever leaves channels where they are; others with parameters are refused.
#[test]
fn colours_come_in_pytorch_s_order_or_not_at_all() {
    let conv =
        "type: 'Convolution' convolution_param { num_output: 3 kernel_size: 1 bias_term: false group: G }";
    let [turned, grouped] = ["1", "3"].map(|group| conv.replace('G', group));
    let fc = "type: 'InnerProduct' inner_product_param { num_output: 2 }";
    let pool = "type: 'Pooling' pooling_param { kernel_size: 2 }";
    for (kinds, is_turned) in [
        (&[&turned[..], fc][..], true),
        (
            &[pool, "type: 'Power' power_param { scale: 2 }", "type: 'LRN'", "type: 'Dropout'", &turned, fc],
            true,
        ),
        (&[fc], false),
        (&["type: 'ReLU'", &grouped], false),
        (&["type: 'BatchNorm'", &turned], false),
        (&["type: 'PReLU'", &turned], false),
        (&["type: 'Reshape' reshape_param { shape { dim: 0 dim: 3 dim: 0 dim: 0 } }", &turned], false),
    ] {
        let net = |order: &str| {
            let mut text = format!(
                "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' image_data_param {{ {order} }} }}\n"
            );
            for (index, kind) in kinds.iter().enumerate() {
                let bottom = if index == 0 { "data".to_owned() } else { format!("l{}", index - 1) };
                text += &format!("layer {{ name: 'l{index}' bottom: '{bottom}' top: 'l{index}' {kind} }}\n");
            }
            let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap();
            let synthetic = Some(SyntheticData { shape: Some([3, 4, 4]), stand_in: true });
            Net::new(&spec, &BuildOptions { device: Device::cpu(), seed: 1, synthetic }, false).unwrap()
        };
        let [bgr, rgb] = [net(""), net("is_rgb: true")];
        let values = values(&rgb);
        let expected = state_dict(&rgb, &values).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        save_tensors(&path, &expected, &BTreeMap::new()).unwrap();
        let weights = Weights::load(&[path]).unwrap();
        assert!(weights.copied(&rgb).unwrap().files[0].turned.is_empty());
        if is_turned {
            assert_eq!(weights.copied(&bgr).unwrap().files[0].turned.len(), 1);
            assert!(state_dict(&bgr, &values).unwrap()[0].2 != expected[0].2, "a filter is turned");
            continue;
        }
        let said = [
            weights.copied(&bgr).unwrap_err().to_string(),
            state_dict(&bgr, &values).unwrap_err().to_string(),
        ];
        let is_named =
            |said: &String| said.contains("sees images as blue, green, red") && said.contains("layer 'l");
        assert!(said.iter().all(is_named), "{said:?}");
    }
}

/// Places in a chain are for nets without branches, and a norm's module has what PyTorch's has: both of factor and bias,
/// one of each for a channel.
#[test]
fn modules_are_named_by_places_only_in_chains_of_modules() {
    let layer = |name: &str, bottom: &str, kind: &str| {
        format!("layer {{ name: '{name}' bottom: '{bottom}' top: '{name}' type: {kind} }}\n")
    };
    let names = |layers: &[String]| {
        let data = "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 1 dim: 4 dim: 4 dim: 4 } } }\n";
        let spec = NetSpec::parse(Path::new("net.prototxt"), &(data.to_owned() + &layers.concat())).unwrap();
        let net = build(&Device::cpu(), &spec);
        let values = values(&net);
        let named = state_dict(&net, &values).unwrap().into_iter().map(|(name, ..)| name);
        named.collect::<Vec<_>>().join(" ")
    };
    let fc = "'InnerProduct' inner_product_param { num_output: 3 }";
    let (norm, head) = (layer("norm", "data", "'BatchNorm'"), layer("head", "scale", fc));
    let scaled = |params: &str| layer("scale", "norm", &format!("'Scale' scale_param {{ {params} }}"));
    let chain = "features.0.running_mean features.0.running_var features.0.weight features.0.bias \
                 classifier.0.weight classifier.0.bias";
    assert_eq!(names(&[norm.clone(), scaled("bias_term: true"), head.clone()]), chain);
    let apart = "norm.running_mean norm.running_var scale.weight head.weight head.bias";
    assert_eq!(names(&[norm.clone(), scaled(""), head.clone()]), apart);
    let wide = "norm.running_mean norm.running_var scale.weight scale.bias head.weight head.bias";
    assert_eq!(names(&[norm.clone(), scaled("num_axes: 2 bias_term: true"), head.clone()]), wide);
    let branches = [norm, scaled("bias_term: true"), head, layer("side", "scale", fc)];
    let of_layers = "norm.running_mean norm.running_var norm.weight norm.bias head.weight head.bias \
                     side.weight side.bias";
    assert_eq!(names(&branches), of_layers);
}

/// Different values for each parameter of `net`, above 0.
fn values(net: &Net) -> Vec<Vec<f32>> {
    let params = net.graph().params.iter().enumerate();
    let numbers = |(index, count)| (0..count).map(|at| 1.0 + index as f32 + at as f32 / 1024.0).collect();
    params.map(|(index, param)| numbers((index, param.declaration.shape.count()))).collect()
}
