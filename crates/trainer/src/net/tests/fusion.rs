//! ReLUs inside the layer before them: the same losses and gradients as with ReLUs of their own.

use super::{DATA, conv, head, ip, layer};
use crate::layers::{Absorbed, BuildOptions};
use crate::net::graph::Node;
use crate::net::{Net, RunLayout};
use crate::spec::{LayerKind, NetSpec, Phase};
use crate::testing::{Running, build};
use std::{collections::BTreeMap, path::Path};
use tensor::testing::{assert_close, sum_tolerance};
use tensor::{AxisOrder, Device, Format};

/// A layer `bn` with these fields.
fn norm(fields: &str) -> String {
    format!("layer {{ name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' {fields} }}\n")
}

const AFFINE: &str = "batch_norm_param { scale_bias: true eps: 0.01 }";

/// Losses and gradients of three iterations, which agree whether the ReLU over `blob` is in place, where `fused` says
/// whether it is absorbed, or has a top of its own, where it never is. `before` and `after` are the layers around it;
/// the latter read `blob`. Gradients of biases of these names need not be added up in the same order.
fn same_but(biases: &[&str], name: &str, [before, blob, after]: [&str; 3], fused: bool) {
    let relu = |top: &str| layer("ReLU", "relu", blob, top);
    let in_place = format!("{before}{}{after}", relu(blob));
    let apart = format!(
        "{before}{}{}",
        relu("apart"),
        after
            .replace(&format!("bottom: '{blob}'"), "bottom: 'apart'")
            .replace(&format!("top: '{blob}'"), "top: 'apart'")
    );
    let (mut in_place, mut apart) = (run(&in_place), run(&apart));
    assert_eq!((in_place.0, apart.0), (usize::from(fused), 0), "{name}");
    assert_close_biases(biases, &mut in_place, &mut apart);
    assert_same(name, &in_place, &apart);
}

fn same_apart(name: &str, before: &str, blob: &str, after: &str, fused: bool) {
    same_but(&[], name, [before, blob, after], fused);
}

/// Takes these gradients, which are close, away from both.
fn assert_close_biases(biases: &[&str], one: &mut Outcome, other: &mut Outcome) {
    for &bias in biases {
        let [one, other] = [&mut *one, &mut *other].map(|outcome| outcome.2.remove(bias).unwrap());
        let one: Vec<f32> = one.into_iter().map(f32::from_bits).collect();
        let other: Vec<f64> = other.into_iter().map(|bits| f32::from_bits(bits).into()).collect();
        assert_close(&one, &other, sum_tolerance(4 * 6 * 6), bias);
    }
}

/// ReLUs that run, in part or completely, inside the layer before them.
fn fused_relus(net: &Net) -> usize {
    let is_fused = |node: &&Node| {
        let is_relu = matches!(node.spec.kind, LayerKind::ReLU(_));
        node.absorbed != Absorbed::No || is_relu && !node.used_params.is_empty()
    };
    net.graph().nodes.iter().filter(is_fused).count()
}

/// ReLUs that are fused; losses and gradients of three iterations.
type Outcome = (usize, Vec<f64>, BTreeMap<String, Vec<u32>>);

fn run(text: &str) -> Outcome {
    let mut running = Running::new(text);
    let losses: Vec<f64> = (0..3).map(|number| running.iterate(number)).collect();
    // As bits: a gradient that nobody computes stays the NaN that it was.
    let gradients = running.gradients().into_iter().map(|(name, values)| {
        let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        (name, bits)
    });
    (fused_relus(running.net()), losses, gradients.collect())
}

fn assert_same(name: &str, fused: &Outcome, apart: &Outcome) {
    assert!(fused.1.iter().all(|loss| loss.is_finite()), "{name}");
    assert_eq!(fused.1, apart.1, "{name}");
    let is_something = |gradient: &Vec<u32>| gradient.iter().any(|&bits| f32::from_bits(bits) != 0.0);
    assert!(fused.2.values().any(is_something), "{name}");
    assert_eq!(fused.2, apart.2, "{name}");
}

