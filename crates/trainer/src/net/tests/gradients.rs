//! Where gradients go: blobs with several readers, shared parameters, layers without a loss, frozen layers.

use super::{DATA, conv, head, ip, layer};
use crate::testing::{Running, build};

fn sum(left: &str, right: &str) -> String {
    format!("layer {{ name: 'sum' type: 'Eltwise' bottom: '{left}' bottom: '{right}' top: 'sum' }}\n")
}

#[test]
fn several_readers_add_up_as_after_a_split() {
    let branches = |a: &str, b: &str| {
        format!("{}{}{}{}", conv("left", a), conv("right", b), sum("left", "right"), head("sum"))
    };
    let implicit = format!("{DATA}{}{}", conv("conv", "data"), branches("conv", "conv"));
    let split = "layer { name: 's' type: 'Split' bottom: 'conv' top: 'a' top: 'b' }\n";
    let explicit = format!("{DATA}{}{split}{}", conv("conv", "data"), branches("a", "b"));
    let run = |text: &str| {
        let mut running = Running::new(text);
        (running.iterate(0), running.gradients())
    };
    assert_eq!(run(&implicit), run(&explicit));
}

/// A blob with a weight in the objective, alone or with other readers, against central differences of that objective.
#[test]
fn any_blob_may_be_a_part_of_the_objective() {
    let weighted = conv("conv", "data").replace("top: 'conv'", "top: 'conv' loss_weight: 0.01");
    for rest in
        [String::new(), head("conv"), format!("{}{}", layer("ReLU", "r", "conv", "conv"), head("conv"))]
    {
        let text = format!("{DATA}{weighted}{rest}");
        let mut running = Running::new(&text);
        let loss = running.iterate(0);
        let graph = running.net().graph();
        let objective = graph.nodes.iter().find(|node| node.spec.kind.type_name() == "Objective").unwrap();
        let top = objective.tops[0];
        let sum: f64 = running.0.values(0, top).unwrap().iter().sum();
        let unweighted = format!("{DATA}{}{rest}", conv("conv", "data"));
        let other = if rest.is_empty() { 0.0 } else { Running::new(&unweighted).iterate(0) };
        assert!((loss - other - 0.01 * sum).abs() < 1e-5, "{loss}, {other} and {sum}");
        let gradient = running.gradient("conv.0");
        let mut loss_at = |step: f32| {
            running.move_parameter("conv.0", 5, step);
            let loss = running.iterate(0);
            running.move_parameter("conv.0", 5, -step);
            loss
        };
        let (difference, found) = ((loss_at(1e-2) - loss_at(-1e-2)) / 2e-2, f64::from(gradient[5]));
        assert!((difference - found).abs() < 0.02 * found.abs() + 1e-4, "{found} and {difference}");
    }
}

/// A blob that stands twice, or three times, among the bottoms of one layer, against the same with Splits in the file,
/// and against central differences in what feeds it.
#[test]
fn a_bottom_that_stands_twice_is_split() {
    let net = |operation: &str, [a, b, c]: [&str; 3], split: &str| {
        let eltwise = format!(
            "layer {{ name: 'e' type: 'Eltwise' bottom: '{a}' bottom: '{b}' bottom: '{c}' top: 'e'
  eltwise_param {{ operation: {operation} }} }}\n"
        );
        let mut running =
            Running::new(&format!("{DATA}{}{split}{eltwise}{}", conv("conv", "data"), head("e")));
        let loss = running.iterate(0);
        (running, loss)
    };
    let split = "layer { name: 's' type: 'Split' bottom: 'conv' top: 'a' top: 'b' top: 'c' }\n";
    for operation in ["SUM", "SUM coeff: 1 coeff: -3 coeff: 0.5", "PROD", "MAX"] {
        let (mut running, loss) = net(operation, ["conv"; 3], "");
        let (explicit, same_loss) = net(operation, ["a", "b", "c"], split);
        assert_eq!(loss, same_loss, "{operation}");
        let (gradient, expected) = (running.gradient("conv.0"), explicit.gradient("conv.0"));
        let expected: Vec<f64> = expected.iter().map(|&value| f64::from(value)).collect();
        tensor::testing::assert_close(&gradient, &expected, 1e-5, operation);
        let steepest = (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()));
        let steepest = steepest.unwrap();
        let mut loss_at = |step: f32| {
            running.move_parameter("conv.0", steepest, step);
            let loss = running.iterate(0);
            running.move_parameter("conv.0", steepest, -step);
            loss
        };
        let (difference, found) = ((loss_at(1e-2) - loss_at(-1e-2)) / 2e-2, f64::from(gradient[steepest]));
        assert!((difference - found).abs() < 0.02 * found.abs(), "{operation}: {found} and {difference}");
    }
    let twice = format!("{DATA}{}{}{}", conv("conv", "data"), sum("conv", "conv"), head("sum"));
    let net = build(&twice).unwrap();
    let names: Vec<&str> = net.graph().nodes.iter().map(|node| node.spec.name.as_str()).collect();
    assert_eq!(names, ["data", "conv", "conv_sum_1_split", "sum", "ip", "loss"]);
}

