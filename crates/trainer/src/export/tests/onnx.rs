//! ONNX files, read back field by field.

use super::{build, values};
use crate::export::{onnx, state_dict};
use crate::protobuf::{Value, fields};
use crate::spec::{NetSpec, Phase};
use crate::{NetError, testing::root};
use std::{collections::BTreeMap, path::Path};
use tensor::{Cpu, Device};

/// A message as its numbers and its bytes, by field.
#[derive(Default)]
struct Message {
    numbers: BTreeMap<u64, Vec<u64>>,
    bytes: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Message {
    fn read(message: &[u8]) -> Self {
        let mut read = Self::default();
        for field in fields(message) {
            match field.expect("a message of protobuf") {
                (number, Value::Varint(value)) => read.numbers.entry(number).or_default().push(value),
                (number, Value::Bytes(bytes)) => read.bytes.entry(number).or_default().push(bytes.to_vec()),
            }
        }
        read
    }

    fn messages(&self, field: u64) -> Vec<Self> {
        self.bytes.get(&field).into_iter().flatten().map(|bytes| Self::read(bytes)).collect()
    }

    fn texts(&self, field: u64) -> Vec<String> {
        let texts = self.bytes.get(&field).into_iter().flatten();
        texts.map(|bytes| String::from_utf8(bytes.clone()).unwrap()).collect()
    }

    fn text(&self, field: u64) -> String {
        self.texts(field).concat()
    }

    fn list(&self, field: u64) -> Vec<u64> {
        self.numbers.get(&field).cloned().unwrap_or_default()
    }
}

fn export(spec: &NetSpec) -> Result<(Message, Vec<Vec<f32>>), NetError> {
    let net = build(&Device::Cpu(Cpu::new(2)), spec);
    let values = values(&net);
    Ok((Message::read(&onnx(&net, &values)?), values))
}

fn parse(text: &str) -> NetSpec {
    NetSpec::parse(Path::new("net.prototxt"), text).unwrap().for_phase(Phase::Test)
}

const INPUT: &str = "layer { name: 'data' type: 'Input' top: 'data' top: 'label'
  input_param { shape { dim: 2 dim: 4 dim: 7 dim: 6 } shape { dim: 2 } } }\n";

/// A layer from blob to blob.
fn layer(kind: &str, name: &str, bottoms: &[&str], fields: &str) -> String {
    let bottoms: String = bottoms.iter().map(|bottom| format!("bottom: '{bottom}' ")).collect();
    format!("layer {{ name: '{name}' type: '{kind}' {bottoms} top: '{name}' {fields} }}\n")
}

/// The operators of a graph, each with its inputs and its output.
fn operators(graph: &Message) -> Vec<(String, Vec<String>, String)> {
    graph.messages(1).iter().map(|node| (node.text(4), node.texts(1), node.text(2))).collect()
}

/// The attributes of operator number `index` that are integers.
fn integers(graph: &Message, index: usize) -> BTreeMap<String, Vec<u64>> {
    let attributes = graph.messages(1)[index].messages(5);
    attributes.iter().map(|one| (one.text(1), [one.list(3), one.list(8)].concat())).collect()
}

