//! Every layer type: its defaults, its notations and the values it refuses.

use super::{NetSpec, kind, layer_error, layer_text, net, net_error};
use crate::spec::{
    AccuracyParams, BatchNormParams, ConcatParams, ConvolutionParams, DataBackend, DropoutParams,
    EltwiseOperation, EltwiseParams, Filler, FlattenParams, HeightWidth, InnerProductParams, LayerKind,
    LrnParams, Mean, Normalization, PoolingMethod, PoolingParams, PoolingWindow, Region, ReluParams,
    ReshapeParams, Rounding, ScaleBias, ScaleParams, SoftmaxParams, SoftmaxWithLossParams, VarianceNorm,
    of_top,
};

const ZERO: Filler = Filler::Constant { value: 0.0 };
const ONE: Filler = Filler::Constant { value: 1.0 };

#[test]
fn every_type_of_the_list_is_known_by_its_name() {
    for name in LayerKind::TYPES {
        match NetSpec::parse("n".as_ref(), &layer_text(name, "")) {
            Ok(net) => assert_eq!(net.layers[0].kind.type_name(), name),
            Err(error) => assert!(!error.to_string().contains("is not known"), "{error}"),
        }
    }
}

fn convolution(fields: &str) -> ConvolutionParams {
    match kind("Convolution", &format!("convolution_param {{ {fields} }}")) {
        LayerKind::Convolution(params) => params,
        other => panic!("{other:?}"),
    }
}

#[test]
fn convolution_has_caffes_defaults() {
    let expected = ConvolutionParams {
        num_output: 8,
        kernel: HeightWidth::square(3),
        pad: HeightWidth::square(0),
        stride: HeightWidth::square(1),
        dilation: HeightWidth::square(1),
        group: 1,
        bias_term: true,
        weight_filler: ZERO,
        bias_filler: ZERO,
    };
    assert_eq!(convolution("num_output: 8 kernel_size: 3 engine: CUDNN"), expected);
}

#[test]
fn convolution_in_all_notations() {
    let params = convolution(
        "num_output: 8 kernel_h: 1 kernel_w: 7 pad_w: 3 stride: 2 stride: 1 dilation: [2, 3] group: 4
         bias_term: false weight_filler { type: 'msra' variance_norm: AVERAGE } axis: 1",
    );
    assert_eq!(params.kernel, HeightWidth { h: 1, w: 7 });
    assert_eq!(params.pad, HeightWidth { h: 0, w: 3 });
    assert_eq!(params.stride, HeightWidth { h: 2, w: 1 });
    assert_eq!(params.dilation, HeightWidth { h: 2, w: 3 });
    assert_eq!((params.group, params.bias_term), (4, false));
    assert_eq!(params.weight_filler, Filler::Msra { variance_norm: VarianceNorm::Average });
}

#[test]
fn convolution_refuses_what_cannot_work() {
    let cases = [
        ("kernel_size: 3", "convolution_param.num_output is missing"),
        ("num_output: 0 kernel_size: 3", "convolution_param.num_output is 0, but must be at least 1"),
        (
            "num_output: -4 kernel_size: 3",
            "convolution_param.num_output is -4, expected an integer from 0 to 2147483647",
        ),
        (
            "num_output: 4294967296 kernel_size: 3",
            "convolution_param.num_output is 4294967296, expected an integer from 0 to 2147483647",
        ),
        ("num_output: 4", "convolution_param.kernel_size is missing"),
        ("num_output: 4 kernel_size: 0", "convolution_param.kernel_size is 0, but must be at least 1"),
        ("num_output: 4 kernel_h: 3", "convolution_param.kernel_w is missing"),
        ("num_output: 4 kernel_h: 0 kernel_w: 3", "convolution_param.kernel_h is 0, but must be at least 1"),
        (
            "num_output: 4 kernel_size: 3 kernel_h: 3",
            "give either kernel_size or kernel_h and kernel_w, not both",
        ),
        ("num_output: 4 kernel_size: [1,2,3]", "kernel_size is given 3 times; images have two axes"),
        ("num_output: 4 kernel_size: 3 stride: 0", "convolution_param.stride is 0, but must be at least 1"),
        (
            "num_output: 4 kernel_size: 3 dilation: 0",
            "convolution_param.dilation is 0, but must be at least 1",
        ),
        (
            "num_output: 4 kernel_size: 3 pad: -1",
            "convolution_param.pad is -1, expected an integer from 0 to 2147483647",
        ),
        (
            "num_output: 4 kernel_size: 3 group: 3",
            "convolution_param.group is 3, but must be a divisor of num_output, 4",
        ),
        ("num_output: 4 kernel_size: 3 group: 0", "convolution_param.group is 0, but must be at least 1"),
        ("num_output: 4 num_output: 4", "'convolution_param.num_output' was already given in line 2"),
        (
            "num_output: 4 kernel_size: 3 weight_filler { type: 'bilinear' }",
            "convolution_param.weight_filler.type is \"bilinear\", but must be constant, uniform, gaussian, xavier or msra",
        ),
        (
            "num_output: 4 kernel_size: 3 axis: 2",
            "convolution_param.axis is 2, but must be 1, the channels of an (N, C, H, W) blob",
        ),
    ];
    for (fields, expected) in cases {
        let message = layer_error("Convolution", &format!("convolution_param {{ {fields} }}"));
        assert_eq!(message, format!("net.prototxt:2: layer 'l': {expected}"), "{fields}");
    }
}