#[test]
fn layers_absorb_the_relu_that_follows_in_place() {
    let first = format!("{DATA}{}", conv("conv", "data"));
    same_apart("Convolution", &first, "conv", &head("conv"), true);
    let before = format!("{first}{}", ip("hidden", "conv", ""));
    same_apart("InnerProduct", &before, "hidden", &head("hidden"), true);
    let before = format!("{first}{}", conv("other", "data"));
    for coefficients in ["", "eltwise_param { coeff: -0.5 coeff: 2 }"] {
        let sum = format!(
            "layer {{ name: 'sum' type: 'Eltwise' bottom: 'conv' bottom: 'other' top: 'sum' {coefficients} }}\n"
        );
        same_apart("Eltwise", &format!("{before}{sum}"), "sum", &head("sum"), true);
    }
    for fields in [
        "batch_norm_param { eps: 0.01 }",
        AFFINE,
        "batch_norm_param { use_global_stats: true eps: 1 }",
        "batch_norm_param { use_global_stats: true scale_bias: true eps: 1 }",
    ] {
        same_apart(fields, &format!("{first}{}", norm(fields)), "bn", &head("bn"), true);
    }
    let scale =
        "layer { name: 'scale' type: 'Scale' bottom: 'bn' top: 'bn' scale_param { bias_term: true } }\n";
    let before = format!("{first}{}{scale}", norm("batch_norm_param { eps: 0.01 }"));
    same_apart("Scale", &before, "bn", &head("bn"), true);
}

#[test]
fn a_gradient_that_stops_and_frozen_parameters() {
    let frozen = "param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }";
    let first = format!("{DATA}{}", conv("conv", "data"));
    for fields in [
        format!("propagate_down: false {AFFINE}"),
        format!("{frozen} param {{ lr_mult: 0 }} param {{ lr_mult: 0 }} {AFFINE}"),
        format!("{frozen} param {{ lr_mult: 0 }} {AFFINE}"),
    ] {
        same_apart(&fields, &format!("{first}{}", norm(&fields)), "bn", &head("bn"), true);
    }
    let still = first.replace("top: 'conv'", "top: 'conv' param { lr_mult: 0 } param { lr_mult: 0 }");
    same_apart("frozen below", &format!("{still}{}", norm(AFFINE)), "bn", &head("bn"), true);
}

#[test]
fn a_dropout_in_place_behind_it_and_two_readers() {
    let before = format!("{DATA}{}{}", conv("conv", "data"), norm(AFFINE));
    let dropout = format!("{}{}", layer("Dropout", "drop", "bn", "bn"), head("bn"));
    same_apart("Dropout", &before, "bn", &dropout, true);
    let sum = "layer { name: 'sum' type: 'Eltwise' bottom: 'bn' bottom: 'next' top: 'sum' }\n";
    let readers = format!("{}{sum}{}", conv("next", "bn"), head("sum"));
    same_apart("two readers", &before, "bn", &readers, true);
}

#[test]
fn not_every_relu_is_absorbed() {
    let count = |text: String| fused_relus(&build(&text).unwrap());
    let relu = layer("ReLU", "relu", "conv", "conv");
    let first = format!("{DATA}{}", conv("conv", "data"));
    assert_eq!(count(format!("{first}{relu}{}", head("conv"))), 1);
    let leaky = relu.replace(" }", " relu_param { negative_slope: 0.1 } }");
    assert_eq!(count(format!("{first}{leaky}{}", head("conv"))), 0, "a slope");
    let no_bias = first.replace("pad: 1", "pad: 1 bias_term: false");
    assert_eq!(count(format!("{no_bias}{relu}{}", head("conv"))), 0, "no pass to join");
    let again = layer("ReLU", "again", "conv", "conv");
    assert_eq!(count(format!("{first}{relu}{again}{}", head("conv"))), 1, "a ReLU over a ReLU");
    let reader = layer("ReLU", "reader", "conv", "copy");
    assert_eq!(count(format!("{first}{reader}{relu}{}", head("conv"))), 0, "another reader");
}

