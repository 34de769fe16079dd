//! However an iteration is executed, it is the same iteration: with buffers that leave the device or are computed
//! again, recorded and replayed.

mod asked;

use super::{Execution, MiniBatch, NetRun, Update, measure};
use crate::net::tests::lifetimes::{everything, iterate_poisoned};
use crate::net::tests::{DATA, conv, head, layer};
use crate::net::{Net, RunLayout};
use crate::planning::{Rates, estimated_costs};
use crate::testing::{Forced, Running, build_on, own_gpu, plan_options};
use cudnn_layers::update::Rule;
use memory::policy::{Costs, MemoryPolicy};
use memory::{Action, ArenaLayout, Buffer, Outline, Place, Schedule};
use planner::{BatchSizePolicy, Bytes, Cost, Curve, WorkspacePolicy};
use std::{collections::HashMap, env, fs};
use tensor::{Accumulate, Arena, Cpu, Device, cuda::CudaError};

impl NetRun {
    /// The same in another layout.
    pub(crate) fn in_layout(self, layout: impl FnOnce(&[Net], RunLayout) -> RunLayout) -> Self {
        let Self { layout: before, .. } = self;
        Self { layout: layout(&self.nets, before), ..self }
    }
}

impl Execution {
    /// Waits for all work and all copies.
    pub(crate) fn settle(&mut self) {
        self.slab.join().unwrap();
        self.device.check().unwrap();
    }

    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }
}

/// Data that differ from one iteration to the next, batch norm and dropout, neither of them in place.
const NET: &str = "
  layer { name: 'data' type: 'DummyData' top: 'data' top: 'label'
    dummy_data_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } shape { dim: 4 }
      data_filler { type: 'uniform' min: -1 } data_filler { value: 1 } } }
  layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'
    convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'relu' type: 'ReLU' bottom: 'conv1' top: 'conv1' }
  layer { name: 'norm' type: 'BatchNorm' bottom: 'conv1' top: 'norm' batch_norm_param { scale_bias: true } }
  layer { name: 'drop' type: 'Dropout' bottom: 'norm' top: 'drop' }
  layer { name: 'conv2' type: 'Convolution' bottom: 'drop' top: 'conv2'
    convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'conv2' top: 'ip'
    inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";

/// The plain schedule, where the data and conv1's top are away from their last use forward to their first one backward,
/// and what dropout and batch norm make of the latter is computed again, that of batch norm twice.
fn by_hand(net: &Net, outline: &Outline) -> Schedule {
    let node = |name: &str| outline.nodes.iter().position(|node| node.name == name).unwrap();
    let top = |name: &str| Buffer::Data(net.graph().nodes[node(name)].tops[0]);
    let (data, features) = (top("data"), top("conv1"));
    let mut actions = Vec::new();
    for action in Schedule::plain(outline).actions {
        if action == Action::Backward(node("ip")) {
            actions.extend([Action::Prefetch(features), Action::Recompute(node("norm"))]);
        }
        if action == Action::Backward(node("conv2")) {
            actions.extend(["norm", "drop"].map(|name| Action::Recompute(node(name))));
        }
        if action == Action::Backward(node("drop")) {
            actions.push(Action::Prefetch(data));
        }
        // Copies begin before the last use, beside which they run.
        match action {
            Action::Forward(at) if at == node("norm") => actions.push(Action::Offload(features)),
            Action::Forward(at) if at == node("drop") => actions.push(Action::Offload(data)),
            _ => {}
        }
        actions.push(action);
    }
    Schedule::new(outline, actions).unwrap()
}

fn moved(nets: &[Net], _: RunLayout) -> RunLayout {
    let outline = nets[0].outline(true);
    let schedule = by_hand(&nets[0], &outline);
    let layout = ArenaLayout::new(&[outline], vec![schedule]);
    assert!(layout.report.nets[0].slab.0 > 0);
    RunLayout::of(&[&nets[0]], layout)
}

fn running(device: &Device, choose: impl FnOnce(&[Net], RunLayout) -> RunLayout) -> Running {
    running_net(device, NET, choose)
}

fn running_net(device: &Device, net: &str, choose: impl FnOnce(&[Net], RunLayout) -> RunLayout) -> Running {
    let mut net = build_on(device, net).unwrap();
    let plan = Forced::IMPLICIT_GEMM
        .install(&mut net, &plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws));
    Running::in_layout(net, plan, choose)
}

