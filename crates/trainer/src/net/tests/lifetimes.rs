//! Buffers share memory only while they do not need it: every byte that the schedule calls free is poisoned after each
//! step, and nothing changes.

use super::{DATA, conv, head, layer};
use crate::net::{Net, NetLayout, RunLayout};
use crate::run::{MiniBatch, NetRun, Update};
use crate::testing::{Forced, Running, build_on, gpu, plan_options, set};
use cudnn_layers::update::Rule;
use memory::{Action, NetPlaces, Place, Residence};
use planner::{BatchSizePolicy, Bytes, Plan, WorkspacePolicy};
use tensor::{Cpu, Device, Span};

/// Every layer type that keeps something, in place and apart, with branches.
pub(crate) fn everything() -> String {
    let named = |kind: &str, name: &str, bottom: &str, fields: &str| {
        format!("layer {{ name: '{name}' type: '{kind}' bottom: '{bottom}' top: '{name}' {fields} }}\n")
    };
    [
        DATA.to_owned(),
        conv("conv1", "data"),
        layer("ReLU", "relu1", "conv1", "conv1"),
        named("LRN", "norm", "conv1", "lrn_param { local_size: 3 }"),
        conv("left", "norm"),
        named("BatchNorm", "bn", "left", "batch_norm_param { scale_bias: true }"),
        named("BatchNorm", "bn2", "norm", ""),
        named("Scale", "scale", "bn2", "scale_param { bias_term: true }"),
        "layer { name: 'sum' type: 'Eltwise' bottom: 'bn' bottom: 'scale' top: 'sum' }\n".to_owned(),
        layer("ReLU", "relu2", "sum", "sum"),
        named("Pooling", "max", "sum", "pooling_param { kernel_size: 2 stride: 2 }"),
        named("Pooling", "average", "sum", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }"),
        "layer { name: 'product' type: 'Eltwise' bottom: 'max' bottom: 'average' top: 'product' eltwise_param { operation: PROD } }\n"
            .to_owned(),
        "layer { name: 'concat' type: 'Concat' bottom: 'product' bottom: 'max' top: 'concat' }\n".to_owned(),
        named("Softmax", "soft", "concat", ""),
        layer("Dropout", "drop", "soft", "soft"),
        head("soft"),
    ]
    .concat()
}

fn planned(device: &Device, workspace: WorkspacePolicy) -> (Net, Plan) {
    let mut net = build_on(device, &everything()).unwrap();
    let forced = Forced { algorithm: 1, mixed: true, sizes: &[3, 1] };
    let plan = forced.install(&mut net, &plan_options(BatchSizePolicy::All, workspace));
    (net, plan)
}

/// A layout in which no transient buffer shares memory with another.
fn unshared(_: &[Net], mut layout: RunLayout) -> RunLayout {
    let NetPlaces { schedule, offsets, .. } = &mut layout.nets[0].places;
    for ((buffer, residences), offsets) in schedule.buffers.iter().zip(offsets) {
        for (residence, offset) in residences.iter().zip(offsets).filter(|_| !schedule.outlives(*buffer)) {
            *offset = layout.report.arena;
            layout.report.arena = (layout.report.arena + residence.bytes).aligned();
        }
    }
    layout
}

/// Every residence of a transient buffer on the device, with its place.
fn residences(layout: &NetLayout) -> Vec<(Span, Residence)> {
    let schedule = &layout.places.schedule;
    let buffers = schedule.buffers.iter().filter(|(buffer, _)| !schedule.outlives(*buffer));
    let all = buffers.flat_map(|(buffer, all)| all.iter().map(move |&residence| (*buffer, residence)));
    all.filter(|(_, residence)| residence.place == Place::Device && residence.bytes > Bytes::ZERO)
        .map(|(buffer, residence)| (layout.span(buffer, residence.first), residence))
        .collect()
}

/// An iteration, one action at a time; after each, what no buffer keeps for a later one turns to NaN.
pub(crate) fn iterate_poisoned(running: &mut Running, batch: &MiniBatch<'_>) -> f64 {
    let buffers = residences(running.layout());
    let start = buffers.iter().map(|(span, _)| span.offset).min().unwrap();
    let end = running.layout().end();
    running.0.begin(batch).unwrap();
    for at in 0..=end {
        running.0.act(0, at, 0, batch).unwrap();
        if at == end {
            break;
        }
        running.0.settle();
        let arena = running.0.arena_mut();
        let whole_arena = arena.all();
        let mut all = arena.read::<u8>(whole_arena).unwrap().into_owned();
        let mut kept = vec![false; all.len()];
        kept[..start].fill(true);
        for (span, _) in buffers.iter().filter(|(_, life)| life.first <= at && life.last > at) {
            kept[span.offset..span.end()].fill(true);
        }
        all.iter_mut().zip(kept).filter(|(_, kept)| !kept).for_each(|(byte, _)| *byte = 0xff);
        set(arena, whole_arena, |bytes| bytes.copy_from_slice(&all));
    }
    running.0.loss(0).unwrap()
}

