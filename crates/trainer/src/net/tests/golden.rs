//! Places in the arena that must not change without somebody noticing. They follow from the sizes that layers declare;
//! a layer that needs less moves what lies behind it.

use super::lifetimes::everything;
use crate::layers::{BuildOptions, SyntheticData};
use crate::net::{Net, RunLayout};
use crate::spec::{NetSpec, Phase};
use crate::testing::{build_on, root};
use files::fnv1a;
use memory::Buffer;
use tensor::{Cpu, Device};

/// Net, phase, whether there is a history, bytes of the arena, and a digest of all offsets and sizes.
const PLACES: [(&str, Phase, bool, usize, u64); 14] = [
    ("everything", Phase::Train, false, 24_576, 0x15f0_1af8_b4a0_c34b),
    ("everything", Phase::Train, true, 26_112, 0x5c85_1a83_d47c_e5e8),
    ("lenet", Phase::Train, false, 3_959_552, 0x4511_917c_1611_7ca6),
    ("lenet", Phase::Train, true, 5_287_168, 0xe1bd_30d3_84c6_7f0d),
    ("lenet", Phase::Test, false, 2_209_280, 0x4686_a67e_d0d8_812a),
    ("alexnet", Phase::Train, false, 503_438_080, 0x8946_9cc3_4517_ab5d),
    ("alexnet", Phase::Train, true, 652_350_208, 0x2daa_6921_523f_21e0),
    ("alexnet", Phase::Test, false, 255_415_808, 0x9c74_9e94_3c76_e4f2),
    ("resnet18", Phase::Train, false, 236_499_712, 0x48ca_af3f_b8d6_e9a8),
    ("resnet18", Phase::Train, true, 262_570_752, 0x8e04_e3fb_0aed_8c09),
    ("resnet18", Phase::Test, false, 98_182_656, 0x9ba4_8574_7271_052b),
    ("resnet50", Phase::Train, false, 831_091_712, 0xc244_e7cf_2ce1_15a1),
    ("resnet50", Phase::Train, true, 847_496_192, 0xaad6_7051_fba5_75bd),
    ("resnet50", Phase::Test, false, 179_526_912, 0x3285_4685_c58b_ee18),
];

fn net(name: &str, phase: Phase) -> Net {
    let device = Device::Cpu(Cpu::new(2));
    if name == "everything" {
        return build_on(&device, &everything()).unwrap();
    }
    let file = root().join("models").join(name).join("net.prototxt");
    let mut spec = NetSpec::load(&file).unwrap().for_phase(phase);
    spec.set_mini_batch(8);
    let synthetic = Some(SyntheticData { shape: None, stand_in: true });
    Net::new(&spec, &BuildOptions { device, seed: 1, synthetic }, phase == Phase::Train).unwrap()
}

/// Offset and size of data, gradients, saved state and scratch, then of parameters, their gradients and history.
fn places(net: &Net, layout: &RunLayout) -> String {
    let (graph, layout) = (net.graph(), &layout.nets[0]);
    let values = graph.values.iter().map(|value| value.root);
    let data = values.clone().flat_map(|root| [Buffer::Constant(root), Buffer::Data(root)]);
    let saved = (0..graph.nodes.len()).map(Buffer::Saved);
    let scratch = (0..=layout.end()).map(Buffer::Scratch);
    let params = (0..graph.params.len())
        .flat_map(|id| [Buffer::Parameter(id), Buffer::Gradient(id), Buffer::History(id)]);
    let buffers = data.chain(values.map(Buffer::Diff)).chain(saved).chain(scratch).chain(params);
    let spots = buffers.filter_map(|buffer| {
        let residences = &layout.places.schedule.buffers[layout.places.schedule.find(buffer)?].1;
        Some(layout.span(buffer, residences[0].first))
    });
    spots.filter(|span| span.len > 0).map(|span| format!("{} {},", span.offset, span.len)).collect()
}

#[test]
fn nets_lie_where_they_always_did() {
    let mut moved = Vec::new();
    for (name, phase, updates, arena, digest) in PLACES {
        let net = net(name, phase);
        let layout = RunLayout::new(&[&net], updates);
        let found = (layout.bytes(), fnv1a(places(&net, &layout).into_bytes()));
        if found != (arena, digest) {
            moved.push(format!("{name} {phase} {updates}: {} bytes, {:#018x}", found.0, found.1));
        }
    }
    assert!(moved.is_empty(), "{moved:#?}");
}
