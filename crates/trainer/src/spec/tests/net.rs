//! Nets: layers in common, phases, old notations, warnings.

use super::{kind, layer, layer_error, layer_text, net, net_error};
use crate::spec::{LayerKind, NetSpec, NetState, ParamSpec, Phase};
use std::path::Path;

#[test]
fn what_every_layer_has() {
    let spec = layer(
        "Convolution",
        "param { name: 'shared' lr_mult: 2 decay_mult: 0 } loss_weight: 0.5 propagate_down: false
         convolution_param { num_output: 1 kernel_size: 1 }",
    );
    assert_eq!((spec.name.as_str(), spec.kind.type_name()), ("l", "Convolution"));
    assert_eq!((&spec.bottoms[..], &spec.tops[..]), (&["x".to_owned()][..], &["y".to_owned()][..]));
    let shared = ParamSpec { name: Some("shared".to_owned()), lr_mult: 2.0, decay_mult: 0.0 };
    assert_eq!((spec.param(0), spec.param(1)), (shared, ParamSpec::default()));
    assert_eq!((spec.loss_weight(0), &spec.propagate_down[..]), (0.5, &[false][..]));
    assert_eq!(spec.location.to_string(), "net.prototxt:1");
}

#[test]
fn a_loss_has_weight_1_and_a_top() {
    let net = net("layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'label' }");
    assert_eq!((net.layers[0].tops[0].as_str(), net.layers[0].loss_weight(0)), ("loss", 1.0));
    assert_eq!(layer("ReLU", "").loss_weight(0), 0.0);
}

#[test]
fn layers_refuse_what_cannot_work() {
    let cases = [
        ("ReLU", "bottom: 'z'", 1, "a layer of this type has 1 bottom, here are 2"),
        ("ReLU", "loss_weight: 1 loss_weight: 1", 2, "loss_weight is given 2 times for 1 tops"),
        ("Split", "top: 'z' propagate_down: [1, 0]", 2, "propagate_down is given 2 times for 1 bottoms"),
        ("ReLU", "include { } exclude { }", 2, "give either include or exclude rules, not both"),
        ("ReLU", "include { phase: VAL }", 2, "include.phase is VAL, expected TRAIN or TEST"),
        ("ReLU", "param: 3", 2, "param is 3, expected a message in { }"),
        ("ReLU", "param { lr_mult: '1' }", 2, "param.lr_mult is \"1\", expected a finite number"),
        ("ReLU", "name: 'm'", 2, "'name' was already given in line 1"),
    ];
    for (kind, fields, line, expected) in cases {
        let message = layer_error(kind, fields);
        assert_eq!(message, format!("net.prototxt:{line}: layer 'l': {expected}"), "{kind} {fields}");
    }
    assert_eq!(net_error("layer { name: 'l' }"), "net.prototxt:1: layer 'l': type is missing");
    let misspelt = "layer { name: 'l' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param {\n num_ouput: 3 } }";
    assert_eq!(
        net_error(misspelt),
        "net.prototxt:1: layer 'l': inner_product_param.num_output is missing; line 2 has num_ouput"
    );
    assert_eq!(net_error("name: 'empty'"), "net.prototxt:1: the net: there is no layer in it");
    assert_eq!(net_error("\nlayer: 1"), "net.prototxt:2: layer is 1, expected a message in { }");
}

#[test]
fn a_type_that_is_not_known_is_no_error_where_the_layer_has_no_part() {
    let reason = |name: &str| match kind(name, "include { phase: TEST } memory_data_param { batch_size: 1 }")
    {
        LayerKind::Unknown(reason) => reason,
        kind => panic!("{kind:?}"),
    };
    for (name, meant) in [
        ("Relu", "ReLU"),
        ("Convolutoin", "Convolution"),
        ("Inner_Product", "InnerProduct"),
        ("SoftmaxLoss", "SoftmaxWithLoss"),
    ] {
        assert_eq!(reason(name), format!("layer type '{name}' is not known; did you mean {meant}?"));
    }
    let types = reason("Permute");
    assert!(types.contains("'Permute' is not known; the types are Input, DummyData, "), "{types}");
    assert!(!types.contains("Objective"), "only a net that is built has it: {types}");
    assert_eq!(reason("Deconvolution"), "Caffe's layer type Deconvolution is not supported");
}