/// What is recorded under the first rule is replayed once before the second, and that under the second as often.
const ITERATIONS: u64 = 6;

/// Two mini-batches for one update, at another rate in each iteration; by another rule in the second half.
fn batches() -> impl Iterator<Item = MiniBatch<'static>> {
    (0..2 * ITERATIONS).map(move |number| {
        let (momentum, weight_decay) = if number < ITERATIONS { (0.9, 0.01) } else { (0.5, 0.2) };
        let rule = Rule { momentum, clip: Some(0.5), mini_batches: 2, ..Rule::default() };
        let rates = rule.rates(0.1 / (number + 1) as f32, number / 2);
        let update = (number % 2 == 1).then_some(Update { rule, weight_decay, rates });
        let accumulate = if number % 2 == 0 { Accumulate::Replace } else { Accumulate::Add };
        MiniBatch { number, accumulate, update, observer: None }
    })
}

/// After every mini-batch the loss, and all gradients, parameters, history and running statistics, bit by bit.
fn trained(
    mut running: Running,
    mut iterate: impl FnMut(&mut Running, MiniBatch<'static>),
) -> Vec<(f64, Vec<u32>)> {
    let step = |batch| {
        iterate(&mut running, batch);
        let params = running.0.layout().nets[0].params.iter();
        let spans = params.flat_map(|spans| [Some(spans.data), spans.diff, spans.history]).flatten();
        let values = spans.flat_map(|span| running.0.arena.read::<f32>(span).unwrap().into_owned());
        (running.0.loss(0).unwrap(), values.map(f32::to_bits).collect())
    };
    batches().map(step).collect()
}

fn plain(device: &Device) -> Vec<(f64, Vec<u32>)> {
    let mut observed = 0;
    let trained = trained(running(device, |_, layout| layout), |running, batch| {
        let mut observer = |_| {
            observed += 1;
            Ok(())
        };
        let MiniBatch { number, accumulate, update, .. } = batch;
        running
            .0
            .iterate(0, MiniBatch { number, accumulate, update, observer: Some(&mut observer) })
            .unwrap();
    });
    let actions = running(device, |_, layout| layout).layout().places.schedule.actions.len();
    assert_eq!(observed, 2 * ITERATIONS as usize * actions);
    trained
}

fn what_is_away_or_computed_again_changes_nothing_on(device: &Device) {
    let expected = plain(device);
    assert!(expected.iter().all(|(loss, _)| loss.is_finite()));
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "iterations differ");
    let launched = |running: &mut Running, batch: MiniBatch<'_>| running.0.iterate(0, batch).unwrap();
    let poisoned = |running: &mut Running, batch: MiniBatch<'_>| {
        iterate_poisoned(running, &batch);
    };
    assert!(trained(running(device, |_, layout| layout), launched) == expected, "plain, replayed");
    assert!(trained(running(device, |_, layout| layout), poisoned) == expected, "plain, poisoned");
    assert!(trained(running(device, moved), launched) == expected, "moved, replayed");
    assert!(trained(running(device, moved), poisoned) == expected, "moved, poisoned");
}

#[test]
fn what_is_away_or_computed_again_changes_nothing() {
    what_is_away_or_computed_again_changes_nothing_on(&Device::Cpu(Cpu::new(2)));
}

/// Recording forbids others to use the stream, so the GPU is this test's own.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_what_is_away_or_computed_again_changes_nothing() {
    what_is_away_or_computed_again_changes_nothing_on(&own_gpu());
}