#[test]
fn a_net_is_a_graph_of_operators_with_its_weights() {
    let text = [
        INPUT,
        &layer(
            "Convolution",
            "conv",
            &["data"],
            "convolution_param { num_output: 6 kernel_size: 3 pad: 1 group: 2 stride: 2 }",
        ),
        &layer("BatchNorm", "norm", &["conv"], "batch_norm_param { eps: 0.5 }"),
        &layer("Scale", "scale", &["norm"], "scale_param { bias_term: true }"),
        "layer { name: 'relu' type: 'ReLU' bottom: 'scale' top: 'scale' }\n",
        &layer(
            "Convolution",
            "side",
            &["scale"],
            "convolution_param { num_output: 6 kernel_size: 1 bias_term: false }",
        ),
        &layer("Eltwise", "sum", &["side", "scale", "scale"], ""),
        &layer("Pooling", "pool", &["sum"], "pooling_param { kernel_size: 3 stride: 2 }"),
        &layer("Concat", "both", &["pool", "pool"], ""),
        "layer { name: 'drop' type: 'Dropout' bottom: 'both' top: 'both' }\n",
        &layer("InnerProduct", "fc", &["both"], "inner_product_param { num_output: 3 }"),
        &layer("SoftmaxWithLoss", "loss", &["fc", "label"], ""),
        &layer("Accuracy", "accuracy", &["fc", "label"], ""),
    ]
    .concat();
    let spec = parse(&text);
    let (model, values) = export(&spec).unwrap();
    assert_eq!((model.list(1), model.messages(8)[0].list(2)), (vec![8], vec![17]));
    let graph = &model.messages(7)[0];
    let found = operators(graph);
    let operators: Vec<&str> = found.iter().map(|(operator, ..)| operator.as_str()).collect();
    let expected = [
        "Conv",
        "BatchNormalization",
        "Mul",
        "Add",
        "Relu",
        "Conv",
        "Add",
        "Add",
        "MaxPool",
        "Concat",
        "Flatten",
        "Gemm",
    ];
    assert_eq!(operators, expected);
    // Every input is the net's, a constant, or the output of an operator before it.
    let mut known: Vec<String> = graph
        .messages(11)
        .iter()
        .chain(&graph.messages(5))
        .map(|value| if value.texts(8).is_empty() { value.text(1) } else { value.text(8) })
        .collect();
    for (operator, inputs, output) in &found {
        assert!(inputs.iter().all(|input| known.contains(input)), "{operator} reads {inputs:?}");
        assert!(!known.contains(output), "{output} is written twice");
        known.push(output.clone());
    }
    let names = |field| graph.messages(field).iter().map(|value| value.text(1)).collect::<Vec<_>>();
    assert_eq!((names(11), names(12)), (vec!["data".to_owned()], vec!["fc".to_owned()]));
    let conv = integers(graph, 0);
    let expected = [
        ("dilations", vec![1, 1]),
        ("group", vec![2]),
        ("kernel_shape", vec![3, 3]),
        ("pads", vec![1; 4]),
        ("strides", vec![2, 2]),
    ];
    assert_eq!(conv, BTreeMap::from(expected.map(|(name, values)| (name.to_owned(), values))));
    // 4 x 3 pixels have 2 x 1 windows of 3 with a step of 2, of which the second hangs over by one.
    assert_eq!(integers(graph, 8)["pads"], [0, 0, 1, 0]);
    assert_eq!(integers(graph, 11)["transB"], [1]);

    let constants: BTreeMap<String, Vec<u8>> = graph
        .messages(5)
        .iter()
        .map(|tensor| (tensor.text(8).replace("/1", ""), tensor.bytes[&9].concat()))
        .collect();
    let net = build(&Device::Cpu(Cpu::new(2)), &spec);
    for (param, values) in
        net.graph().params.iter().zip(&values).filter(|(param, _)| !param.name.starts_with("norm."))
    {
        assert_eq!(constants[&param.name], bytemuck::cast_slice::<f32, u8>(values), "{}", param.name);
    }
    // Sums of running statistics are divided by their factor.
    let norm = net.graph().params.iter().position(|param| param.name == "norm.0").unwrap();
    let means: Vec<f32> = values[norm].iter().map(|sum| sum * (1.0 / values[norm + 2][0])).collect();
    assert_eq!(constants["norm.mean"], bytemuck::cast_slice::<f32, u8>(&means));
}

