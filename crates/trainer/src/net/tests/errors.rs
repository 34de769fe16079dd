//! Nets that cannot be, and the sentence that says why.

use super::{DATA, conv, head, ip, layer};
use crate::testing::build_error;

fn refused(text: &str, sentence: &str) {
    let error = build_error(text);
    assert!(error.contains(sentence), "{error}\ndoes not say: {sentence}");
    assert!(error.starts_with("net.prototxt:"), "{error}\nhas no place");
}

#[test]
fn a_bottom_that_nothing_produces() {
    let text = format!("{DATA}{}", head("fetures"));
    refused(&text, "net.prototxt:4: layer 'ip': bottom 'fetures' is not the top of any layer of this phase");
}

#[test]
fn a_cycle() {
    let text = format!("{DATA}{}{}", layer("ReLU", "a", "b", "a"), layer("ReLU", "b", "a", "b"));
    refused(&text, "net.prototxt:4: layer 'a': bottom 'b' comes only from layer 'b' (net.prototxt:5)");
    refused(&text, "cycle");
}

#[test]
fn a_top_with_two_producers() {
    let text = format!("{DATA}{}{}", layer("ReLU", "a", "data", "x"), layer("ReLU", "b", "data", "x"));
    refused(&text, "net.prototxt:5: layer 'b': top 'x' is already the top of layer 'a'");
    let twice = format!("{DATA}layer {{ name: 's' type: 'Split' bottom: 'data' top: 'x' top: 'x' }}");
    refused(&twice, "layer 's': top 'x' stands twice");
    let in_place =
        format!("{DATA}layer {{ name: 's' type: 'Split' bottom: 'data' top: 'data' top: 'data' }}");
    refused(&in_place, "layer 's': top 'data' stands twice");
}

#[test]
fn two_layers_of_one_name() {
    let text = format!("{DATA}{}{}", ip("a", "data", ""), layer("PReLU", "a", "a", "y"));
    refused(&text, "layer 'a': there is another layer of this name (net.prototxt:4)");
}

#[test]
fn data_without_a_source() {
    let text = "layer { name: 'd' type: 'Data' top: 'x' data_param { batch_size: 1 } }";
    refused(text, "layer 'd': source is missing (--synthetic replaces the data with synthetic images)");
}

#[test]
fn a_type_that_is_not_known() {
    let text = format!("{DATA}{}", layer("Relu", "a", "data", "x"));
    refused(&text, "net.prototxt:4: layer 'a': layer type 'Relu' is not known; did you mean ReLU?");
}

#[test]
fn parameters_that_cannot_be_shared() {
    let shared = |name: &str| format!("param {{ name: '{name}' }}");
    let shapes = format!("{DATA}{}{}", ip("a", "data", &shared("w")), ip("b", "a", &shared("w")));
    refused(&shapes, "layer 'b': it shares parameter 'w' of shape 3 72 (216), but needs 3 3 (9)");
    let mults = |mult: &str| format!("param {{ name: 'w' {mult} }}");
    for (first, second) in [("", "lr_mult: 0"), ("lr_mult: 1", "decay_mult: 7")] {
        let pair = [ip("a", "data", &mults(first)), ip("b", "data", &mults(second))].concat();
        let why = "layer 'b': it shares parameter 'w', for which the first layer says another lr_mult or decay_mult";
        refused(&format!("{DATA}{pair}"), why);
    }
    let frozen = "param { name: 'w' lr_mult: 0 }";
    let convolution = "convolution_param { num_output: 2 kernel_size: 1 }";
    let learned = format!(
        "{DATA}layer {{ name: 'a' type: 'Convolution' bottom: 'data' top: 'a' param {{ lr_mult: 0 }} {frozen}
          {convolution} }} layer {{ name: 'b' type: 'BatchNorm' bottom: 'a' top: 'b' {frozen} }}"
    );
    refused(&learned, "layer 'b': it shares parameter 'w', which only one of the layers learns by gradients");
    let thrice = format!("{DATA}{}", ip("a", "data", &shared("w").repeat(3)));
    refused(&thrice, "layer 'a': param is given 3 times for 2 parameters");
    let itself = format!(
        "{DATA}layer {{ name: 's' type: 'Scale' bottom: 'data' top: 's' param {{ name: 'w' }} param {{ name: 'w' }}
          scale_param {{ bias_term: true }} }}"
    );
    refused(&itself, "layer 's': it shares parameter 's.0' with itself");
}

#[test]
fn sizes_that_no_memory_holds() {
    let most = i32::MAX; // larger numbers are refused where they are read
    let huge = format!(
        "layer {{ name: 'd' type: 'DummyData' top: 'd' dummy_data_param {{ shape {{ dim: {most} dim: {most} }} }} }}"
    );
    refused(&huge, "net.prototxt:1: layer 'd': top 'd' would have the extents [2147483647, 2147483647]");
    let wide = |name, bottom| ip(name, bottom, "").replace("num_output: 3", &format!("num_output: {most}"));
    let twice = format!("{DATA}{}{}", wide("a", "data"), wide("b", "a"));
    refused(&twice, "layer 'b': parameter 0 would have the extents [2147483647, 2147483647]");
    let padded = conv("c", "data").replace("pad: 1", &format!("pad_h: {most}"));
    let high = format!("{DATA}{padded}{}", conv("next", "c"));
    refused(&high, "layer 'next': an extent of 4294967298 is more than 2147483647, the largest there is");
    let reshape = format!(
        "{DATA}layer {{ name: 'r' type: 'Reshape' bottom: 'data' top: 'r'
          reshape_param {{ shape {{ dim: {most} dim: {most} dim: {most} dim: -1 }} }} }}"
    );
    refused(
        &reshape,
        "layer 'r': the extents [2147483647, 2147483647, 2147483647, 1] do not divide 4 2 6 6 (288)",
    );
}

#[test]
fn shapes_that_do_not_fit() {
    let labels = format!("{DATA}{}", head("data").replace("bottom: 'label'", "bottom: 'data'"));
    refused(&labels, "layer 'loss': scores of shape 4 3 (12) need 4 labels, but the second bottom has 288");
    let window = format!("{DATA}{}", conv("c", "data").replace("kernel_size: 3", "kernel_size: 9"));
    refused(&window, "layer 'c': a window of 9 (dilation included) does not fit an image of 6");
    let probabilities =
        format!("{DATA}{}", head("data").replace("top: 'loss'", "top: 'l' top: 'p' loss_weight: [1, 1]"));
    refused(
        &probabilities,
        "layer 'loss': the probabilities are no loss: the second top's loss_weight must be 0",
    );
    let slice = |fields: &str| format!("{DATA}layer {{ name: 's' type: 'Slice' bottom: 'data' {fields} }}");
    let three = "top: 'a' top: 'b' top: 'c'";
    refused(&slice(three), "layer 's': 3 tops do not share 2 evenly; slice_point says where each begins");
    let points = |points: &str| slice(&format!("{three} slice_param {{ axis: 2 {points} }}"));
    refused(&points("slice_point: 2"), "layer 's': 3 tops need 2 slice_points, not 1");
    refused(
        &points("slice_point: 2 slice_point: 6"),
        "the slice_points [2, 6] are not all inside an axis of 6",
    );
    let scale = format!("{DATA}layer {{ name: 's' type: 'Scale' bottom: 'data' bottom: 'label' top: 's' }}");
    refused(&scale, "layer 's': the scale of shape 4 (4) does not fit 4 2 6 6 (288) from axis 1 on");
}
