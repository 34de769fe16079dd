//! The cases: every layer type over its parameters.

use super::case::Case;
use crate::spec::{LayerKind, NetSpec, Phase};
use crate::testing::gpu;
use std::path::Path;
use tensor::{Cpu, Device};

/// Types without a gradient, which is checked too.
const WITHOUT_GRADIENT: [&str; 6] = ["Input", "DummyData", "ImageData", "Data", "Accuracy", "Silence"];

/// A test per layer type and device; [`CHECKED`] lists exactly those types that there are.
macro_rules! gradient_checks {
    ($($test:ident: $type_name:literal, $cases:ident;)*) => {
        const CHECKED: &[&str] = &[$($type_name),*];
        $(mod $test {
            use super::{check, cpu, gpu};

            #[test]
            fn on_cpu() {
                check($type_name, &super::$cases(), &cpu());
            }

            #[test]
            #[ignore = "needs an NVIDIA GPU"]
            fn on_cuda() {
                check($type_name, &super::$cases(), &gpu());
            }
        })*
    };
}

fn check(type_name: &str, cases: &[Case], device: &Device) {
    assert!(cases.iter().all(|case| case.type_name == type_name) && !cases.is_empty());
    cases.iter().for_each(|case| case.check(device));
}

fn cpu() -> Device {
    Device::Cpu(Cpu::new(2))
}

gradient_checks! {
    convolution: "Convolution", convolutions;
    inner_product: "InnerProduct", inner_products;
    relu: "ReLU", relus;
    prelu: "PReLU", prelus;
    elu: "ELU", elus;
    sigmoid: "Sigmoid", sigmoids;
    tanh: "TanH", tanhs;
    power: "Power", powers;
    slice: "Slice", slices;
    objective: "Objective", objectives;
    pooling: "Pooling", poolings;
    lrn: "LRN", lrns;
    batch_norm: "BatchNorm", batch_norms;
    scale: "Scale", scales;
    eltwise: "Eltwise", eltwises;
    concat: "Concat", concats;
    convert: "Convert", converts;
    split: "Split", splits;
    dropout: "Dropout", dropouts;
    softmax: "Softmax", softmaxes;
    softmax_with_loss: "SoftmaxWithLoss", losses;
    flatten: "Flatten", flattens;
    reshape: "Reshape", reshapes;
}

#[test]
fn every_layer_type_is_checked_or_has_no_gradient() {
    for name in LayerKind::TYPES {
        let (checked, exempt) = (CHECKED.contains(&name), WITHOUT_GRADIENT.contains(&name));
        assert!(
            checked != exempt,
            "{name}: needs a gradient check, or a place among those without a gradient"
        );
    }
    assert_eq!(CHECKED.len() + WITHOUT_GRADIENT.len(), LayerKind::TYPES.len());
}

#[test]
fn types_without_a_gradient_declare_none() {
    let accuracy = Case::new("Accuracy", "", &[&[4, 3], &[4]]);
    let shapes = accuracy.shapes.iter().map(|dims| tensor::TensorType::f32(dims)).collect::<Vec<_>>();
    assert_eq!(accuracy.build(&cpu()).declare(&shapes).unwrap().gradients, [false, false]);
    // The others have nothing to give a gradient to.
    let text = "layer { name: 'a' type: 'Input' top: 'a' input_param { shape { dim: 1 } } }
        layer { name: 'b' type: 'DummyData' top: 'b' dummy_data_param { shape { dim: 1 } } }
        layer { name: 'c' type: 'ImageData' top: 'c' top: 'l' image_data_param { source: 's' batch_size: 1 } }
        layer { name: 'd' type: 'Data' top: 'd' data_param { source: 's' batch_size: 1 } }";
    let net = NetSpec::parse(Path::new("data.prototxt"), text).unwrap();
    let names: Vec<&str> = net.layers.iter().map(|layer| layer.kind.type_name()).collect();
    assert_eq!(names, WITHOUT_GRADIENT[..4]);
    assert!(net.layers.iter().all(|layer| layer.kind.blobs()[0] == (0..=0)));
}

/// A checker that cannot fail would be no check: here differences are taken of a function that backward does not know
/// of.
#[test]
#[should_panic(expected = "backward says")]
fn a_wrong_gradient_is_found() {
    // Elements on both sides of ReLU's kink, and no word of it.
    Case { kink: None, step: 0.3, ..Case::new("ReLU", "", &[&[2, 9]]) }.check(&cpu());
}