/// The gradient of a shared parameter is the sum of what its uses contribute.
#[test]
fn a_shared_parameter_gets_the_gradients_of_all_its_uses() {
    let constant = |text: String| text.replace("type: 'xavier'", "value: 0.1");
    let second = DATA
        .replace("'data'", "'other'")
        .replace("top: 'label'", "top: 'unused'")
        .replace("'uniform' min: -1", "'gaussian'");
    let net = |fields: &str| {
        let branches = format!("{}{}", ip("a", "data", fields), ip("b", "other", fields));
        let loss = "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'sum' bottom: 'label' top: 'loss' }";
        let mut running = Running::new(&constant(format!("{DATA}{second}{branches}{}{loss}", sum("a", "b"))));
        assert!(running.iterate(0).is_finite());
        running
    };
    let (shared, own) = (net("param { name: 'w' } param { name: 'b' }"), net(""));
    assert_eq!(shared.net().graph().params.len(), 2);
    for parts in [["a.0", "b.0"], ["a.1", "b.1"]] {
        let [a, b] = parts.map(|part| own.gradient(part));
        let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) + f64::from(b)).collect();
        tensor::testing::assert_close(&shared.gradient(parts[0]), &expected, 1e-5, parts[0]);
    }
}

/// One use of a shared scale has a bias of its own, so that one gradient adds where the other replaces.
#[test]
fn a_scale_that_shares_one_of_two_parameters() {
    let scale = |name: &str, bottom: &str, fields: &str| {
        format!(
            "layer {{ name: '{name}' type: 'Scale' bottom: '{bottom}' top: '{name}' {fields} scale_param {{ bias_term: true }} }}\n"
        )
    };
    let net = |shared: &str| {
        let text = format!("{DATA}{}{}{}", scale("a", "data", shared), scale("b", "a", shared), head("b"));
        let mut running = Running::new(&text);
        assert!(running.iterate(0).is_finite());
        running
    };
    let (shared, own) = (net("param { name: 'gamma' }"), net(""));
    assert_eq!(shared.gradient("a.1"), own.gradient("a.1"));
    assert_eq!(shared.gradient("b.1"), own.gradient("b.1"));
    let (a, b) = (own.gradient("a.0"), own.gradient("b.0"));
    let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) + f64::from(b)).collect();
    tensor::testing::assert_close(&shared.gradient("a.0"), &expected, 1e-5, "gamma");
}

#[test]
fn only_layers_between_a_parameter_and_a_loss_run_backward() {
    let frozen = conv("frozen", "data")
        .replace("top: 'frozen'", "top: 'frozen' param { lr_mult: 0 } param { lr_mult: 0 }");
    let text = format!(
        "{DATA}{frozen}{}{}{}{}",
        layer("ReLU", "relu", "frozen", "relu"),
        ip("aside", "relu", ""),
        conv("conv", "relu"),
        head("conv")
    );
    let net = build(&text).unwrap();
    let backward: Vec<&str> =
        net.graph().nodes.iter().filter(|node| node.backward).map(|node| node.spec.name.as_str()).collect();
    assert_eq!(backward, ["conv", "ip", "loss"]);
    let with_diff: Vec<&str> =
        net.graph().values.iter().filter(|value| value.needs_diff).map(|value| value.name.as_str()).collect();
    assert_eq!(with_diff, ["conv", "ip"]);
    let forced = format!("force_backward: true {text}");
    assert!(
        build(&forced)
            .unwrap()
            .graph()
            .nodes
            .iter()
            .all(|node| node.backward != ["data", "aside"].contains(&node.spec.name.as_str()))
    );
}

#[test]
fn propagate_down_false_stops_the_gradient_even_of_a_batch_norm() {
    let net = |stop: &str| {
        let norm = format!(
            "layer {{ name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' {stop} batch_norm_param {{ scale_bias: true }} }}\n"
        );
        let text = format!("{DATA}{}{norm}{}{}", conv("conv", "data"), sum("bn", "conv"), head("sum"));
        let mut running = Running::new(&text);
        assert!(running.iterate(0).is_finite());
        running
    };
    let (stopped, through) = (net("propagate_down: false"), net(""));
    assert_eq!(stopped.gradient("bn.3"), through.gradient("bn.3"));
    assert_ne!(stopped.gradient("conv.0"), through.gradient("conv.0"));
    assert!(stopped.gradients().iter().all(|(_, gradient)| gradient.iter().all(|value| value.is_finite())));
}

/// A loss counts whether or not somebody reads it.
#[test]
fn a_loss_that_is_read_is_still_the_objective() {
    let text = format!("{DATA}{}", head("data"));
    let read = format!("{text}{}", layer("ReLU", "reader", "loss", "copy"));
    let (alone, read) = (Running::new(&text).iterate(0), Running::new(&read).iterate(0));
    assert!(alone > 0.0);
    assert_eq!(alone, read);
}