/// With a batch normalisation before and a sum behind it, nothing needs the ReLU's top after the forward pass.
#[test]
fn an_absorbed_relu_does_not_keep_its_top() {
    let sum = "layer { name: 'sum' type: 'Eltwise' bottom: 'bn' bottom: 'conv' top: 'sum' }\n";
    let relu = layer("ReLU", "relu", "bn", "bn");
    let text = |slope: &str| {
        let relu = relu.replace(" }", &format!(" relu_param {{ negative_slope: {slope} }} }}"));
        format!("{DATA}{}{}{relu}{sum}{}", conv("conv", "data"), norm(AFFINE), head("sum"))
    };
    let bytes = |text: &str| RunLayout::new(&[&build(text).unwrap()], false).report.nets[0].lower_bound;
    assert!(bytes(&text("0")) < bytes(&text("0.5")));
}

/// A layer that leaves its bottom as it is: what stands between is not fused.
fn same(bottom: &str, top: &str) -> String {
    layer("Power", &format!("{top}_of"), bottom, top)
}

fn sum(bottoms: [&str; 2], fields: &str) -> String {
    let [a, b] = bottoms;
    format!("layer {{ name: 'sum' type: 'Eltwise' bottom: '{a}' bottom: '{b}' top: 'sum' {fields} }}\n")
}

fn layers(text: &str) -> usize {
    build(text).unwrap().graph().nodes.len()
}

/// The results are those of a sum of its own; the blob between is no more.
#[test]
fn a_batch_normalisation_does_the_sum_that_alone_reads_it() {
    let relu = layer("ReLU", "relu", "sum", "sum");
    let dropout = format!("{relu}{}", layer("Dropout", "drop", "sum", "sum"));
    let apart = layer("ReLU", "relu", "sum", "apart");
    let frozen = "param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }";
    let fields = [
        AFFINE.to_owned(),
        "batch_norm_param { eps: 0.01 }".to_owned(),
        "batch_norm_param { use_global_stats: true scale_bias: true eps: 1 }".to_owned(),
        format!("{frozen} {AFFINE}"),
        format!("propagate_down: false {AFFINE}"),
    ];
    // The other summand has a reader of its own, or is only there for the sum.
    let first = format!("{DATA}{}", conv("other", "data"));
    for (below, fields) in ["other", "data"].iter().flat_map(|below| fields.iter().map(move |f| (below, f))) {
        for (behind, last) in [("", "sum"), (&relu, "sum"), (&dropout, "sum"), (&apart, "apart")] {
            for bottoms in [["bn", "other"], ["other", "bn"]] {
                let before = format!("{first}{}{}", conv("conv", below), norm(fields));
                let text = |between: &str, bottoms| {
                    format!("{before}{between}{}{behind}{}", sum(bottoms, ""), head(last))
                };
                let fused = text("", bottoms);
                let apart =
                    text(&same("bn", "same"), bottoms.map(|blob| if blob == "bn" { "same" } else { blob }));
                assert_eq!(layers(&fused) + 2, layers(&apart), "{fused}");
                assert_same(&fused, &run(&fused), &run(&apart));
            }
        }
    }
}