#[test]
fn what_is_silenced_is_no_output() {
    let silence = "layer { name: 'silence' type: 'Silence' bottom: 'side' }\n";
    let text = [INPUT, &layer("ReLU", "relu", &["data"], ""), &layer("TanH", "side", &["data"], ""), silence];
    let (model, _) = export(&parse(&text.concat())).unwrap();
    let graph = &model.messages(7)[0];
    assert_eq!(operators(graph).len(), 2);
    assert_eq!(graph.messages(12).iter().map(|value| value.text(1)).collect::<Vec<_>>(), ["relu"]);
}

/// What stands between operators has a name of its own, whatever blobs are called.
#[test]
fn no_name_stands_twice() {
    let text = [
        INPUT.replace("top: 'data'", "top: 'fc/rows'"),
        layer("BatchNorm", "norm", &["fc/rows"], ""),
        layer("PReLU", "norm.mean", &["norm"], ""),
        "layer { name: 'relu' type: 'ReLU' bottom: 'norm.mean' top: 'norm.mean' }\n".to_owned(),
        layer("PReLU", "norm.mean.0/1/1", &["norm.mean"], ""),
        layer("InnerProduct", "fc", &["norm.mean.0/1/1"], "inner_product_param { num_output: 3 }"),
    ];
    let (model, _) = export(&parse(&text.concat())).unwrap();
    let graph = &model.messages(7)[0];
    let made = operators(graph).into_iter().map(|(.., output)| output);
    let constants = graph.messages(5).into_iter().map(|tensor| tensor.text(8));
    let mut names: Vec<String> = made.chain(constants).chain(["fc/rows".to_owned()]).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

#[test]
fn averages_over_windows_that_hang_over_do_not_count_what_lies_behind() {
    let pooled = |fields: &str| {
        let fields = format!("pooling_param {{ pool: AVE {fields} }}");
        export(&parse(&format!("{INPUT}{}", layer("Pooling", "pool", &["data"], &fields))))
    };
    let graph = |fields: &str| pooled(fields).unwrap().0.messages(7).remove(0);
    // 7 x 6 pixels.
    let padded = integers(&graph("kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR"), 0);
    assert_eq!((&padded["pads"][..], &padded["count_include_pad"][..]), (&[1, 1, 1, 0][..], &[1][..]));
    let hanging = integers(&graph("kernel_size: 3 stride: 2"), 0);
    assert_eq!((&hanging["pads"][..], &hanging["count_include_pad"][..]), (&[0, 0, 0, 1][..], &[0][..]));
    let global = integers(&graph("global_pooling: true"), 0);
    assert_eq!((&global["kernel_shape"][..], &global["pads"][..]), (&[7, 6][..], &[0; 4][..]));
    let error = pooled("kernel_size: 3 stride: 3 pad: 1").err().unwrap().to_string();
    let sentence = "layer 'pool': this form of Pooling cannot be exported to ONNX";
    assert!(error.starts_with("net.prototxt:") && error.ends_with(sentence), "{error}");
}

#[test]
fn layers_without_counterpart_are_named() {
    for (kind, bottoms, fields) in [
        ("Slice", &["data"][..], ""),
        ("Power", &["data"], "power_param { power: 2 }"),
        ("LRN", &["data"], "lrn_param { norm_region: WITHIN_CHANNEL }"),
        ("Eltwise", &["data", "data"], "eltwise_param { coeff: 1 coeff: -1 }"),
        ("BatchNorm", &["data"], "batch_norm_param { use_global_stats: false }"),
        ("InnerProduct", &["data"], "inner_product_param { num_output: 2 axis: 2 }"),
        ("Reshape", &["data"], "reshape_param { shape { dim: 1 dim: -1 } }"),
    ] {
        let error = export(&parse(&format!("{INPUT}{}", layer(kind, "l", bottoms, fields)))).err().unwrap();
        let sentence = format!("layer 'l': this form of {kind} cannot be exported to ONNX");
        assert!(error.to_string().ends_with(&sentence), "{error}");
    }
    let transposed =
        layer("InnerProduct", "l", &["data"], "inner_product_param { num_output: 2 transpose: true }");
    let net = build(&Device::Cpu(Cpu::new(2)), &parse(&format!("{INPUT}{transposed}")));
    let error = state_dict(&net, &values(&net)).unwrap_err().to_string();
    assert!(error.ends_with("layer 'l': this form of InnerProduct has no counterpart in PyTorch"), "{error}");
    assert!(onnx(&net, &values(&net)).is_ok());
}

#[test]
fn rectifiers_and_their_like_have_operators_of_their_own() {
    let chain = [
        INPUT,
        &layer("PReLU", "prelu", &["data"], ""),
        &layer("PReLU", "shared", &["prelu"], "prelu_param { channel_shared: true }"),
        &layer("ELU", "elu", &["shared"], "elu_param { alpha: 0.5 }"),
        &layer("ReLU", "leaky", &["elu"], "relu_param { negative_slope: 0.25 }"),
        &layer("Sigmoid", "sigmoid", &["leaky"], ""),
        &layer("TanH", "tanh", &["sigmoid"], ""),
    ];
    let (model, _) = export(&parse(&chain.concat())).unwrap();
    let graph = &model.messages(7)[0];
    let found: Vec<String> = operators(graph).into_iter().map(|(operator, ..)| operator).collect();
    assert_eq!(found, ["PRelu", "PRelu", "Elu", "LeakyRelu", "Sigmoid", "Tanh"]);
    let shapes: Vec<Vec<u64>> = graph.messages(5).iter().map(|tensor| tensor.list(1)).collect();
    assert_eq!(shapes.iter().map(|dims| dims.iter().product::<u64>()).collect::<Vec<_>>(), [4, 1]);
    assert_eq!(shapes[0], [4, 1, 1]);
    let alpha = &graph.messages(1)[2].messages(5)[0];
    assert_eq!((alpha.text(1).as_str(), alpha.bytes[&2].concat()), ("alpha", 0.5_f32.to_le_bytes().to_vec()));
}

/// A slope for each channel, of images and behind the classifier.
#[test]
fn what_layers_share_has_the_shape_that_each_wants() {
    let shared = "param { name: 'w' }";
    let classifier =
        layer("InnerProduct", "ip", &["a"], "inner_product_param { num_output: 4 bias_term: false }");
    let chain =
        [INPUT, &layer("PReLU", "a", &["data"], shared), &classifier, &layer("PReLU", "b", &["ip"], shared)];
    let (model, _) = export(&parse(&chain.concat())).unwrap();
    let graph = &model.messages(7)[0];
    let constants: BTreeMap<String, Vec<u64>> =
        graph.messages(5).iter().map(|tensor| (tensor.text(8), tensor.list(1))).collect();
    let slopes = operators(graph).into_iter().filter(|(operator, ..)| operator == "PRelu");
    let shapes: Vec<&Vec<u64>> = slopes.map(|(_, inputs, _)| &constants[&inputs[1]]).collect();
    assert_eq!(shapes, [&vec![4, 1, 1], &vec![4]]);
}

/// Every net that we have, in the phase TEST.
#[test]
fn all_models_have_counterparts() {
    for entry in std::fs::read_dir(root().join("models")).unwrap() {
        let file = entry.unwrap().path().join("net.prototxt");
        let spec = NetSpec::load(&file).unwrap().for_phase(Phase::Test);
        let device = Device::Cpu(Cpu::new(2));
        let synthetic = Some(crate::layers::SyntheticData { shape: Some([3, 224, 224]), stand_in: true });
        let options = crate::layers::BuildOptions { device, seed: 1, synthetic };
        let net = crate::Net::new(&spec, &options, false).unwrap();
        // Without the values, which are many.
        let values = vec![vec![1.0]; net.graph().params.len()];
        let model = Message::read(&onnx(&net, &values).unwrap());
        assert_eq!(model.messages(7)[0].messages(12).len(), 1, "{}", file.display());
    }
}
