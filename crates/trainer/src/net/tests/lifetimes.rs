//! Buffers share memory only while they do not need it: every byte that the schedule calls free is poisoned after each
//! step, and nothing changes.

use super::{DATA, conv, head, layer};
use crate::{
    net::{
        Layout, Net, NetLayout,
        memory::Lifetime,
        run::Iteration,
        schedule::{Buffer, Pass, Schedule},
    },
    testing::{Forced, Running, build_on, gpu, plan_options, set},
};
use planner::{BatchSizePolicy, WorkspacePolicy};
use tensor::{ALIGNMENT, Accumulate, Cpu, Device, Span};

/// Every layer type that keeps something, in place and apart, with branches.
fn everything() -> String {
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

fn planned(device: &Device, workspace: WorkspacePolicy) -> Net {
    let mut net = build_on(device, &everything()).unwrap();
    let forced = Forced { algorithm: 1, mixed: true, sizes: &[3, 1] };
    forced.install(&mut net, &plan_options(BatchSizePolicy::All, workspace));
    net
}

/// A layout in which no transient buffer shares memory with another.
fn unshared(net: &Net, layout: &Layout) -> (NetLayout, usize) {
    let (mut apart, mut end) = (layout.nets[0].clone(), layout.len);
    let values = &net.graph().values;
    for &(buffer, Lifetime { len, .. }) in &layout.nets[0].schedule.buffers {
        let span = Span::bytes(end, len);
        end += len.next_multiple_of(ALIGNMENT);
        let of_root = |root| (0..values.len()).filter(move |&id| values[id].root == root);
        match buffer {
            Buffer::Data(root) => {
                of_root(root).for_each(|id| apart.data[id] = span.tagged(apart.data[id].format))
            }
            Buffer::Diff(root) => {
                of_root(root).for_each(|id| apart.diff[id] = span.tagged(apart.diff[id].format))
            }
            Buffer::Saved(node) => apart.saved[node] = span,
            // A segment of WD is not transient, and has no transient length.
            Buffer::Scratch(_) if len == 0 => {}
            Buffer::Scratch(step) => apart.scratch[step] = span,
        }
    }
    (apart, end)
}

fn place(layout: &NetLayout, buffer: Buffer) -> Span {
    match buffer {
        Buffer::Data(value) => layout.data[value],
        Buffer::Diff(value) => layout.diff[value],
        Buffer::Saved(node) => layout.saved[node],
        Buffer::Scratch(step) => layout.scratch[step],
    }
}

/// An iteration, one step at a time; after each, what no buffer keeps for a later one turns to NaN.
fn iterate_poisoned(running: &mut Running, number: u64) -> f64 {
    let iteration = Iteration { number, accumulate: Accumulate::Replace };
    let whole = running.layout.clone();
    let Schedule { steps, buffers, .. } = &whole.schedule;
    let buffers: Vec<(Span, Lifetime)> = buffers
        .iter()
        .filter(|(_, life)| life.len > 0)
        .map(|&(buffer, life)| (place(&whole, buffer), life))
        .collect();
    let start = buffers.iter().map(|(span, _)| span.offset).min().unwrap();
    for (index, &step) in steps.iter().enumerate() {
        let mut one = whole.clone();
        one.schedule.steps = vec![step];
        one.scratch = vec![whole.scratch[index]];
        match step.pass {
            Pass::Forward => running.net.forward(&one, &mut running.arena, iteration, |_| Ok(())).unwrap(),
            Pass::Backward => running.net.backward(&one, &mut running.arena, iteration, |_| Ok(())).unwrap(),
        }
        if index + 1 == steps.len() {
            break;
        }
        let whole_arena = running.arena.all();
        let mut all = running.arena.read::<u8>(whole_arena).unwrap().into_owned();
        let mut kept = vec![false; all.len()];
        kept[..start].fill(true);
        for (span, life) in buffers.iter().filter(|(_, life)| life.first <= index && life.last > index) {
            assert_eq!(span.len, life.len);
            kept[span.offset..span.end()].fill(true);
        }
        all.iter_mut().zip(kept).filter(|(_, kept)| !kept).for_each(|(byte, _)| *byte = 0xff);
        set(&mut running.arena, whole_arena, |bytes| bytes.copy_from_slice(&all));
    }
    running.net.loss(&whole, &running.arena).unwrap()
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
        let mut shared =
            Running::in_layout(planned(device, policy), |_, layout| (layout.nets[0].clone(), layout.len));
        let mut poisoned =
            Running::in_layout(planned(device, policy), |_, layout| (layout.nets[0].clone(), layout.len));
        let mut apart = Running::in_layout(planned(device, policy), unshared);
        assert!(shared.arena.len() < apart.arena.len());
        for number in 0..2 {
            let expected = apart.iterate(number);
            assert!(expected.is_finite(), "{policy}");
            assert_eq!(shared.iterate(number), expected, "{policy}");
            assert_eq!(iterate_poisoned(&mut poisoned, number), expected, "{policy}");
            assert_eq!(shared.gradients(), apart.gradients(), "{policy}");
            assert_eq!(poisoned.gradients(), apart.gradients(), "{policy}");
        }
    }
}

#[test]
fn buffers_alive_together_never_overlap() {
    for policy in WorkspacePolicy::ALL {
        let net = planned(&Device::Cpu(Cpu::new(2)), policy);
        let layout = Layout::new(&[&net], true);
        let nets = &layout.nets[0];
        let placed: Vec<(Span, Lifetime)> = (nets.schedule.buffers.iter())
            .filter(|(_, life)| life.len > 0)
            .map(|&(buffer, life)| (place(nets, buffer), life))
            .collect();
        let params = nets.params.iter().flat_map(|spans| [Some(spans.data), spans.diff, spans.history]);
        let always: Vec<Span> = params.flatten().collect();
        for (index, (span, life)) in placed.iter().enumerate() {
            assert!(span.end() <= layout.len && always.iter().all(|other| !span.overlaps(other)));
            for (other, met) in &placed[..index] {
                let together = life.first <= met.last && met.first <= life.last;
                assert!(!together || !span.overlaps(other), "{span:?} {life:?} and {other:?} {met:?}");
            }
        }
        let report = layout.report.nets[0];
        assert!(report.transient >= report.lower_bound && report.data > report.saved, "{report:?}");
        assert_eq!(layout.report.arena.0, layout.len as u64);
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
        reserved.reserve(&plan).unwrap();
        let (installed, reserved) = (Layout::new(&[&installed], true), Layout::new(&[&reserved], true));
        assert!(
            installed.report.nets[0].scratch.0 > 0 || installed.report.segments.0 > 0,
            "{workspace_policy}"
        );
        assert_eq!(installed.report, reserved.report, "{workspace_policy}");
    }
}