/// What the test above compares is not the same schedule twice.
#[test]
fn what_is_away_leaves_its_place() {
    let running = running(&Device::Cpu(Cpu::new(2)), moved);
    let places = &running.layout().places;
    let conv1 = running.net().graph().nodes.iter().find(|node| node.spec.name == "conv1").unwrap().tops[0];
    let residences = &places.schedule.buffers[places.schedule.find(Buffer::Data(conv1)).unwrap()].1;
    let there: Vec<Place> = residences.iter().map(|residence| residence.place).collect();
    assert_eq!(there, [Place::Device, Place::Host, Place::Device]);
    assert!(residences[0].last + 1 < residences[2].first, "{residences:?}");
}

/// Layers are measured one at a time, in less memory than the net takes; none of them twice, and what has no passes not
/// at all.
fn layers_are_measured_alone_on(device: &Device) {
    let mut net = build_on(device, NET).unwrap();
    let plan = Forced::IMPLICIT_GEMM
        .install(&mut net, &plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws));
    let before = RunLayout::new(&[&net], true);
    let mut known = HashMap::new();
    let (times, net) = measure(net, plan.clone(), &mut known).unwrap();
    let nodes = &net.graph().nodes;
    assert_eq!((times.passes.len(), known.len()), (nodes.len(), nodes.len() - 1), "only data are idle");
    for (node, [forward_ms, backward_ms, _]) in nodes.iter().zip(&times.passes) {
        let (is_idle, is_conv) = (node.bottoms.is_empty(), node.spec.kind.type_name() == "Convolution");
        let is_relu = node.spec.kind.type_name() == "ReLU";
        assert!(is_idle || is_conv || is_relu || *forward_ms > 0.0, "{}: {times:?}", node.spec.name);
        assert!(is_idle || is_conv || is_relu || *backward_ms > 0.0, "{}: {times:?}", node.spec.name);
        assert!((!is_idle) || [*forward_ms, *backward_ms] == [0.0; 2]);
    }
    assert!(times.update_ms > 0.0 && times.copied.iter().all(|&rate| rate > 0.0), "{times:?}");
    known.values_mut().for_each(|times| *times = [7.0; 3]);
    let (again, net) = measure(net, plan, &mut known).unwrap();
    assert!(again.passes[1..].iter().all(|&times| times == [7.0; 3] || times == [0.0; 3]), "{again:?}");
    assert_eq!(RunLayout::new(&[&net], true).report, before.report);
}