#[test]
fn a_second_layer_of_a_name_gets_another_unless_it_has_parameters() {
    let layer = |kind: &str| layer_text(kind, "convolution_param { num_output: 1 kernel_size: 1 }");
    let net = net(&["ReLU", "Convolution", "ReLU", "Convolution"].map(layer).concat());
    assert_eq!(names(&net.for_phase(Phase::Train)), ["l", "l", "l#3", "l"]);
    assert_eq!(names(&net.for_phase(Phase::Train).for_phase(Phase::Train)), ["l", "l", "l#3", "l"]);
}

#[test]
fn unknown_fields_are_warnings_in_the_order_of_the_file() {
    let net = net("default_forward_type: FLOAT16
layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'y'
  forward_math: FLOAT
  convolution_param { num_output: 1 kernel_size: 1
    cudnn_convolution_algo_seeker: FINDEX } }
layer { name: 'r' type: 'ReLU' bottom: 'y' top: 'y' convolution_param { num_output: 2 } }");
    let warnings: Vec<_> = net.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        "net.prototxt:1: field 'default_forward_type' of the net has no effect here",
        "net.prototxt:3: field 'forward_math' of layer 'c' has no effect here",
        "net.prototxt:5: field 'convolution_param.cudnn_convolution_algo_seeker' of layer 'c' has no effect here",
        "net.prototxt:6: field 'convolution_param' of layer 'r' has no effect here",
    ];
    assert_eq!(warnings, expected);
}

/// What a filler's type has no use for, public files carry along: Caffe knows all fields of all types.
#[test]
fn a_filler_s_fields_are_no_strangers_to_xavier_and_msra() {
    for filler in ["type: 'xavier' std: 0.03", "type: 'msra' std: 0.01 mean: 0 value: 1"] {
        let text = format!("num_output: 1 kernel_size: 1 weight_filler {{ {filler} }}");
        let net = net(&format!(
            "layer {{ name: 'c' type: 'Convolution' bottom: 'x' top: 'y' convolution_param {{ {text} }} }}"
        ));
        assert_eq!(net.warnings, [], "{filler}");
    }
}

#[test]
fn warnings_that_say_the_same_of_several_layers_collapse() {
    let layer = |name: &str, field: &str| {
        format!("layer {{ name: '{name}' type: 'ReLU' bottom: 'x' top: '{name}' {field} }}\n")
    };
    let text = [layer("a", "hue: 1"), layer("b", "hue: 2 shade: 1"), layer("c", "hue: 3")].concat();
    let lines = crate::prototxt::collapsed(&net(&text).warnings);
    let expected = [
        "net.prototxt:1: field 'hue' of layer 'a' has no effect here … and 2 more like it",
        "net.prototxt:2: field 'shade' of layer 'b' has no effect here",
    ];
    assert_eq!(lines, expected);
}

const PHASES: &str = "
layer { name: 'train' type: 'ReLU' bottom: 'x' top: 'y' include { phase: TRAIN } }
layer { name: 'test' type: 'ReLU' bottom: 'x' top: 'y' include: { phase: TEST } }
layer { name: 'not_test' type: 'ReLU' bottom: 'x' top: 'y' exclude { phase: TEST } }
layer { name: 'all' type: 'ReLU' bottom: 'x' top: 'y' }
layer { name: 'high' type: 'ReLU' bottom: 'x' top: 'y' include { min_level: 2 max_level: 3 } }
layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y' include { stage: 'a' } }
layer { name: 'a_not_b' type: 'ReLU' bottom: 'x' top: 'y' include { stage: 'a' not_stage: 'b' } }
layer { name: 'b_or_test' type: 'ReLU' bottom: 'x' top: 'y' include { stage: 'b' } include { phase: TEST } }";

fn names(net: &NetSpec) -> Vec<&str> {
    net.layers.iter().map(|layer| layer.name.as_str()).collect()
}