#[test]
fn two_normalised_summands_and_a_block_behind_another() {
    let relu = layer("ReLU", "relu", "sum", "sum");
    let second = norm(AFFINE).replace("'bn'", "'bn2'").replace("'conv'", "'conv2'");
    let text = |between: &str, bottoms| {
        let convs =
            format!("{DATA}{}{}{}{second}", conv("conv", "data"), norm(AFFINE), conv("conv2", "data"));
        let next = format!(
            "{}{}",
            conv("conv3", "sum"),
            norm(AFFINE).replace("'bn'", "'bn3'").replace("'conv'", "'conv3'")
        );
        let tail = "layer { name: 'sum2' type: 'Eltwise' bottom: 'sum' bottom: 'bn3' top: 'sum2' }\n";
        format!(
            "{convs}{between}{}{relu}{next}{tail}{}",
            sum(bottoms, "eltwise_param { coeff: 1 coeff: 1 }"),
            head("sum2")
        )
    };
    let fused = text("", ["bn", "bn2"]);
    let apart = text(&format!("{}{}", same("bn", "same"), same("bn2", "same2")), ["same", "same2"]);
    assert_eq!(layers(&fused) + 3, layers(&apart));
    assert_same("two", &run(&fused), &run(&apart));
}

#[test]
fn not_every_sum_is_part_of_a_batch_normalisation() {
    let first = format!("{DATA}{}{}{}", conv("other", "data"), conv("conv", "data"), norm(AFFINE));
    let count = |before: &str, sum: &str, last: &str| layers(&format!("{before}{sum}{}", head(last)));
    let all = count(&first, &sum(["bn", "other"], "eltwise_param { coeff: 1 coeff: 0.5 }"), "sum");
    assert_eq!(count(&first, &sum(["bn", "other"], ""), "sum"), all - 1);
    for fields in ["eltwise_param { operation: MAX }", "propagate_down: true propagate_down: false"] {
        assert_eq!(count(&first, &sum(["bn", "other"], fields), "sum"), all, "{fields}");
    }
    let three = sum(["bn", "other"], "bottom: 'conv'");
    assert_eq!(count(&first, &three, "sum"), all, "three summands");
    let twice = format!("{first}{}", layer("ReLU", "relu", "bn", "bn"));
    assert_eq!(count(&twice, &sum(["bn", "other"], ""), "sum"), all + 1, "a ReLU in place between");
    let read = format!("{first}{}", conv("reader", "bn"));
    assert_eq!(count(&read, &sum(["bn", "reader"], ""), "sum"), all + 1, "two readers");
    let written = format!("{first}{}", layer("TanH", "tanh", "conv", "conv"));
    assert_eq!(count(&written, &sum(["bn", "other"], ""), "sum"), all + 1, "written again below");
    let named = first.replace(AFFINE, &format!("param {{ name: 'mean' }} {AFFINE}"));
    assert_eq!(count(&named, &sum(["bn", "other"], ""), "sum"), all, "parameters that another may share");
    let text = format!("{first}{}{}", sum(["bn", "other"], ""), head("sum"));
    let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap().for_phase(Phase::Train);
    let options = BuildOptions { device: Device::cpu(), seed: 1, synthetic: None };
    let without_gradients = Net::new(&spec, &options, false).unwrap();
    assert_eq!(without_gradients.graph().nodes.len(), all, "not for training");
}