#[test]
fn fillers() {
    let filler = |text: &str| {
        convolution(&format!("num_output: 1 kernel_size: 1 bias_filler {{ {text} }}")).bias_filler
    };
    let cases = [
        ("", ZERO),
        ("value: 0.1", Filler::Constant { value: 0.1 }),
        ("type: 'uniform'", Filler::Uniform { min: 0.0, max: 1.0 }),
        ("type: 'uniform' min: -1 max: 2", Filler::Uniform { min: -1.0, max: 2.0 }),
        ("type: 'gaussian'", Filler::Gaussian { mean: 0.0, std: 1.0 }),
        ("type: 'gaussian' mean: 1 std: 0.01", Filler::Gaussian { mean: 1.0, std: 0.01 }),
        ("type: 'xavier'", Filler::Xavier { variance_norm: VarianceNorm::FanIn }),
        ("type: 'xavier' variance_norm: FAN_OUT", Filler::Xavier { variance_norm: VarianceNorm::FanOut }),
    ];
    for (text, expected) in cases {
        assert_eq!(filler(text), expected, "{text}");
    }
    let param =
        |text: &str| format!("convolution_param {{ num_output: 1 kernel_size: 1 bias_filler {{ {text} }} }}");
    for text in ["type: 'uniform' min: 2", "type: 'gaussian' std: -1", "type: 'gaussian' sparse: 3"] {
        assert!(layer_error("Convolution", &param(text)).contains("must be"), "{text}");
    }
}

#[test]
fn inner_product() {
    let expected = InnerProductParams {
        num_output: 10,
        bias_term: true,
        weight_filler: ZERO,
        bias_filler: ZERO,
        axis: 1,
        transpose: false,
    };
    let params = "inner_product_param { num_output: 10 }";
    assert_eq!(kind("InnerProduct", params), LayerKind::InnerProduct(expected.clone()));
    let params = "inner_product_param { num_output: 10 transpose: true axis: -1 bias_term: 0 }";
    let expected = InnerProductParams { transpose: true, axis: -1, bias_term: false, ..expected };
    assert_eq!(kind("InnerProduct", params), LayerKind::InnerProduct(expected));
    assert!(
        layer_error("InnerProduct", "").ends_with("layer 'l': inner_product_param.num_output is missing")
    );
}