#[test]
fn rules_decide_which_layers_take_part() {
    let spec = net(PHASES);
    assert_eq!(spec.layers.len(), 8);
    assert_eq!(names(&spec.for_phase(Phase::Train)), ["train", "not_test", "all"]);
    assert_eq!(names(&spec.for_phase(Phase::Test)), ["test", "all", "b_or_test"]);
    let state = |level, stages: &[&str]| NetState {
        phase: Phase::Train,
        level,
        stages: stages.iter().map(ToString::to_string).collect(),
    };
    let train = ["train", "not_test", "all"];
    let with = |more: &[&'static str]| [&train[..], more].concat();
    assert_eq!(names(&spec.for_state(&state(1, &[]))), train);
    assert_eq!(names(&spec.for_state(&state(2, &[]))), with(&["high"]));
    assert_eq!(names(&spec.for_state(&state(4, &["a"]))), with(&["a", "a_not_b"]));
    assert_eq!(names(&spec.for_state(&state(0, &["a", "b"]))), with(&["a", "b_or_test"]));
    let own = net(&format!("state {{ level: 3 stage: 'a' }} {PHASES}"));
    assert_eq!(names(&own.for_phase(Phase::Train)), with(&["high", "a", "a_not_b"]));
}

/// In Caffe a layer that has one passes forward as in that phase, whatever the net's is.
#[test]
fn a_phase_of_a_layer_s_own_is_told_to_have_no_effect() {
    let warnings = net(&layer_text("ReLU", "phase: TEST")).warnings;
    let texts: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["net.prototxt:2: field 'phase' of layer 'l' has no effect here"]);
}

#[test]
fn a_net_that_is_fed_from_outside() {
    let expected = vec![vec![10, 3, 227, 227], vec![10, 1, 1, 1]];
    let relu = "layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'y' }";
    for text in [
        "input: 'data' input_shape { dim: 10 dim: 3 dim: 227 dim: 227 } input: 'l' input_shape { dim: [10, 1, 1, 1] }",
        "input: 'data' input: 'l' input_dim: [10, 3, 227, 227, 10, 1, 1, 1]",
    ] {
        let spec = net(&format!("{text} {relu}"));
        let LayerKind::Input(input) = &spec.layers[0].kind else { panic!("{text}") };
        assert_eq!(
            (&input.shapes, &spec.layers[0].tops),
            (&expected, &vec!["data".to_owned(), "l".to_owned()])
        );
    }
    // Beside a layer that says more, the name alone says nothing.
    let input = "layer { name: 'i' type: 'Input' top: 'data' input_param { shape { dim: 1 dim: 3 } } }";
    assert_eq!(names(&net(&format!("input: 'data' {input} {relu}"))), ["i", "r"]);
    let message = net_error(&format!("input: 'data' input_dim: 10 {relu}"));
    assert_eq!(message, "net.prototxt:1: the net: each input needs one input_shape, or four times input_dim");
}

#[test]
fn fields_of_forks_that_would_change_what_is_computed_are_refused() {
    let error = |kind: &str, params: &str| net_error(&layer_text(kind, params));
    let fused = error("Convolution", "convolution_param { num_output: 1 kernel_size: 1 relu: true }");
    assert!(fused.ends_with("must be false: a layer of type ReLU is one"), "{fused}");
    let unscaled = error("Dropout", "dropout_param { scale_train: false }");
    assert!(unscaled.ends_with("must be true: a test leaves its bottom as it is"), "{unscaled}");
}