/// In NHWC alone; what is computed is compared on a GPU, which alone computes in that order.
#[test]
fn a_batch_normalisation_does_the_maximum_pooling_that_alone_reads_it() {
    let names = |text: &str, order| {
        let spec = NetSpec::parse(Path::new("net.prototxt"), text).unwrap().for_phase(Phase::Train);
        let mut device = Device::cpu();
        device.set_format(Format::F32.in_order(order));
        let net = Net::new(&spec, &BuildOptions { device, seed: 1, synthetic: None }, true).unwrap();
        let node = |node: &Node| format!("{} {}", node.spec.name, net.graph().values[node.tops[0]].name);
        let convert = |node: &&Node| !node.spec.name.ends_with("convert");
        net.graph().nodes.iter().filter(convert).map(node).collect::<Vec<_>>()
    };
    let pool = |fields: &str| {
        format!("layer {{ name: 'pool' type: 'Pooling' bottom: 'bn' top: 'pool' {fields} }}\n")
    };
    let plain = pool("pooling_param { kernel_size: 3 stride: 2 pad: 1 }");
    let relu = layer("ReLU", "relu", "bn", "bn");
    let first = format!("{DATA}{}{}", conv("conv", "data"), norm(AFFINE));
    let joined = |first: &str, between: &str, pool: &str, last: &str| {
        let names = names(&format!("{first}{between}{pool}{}", head(last)), AxisOrder::Nhwc);
        names.contains(&"bn pool".to_owned())
    };
    let text = format!("{first}{relu}{plain}{}", head("pool"));
    let behind = ["ip ip", "loss loss"];
    let expected = |names: &[&'static str]| [&["data data", "conv conv"], names, &behind].concat();
    assert_eq!(names(&text, AxisOrder::Nhwc), expected(&["bn pool", "relu pool"]));
    assert_eq!(names(&text, AxisOrder::Nchw), expected(&["bn bn", "relu bn", "pool pool"]));
    assert!(joined(&first, "", &plain, "pool"));
    assert!(joined(&first, "", &format!("{plain}{}", sum(["pool", "pool"], "")), "sum"), "a sum behind");
    for fields in [
        "pooling_param { kernel_size: 2 stride: 2 }",
        "pooling_param { kernel_size: 3 stride: 1 }",
        "pooling_param { pool: AVE kernel_size: 3 stride: 2 }",
        "pooling_param { global_pooling: true }",
        "propagate_down: true pooling_param { kernel_size: 3 stride: 2 }",
    ] {
        assert!(!joined(&first, "", &pool(fields), "pool"), "{fields}");
    }
    let leaky = relu.replace(" }", " relu_param { negative_slope: 0.1 } }");
    assert!(!joined(&first, &leaky, &plain, "pool"), "a slope");
    assert!(!joined(&first, &conv("reader", "bn"), &plain, "pool"), "two readers");
    let behind_sum = format!("{first}{}", sum(["bn", "conv"], "").replace("top: 'sum'", "top: 'bn2'"));
    assert!(!joined(&behind_sum, "", &plain.replace("'bn'", "'bn2'"), "pool"), "a sum between");
    let running = first.replace(AFFINE, "batch_norm_param { use_global_stats: true eps: 1 }");
    assert!(!joined(&running, "", &plain, "pool"), "running statistics");
}

#[test]
fn a_maximum_pooling_does_the_relu_on_either_side() {
    let pool = |bottom: &str, top: &str| {
        let pool = layer("Pooling", "pool", bottom, top);
        pool.replace(" }\n", " pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 } }\n")
    };
    let norm = norm(AFFINE).replace("'conv'", "'in'").replace("top: 'bn'", "top: 'conv'");
    for (before, biases) in [
        (format!("{DATA}{}", conv("conv", "data")), &["conv.1"][..]),
        (format!("{DATA}{}{norm}", conv("in", "data")), &[]),
    ] {
        let behind = format!("{}{}", pool("conv", "pool"), head("pool"));
        same_but(biases, "before", [&before, "conv", &behind], true);
        let before = format!("{before}{}", pool("conv", "pool"));
        same_but(biases, "behind", [&before, "pool", &head("pool")], true);
    }
}

/// Names of layers that add the bias of another.
fn adders(text: &str) -> Vec<String> {
    let net = build(text).unwrap();
    let nodes = net.graph().nodes.iter();
    nodes
        .filter(|node| node.used_params.len() > node.params.len())
        .map(|node| node.spec.name.clone())
        .collect()
}

#[test]
fn biases_are_added_by_the_layer_behind() {
    let pool = "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool' \
                pooling_param { kernel_size: 3 stride: 2 } }\n";
    let first = format!("{DATA}{}", conv("conv", "data"));
    let apart = format!("{}{}", same("conv", "same"), pool.replace("'conv'", "'same'"));
    for (fields, biases) in [
        ("", &["conv.1"][..]),
        ("param { lr_mult: 0 }", &["conv.1"]),
        ("param { } param { lr_mult: 0 }", &[]),
    ] {
        let first = first.replace("top: 'conv'", &format!("top: 'conv' {fields}"));
        let text = format!("{first}{pool}{}", head("pool"));
        assert_eq!(adders(&text), ["pool"]);
        let (mut behind, mut before) = (run(&text), run(&text.replace(pool, &apart)));
        assert_close_biases(biases, &mut behind, &mut before);
        assert_same(fields, &behind, &before);
    }
    let relu = |blob: &str| layer("ReLU", "relu", blob, blob);
    let after = |layers: &str, last: &str| adders(&format!("{first}{layers}{}", head(last)));
    assert_eq!(after(&relu("conv"), "conv"), ["relu"]);
    assert_eq!(after(&format!("{}{pool}", relu("conv")), "pool"), ["pool"], "with the ReLU between");
    // What comes in place behind the pooling keeps the signs by which the bias has its gradient.
    let sigmoid = |top: &str| {
        let sigmoid = layer("Sigmoid", "sigmoid", "pool", top);
        run(&format!("{first}{}{pool}{sigmoid}{}", relu("conv"), head(top)))
    };
    assert_same("a sigmoid behind", &sigmoid("pool"), &sigmoid("apart"));
    let leaky = relu("conv").replace(" }", " relu_param { negative_slope: 0.1 } }");
    assert!(after(&leaky, "conv").is_empty(), "a slope");
    assert!(
        after(&pool.replace("pooling_param {", "pooling_param { pool: AVE"), "pool").is_empty(),
        "an average"
    );
    let read = format!("{pool}{}", layer("Power", "reader", "conv", "copy"));
    assert!(after(&read, "pool").is_empty(), "another reader");
    let shared = |name: &str, bottom: &str| {
        conv(name, bottom)
            .replace("convolution_param", "param { name: 'w' } param { name: 'b' } convolution_param")
    };
    let siamese = format!("{DATA}{}{}{}", shared("conv", "data"), relu("conv"), shared("next", "data"));
    let both = format!("{siamese}{}{}", sum(["conv", "next"], ""), head("sum"));
    assert!(adders(&both).is_empty(), "shared with another layer");
    let rows = ip("rows", "conv", "").replace("num_output: 3", "num_output: 3 axis: 3");
    assert!(after(&format!("{rows}{}", relu("rows")), "rows").is_empty(), "channels are the last axis");
}

#[test]
fn blobs_that_training_does_without_cannot_be_kept() {
    let pool = layer("Pooling", "pool", "sum", "pool")
        .replace(" }\n", " pooling_param { kernel_size: 2 stride: 2 } }\n");
    let first = format!("{DATA}{}{}{}", conv("other", "data"), conv("conv", "data"), norm(AFFINE));
    let relu = layer("ReLU", "relu", "sum", "sum");
    let mut net = build(&format!("{first}{}{relu}{pool}{}", sum(["bn", "other"], ""), head("pool"))).unwrap();
    for (blob, is_there) in [("conv", true), ("other", true), ("bn", false), ("sum", false), ("pool", true)] {
        let kept = net.keep_blob(blob);
        assert_eq!(kept.is_ok(), is_there, "{blob}: {kept:?}");
    }
}

/// What lies before the pooling is read by nobody but it.
#[test]
fn a_relu_behind_its_pooling_keeps_no_large_blob() {
    let bytes = |text: &str| RunLayout::new(&[&build(text).unwrap()], false).report.nets[0].lower_bound;
    let text = |window: &str| {
        let pool = format!("pooling_param {{ pool: {window} kernel_size: 2 stride: 2 }} }}\n");
        let pool = layer("Pooling", "pool", "conv", "pool").replace("}\n", &pool);
        let relu = layer("ReLU", "relu", "conv", "conv");
        format!("{DATA}{}{relu}{pool}{}", conv("conv", "data"), head("pool"))
    };
    assert!(bytes(&text("MAX")) <= bytes(&text("AVE")));
}
