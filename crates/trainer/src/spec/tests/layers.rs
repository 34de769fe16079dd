//! All other layer types: defaults, notations and the values they refuse; and what snapshots know layers by.

use super::{NetSpec, kind, layer_error, layer_text, net, net_error};
use crate::spec::{
    AccuracyParams, Combination, ConcatParams, DropoutParams, EltwiseParams, Filler, FillerKind,
    FlattenParams, LayerKind, Mean, Normalization, ReluParams, ReshapeParams, SoftmaxParams,
    SoftmaxWithLossParams, of_top,
};

const ZERO: Filler = Filler::constant(0.0);

#[test]
fn every_type_of_the_list_is_known_by_its_name() {
    for name in LayerKind::TYPES {
        if let Ok(net) = NetSpec::parse("n".as_ref(), &layer_text(name, "")) {
            assert_eq!(net.layers[0].kind.type_name(), name);
        }
    }
}

#[test]
fn layers_without_parameters() {
    assert_eq!(kind("ReLU", ""), LayerKind::ReLU(ReluParams { negative_slope: 0.0 }));
    let leaky = kind("ReLU", "relu_param { negative_slope: 0.1 }");
    assert_eq!(leaky, LayerKind::ReLU(ReluParams { negative_slope: 0.1 }));
    assert_eq!(kind("Dropout", ""), LayerKind::Dropout(DropoutParams { ratio: 0.5 }));
    let part = "but must be from 0 to below 1";
    for (ratio, reason) in [("1", part), ("-0.1", part), ("nan", "expected a finite number")] {
        let message = layer_error("Dropout", &format!("dropout_param {{ dropout_ratio: {ratio} }}"));
        assert!(message.ends_with(reason), "{message}");
    }
    assert_eq!(kind("Split", ""), LayerKind::Split);
    assert_eq!(kind("Concat", ""), LayerKind::Concat(ConcatParams { axis: 1 }));
    assert_eq!(kind("Concat", "concat_param { concat_dim: 0 }"), LayerKind::Concat(ConcatParams { axis: 0 }));
    assert!(
        layer_error("Concat", "concat_param { axis: 1 concat_dim: 1 }").contains("give only one of them")
    );
    assert_eq!(kind("Flatten", ""), LayerKind::Flatten(FlattenParams { axis: 1, end_axis: -1 }));
    let reshape = kind("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }");
    assert_eq!(reshape, LayerKind::Reshape(ReshapeParams { dims: vec![0, -1], axis: 0, num_axes: -1 }));
    let message = layer_error("Reshape", "reshape_param { shape { dim: -1 dim: -1 } }");
    assert!(message.ends_with("reshape_param.shape.dim is -1, -1, but must be -1 only once"), "{message}");
}

#[test]
fn eltwise() {
    let read = |fields: &str| kind("Eltwise", &format!("bottom: 'z' eltwise_param {{ {fields} }}"));
    let sum = |coefficients| LayerKind::Eltwise(EltwiseParams { operation: Combination::Sum(coefficients) });
    assert_eq!(read(""), sum(vec![]));
    assert_eq!(read("operation: SUM coeff: 1 coeff: -1"), sum(vec![1.0, -1.0]));
    let max = LayerKind::Eltwise(EltwiseParams { operation: Combination::Maximum });
    assert_eq!(read("operation: MAX"), max);
    let product = LayerKind::Eltwise(EltwiseParams { operation: Combination::Product });
    assert_eq!(read("operation: PROD stable_prod_grad: false"), product);
    let error = |fields: &str| layer_error("Eltwise", &format!("bottom: 'z' eltwise_param {{ {fields} }}"));
    assert!(error("coeff: 1").ends_with("coeff is given 1 times for 2 bottoms"));
    assert!(error("operation: MAX coeff: 1 coeff: 1").ends_with("coeff belongs to the operation SUM only"));
    assert_eq!(read("operation: 2"), max);
    assert!(error("operation: 3").ends_with("eltwise_param.operation is 3, expected PROD, SUM or MAX"));
    assert!(error("operation: MIN").ends_with("eltwise_param.operation is MIN, expected PROD, SUM or MAX"));
    let single = layer_error("Eltwise", "");
    assert!(single.ends_with("a layer of this type has at least 2 bottoms, here are 1"), "{single}");
}

