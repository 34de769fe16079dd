//! How long the ILPs of the recorded nets take.

use super::recorded_tables;
use planner::*;
use std::{error::Error, fs, time::Instant};
use tensor::Device;
use trainer::Net;
use trainer::layers::{BuildOptions, SyntheticData};
use trainer::spec::{NetSpec, Phase};

/// The tables in FP32 that are part of the command, in the order in which it joins them.
const SHIPPED: [(&str, u32, &str); 8] = [
    ("deepbench", 256, "powerOfTwo"),
    ("densenet40", 256, "powerOfTwo"),
    ("googlenet", 128, "powerOfTwo"),
    ("vgg16", 64, "powerOfTwo"),
    ("resnet50", 256, "powerOfTwo"),
    ("resnet50", 32, "all"),
    ("resnet18", 128, "all"),
    ("alexnet", 256, "all"),
];

/// Solves the ILPs that divide 16 MiB for each kernel of the recorded nets in FP32: net, policy, binary variables and
/// the least of all times within two seconds, in milliseconds, which other work on the machine disturbs least.
pub(super) fn report() -> Result<(), Box<dyn Error>> {
    use BatchSizePolicy::{All, PowerOfTwo, Undivided};
    let recorded = recorded_tables()?;
    let mut table = CostTable::default();
    for (net, mini_batch, sizes) in SHIPPED {
        let name = format!("{net}-{mini_batch}-{sizes}-fp32");
        let (_, next) = recorded.iter().find(|(other, _)| *other == name).ok_or(name)?;
        table = if table.is_empty() { next.clone() } else { table };
        table.merge(next.clone())?;
    }
    for (net, mini_batch, sizes) in &SHIPPED[1..] {
        let path = format!("{}/models/{net}/net.prototxt", env!("CARGO_MANIFEST_DIR"));
        let mut spec = NetSpec::parse(path.as_ref(), &fs::read_to_string(&path)?)?.for_phase(Phase::Train);
        spec.set_mini_batch(*mini_batch as usize);
        let shape = (*net == "densenet40").then_some([3, 32, 32]);
        let synthetic = Some(SyntheticData { shape, stand_in: true });
        let options = BuildOptions { device: Device::cpu(), seed: 1, synthetic };
        let kernels = Net::new(&spec, &options, true)?.kernels();
        let mut layers: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        layers.dedup();
        let total = Bytes::mib(16 * 3 * layers.len() as u64);
        for policy in [Undivided, PowerOfTwo, All].into_iter().filter(|&p| p != All || *sizes == "all") {
            let options = PlanOptions { batch_size_policy: policy, ..PlanOptions::default() };
            let within = |chosen: &&Configuration| chosen.workspace() <= total;
            let cost =
                |chosen: &Configuration| Cost { workspace: chosen.workspace().aligned(), ..chosen.cost() };
            let fronts = Fronts::new(&kernels, &table, &options)?;
            let groups: Vec<Vec<Cost>> =
                fronts.iter().map(|(_, set)| set.iter().take_while(within).map(cost).collect()).collect();
            let exact = divide_exact(&groups, total).ok_or("nothing fits")?;
            let (begin, mut least_ms) = (Instant::now(), f64::INFINITY);
            while begin.elapsed().as_secs() < 2 {
                let start = Instant::now();
                let ilp = divide_ilp(&groups, total)?;
                least_ms = least_ms.min(start.elapsed().as_secs_f64() * 1e3);
                assert!((ilp.time_ms - exact.time_ms).abs() <= 1e-7 * exact.time_ms);
            }
            let binaries: usize = groups.iter().map(Vec::len).sum();
            println!("{net}-{mini_batch} {policy} {binaries} {least_ms:.2}");
        }
    }
    Ok(())
}
