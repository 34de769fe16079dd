//! The drawings under `docs/` are made from the recorded tables.

use microbatch::{
    figures::staircase_svg,
    planner::{BatchSizePolicy, Bytes, CostTable, Curve, Fronts, Kernel, PlanOptions, WorkspacePolicy},
    tensor::{Cpu, Device},
    trainer::{
        Net,
        layers::{BuildOptions, SyntheticData},
        spec::{NetSpec, NetState, Phase},
    },
};
use std::{fs, path::Path};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn alexnet(mini_batch: usize) -> Vec<Kernel> {
    let spec = NetSpec::load(&root().join("models/alexnet/net.prototxt")).unwrap();
    let mut spec = spec.for_state(&NetState { phase: Phase::Train, ..NetState::default() });
    spec.set_mini_batch(mini_batch);
    let synthetic = Some(SyntheticData { shape: None, stand_in: true });
    let options = BuildOptions { device: Device::Cpu(Cpu::new(1)), seed: 1, synthetic };
    Net::new(&spec, &options, true).unwrap().kernels()
}

/// `MICROBATCH_DRAW=1 cargo test --test suite drawings` draws it again.
#[test]
fn the_readme_s_drawing_is_what_the_table_says() {
    let kernels = alexnet(256);
    let table = root().join("data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl");
    let table = CostTable::from_json_lines(&fs::read_to_string(table).unwrap()).unwrap();
    let curve = |batch_size_policy| -> Curve {
        let options = PlanOptions { batch_size_policy, ..PlanOptions::default() };
        Fronts::new(&kernels, &table, &options).unwrap().curve(WorkspacePolicy::Wr)
    };
    let curves = [BatchSizePolicy::Undivided, BatchSizePolicy::PowerOfTwo].map(curve);
    let times = curves.each_ref().map(|curve| curve.time_ms(Bytes::mib(64)).unwrap());
    assert!(times[0] > 2.4 * times[1], "{times:?}");
    let title = "AlexNet, mini-batch 256, FP32: all convolution kernels of one iteration on an H200";
    let named = [("undivided", &curves[0]), ("in micro-batches", &curves[1])];
    let svg = staircase_svg(title, &named, [Bytes::mib(1), Bytes::mib(8192)]);
    let file = root().join("docs/time-against-workspace.svg");
    if std::env::var_os("MICROBATCH_DRAW").is_some() {
        fs::write(&file, &svg).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap() == svg, "{} is another drawing", file.display());
}