fn convolutions() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("Convolution", fields, &[shape]).linear();
    vec![
        of("convolution_param { num_output: 2 kernel_size: 3 pad: 1 }", &[3, 2, 5, 4]),
        of("convolution_param { num_output: 3 kernel_size: 1 bias_term: false }", &[3, 2, 3, 3]),
        of("convolution_param { num_output: 2 kernel_size: 5 pad: 2 }", &[3, 2, 5, 5]),
        of(
            "convolution_param { num_output: 2 kernel_h: 3 kernel_w: 2 pad_h: 2 stride_h: 2 stride_w: 1 }",
            &[3, 1, 5, 4],
        ),
        of("convolution_param { num_output: 4 kernel_size: 3 group: 2 pad: 1 }", &[3, 4, 4, 3]),
        of("convolution_param { num_output: 4 kernel_size: 2 group: 4 stride: 2 }", &[3, 4, 4, 4]),
        of("convolution_param { num_output: 2 kernel_size: 3 dilation: 2 pad: 1 }", &[4, 2, 6, 5]),
    ]
}

fn inner_products() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("InnerProduct", fields, &[shape]).linear();
    vec![
        of("inner_product_param { num_output: 4 }", &[3, 5]),
        of("inner_product_param { num_output: 4 }", &[3, 2, 2, 2]),
        of("inner_product_param { num_output: 3 bias_term: false }", &[2, 6]),
        of("inner_product_param { num_output: 3 transpose: true }", &[4, 5]),
        of("inner_product_param { num_output: 3 axis: 2 }", &[2, 3, 2, 2]),
        of("inner_product_param { num_output: 3 axis: -1 transpose: true }", &[2, 3, 4]),
    ]
}

fn relus() -> Vec<Case> {
    let shape: &[&[usize]] = &[&[2, 3, 4, 5]];
    vec![
        Case::new("ReLU", "", shape).kink(0.0),
        Case::new("ReLU", "relu_param { negative_slope: 0.1 }", shape).kink(0.0),
        Case::new("ReLU", "relu_param { negative_slope: -0.5 }", shape).kink(0.0),
    ]
}

fn prelus() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("PReLU", fields, &[shape]).kink(0.0);
    vec![
        of("", &[2, 3, 4, 5]),
        of("prelu_param { filler { value: -0.5 } }", &[4, 5]),
        of("prelu_param { channel_shared: true }", &[2, 3, 4, 2]),
    ]
}

fn elus() -> Vec<Case> {
    let of = |fields| Case::new("ELU", fields, &[&[2, 3, 4, 5]]);
    // With α = 1 there is no kink.
    vec![of(""), of("elu_param { alpha: 0.3 }").kink(0.0), of("elu_param { alpha: 0 }").kink(0.0)]
}

fn sigmoids() -> Vec<Case> {
    vec![Case::new("Sigmoid", "", &[&[2, 3, 4, 5]])]
}

fn tanhs() -> Vec<Case> {
    vec![Case::new("TanH", "", &[&[2, 3, 4, 5]])]
}

fn powers() -> Vec<Case> {
    let of = |fields| Case::new("Power", fields, &[&[2, 3, 4]]);
    vec![
        of("").linear(),
        of("power_param { scale: -2 shift: 1 }").linear(),
        of("power_param { power: 0 }"),
        of("power_param { power: 2 scale: 0.5 shift: -1 }"),
        of("power_param { power: -0.5 scale: 0.5 shift: 2 }"),
    ]
}

fn slices() -> Vec<Case> {
    let of = |fields, tops, dead_top, shape: &[usize]| Case {
        tops,
        dead_top,
        ..Case::new("Slice", fields, &[shape]).linear()
    };
    vec![
        of("", 2, None, &[2, 4, 3]),
        of("", 1, None, &[2, 3]),
        of("slice_param { slice_point: 1 slice_point: 3 }", 3, None, &[2, 4, 2, 2]),
        of("slice_param { slice_point: 1 slice_point: 3 }", 3, Some(1), &[2, 4, 2, 2]),
        of("slice_param { axis: 0 slice_point: 2 }", 2, Some(0), &[3, 5]),
        of("slice_param { axis: -1 }", 3, None, &[2, 2, 6]),
    ]
}

fn objectives() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("Objective", fields, &[shape]).linear();
    vec![of("loss_weight: 0.5", &[2, 3]), of("loss_weight: -2", &[1])]
}

