//! ReLUs inside the layer before them: the same losses and gradients as with ReLUs of their own.

use super::{DATA, conv, head, ip, layer};
use crate::{
    net::RunLayout,
    testing::{Running, build},
};

/// A layer `bn` with these fields.
fn norm(fields: &str) -> String {
    format!("layer {{ name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' {fields} }}\n")
}

const AFFINE: &str = "batch_norm_param { scale_bias: true eps: 0.01 }";

/// Losses and gradients of three iterations, which agree whether the ReLU over `blob` is in place, where `fused` says
/// whether it is absorbed, or has a top of its own, where it never is. `before` and `after` are the layers around it; the
/// latter read `blob`.
fn same_apart(name: &str, before: &str, blob: &str, after: &str, fused: bool) {
    let relu = |top: &str| layer("ReLU", "relu", blob, top);
    let in_place = format!("{before}{}{after}", relu(blob));
    let apart = format!(
        "{before}{}{}",
        relu("apart"),
        after
            .replace(&format!("bottom: '{blob}'"), "bottom: 'apart'")
            .replace(&format!("top: '{blob}'"), "top: 'apart'")
    );
    let run = |text: &str| {
        let mut running = Running::new(text);
        let losses: Vec<f64> = (0..3).map(|number| running.iterate(number)).collect();
        // As bits: a gradient that nobody computes stays the NaN that it was.
        let gradients = running.gradients().into_iter().map(|(name, values)| {
            let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
            (name, bits)
        });
        (running.net().fused_relus(), losses, gradients.collect::<Vec<_>>())
    };
    let (in_place, apart) = (run(&in_place), run(&apart));
    assert_eq!((in_place.0, apart.0), (usize::from(fused), 0), "{name}");
    assert!(in_place.1.iter().all(|loss| loss.is_finite()), "{name}");
    assert_eq!(in_place.1, apart.1, "{name}");
    assert!(
        in_place.2.iter().any(|(_, gradient)| gradient.iter().any(|&bits| f32::from_bits(bits) != 0.0)),
        "{name}"
    );
    assert_eq!(in_place.2, apart.2, "{name}");
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
    let count = |text: String| build(&text).unwrap().fused_relus();
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
