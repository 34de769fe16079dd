//! Layers with filters, windows or statistics: defaults, notations and the values they refuse.

use super::{kind, layer_error};
use crate::spec::{
    BatchNormParams, ConvolutionParams, Filler, FillerKind, InnerProductParams, LayerKind, LrnParams,
    PoolingMethod, PoolingParams, Region, Rounding, ScaleBias, ScaleParams, VarianceNorm,
};

const ZERO: Filler = Filler::constant(0.0);
const ONE: Filler = Filler::constant(1.0);

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
        kernel: [3; 2],
        pad: [0; 2],
        stride: [1; 2],
        dilation: [1; 2],
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
    assert_eq!(params.kernel, [1, 7]);
    assert_eq!(params.pad, [0, 3]);
    assert_eq!(params.stride, [2, 1]);
    assert_eq!(params.dilation, [2, 3]);
    assert_eq!((params.group, params.bias_term), (4, false));
    assert_eq!(
        params.weight_filler,
        Filler { kind: FillerKind::Msra, variance_norm: VarianceNorm::Average, ..ZERO }
    );
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
            "convolution_param.weight_filler.type is \"bilinear\", expected constant, uniform, gaussian, xavier or msra",
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
    let of = |kind| Filler { kind, ..ZERO };
    let cases = [
        ("", ZERO),
        ("value: 0.1", Filler::constant(0.1)),
        ("type: 'uniform'", Filler::uniform(0.0, 1.0)),
        ("type: 'uniform' min: -1 max: 2", Filler::uniform(-1.0, 2.0)),
        ("type: 'gaussian'", of(FillerKind::Gaussian)),
        ("type: 'gaussian' mean: 1 std: 0.01", Filler { mean: 1.0, std: 0.01, ..of(FillerKind::Gaussian) }),
        ("type: 'xavier'", of(FillerKind::Xavier)),
        (
            "type: 'xavier' variance_norm: FAN_OUT",
            Filler { variance_norm: VarianceNorm::FanOut, ..of(FillerKind::Xavier) },
        ),
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
    let sliding = |method, window, pad, stride| PoolingParams {
        method,
        window: Some(window),
        pad,
        stride,
        round_mode: Rounding::Ceil,
    };
    let cases = [
        ("kernel_size: 2", sliding(PoolingMethod::Max, [2; 2], [0; 2], [1; 2])),
        ("kernel_size: 2 ceil_mode: true pool: 1", sliding(PoolingMethod::Average, [2; 2], [0; 2], [1; 2])),
        (
            "pool: AVE kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride: 2",
            sliding(PoolingMethod::Average, [3, 2], [1, 0], [2; 2]),
        ),
        (
            "pool: AVE global_pooling: true ceil_mode: false",
            PoolingParams {
                method: PoolingMethod::Average,
                window: None,
                pad: [0; 2],
                stride: [1; 2],
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
        ("kernel_size: 2 global_pooling: true", "global_pooling leaves no choice of kernel_size"),
        ("pad: 1 global_pooling: true", "pooling_param.stride must be 1, and pad 0, with global_pooling"),
        (
            "kernel_size: 2 pad: 2",
            "pad must be smaller than kernel_size, or a window could lie outside the image",
        ),
        (
            "kernel_size: 2 ceil_mode: false round_mode: CEIL",
            "pooling_param.ceil_mode is false, but must be left out where round_mode says something else",
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
    let scale_bias = Some(ScaleBias { scale_filler: Filler::constant(2.0), bias_filler: ZERO });
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