fn poolings() -> Vec<Case> {
    let max = |fields, shape: &[usize]| Case::new("Pooling", fields, &[shape]).distinct();
    let average = |fields, shape: &[usize]| Case::new("Pooling", fields, &[shape]).linear();
    vec![
        max("pooling_param { pool: MAX kernel_size: 2 stride: 2 }", &[2, 2, 4, 6]),
        max("pooling_param { pool: MAX kernel_size: 3 stride: 2 }", &[1, 2, 6, 7]),
        max("pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }", &[1, 2, 5, 4]),
        max("pooling_param { pool: MAX kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 }", &[2, 1, 4, 6]),
        max("pooling_param { pool: MAX kernel_size: 3 stride: 2 round_mode: FLOOR }", &[1, 2, 6, 6]),
        max("pooling_param { pool: MAX kernel_size: 3 stride: 2 }", &[2, 3, 2, 2]),
        max("pooling_param { pool: MAX global_pooling: true }", &[2, 3, 3, 4]),
        average("pooling_param { pool: AVE kernel_size: 2 stride: 2 }", &[2, 2, 4, 6]),
        average("pooling_param { pool: AVE kernel_size: 3 stride: 2 }", &[1, 2, 6, 7]),
        average("pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", &[1, 2, 5, 4]),
        average("pooling_param { pool: AVE kernel_size: 3 stride: 2 round_mode: FLOOR }", &[1, 2, 6, 6]),
        average("pooling_param { pool: AVE kernel_h: 3 kernel_w: 2 pad_h: 1 }", &[1, 2, 4, 5]),
        average("pooling_param { pool: AVE kernel_size: 5 stride: 3 }", &[2, 3, 3, 3]),
        average("pooling_param { pool: AVE global_pooling: true }", &[2, 3, 3, 4]),
    ]
}

fn lrns() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("LRN", fields, &[shape]);
    vec![
        of("lrn_param { local_size: 3 }", &[2, 5, 2, 3]),
        of("lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 k: 2 }", &[1, 7, 2, 2]),
        of("lrn_param { local_size: 5 alpha: 2 beta: 0.6 }", &[2, 3, 2, 2]),
        of("lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }", &[2, 2, 4, 5]),
        of("lrn_param { local_size: 5 alpha: 3 beta: 1 norm_region: WITHIN_CHANNEL }", &[1, 2, 4, 3]),
    ]
}

fn batch_norms() -> Vec<Case> {
    let of = |fields, shape: &[usize]| {
        let channels = shape[1];
        let variance = (0..channels).map(|c| 1.0 + c as f32).collect();
        let mean = (0..channels).map(|c| 0.2 * c as f32 - 0.1).collect();
        Case { state: vec![mean, variance, vec![2.0]], ..Case::new("BatchNorm", fields, &[shape]) }
    };
    let affine = "batch_norm_param { scale_bias: true }";
    vec![
        of("", &[4, 3, 2, 2]),
        of(affine, &[4, 3, 2, 2]),
        of(affine, &[5, 4]),
        of("batch_norm_param { use_global_stats: true }", &[3, 2, 2, 2]),
        of("batch_norm_param { use_global_stats: true scale_bias: true eps: 0.01 }", &[3, 2, 2, 2]),
        Case { phase: Phase::Test, ..of(affine, &[1, 3, 2, 2]) },
    ]
}

fn scales() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("Scale", fields, &[shape]).linear();
    let two = |fields, shapes: &[&[usize]]| Case::new("Scale", fields, shapes).linear();
    vec![
        of("", &[3, 4, 2, 2]),
        of("scale_param { bias_term: true }", &[3, 4, 2, 3]),
        of("scale_param { axis: 0 num_axes: 2 bias_term: true }", &[2, 3, 2, 2]),
        of("scale_param { axis: 1 num_axes: -1 bias_term: true }", &[3, 2, 2, 2]),
        of("scale_param { axis: -1 }", &[2, 3, 5]),
        of("scale_param { num_axes: 0 bias_term: true }", &[2, 3, 4]),
        two("", &[&[3, 4, 2, 2], &[4]]),
        two("scale_param { axis: 0 bias_term: true }", &[&[3, 4, 2, 2], &[3, 4]]),
        two("scale_param { axis: 0 }", &[&[3, 4], &[3]]),
        two("", &[&[3, 4, 2, 3], &[4, 2, 3]]),
    ]
}

fn eltwises() -> Vec<Case> {
    let two: &[&[usize]] = &[&[2, 3, 2, 2], &[2, 3, 2, 2]];
    let three: &[&[usize]] = &[&[2, 7], &[2, 7], &[2, 7]];
    let of = |fields, shapes| Case::new("Eltwise", fields, shapes);
    vec![
        of("", two).linear(),
        of("eltwise_param { operation: SUM coeff: 1 coeff: -0.5 coeff: 2 }", three).linear(),
        of("eltwise_param { operation: PROD }", two).linear(),
        of("eltwise_param { operation: PROD }", three).linear(),
        of("eltwise_param { operation: MAX }", two).distinct(),
        of("eltwise_param { operation: MAX }", three).distinct(),
    ]
}