#[test]
fn losses() {
    assert_eq!(kind("Softmax", "softmax_param { axis: -1 }"), LayerKind::Softmax(SoftmaxParams { axis: -1 }));
    let cases = [
        ("", Normalization::Valid, None),
        ("loss_param { ignore_label: 255 normalization: FULL }", Normalization::Full, Some(255)),
        ("loss_param { normalize: false }", Normalization::BatchSize, None),
        ("loss_param { normalize: true }", Normalization::Valid, None),
        ("loss_param { normalize: true normalization: NONE }", Normalization::None, None),
    ];
    for (text, normalization, ignore_label) in cases {
        let expected = SoftmaxWithLossParams { axis: 1, ignore_label, normalization, label_smoothing: 0.0 };
        let read = kind("SoftmaxWithLoss", &format!("bottom: 'label' {text}"));
        assert_eq!(read, LayerKind::SoftmaxWithLoss(expected), "{text}");
    }
    let message = layer_error("SoftmaxWithLoss", "bottom: 'label' loss_param { label_smoothing: 1.5 }");
    assert!(message.ends_with("label_smoothing is 1.5, but must be from 0 to 1"), "{message}");
    let accuracy = kind("Accuracy", "bottom: 'label' accuracy_param { top_k: 5 }");
    assert_eq!(accuracy, LayerKind::Accuracy(AccuracyParams { top_k: 5, axis: 1, ignore_label: None }));
    let message = layer_error("Accuracy", "bottom: 'label' accuracy_param { top_k: 0 }");
    assert!(message.ends_with("accuracy_param.top_k is 0, but must be at least 1"), "{message}");
}

#[test]
fn data_layers() {
    let text = "layer { name: 'd' type: 'Data' top: 'x' top: 'y'
        data_param { source: 'lmdb' batch_size: 8 backend: LMDB prefetch: 4 }
        transform_param { crop_size: 227 mirror: true mean_file: 'mean' scale: 0.5 resize: 256 } }";
    let LayerKind::Data(data) = &net(text).layers[0].kind else { panic!() };
    assert_eq!((data.source.as_str(), data.batch_size), ("lmdb", 8));
    let transform = &data.transform;
    assert_eq!((transform.crop_size, transform.mirror, transform.resize), (Some(227), true, Some(256)));
    assert_eq!((&transform.mean, transform.scale), (&Mean::File("mean".into()), 0.5));

    let text = "layer { name: 'd' type: 'ImageData' top: 'x' top: 'y'
        image_data_param { source: 'list' new_height: 4 new_width: 5 shuffle: true root_folder: 'r/' }
        transform_param { mean_value: 1 mean_value: 2 mean_value: 3 } }";
    let LayerKind::ImageData(data) = &net(text).layers[0].kind else { panic!() };
    assert_eq!((data.batch_size, data.new_size), (1, Some([4, 5])));
    assert_eq!((data.shuffle, data.is_color, data.root_folder.as_str()), (true, true, "r/"));
    assert_eq!(data.transform.mean, Mean::Values(vec![1.0, 2.0, 3.0]));
    assert_eq!((data.transform.crop_size, data.transform.scale), (None, 1.0));

    let text = "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {
        shape { dim: 2 dim: 3 } shape { dim: 2 } data_filler { type: 'gaussian' } } }";
    let LayerKind::DummyData(dummy) = &net(text).layers[0].kind else { panic!() };
    assert_eq!((&of_top(&dummy.shapes, 0)[..], &of_top(&dummy.shapes, 1)[..]), (&[2, 3][..], &[2][..]));
    assert_eq!(*of_top(&dummy.fillers, 1), Filler { kind: FillerKind::Gaussian, ..ZERO });
    let text = "layer { name: 'd' type: 'DummyData' top: 'x'
        dummy_data_param { num: 2 channels: 3 height: 4 width: 5 } }";
    let LayerKind::DummyData(dummy) = &net(text).layers[0].kind else { panic!() };
    assert_eq!((&of_top(&dummy.shapes, 0)[..], *of_top(&dummy.fillers, 0)), (&[2, 3, 4, 5][..], ZERO));
}

