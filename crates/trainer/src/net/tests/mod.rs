//! Graphs, schedules and layouts: what nets are refused, who runs in place, who shares memory.

mod errors;
mod formats;
mod fusion;
mod golden;
mod gradients;
mod in_place;
pub(crate) mod lifetimes;
mod room;
mod size;

/// Random data and a constant label for a mini-batch of 4.
pub(crate) const DATA: &str = "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label'
  dummy_data_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } shape { dim: 4 }
    data_filler { type: 'uniform' min: -1 } data_filler { value: 1 } } }\n";

/// Three classes and the loss over blob `bottom`.
pub(crate) fn head(bottom: &str) -> String {
    format!(
        "{}\nlayer {{ name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }}\n",
        ip("ip", bottom, "")
    )
}

/// An inner product of three outputs.
fn ip(name: &str, bottom: &str, fields: &str) -> String {
    format!(
        "layer {{ name: '{name}' type: 'InnerProduct' bottom: '{bottom}' top: '{name}' {fields}
  inner_product_param {{ num_output: 3 weight_filler {{ type: 'xavier' }} }} }}\n"
    )
}

/// A convolution that keeps the size.
pub(crate) fn conv(name: &str, bottom: &str) -> String {
    format!(
        "layer {{ name: '{name}' type: 'Convolution' bottom: '{bottom}' top: '{name}'
  convolution_param {{ num_output: 3 kernel_size: 3 pad: 1 weight_filler {{ type: 'msra' }} }} }}\n"
    )
}

/// Any layer of one bottom and one top.
pub(crate) fn layer(kind: &str, name: &str, bottom: &str, top: &str) -> String {
    format!("layer {{ name: '{name}' type: '{kind}' bottom: '{bottom}' top: '{top}' }}\n")
}