#[test]
fn the_notation_of_2014() {
    let spec = net("layers { name: 'c' type: CONVOLUTION bottom: 'x' top: 'y' blobs_lr: 1 blobs_lr: 2
        weight_decay: 1 weight_decay: 0 convolution_param { num_output: 1 kernel_size: 1 } }
        layers { name: 'd' type: DATA top: 'x' data_param { source: 's' batch_size: 2 scale: 0.5 crop_size: 3 } }
        layers { name: 'loss' type: SOFTMAX_LOSS bottom: 'y' bottom: 'x' }");
    assert_eq!(spec.warnings, []);
    let params: Vec<_> =
        spec.layers[0].params.iter().map(|param| (param.lr_mult, param.decay_mult)).collect();
    assert_eq!(params, [(1.0, 1.0), (2.0, 0.0)]);
    let LayerKind::Data(data) = &spec.layers[1].kind else { panic!() };
    assert_eq!((data.transform.scale, data.transform.crop_size), (0.5, Some(3)));
    assert_eq!(spec.layers[2].kind.type_name(), "SoftmaxWithLoss");
    let unknown = net("layers { name: 'h' type: HINGE_LOSS }").layers.remove(0).kind;
    assert_eq!(unknown, LayerKind::Unknown("Caffe's layer type HINGE_LOSS is not supported".to_owned()));
    let message = net_error("layers {\n layer { name: 'c' type: 'conv' } }");
    let expected = "this is Caffe's notation of 2013, which its tool upgrade_net_proto_text rewrites";
    assert_eq!(message, format!("net.prototxt:2: {expected}"));
    let both = "layer { type: 'ReLU' bottom: 'x' top: 'y' }\nlayers { type: RELU bottom: 'x' top: 'y' }";
    assert!(
        net_error(both)
            .starts_with("net.prototxt:2: the net: a net may have layers of the old or of the new")
    );
}

#[test]
fn the_mini_batch_can_be_changed() {
    let input = "layer { name: 'i' type: 'Input' top: 'x' top: 'l' input_param {
          shape { dim: 8 dim: 3 } shape { dim: 8 } } }";
    let mut spec = net(input);
    assert_eq!(spec.mini_batch(), Some(8));
    spec.set_mini_batch(5);
    assert_eq!(spec.mini_batch(), Some(5));
    let LayerKind::Input(input) = &spec.layers[0].kind else { panic!() };
    assert_eq!(input.shapes, [vec![5, 3], vec![5]]);
    // Data sets say how large it is, and what is as large goes with them.
    let dummy = |size| {
        format!("layer {{ type: 'DummyData' top: 'd' dummy_data_param {{ shape {{ dim: {size} }} }} }}\n")
    };
    let data = "layer { type: 'Data' top: 'z' data_param { source: 's' batch_size: 2 } }\n";
    let mut spec = net(&[&dummy(3), data, &dummy(2)].concat());
    assert_eq!(spec.mini_batch(), Some(2));
    spec.set_mini_batch(5);
    let batches: Vec<_> = spec.layers.iter().map(|layer| layer.kind.mini_batch()).collect();
    assert_eq!(batches, [Some(3), Some(5), Some(5)]);
    // So does what is reshaped to as many rows, and to no other number or along another axis.
    let reshape =
        |shape| format!("layer {{ type: 'Reshape' bottom: 'z' top: 'r' reshape_param {{ {shape} }} }}\n");
    let shapes = ["shape { dim: 2 dim: -1 }", "shape { dim: 0 dim: 2 }", "shape { dim: 2 } axis: 1", ""];
    let mut spec = net(&[data.to_owned(), shapes.map(reshape).concat()].concat());
    spec.set_mini_batch(5);
    let dims = spec.layers.iter().filter_map(|layer| match &layer.kind {
        LayerKind::Reshape(reshape) => Some(reshape.dims.clone()),
        _ => None,
    });
    assert_eq!(dims.collect::<Vec<_>>(), [vec![5, -1], vec![0, 2], vec![2], vec![]]);
    let mut spec = net("layer { type: 'Reshape' bottom: 'x' top: 'y' }");
    spec.set_mini_batch(5);
    assert_eq!(spec.mini_batch(), None);
}

#[test]
fn paths_are_looked_for_beside_the_file_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.prototxt");
    std::fs::write(folder.path().join("list.txt"), "").unwrap();
    let spec = NetSpec::parse(&file, "layer { type: 'ReLU' bottom: 'x' top: 'y' }").unwrap();
    assert_eq!(spec.resolve("list.txt"), folder.path().join("list.txt"));
    assert_eq!(spec.resolve("Cargo.toml"), Path::new("Cargo.toml"), "in the current directory");
    assert_eq!(spec.resolve("nowhere.txt"), folder.path().join("nowhere.txt"));
}