#[test]
fn data_layers_refuse_what_cannot_work() {
    let data = |tops: &str, fields: &str| format!("layer {{ name: 'd' type: 'Data' {tops} {fields} }}");
    let source = "data_param { source: 's' batch_size: 1 }";
    let cases = [
        (data("top: 'x'", "data_param { source: 's' }"), "layer 'd': data_param.batch_size is missing"),
        (
            data("top: 'x'", "data_param { source: 's' batch_size: 0 }"),
            "layer 'd': data_param.batch_size is 0, but must be at least 1",
        ),
        (
            data("top: 'x'", &format!("{source} transform_param {{ mean_file: 'm' mean_value: 1 }}")),
            "layer 'd': give either mean_file or mean_value, not both",
        ),
        (data("", source), "layer 'd': a layer of this type has 1 to 2 tops, here are 0"),
        (data("top: 'x' bottom: 'y'", source), "layer 'd': a layer of this type has 0 bottoms, here are 1"),
        (
            "layer { name: 'd' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 0 } } }".to_owned(),
            "layer 'd': input_param.shape.dim is 1, 0, but must be at least 1",
        ),
        ("layer { name: 'd' type: 'Input' top: 'x' }".to_owned(), "layer 'd': input_param.shape is missing"),
        (
            "layer { name: 'd' type: 'DummyData' top: 'x' dummy_data_param { num: 1 } }".to_owned(),
            "layer 'd': num, channels, height and width must be given equally often",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(net_error(&text), format!("net.prototxt:1: {expected}"), "{text}");
    }
}

/// Snapshots hold digests of these texts: if one changed, every resumed training would seem to be another one.
#[test]
fn the_texts_that_snapshots_know_layers_by_stay() {
    let cases = [
        ("Input", "input_param { shape { dim: 2 } }", "Input(InputParams { shapes: [[2]] })"),
        (
            "DummyData",
            "dummy_data_param { shape { dim: 2 } data_filler { type: 'uniform' } }",
            "DummyData(DummyDataParams { shapes: [[2]], fillers: [Filler { kind: Uniform, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }] })",
        ),
        (
            "ImageData",
            "top: 'l' image_data_param { source: 's' new_height: 3 new_width: 4 is_rgb: true }",
            "ImageData(ImageDataParams { source: \"s\", root_folder: \"\", batch_size: 1, \
             shuffle: false, new_size: Some([3, 4]), is_color: \
             true, transform: TransformParams { resize: None, shorter_side: None, new_size: Some([3, 4]), is_rgb: true, crop_size: None, mirror: false, mean: Zero, scale: 1.0, std: [], min_area: None, max_aspect: 1.3333334, mirror_vertically: false, rotation: 0.0, \
             color_jitter: ColorJitter { brightness: 0.0, contrast: 0.0, saturation: 0.0, hue: 0.0 } }, images: [] })",
        ),
        (
            "Data",
            "data_param { source: 's' batch_size: 2 } transform_param { mean_value: 1 mirror: true }",
            "Data(DataParams { source: \"s\", batch_size: 2, \
             transform: TransformParams { resize: None, shorter_side: None, new_size: None, is_rgb: true, crop_size: None, \
             mirror: true, mean: Values([1.0]), scale: 1.0, std: [], min_area: None, max_aspect: 1.3333334, mirror_vertically: false, rotation: 0.0, \
             color_jitter: ColorJitter { brightness: 0.0, contrast: 0.0, saturation: 0.0, hue: 0.0 } } })",
        ),
        (
            "Convolution",
            "convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'msra' } }",
            "Convolution(ConvolutionParams { num_output: 2, kernel: [3, 3], pad: [0, 0], stride: [1, 1], \
             dilation: [1, 1], group: 1, bias_term: true, weight_filler: Filler { kind: Msra, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }, \
             bias_filler: Filler { kind: Constant, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn } })",
        ),
        (
            "InnerProduct",
            "inner_product_param { num_output: 2 }",
            "InnerProduct(InnerProductParams { num_output: 2, bias_term: true, weight_filler: \
             Filler { kind: Constant, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }, bias_filler: Filler { kind: Constant, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }, axis: 1, transpose: \
             false })",
        ),
        ("ReLU", "", "ReLU(ReluParams { negative_slope: 0.0 })"),
        (
            "PReLU",
            "",
            "PReLU(PReluParams { filler: Filler { kind: Constant, value: 0.25, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }, channel_shared: false })",
        ),
        ("ELU", "", "ELU(EluParams { alpha: 1.0 })"),
        ("Sigmoid", "", "Sigmoid(SigmoidParams)"),
        ("TanH", "", "TanH(TanHParams)"),
        ("Power", "", "Power(PowerParams { power: 1.0, scale: 1.0, shift: 0.0 })"),
        (
            "Pooling",
            "pooling_param { pool: AVE kernel_size: 2 }",
            "Pooling(PoolingParams { method: Average, window: Some([2, 2]), pad: [0, 0], stride: [1, 1], \
             round_mode: Ceil })",
        ),
        (
            "LRN",
            "",
            "LRN(LrnParams { local_size: 5, alpha: 1.0, beta: 0.75, k: 1.0, norm_region: \
             AcrossChannels })",
        ),
        (
            "BatchNorm",
            "batch_norm_param { scale_bias: true }",
            "BatchNorm(BatchNormParams { use_global_stats: None, moving_average_fraction: 0.999, \
             eps: 1e-5, scale_bias: Some(ScaleBias { scale_filler: Filler { kind: Constant, value: 1.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }, \
             bias_filler: Filler { kind: Constant, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn } }) })",
        ),
        (
            "Scale",
            "",
            "Scale(ScaleParams { axis: 1, num_axes: 1, bias_term: false, filler: Filler { kind: Constant, value: 1.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn }, bias_filler: Filler { kind: Constant, value: 0.0, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm: FanIn } })",
        ),
        (
            "Eltwise",
            "bottom: 'z' eltwise_param { coeff: 1 coeff: 2 }",
            "Eltwise(EltwiseParams { operation: Sum([1.0, 2.0]) })",
        ),
        ("Concat", "", "Concat(ConcatParams { axis: 1 })"),
        (
            "Slice",
            "top: 'z' slice_param { slice_dim: 2 slice_point: 3 }",
            "Slice(SliceParams { axis: 2, points: [3] })",
        ),
        ("Split", "", "Split"),
        ("Convert", "", "Convert"),
        ("Silence", "", "Silence"),
        ("Dropout", "", "Dropout(DropoutParams { ratio: 0.5 })"),
        ("Softmax", "", "Softmax(SoftmaxParams { axis: 1 })"),
        (
            "SoftmaxWithLoss",
            "bottom: 'l'",
            "SoftmaxWithLoss(SoftmaxWithLossParams { axis: 1, ignore_label: None, normalization: \
             Valid, label_smoothing: 0.0 })",
        ),
        ("Objective", "", "Objective"),
        ("Accuracy", "bottom: 'l'", "Accuracy(AccuracyParams { top_k: 1, axis: 1, ignore_label: None })"),
        ("Flatten", "", "Flatten(FlattenParams { axis: 1, end_axis: -1 })"),
        (
            "Reshape",
            "reshape_param { shape { dim: 0 dim: -1 } }",
            "Reshape(ReshapeParams { dims: [0, -1], axis: 0, num_axes: -1 })",
        ),
    ];
    for (name, fields, expected) in cases {
        let is_data = ["Input", "DummyData", "ImageData", "Data"].contains(&name);
        let bottom = if is_data { "" } else { "bottom: 'x'" };
        let top = if name == "Silence" { "" } else { "top: 'y'" };
        let text = format!("layer {{ name: 'l' type: '{name}' {bottom} {top} {fields} }}");
        assert_eq!(format!("{:?}", net(&text).layers[0].kind), expected, "{text}");
    }
    assert_eq!(cases.len(), LayerKind::TYPES.len());
}

/// As MobileNet's authors write it: a filter for each channel.
#[test]
fn a_depthwise_convolution_is_one_with_as_many_groups_as_outputs() {
    let fields = "convolution_param { num_output: 6 kernel_size: 3 }";
    let grouped = kind("Convolution", "convolution_param { num_output: 6 kernel_size: 3 group: 6 }");
    for name in ["ConvolutionDepthwise", "DepthwiseConvolution"] {
        assert_eq!(kind(name, fields), grouped);
    }
    let wider = "convolution_param { num_output: 6 kernel_size: 3 group: 3 }";
    assert_eq!(
        kind("DepthwiseConvolution", wider),
        kind("Convolution", wider),
        "two filters for each channel"
    );
}

#[test]
fn numbers_that_a_filler_does_not_go_by_are_passed_over() {
    for filler in
        ["type: 'xavier' std: 0.1", "type: 'constant' std: 0.1", "type: 'gaussian' value: 3 std: 0.1"]
    {
        let fields = format!("inner_product_param {{ num_output: 2 weight_filler {{ {filler} }} }}");
        let text = format!("layer {{ name: 'l' type: 'InnerProduct' bottom: 'x' top: 'y' {fields} }}");
        assert_eq!(net(&text).warnings, [], "{filler}");
    }
}