#[test]
fn pooling() {
    let sliding = |method, kernel, pad, stride| PoolingParams {
        method,
        window: PoolingWindow::Sliding { kernel, pad, stride },
        round_mode: Rounding::Ceil,
    };
    let square = HeightWidth::square;
    let cases = [
        ("kernel_size: 2", sliding(PoolingMethod::Max, square(2), square(0), square(1))),
        (
            "pool: AVE kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride: 2",
            sliding(
                PoolingMethod::Average,
                HeightWidth { h: 3, w: 2 },
                HeightWidth { h: 1, w: 0 },
                square(2),
            ),
        ),
        (
            "pool: AVE global_pooling: true round_mode: FLOOR",
            PoolingParams {
                method: PoolingMethod::Average,
                window: PoolingWindow::Global,
                round_mode: Rounding::Floor,
            },
        ),
    ];
    for (text, expected) in cases {
        let read = kind("Pooling", &format!("pooling_param {{ {text} }}"));
        assert_eq!(read, LayerKind::Pooling(expected), "{text}");
    }
    let cases = [
        ("", "pooling_param.kernel_size is missing"),
        ("kernel_size: 0", "pooling_param.kernel_size is 0, but must be at least 1"),
        ("kernel_size: 2 stride: 0", "pooling_param.stride is 0, but must be at least 1"),
        (
            "kernel_size: 2 global_pooling: true",
            "global_pooling leaves no choice of kernel_size, pad or stride",
        ),
        ("pad: 1 global_pooling: true", "global_pooling leaves no choice of kernel_size, pad or stride"),
        (
            "kernel_size: 2 pad: 2",
            "pad must be smaller than kernel_size, or a window could lie outside the image",
        ),
        ("kernel_size: 2 pool: STOCHASTIC", "pooling_param.pool is STOCHASTIC, expected MAX or AVE"),
    ];
    for (text, expected) in cases {
        let message = layer_error("Pooling", &format!("pooling_param {{ {text} }}"));
        assert_eq!(message, format!("net.prototxt:2: layer 'l': {expected}"), "{text}");
    }
}

#[test]
fn normalisation_layers() {
    let lrn =
        LrnParams { local_size: 5, alpha: 1.0, beta: 0.75, k: 1.0, norm_region: Region::AcrossChannels };
    assert_eq!(kind("LRN", ""), LayerKind::LRN(lrn.clone()));
    let text = "lrn_param { local_size: 3 alpha: 5e-5 k: 2 norm_region: WITHIN_CHANNEL engine: CAFFE }";
    let lrn = LrnParams { local_size: 3, alpha: 5e-5, k: 2.0, norm_region: Region::WithinChannel, ..lrn };
    assert_eq!(kind("LRN", text), LayerKind::LRN(lrn));
    for size in [0, 4] {
        let message = layer_error("LRN", &format!("lrn_param {{ local_size: {size} }}"));
        assert!(message.ends_with("but must be odd, for a neighbourhood with a centre"), "{message}");
    }

    let bn = BatchNormParams {
        use_global_stats: None,
        moving_average_fraction: 0.999,
        eps: 1e-5,
        scale_bias: None,
    };
    assert_eq!(kind("BatchNorm", ""), LayerKind::BatchNorm(bn));
    let text =
        "batch_norm_param { moving_average_fraction: 0.9 eps: 0.0001 scale_bias: true use_global_stats: false
                scale_filler { value: 2 } }";
    let scale_bias = Some(ScaleBias { scale_filler: Filler::Constant { value: 2.0 }, bias_filler: ZERO });
    let bn = BatchNormParams {
        use_global_stats: Some(false),
        moving_average_fraction: 0.9,
        eps: 1e-4,
        scale_bias: scale_bias.clone(),
    };
    assert_eq!(kind("BatchNorm", text), LayerKind::BatchNorm(bn));
    // As in NVIDIA's sources, a filler is enough.
    for text in ["scale_filler { value: 2 }", "scale_bias: false bias_filler { } scale_filler { value: 2 }"] {
        let LayerKind::BatchNorm(params) = kind("BatchNorm", &format!("batch_norm_param {{ {text} }}"))
        else {
            panic!("a batch normalisation is one")
        };
        assert_eq!(params.scale_bias, scale_bias, "{text}");
    }
    assert!(layer_error("BatchNorm", "batch_norm_param { eps: 0 }").ends_with("but must be above 0"));
    let text = "batch_norm_param { moving_average_fraction: 1.5 }";
    assert!(layer_error("BatchNorm", text).ends_with("is 1.5, but must be from 0 to 1"));

    let scale = ScaleParams { axis: 1, num_axes: 1, bias_term: false, filler: ONE, bias_filler: ZERO };
    assert_eq!(kind("Scale", ""), LayerKind::Scale(scale.clone()));
    let scale = ScaleParams { bias_term: true, axis: 0, num_axes: -1, ..scale };
    assert_eq!(
        kind("Scale", "scale_param { bias_term: true axis: 0 num_axes: -1 }"),
        LayerKind::Scale(scale)
    );
}

