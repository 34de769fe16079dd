//! Layers of rate 0: they stay as they are, and cost no backward pass.

use super::{SGD, losses, parameters, plain, residual, resume::histories, solver, start, start_on};
use crate::testing::gpu;
use cudnn_layers::conv::ConvOp;
use memory::{Action, Buffer};
use tensor::{Cpu, Device};

/// `net` where the layers of these names have the rate 0 for so many blobs each.
fn freeze(net: &str, layers: &[(&str, usize)]) -> String {
    layers.iter().fold(net.to_owned(), |net, (name, blobs)| {
        let named = format!("name: '{name}'");
        assert!(net.contains(&named), "{name}");
        net.replace(&named, &format!("{named} {}", "param { lr_mult: 0 } ".repeat(*blobs)))
    })
}

#[test]
fn a_frozen_beginning_has_no_backward_pass_no_gradients_and_no_kernels_for_them() {
    let frozen = start(solver(&freeze(&plain(8), &[("conv1", 2)]), SGD));
    let graph = frozen.net().graph();
    let planned: Vec<(&str, ConvOp)> = frozen.plans.plans[0]
        .kernels
        .iter()
        .map(|planned| (&planned.kernel.name[..], planned.kernel.id.op))
        .collect();
    assert_eq!(
        planned,
        [("conv1", ConvOp::Forward), ("conv2", ConvOp::Forward), ("conv2", ConvOp::BackwardFilter)]
    );
    let schedule = &frozen.running.layout().nets[0].places.schedule;
    let backward = schedule.actions.iter().filter_map(|action| match action {
        Action::Backward(node) => Some(graph.nodes[*node].spec.name.as_str()),
        _ => None,
    });
    assert_eq!(backward.collect::<Vec<_>>(), ["loss", "ip", "relu2", "conv2"]);
    for (value, what) in graph.values.iter().enumerate() {
        let is_below = ["data", "label", "conv1", "pool"].contains(&what.name.as_str());
        let has_diff = schedule.find(Buffer::Diff(value)).is_some();
        assert!(!(is_below && has_diff), "{} has a gradient", what.name);
    }
    for (index, param) in graph.params.iter().enumerate() {
        let learns = !param.name.starts_with("conv1");
        for buffer in [Buffer::Gradient(index), Buffer::History(index)] {
            assert_eq!(schedule.find(buffer).is_some(), learns, "{}", param.name);
        }
    }
    let whole = start(solver(&plain(8), SGD));
    assert!(frozen.running.layout().report.arena < whole.running.layout().report.arena);
}

/// What is trained only now begins without momentum, and what is no longer trained needs none.
#[test]
fn layers_are_frozen_and_thawed_between_two_trainings() {
    let folder = tempfile::tempdir().unwrap();
    let begin = |name: &str, net: &str| {
        let prefix = folder.path().join(name);
        start(solver(net, &format!("{SGD} snapshot_prefix: '{}'", prefix.display())))
    };
    let (mut whole, mut frozen) =
        (begin("whole", &plain(8)), begin("frozen", &freeze(&plain(8), &[("conv1", 2)])));
    losses(&mut whole, 2);
    frozen.restore(&whole.snapshot().unwrap()).unwrap();
    assert_eq!(
        (parameters(&frozen), histories(&frozen)[..] == histories(&whole)[2..]),
        (parameters(&whole), true)
    );
    losses(&mut frozen, 2);
    whole.restore(&frozen.snapshot().unwrap()).unwrap();
    let (thawed, rest) = (histories(&whole), histories(&frozen));
    assert!(thawed[..2].iter().flatten().all(|&momentum| momentum == 0.0) && thawed[2..] == rest);
    losses(&mut whole, 1);
}

#[test]
fn what_is_above_frozen_layers_trains_as_if_they_were_not() {
    frozen_layers_disturb_nothing_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_what_is_above_frozen_layers_trains_as_if_they_were_not() {
    frozen_layers_disturb_nothing_on(&gpu());
}

/// Against the same net whose gradients are computed all the way down, and the first step of one that is trained as a
/// whole.
fn frozen_layers_disturb_nothing_on(device: &Device) {
    for (net, layers) in
        [(plain(8), &[("conv1", 2)][..]), (residual(8), &[("conv1", 1), ("bn1", 5), ("conv2", 1)])]
    {
        let text = freeze(&net, layers);
        let [mut frozen, mut forced, mut whole] = [text.clone(), format!("force_backward: true {text}"), net]
            .map(|net| start_on(device, solver(&net, SGD)));
        let first = parameters(&frozen);
        let (found, expected) = (losses(&mut frozen, 1), losses(&mut whole, 1));
        assert_eq!(found, expected);
        let is_frozen = |name: &str| layers.iter().any(|(layer, _)| name.starts_with(&format!("{layer}.")));
        let of_whole = parameters(&whole);
        for (index, (param, after)) in frozen.net().graph().params.iter().zip(parameters(&frozen)).enumerate()
        {
            match is_frozen(&param.name) && param.declaration.learned {
                // Not even weight decay changes it.
                true => assert_eq!(after, first[index], "{}", param.name),
                false => assert_eq!(after, of_whole[index], "{}", param.name),
            }
        }
        let rest = losses(&mut frozen, 4);
        assert_eq!([found, rest].concat(), losses(&mut forced, 5));
        assert_eq!(parameters(&frozen), parameters(&forced));
    }
}
