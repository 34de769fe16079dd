//! Which layers may write over their bottom, and that nothing changes where they may not.

use super::{DATA, conv, head, layer};
use crate::testing::{Running, build};

/// Whether layer `name` of the net `text` runs in place.
fn runs_in_place(text: &str, name: &str) -> bool {
    let net = build(text).unwrap();
    let node = net.graph().nodes.iter().find(|node| node.spec.name == name).unwrap();
    let same = net.graph().values[node.tops[0]].root == net.graph().values[node.bottoms[0]].root;
    assert_eq!(node.in_place, same);
    node.in_place
}

#[test]
fn relu_over_a_convolution_and_dropout_over_relu() {
    let relu = layer("ReLU", "relu", "conv", "conv");
    let text = format!("{DATA}{}{relu}{}", conv("conv", "data"), head("conv"));
    assert!(runs_in_place(&text, "relu"));
    let dropout = layer("Dropout", "drop", "conv", "conv");
    let text = format!("{DATA}{}{relu}{dropout}{}", conv("conv", "data"), head("conv"));
    assert!(runs_in_place(&text, "relu") && runs_in_place(&text, "drop"));
}

#[test]
fn not_where_the_producer_reads_its_top_again() {
    // Softmax differentiates through its own values.
    let relu = layer("ReLU", "relu", "soft", "soft");
    let softmax = layer("Softmax", "soft", "conv", "soft");
    let text = format!("{DATA}{}{softmax}{relu}{}", conv("conv", "data"), head("soft"));
    assert!(!runs_in_place(&text, "relu"));
}

#[test]
fn not_where_others_read_the_bottom() {
    let relu = layer("ReLU", "relu", "conv", "conv");
    let pool = "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool' pooling_param { global_pooling: true } }";
    let before = format!("{DATA}{}{pool}{relu}{}", conv("conv", "data"), head("conv"));
    assert!(!runs_in_place(&before, "relu"));
    // Who comes later reads the new value of the same name.
    let after = format!("{DATA}{}{relu}{pool}{}", conv("conv", "data"), head("conv"));
    assert!(runs_in_place(&after, "relu"));
}

#[test]
fn not_over_data_that_is_filled_once_nor_over_a_loss() {
    let constant = DATA.replace("type: 'uniform' min: -1", "value: 0.5");
    let relu = layer("ReLU", "relu", "data", "data");
    assert!(!runs_in_place(&format!("{constant}{relu}{}", head("data")), "relu"));
    assert!(runs_in_place(&format!("{DATA}{relu}{}", head("data")), "relu"));
    let after_loss = format!("{DATA}{}{}", head("data"), layer("ReLU", "relu", "loss", "loss"));
    assert!(!runs_in_place(&after_loss, "relu"));
}

/// The same net with every layer that is asked to run in place given a top of its own.
#[test]
fn results_do_not_depend_on_running_in_place() {
    let relu = |name, bottom: &str, top: &str| layer("ReLU", name, bottom, top);
    let pool = "layer { name: 'pool' type: 'Pooling' bottom: 'X' top: 'pool' pooling_param { kernel_size: 2 stride: 2 } }
      layer { name: 'flat' type: 'Flatten' bottom: 'pool' top: 'pool' }\n";
    let drop = |bottom: &str, top: &str| layer("Dropout", "drop", bottom, top);
    let in_place = [
        conv("conv", "data"),
        relu("r1", "conv", "conv"),
        drop("conv", "conv"),
        pool.replace('X', "conv"),
        relu("r2", "pool", "pool"),
        head("pool"),
    ];
    let apart = [
        conv("conv", "data"),
        relu("r1", "conv", "a"),
        drop("a", "b"),
        pool.replace('X', "b").replace("top: 'pool' }", "top: 'flat' }"),
        relu("r2", "flat", "c"),
        head("c"),
    ];
    let run = |layers: &[String]| {
        let mut running = Running::new(&format!("{DATA}{}", layers.concat()));
        let losses: Vec<f64> = (0..3).map(|number| running.iterate(number)).collect();
        (running.net().graph().nodes.iter().filter(|node| node.in_place).count(), losses, running.gradients())
    };
    let (in_place, apart) = (run(&in_place), run(&apart));
    assert_eq!((in_place.0, apart.0), (4, 0));
    assert!(in_place.1.iter().all(|loss| loss.is_finite()));
    assert_eq!((in_place.1, in_place.2), (apart.1, apart.2));
}

/// Asked for where it would destroy what is read again, and written out with a top of its own.
#[test]
fn a_refused_place_gives_the_same_results() {
    let net = |top: &str| {
        let softmax = layer("Softmax", "soft", "conv", "soft");
        let relu = layer("ReLU", "relu", "soft", top);
        let sum = |other: &str| {
            format!("layer {{ name: 'sum' type: 'Eltwise' bottom: '{other}' bottom: '{top}' top: 'sum' }}\n")
        };
        // Who reads the old value stands before the layer that makes the new one.
        let before = conv("before", "soft");
        format!("{DATA}{}{softmax}{before}{relu}{}{}", conv("conv", "data"), sum("before"), head("sum"))
    };
    let run = |text: &str| {
        let mut running = Running::new(text);
        assert!(running.net().graph().nodes.iter().all(|node| !node.in_place));
        let losses: Vec<f64> = (0..3).map(|number| running.iterate(number)).collect();
        (losses, running.gradients())
    };
    let (refused, apart) = (run(&net("soft")), run(&net("relu")));
    assert!(refused.0.iter().all(|loss| loss.is_finite()));
    assert_eq!(refused, apart);
}