#[test]
fn layers_are_measured_alone() {
    layers_are_measured_alone_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_layers_are_measured_alone() {
    layers_are_measured_alone_on(&own_gpu());
}

/// Host memory that is not there, or may not be locked, ends a run before it begins, in a sentence; the next one has
/// what it needs.
fn too_large_a_slab_is_refused_on(device: &Device) {
    let run = |more: u64| {
        let mut net = build_on(device, NET).unwrap();
        let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
        let plan = Forced::IMPLICIT_GEMM.install(&mut net, &options);
        let run = NetRun::lay_out(vec![net], vec![plan], true).unwrap();
        let run = run.in_layout(|nets, layout| {
            let mut layout = moved(nets, layout);
            layout.report.nets[0].slab += Bytes(more);
            layout
        });
        run.start(1)
    };
    for more in [1 << 50, (1 << 62) - 4096] {
        let Err(error) = run(more) else { panic!("nobody has {more} bytes") };
        let said = error.to_string();
        assert!(said.len() > 20 && !said.contains('\n') && said.contains("bytes"), "{said}");
    }
    assert!(run(0).unwrap().iterate(0, MiniBatch::new(0)).is_ok());
}

#[test]
fn too_large_a_slab_is_refused() {
    too_large_a_slab_is_refused_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_too_large_a_slab_is_refused() {
    too_large_a_slab_is_refused_on(&own_gpu());
}

/// Nets with all that policies have to do with: branches, layers in place, batch norm, dropout; the last is deep.
fn nets() -> [String; 3] {
    let block = |index: usize| {
        let [bottom, name] = [index, index + 1].map(|index| format!("block{index}"));
        let [a, b, n] = ["a", "b", "n"].map(|part| format!("{name}{part}"));
        let norm = "batch_norm_param { scale_bias: true }";
        [
            conv(&a, &bottom),
            format!("layer {{ name: '{n}' type: 'BatchNorm' bottom: '{a}' top: '{n}' {norm} }}\n"),
            layer("ReLU", &format!("{n}r"), &n, &n),
            conv(&b, &n),
            format!(
                "layer {{ name: '{name}' type: 'Eltwise' bottom: '{b}' bottom: '{bottom}' top: '{name}' }}\n"
            ),
            layer("ReLU", &format!("{name}r"), &name, &name),
        ]
        .concat()
    };
    let large = DATA.replace("dim: 6 dim: 6", "dim: 16 dim: 16");
    let blocks: String = (0..4).map(block).collect();
    [NET.to_owned(), everything(), [large, conv("block0", "data"), blocks, head("block4")].concat()]
}

/// All trained parameters with their history, bit by bit.
fn learnt(running: &Running) -> Vec<u32> {
    let params = running.0.layout().nets[0].params.iter().filter(|spans| spans.diff.is_some());
    let spans = params.flat_map(|spans| [Some(spans.data), spans.history]).flatten();
    let values = spans.flat_map(|span| running.0.arena.read::<f32>(span).unwrap().into_owned());
    values.map(f32::to_bits).collect()
}

/// The iteration ends with a sentence and before the update: what has been learnt is as it was, and can still be saved.
#[test]
fn a_copy_that_fails_changes_no_parameter() {
    let is_copy: [fn(&Action) -> bool; 2] =
        [|action| matches!(action, Action::Offload(_)), |action| matches!(action, Action::Prefetch(_))];
    for is_copy in is_copy {
        let mut running = running(&Device::Cpu(Cpu::new(2)), moved);
        let mut batches = batches();
        for batch in batches.by_ref().take(2) {
            running.0.iterate(0, batch).unwrap();
        }
        let before = learnt(&running);
        let mut copies = 0;
        let mut observer = |action: Action| {
            copies += usize::from(is_copy(&action));
            if copies == 2 { Err(CudaError::new("copying a buffer", "the link is down")) } else { Ok(()) }
        };
        let last = batches.nth(1).unwrap();
        let failed = running.0.iterate(0, MiniBatch { observer: Some(&mut observer), ..last });
        assert_eq!(failed.unwrap_err().to_string(), "copying a buffer failed: the link is down");
        assert_eq!(learnt(&running), before);
    }
}

/// Names a driver's call in the file that an emulated GPU looks into; every such call is then refused.
const REFUSED: &str = "EMULATED_GPU_REFUSES";

/// A driver that locks no host memory ends a run before it begins, one that copies nothing ends an iteration before its
/// update: launched, recorded or replayed. Whatever has failed can be done again.
#[test]
#[ignore = "needs an emulated GPU, as no real one can be told to fail"]
fn cuda_what_the_driver_refuses_is_said_and_changes_no_parameter() {
    let Some(file) = env::var_os(REFUSED) else { return };
    let refuse = |call: &str| fs::write(&file, call).unwrap();
    let device = own_gpu();
    let mut net = build_on(&device, NET).unwrap();
    let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
    let plan = Forced::IMPLICIT_GEMM.install(&mut net, &options);
    let run = NetRun::lay_out(vec![net], vec![plan], true).unwrap().in_layout(moved);
    refuse("cuMemHostAlloc");
    let refused = run.start(1).map(|_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("locking ") && refused.contains("out of memory"), "{refused}");
    refuse("");
    let (mut running, mut failures) = (running(&device, moved), 0);
    for (at, batch) in batches().enumerate() {
        for (call, way) in [("cuMemcpyDtoHAsync_v2", "from"), ("cuMemcpyHtoDAsync_v2", "to")] {
            let before = learnt(&running);
            refuse(call);
            let MiniBatch { number, accumulate, update, .. } = batch;
            let failed = running.0.iterate(0, MiniBatch { number, accumulate, update, observer: None });
            refuse("");
            // What is replayed has been recorded with its copies, which then are no calls.
            let Err(failed) = failed else { continue };
            let (failed, expected) = (failed.to_string(), format!("copying {way} the GPU failed: "));
            assert!(failed.contains(&expected) && !failed.contains('\n'), "mini-batch {at}: {failed}");
            assert_eq!(learnt(&running), before, "mini-batch {at}");
            failures += 1;
        }
        running.0.iterate(0, batch).unwrap();
        assert!(running.0.loss(0).unwrap().is_finite());
    }
    assert!(failures >= 4, "{failures}: each call fails when it is launched and when it is recorded");
}

/// Passes that take as long as their operands are large, with copies so much faster or slower; kernels have the
/// workspace of the plan that is installed.
fn costs(net: &Net, outline: &Outline, copies: f64) -> Costs {
    let mut costs = estimated_costs(net, Rates { memory: 1.0, copies, ..Rates::CPU });
    for (node, passes) in outline.nodes.iter().zip(&mut costs.nodes) {
        for (scratch, pass) in node.scratch.iter().zip(passes) {
            let points = pass.front.points().iter();
            pass.front = Curve::new(points.map(|kernel| Cost { workspace: *scratch, ..*kernel }));
        }
    }
    costs
}

const POLICIES: [&str; 8] =
    ["keep", "vdnn-all:m", "vdnn-all:p", "vdnn-conv:m", "vdnn-conv:p", "vdnn-dyn", "accudnn", "joint"];

/// What a policy makes of a net is the same training, in no more memory than it was given; poisoned or not.
fn policies_change_nothing_on(device: &Device) {
    let (mut offloaded, mut recomputed) = ([0; POLICIES.len()], 0);
    for net in nets() {
        let plain = running_net(device, &net, |_, layout| layout);
        let (outline, classifier) = (plain.net().outline(true), plain.net().classifier());
        let most = plain.0.layout().report.nets[0].transient;
        let costs = [0.1, 10.0].map(|copies| costs(plain.net(), &outline, copies));
        let floor = MemoryPolicy::Joint.floor(&outline, &costs[0], classifier).floor;
        let expected = trained(plain, |running, batch| running.0.iterate(0, batch).unwrap());
        let trials = [floor, Bytes((floor.0 + most.0) / 2), most]
            .map(|budget| costs.each_ref().map(|costs| (budget, costs)));
        let trials = || trials.iter().flatten().enumerate();
        for (index, (trial, &(budget, costs))) in
            (0..POLICIES.len()).flat_map(|index| trials().map(move |trial| (index, trial)))
        {
            let policy: MemoryPolicy = POLICIES[index].parse().unwrap();
            let Ok(plan) = policy.plan(&outline, costs, budget, classifier) else {
                assert!(policy != MemoryPolicy::Joint && budget < most, "{policy} within {budget} of {most}");
                continue;
            };
            let count = |is: fn(&Action) -> bool| plan.actions.iter().filter(|action| is(action)).count();
            offloaded[index] += count(|action| matches!(action, Action::Offload(_)));
            recomputed += count(|action| matches!(action, Action::Recompute(_)));
            let scheduled = |nets: &[Net], _: RunLayout| {
                let schedule = Schedule::new(&outline, plan.actions.clone()).unwrap();
                RunLayout::of(&[&nets[0]], ArenaLayout::new(std::slice::from_ref(&outline), vec![schedule]))
            };
            let running = running_net(device, &net, scheduled);
            let transient = running.0.layout().report.nets[0].transient;
            assert!(transient <= budget && transient <= plan.device, "{policy}: {transient} of {budget}");
            let found = match trial % 2 {
                0 => trained(running, |running, batch| running.0.iterate(0, batch).unwrap()),
                _ => trained(running, |running, batch| {
                    iterate_poisoned(running, &batch);
                }),
            };
            assert!(found == expected, "{policy} within {budget} of {most}, poisoned: {}", trial % 2);
        }
    }
    assert!(offloaded[1..].iter().all(|&count| count > 0), "{offloaded:?}");
    assert!(recomputed > 0, "nothing was computed again");
}

#[test]
fn policies_change_nothing() {
    policies_change_nothing_on(&Device::Cpu(Cpu::new(2)));
}

/// Recording forbids others to use the stream, so the GPU is this test's own.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_policies_change_nothing() {
    policies_change_nothing_on(&own_gpu());
}