fn converts() -> Vec<Case> {
    vec![Case::new("Convert", "", &[&[2, 3, 2, 5]]).linear()]
}

fn concats() -> Vec<Case> {
    let of = |fields, shapes: &[&[usize]]| Case::new("Concat", fields, shapes).linear();
    vec![
        of("", &[&[2, 3, 2, 2], &[2, 1, 2, 2], &[2, 2, 2, 2]]),
        of("concat_param { axis: 0 }", &[&[2, 3], &[4, 3]]),
        of("concat_param { axis: -1 }", &[&[2, 3, 2], &[2, 3, 5]]),
        of("concat_param { axis: 2 }", &[&[2, 2, 3, 2], &[2, 2, 1, 2]]),
        of("", &[&[3, 4]]),
    ]
}

fn splits() -> Vec<Case> {
    let of = |tops, dead_top| Case { tops, dead_top, ..Case::new("Split", "", &[&[2, 3, 2]]).linear() };
    vec![of(1, None), of(2, None), of(3, None), of(3, Some(0)), of(3, Some(2))]
}

fn dropouts() -> Vec<Case> {
    let of = |fields| Case::new("Dropout", fields, &[&[3, 4, 5]]).linear();
    let ratio = "dropout_param { dropout_ratio: 0.3 }";
    vec![
        of(""),
        of(ratio),
        of("dropout_param { dropout_ratio: 0 }"),
        Case { phase: Phase::Test, ..of(ratio) },
    ]
}

fn softmaxes() -> Vec<Case> {
    let of = |fields, shape: &[usize]| Case::new("Softmax", fields, &[shape]);
    vec![
        of("", &[4, 5]),
        of("", &[2, 3, 2, 2]),
        of("softmax_param { axis: -1 }", &[2, 3, 4]),
        of("softmax_param { axis: 0 }", &[4, 3]),
    ]
}

fn losses() -> Vec<Case> {
    let scores: &[&[usize]] = &[&[5, 4], &[5]];
    let pixels: &[&[usize]] = &[&[2, 3, 2, 2], &[2, 1, 2, 2]];
    let of = |fields, shapes, labels: &[f32]| Case::new("SoftmaxWithLoss", fields, shapes).given(1, labels);
    let (labels, some) = ([0.0, 3.0, 1.0, 1.0, 2.0], [0.0, 9.0, 1.0, 9.0, 2.0]);
    let pixel_labels = [0.0, 2.0, 1.0, 1.0, 2.0, 2.0, 0.0, 1.0];
    vec![
        of("", scores, &labels),
        of("loss_weight: 0.3", scores, &labels),
        of("loss_param { ignore_label: 9 }", scores, &some),
        of("loss_param { ignore_label: 9 normalization: FULL }", scores, &some),
        of("loss_param { ignore_label: 9 normalization: BATCH_SIZE }", scores, &some),
        of("loss_param { ignore_label: 9 normalization: NONE } loss_weight: 2", scores, &some),
        of("loss_param { ignore_label: 9 }", scores, &[9.0; 5]),
        of("", pixels, &pixel_labels),
        of("loss_param { ignore_label: 1 normalization: VALID }", pixels, &pixel_labels),
        of("loss_param { normalization: BATCH_SIZE }", pixels, &pixel_labels),
        of("loss_param { normalization: NONE }", pixels, &pixel_labels),
        of("softmax_param { axis: -1 }", &[&[2, 3, 4], &[2, 3]], &[0.0, 3.0, 1.0, 1.0, 2.0, 0.0]),
        of("softmax_param { axis: 0 }", &[&[4, 3], &[3]], &[0.0, 3.0, 1.0]),
        of("loss_param { label_smoothing: 0.2 ignore_label: 9 }", scores, &some),
        of("loss_param { label_smoothing: 0.1 }", pixels, &pixel_labels),
        Case { tops: 2, ..of("loss_weight: [0.3, 0]", scores, &labels) },
    ]
}

fn flattens() -> Vec<Case> {
    let of = |fields| Case::new("Flatten", fields, &[&[2, 3, 2, 2]]).linear();
    vec![of(""), of("flatten_param { axis: 0 end_axis: -2 }"), of("flatten_param { axis: 2 }")]
}

fn reshapes() -> Vec<Case> {
    let of = |fields| Case::new("Reshape", fields, &[&[2, 3, 2, 2]]).linear();
    vec![
        of("reshape_param { shape { dim: 0 dim: -1 } }"),
        of("reshape_param { shape { dim: 4 dim: 3 dim: 2 } }"),
        of("reshape_param { shape { dim: 6 } axis: 1 num_axes: 2 }"),
        of("reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }"),
    ]
}