#[test]
fn sharing_memory_changes_nothing() {
    sharing_memory_changes_nothing_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_sharing_memory_changes_nothing() {
    sharing_memory_changes_nothing_on(&gpu());
}

fn sharing_memory_changes_nothing_on(device: &Device) {
    for policy in WorkspacePolicy::ALL {
        let run = |choose: fn(&[Net], RunLayout) -> RunLayout| {
            let (net, plan) = planned(device, policy);
            Running::in_layout(net, plan, choose)
        };
        let (mut shared, mut poisoned) = (run(|_, layout| layout), run(|_, layout| layout));
        let mut apart = run(unshared);
        assert!(shared.0.layout().bytes() < apart.0.layout().bytes());
        for number in 0..2 {
            let expected = apart.iterate(number);
            assert!(expected.is_finite(), "{policy}");
            assert_eq!(shared.iterate(number), expected, "{policy}");
            assert_eq!(iterate_poisoned(&mut poisoned, &MiniBatch::new(number)), expected, "{policy}");
            assert_eq!(shared.gradients(), apart.gradients(), "{policy}");
            assert_eq!(poisoned.gradients(), apart.gradients(), "{policy}");
        }
    }
}

#[test]
fn gradients_that_end_with_their_updates_train_the_same_weights() {
    gradients_that_end_train_the_same_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_gradients_that_end_with_their_updates_train_the_same_weights() {
    gradients_that_end_train_the_same_on(&gpu());
}

/// In a net with so many weights that there are several updates.
fn gradients_that_end_train_the_same_on(device: &Device) {
    let product = |name: &str, bottom: &str, outputs: usize| {
        format!(
            "layer {{ name: '{name}' type: 'InnerProduct' bottom: '{bottom}' top: '{name}'
               inner_product_param {{ num_output: {outputs} weight_filler {{ type: 'xavier' }} }} }}"
        )
    };
    let text = [
        "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {
           shape { dim: 2 dim: 512 } shape { dim: 2 } data_filler { type: 'gaussian' } data_filler { } } }"
            .to_owned(),
        product("a", "data", 512),
        product("b", "a", 512),
        product("c", "b", 512),
        product("d", "c", 4),
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'd' bottom: 'label' top: 'loss' }".to_owned(),
    ]
    .concat();
    let trained = |keeps_gradients: bool| {
        let mut net = build_on(device, &text).unwrap();
        net.keeps_gradients = keeps_gradients;
        let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
        let plan = Forced::IMPLICIT_GEMM.install(&mut net, &options);
        let mut running = Running(NetRun::lay_out(vec![net], vec![plan], true).unwrap().start(1).unwrap());
        let actions = &running.layout().places.schedule.actions;
        let updates = actions.iter().filter(|action| matches!(action, Action::Update(..))).count();
        assert!(updates > 1, "{actions:?}");
        let rule = Rule { momentum: 0.9, mini_batches: 1, ..Rule::default() };
        for number in 0..3 {
            let update = Some(Update { rule, weight_decay: 0.01, rates: rule.rates(0.1, number) });
            let batch = MiniBatch { update, ..MiniBatch::new(number) };
            match keeps_gradients {
                true => running.0.iterate(0, batch).unwrap(),
                false => drop(iterate_poisoned(&mut running, &batch)),
            }
        }
        let params = running.layout().params.iter().flat_map(|spans| [Some(spans.data), spans.history]);
        let values =
            params.flatten().flat_map(|span| running.0.arena.read::<f32>(span).unwrap().into_owned());
        (running.0.layout().bytes(), values.collect::<Vec<f32>>())
    };
    let ((kept_bytes, kept), (bytes, freed)) = (trained(true), trained(false));
    assert!(kept.iter().all(|value| value.is_finite()) && kept == freed);
    assert!(bytes + (1 << 20) < kept_bytes, "{bytes} of {kept_bytes}");
}

#[test]
fn buffers_alive_together_never_overlap() {
    for policy in WorkspacePolicy::ALL {
        let (net, _) = planned(&Device::Cpu(Cpu::new(2)), policy);
        let layout = RunLayout::new(&[&net], true);
        let net = &layout.nets[0];
        let placed = residences(net);
        let params = net.params.iter().flat_map(|spans| [Some(spans.data), spans.history]);
        let always: Vec<Span> = params.flatten().collect();
        for (index, (span, life)) in placed.iter().enumerate() {
            assert!(span.end() <= layout.bytes() && always.iter().all(|other| !span.overlaps(other)));
            for (other, met) in &placed[..index] {
                assert!(!life.meets(met) || !span.overlaps(other), "{span:?} {life:?} and {other:?} {met:?}");
            }
        }
        let report = layout.report.nets[0];
        assert!(report.transient >= report.lower_bound && report.data > report.saved, "{report:?}");
    }
}

/// A plan for a device that is not here is laid out as it would be there.
#[test]
fn a_plan_that_cannot_run_here_takes_the_same_places() {
    let device = Device::Cpu(Cpu::new(2));
    for workspace_policy in WorkspacePolicy::ALL {
        let build = || build_on(&device, &everything()).unwrap();
        let (mut installed, mut reserved) = (build(), build());
        let options = plan_options(BatchSizePolicy::PowerOfTwo, workspace_policy);
        let plan = Forced { algorithm: 1, mixed: true, sizes: &[2] }.install(&mut installed, &options);
        reserved.install(&plan, false).unwrap();
        let (installed, reserved) = (RunLayout::new(&[&installed], true), RunLayout::new(&[&reserved], true));
        assert!(installed.report.nets[0].scratch.0 > 0, "{workspace_policy}");
        assert_eq!(installed.report, reserved.report, "{workspace_policy}");
    }
}
