//! What nets and solvers may say, what they get, and what they are told when it cannot work.

mod filters;
mod layers;
mod learning_rate;
mod net;
mod solver;

use super::{LayerKind, LayerSpec, NetSpec};
use std::path::Path;

fn net(text: &str) -> NetSpec {
    NetSpec::parse(Path::new("net.prototxt"), text).unwrap()
}

fn net_error(text: &str) -> String {
    NetSpec::parse(Path::new("net.prototxt"), text).unwrap_err().to_string()
}

/// A layer `l` of one bottom and one top, whose fields besides these are `fields`.
fn layer_text(kind: &str, fields: &str) -> String {
    format!("layer {{ name: 'l' type: '{kind}' bottom: 'x' top: 'y'\n{fields} }}")
}

fn layer(kind: &str, fields: &str) -> LayerSpec {
    let mut net = net(&layer_text(kind, fields));
    assert_eq!(net.warnings, []);
    net.layers.remove(0)
}

fn kind(name: &str, fields: &str) -> LayerKind {
    layer(name, fields).kind
}

fn layer_error(kind: &str, fields: &str) -> String {
    net_error(&layer_text(kind, fields))
}