#[test]
fn layers_without_parameters() {
    assert_eq!(kind("ReLU", ""), LayerKind::ReLU(ReluParams { negative_slope: 0.0 }));
    let leaky = kind("ReLU", "relu_param { negative_slope: 0.1 }");
    assert_eq!(leaky, LayerKind::ReLU(ReluParams { negative_slope: 0.1 }));
    assert_eq!(kind("Dropout", ""), LayerKind::Dropout(DropoutParams { ratio: 0.5 }));
    for ratio in ["1", "-0.1", "nan"] {
        let message = layer_error("Dropout", &format!("dropout_param {{ dropout_ratio: {ratio} }}"));
        assert!(message.ends_with("but must be from 0 to below 1"), "{message}");
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
    assert!(message.ends_with("reshape_param.shape.dim is -1, but must be -1 only once"), "{message}");
}

#[test]
fn eltwise() {
    let read = |fields: &str| kind("Eltwise", &format!("bottom: 'z' eltwise_param {{ {fields} }}"));
    let sum = |coefficients| {
        LayerKind::Eltwise(EltwiseParams { operation: EltwiseOperation::Sum { coefficients } })
    };
    assert_eq!(read(""), sum(vec![]));
    assert_eq!(read("operation: SUM coeff: 1 coeff: -1"), sum(vec![1.0, -1.0]));
    let max = LayerKind::Eltwise(EltwiseParams { operation: EltwiseOperation::Max });
    assert_eq!(read("operation: MAX"), max);
    let product = LayerKind::Eltwise(EltwiseParams { operation: EltwiseOperation::Product });
    assert_eq!(read("operation: PROD stable_prod_grad: false"), product);
    let error = |fields: &str| layer_error("Eltwise", &format!("bottom: 'z' eltwise_param {{ {fields} }}"));
    assert!(error("coeff: 1").ends_with("coeff is given 1 times for 2 bottoms"));
    assert!(error("operation: MAX coeff: 1 coeff: 1").ends_with("coeff belongs to the operation SUM only"));
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
        let expected = SoftmaxWithLossParams { axis: 1, ignore_label, normalization };
        let read = kind("SoftmaxWithLoss", &format!("bottom: 'label' {text}"));
        assert_eq!(read, LayerKind::SoftmaxWithLoss(expected), "{text}");
    }
    let message = layer_error("SoftmaxWithLoss", "bottom: 'label' loss_param { label_smoothing: 0.1 }");
    assert!(
        message.ends_with("label_smoothing is 0.1, but must be 0; smoothed labels are not supported"),
        "{message}"
    );
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
    assert_eq!((data.source.as_str(), data.batch_size, data.backend), ("lmdb", 8, DataBackend::Lmdb));
    let transform = &data.transform;
    assert_eq!((transform.crop_size, transform.mirror, transform.resize), (Some(227), true, Some(256)));
    assert_eq!((&transform.mean, transform.scale), (&Mean::File("mean".into()), 0.5));

    let text = "layer { name: 'd' type: 'ImageData' top: 'x' top: 'y'
        image_data_param { source: 'list' new_height: 4 new_width: 5 shuffle: true root_folder: 'r/' }
        transform_param { mean_value: 1 mean_value: 2 mean_value: 3 } }";
    let LayerKind::ImageData(data) = &net(text).layers[0].kind else { panic!() };
    assert_eq!((data.batch_size, data.new_size), (1, Some(HeightWidth { h: 4, w: 5 })));
    assert_eq!((data.shuffle, data.is_color, data.root_folder.as_str()), (true, true, "r/"));
    assert_eq!(data.transform.mean, Mean::Values(vec![1.0, 2.0, 3.0]));
    assert_eq!((data.transform.crop_size, data.transform.scale), (None, 1.0));

    let text = "layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {
        shape { dim: 2 dim: 3 } shape { dim: 2 } data_filler { type: 'gaussian' } } }";
    let LayerKind::DummyData(dummy) = &net(text).layers[0].kind else { panic!() };
    assert_eq!((&of_top(&dummy.shapes, 0)[..], &of_top(&dummy.shapes, 1)[..]), (&[2, 3][..], &[2][..]));
    assert_eq!(*of_top(&dummy.fillers, 1), Filler::Gaussian { mean: 0.0, std: 1.0 });
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
        (data("top: 'x'", "data_param { batch_size: 1 }"), "layer 'd': data_param.source is missing"),
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
            "layer 'd': input_param.shape.dim is 0, but must be at least 1",
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
            "DummyData(DummyDataParams { shapes: [[2]], fillers: [Uniform { min: 0.0, max: 1.0 }] \
             })",
        ),
        (
            "ImageData",
            "top: 'l' image_data_param { source: 's' new_height: 3 new_width: 4 }",
            "ImageData(ImageDataParams { source: \"s\", root_folder: \"\", batch_size: 1, \
             rand_skip: 0, shuffle: false, new_size: Some(HeightWidth { h: 3, w: 4 }), is_color: \
             true, transform: TransformParams { resize: None, crop_size: None, mirror: false, \
             mean: Zero, scale: 1.0 } })",
        ),
        (
            "Data",
            "data_param { source: 's' batch_size: 2 } transform_param { mean_value: 1 mirror: true }",
            "Data(DataParams { source: \"s\", batch_size: 2, backend: LevelDb, rand_skip: 0, \
             transform: TransformParams { resize: None, crop_size: None, mirror: true, mean: \
             Values([1.0]), scale: 1.0 } })",
        ),
        (
            "Convolution",
            "convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'msra' } }",
            "Convolution(ConvolutionParams { num_output: 2, kernel: HeightWidth { h: 3, w: 3 }, \
             pad: HeightWidth { h: 0, w: 0 }, stride: HeightWidth { h: 1, w: 1 }, dilation: \
             HeightWidth { h: 1, w: 1 }, group: 1, bias_term: true, weight_filler: Msra { \
             variance_norm: FanIn }, bias_filler: Constant { value: 0.0 } })",
        ),
        (
            "InnerProduct",
            "inner_product_param { num_output: 2 }",
            "InnerProduct(InnerProductParams { num_output: 2, bias_term: true, weight_filler: \
             Constant { value: 0.0 }, bias_filler: Constant { value: 0.0 }, axis: 1, transpose: \
             false })",
        ),
        ("ReLU", "", "ReLU(ReluParams { negative_slope: 0.0 })"),
        (
            "Pooling",
            "pooling_param { pool: AVE kernel_size: 2 }",
            "Pooling(PoolingParams { method: Average, window: Sliding { kernel: HeightWidth { h: \
             2, w: 2 }, pad: HeightWidth { h: 0, w: 0 }, stride: HeightWidth { h: 1, w: 1 } }, \
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
             eps: 1e-5, scale_bias: Some(ScaleBias { scale_filler: Constant { value: 1.0 }, \
             bias_filler: Constant { value: 0.0 } }) })",
        ),
        (
            "Scale",
            "",
            "Scale(ScaleParams { axis: 1, num_axes: 1, bias_term: false, filler: Constant { \
             value: 1.0 }, bias_filler: Constant { value: 0.0 } })",
        ),
        (
            "Eltwise",
            "bottom: 'z' eltwise_param { coeff: 1 coeff: 2 }",
            "Eltwise(EltwiseParams { operation: Sum { coefficients: [1.0, 2.0] } })",
        ),
        ("Concat", "", "Concat(ConcatParams { axis: 1 })"),
        ("Split", "", "Split"),
        ("Dropout", "", "Dropout(DropoutParams { ratio: 0.5 })"),
        ("Softmax", "", "Softmax(SoftmaxParams { axis: 1 })"),
        (
            "SoftmaxWithLoss",
            "bottom: 'l'",
            "SoftmaxWithLoss(SoftmaxWithLossParams { axis: 1, ignore_label: None, normalization: \
             Valid })",
        ),
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
        let text = format!("layer {{ name: 'l' type: '{name}' {bottom} top: 'y' {fields} }}");
        assert_eq!(format!("{:?}", net(&text).layers[0].kind), expected, "{text}");
    }
    assert_eq!(cases.len(), LayerKind::TYPES.len());
}