#[test]
fn classes_are_those_of_the_layer_before_the_loss() {
    let spec = net(r#"
        layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 2 } }
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 7 } }
        layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
        layer { name: "side" type: "InnerProduct" bottom: "ip" top: "side" inner_product_param { num_output: 99 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"#);
    assert_eq!(spec.classes(), 7);
}

/// A net that was trained on files of its own takes any images as these are: in their size, and with their order of
/// colours.
#[test]
fn a_net_predicts_images_as_its_data_are() {
    let predicting = |data: &str| {
        let text = format!(
            "layer {{ name: 'data' top: 'x' top: 'label' {data} }}
  layer {{ name: 'side' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'label' top: 'aside' loss_weight: 0.3 }}
  layer {{ name: 'loss' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'label' }}"
        );
        let (spec, scores) = net(&text).predicting(|_| Ok([3, 32, 32])).unwrap();
        let LayerKind::ImageData(images) = &spec.layers[0].kind else { panic!("{spec:?}") };
        assert_eq!((images.is_color, scores.as_str()), (true, "loss"));
        assert_eq!(Some(images.batch_size), net(&text).mini_batch());
        assert!(images.new_size == images.transform.new_size && !images.transform.mirror);
        (images.transform.is_rgb, images.transform.new_size)
    };
    let of_files = Some([32; 2]);
    assert_eq!(predicting("type: 'Data' data_param { source: 'cifar' batch_size: 2 }"), (true, of_files));
    let input = "type: 'Input' input_param { shape { dim: 1 dim: 3 dim: 32 dim: 32 } shape { dim: 1 } }";
    assert_eq!(predicting(input), (false, of_files));
    assert_eq!(
        predicting("type: 'ImageData' transform_param { mirror: true } image_data_param { source: 'l' }"),
        (false, None)
    );
    let kept = "type: 'ImageData' image_data_param { source: 'l' is_rgb: true new_height: 9 new_width: 8 }";
    assert_eq!(predicting(kept), (true, Some([9, 8])));
    // Scores become probabilities whether a test has a loss or not.
    let text =
        "layer { name: 'data' type: 'ImageData' top: 'x' top: 'label' image_data_param { source: 'l' } }
  layer { name: 'accuracy' type: 'Accuracy' bottom: 'x' bottom: 'label' top: 'accuracy' }
  layer { name: 'relu' type: 'ReLU' bottom: 'x' top: 'y' }";
    let unmeasured = text.replace("type: 'Accuracy'", "type: 'Eltwise'");
    let silenced = format!("{unmeasured} layer {{ name: 'silence' type: 'Silence' bottom: 'accuracy' }}");
    for (text, blob) in [(text.to_owned(), "x"), (unmeasured, "y"), (silenced, "y")] {
        let (spec, scores) = net(&text).predicting(|_| Ok([3, 32, 32])).unwrap();
        let last = spec.layers.last().unwrap();
        assert_eq!((&last.bottoms[..], &last.tops[..]), (&[blob.to_owned()][..], &[scores][..]));
        assert_eq!(last.kind, LayerKind::Softmax(crate::spec::SoftmaxParams { axis: 1 }));
    }
    // Of several heads that which an accuracy measures, wherever it stands.
    let heads =
        "layer { name: 'data' type: 'ImageData' top: 'x' top: 'label' image_data_param { source: 'l' } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'label' top: 'loss' }
  layer { name: 'accuracy' type: 'Accuracy' bottom: 'x' bottom: 'label' top: 'accuracy' }
  layer { name: 'relu' type: 'ReLU' bottom: 'x' top: 'y' }
  layer { name: 'side' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'label' top: 'aside' }";
    assert_eq!(net(heads).predicting(|_| Ok([3, 32, 32])).unwrap().1, "loss");
    let three = "layer { name: 'in' type: 'Input' top: 'x' top: 'label' top: 'z'
    input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } shape { dim: 1 } shape { dim: 1 } } }";
    let refused = net(three).predicting(|_| Ok([3, 32, 32])).unwrap_err();
    assert_eq!(refused, "it is fed with more than images and labels");
}
