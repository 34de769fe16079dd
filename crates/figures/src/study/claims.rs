//! What the papers say, and what is found here.

use super::{CLOSELY, GENEROUS, LIMITS, Study, USUAL, kernel::cliff, net::two_layers, of_sizes};
use crate::table::Table;
use planner::{BatchSizePolicy, Bytes, ConvOp, PlannedKernel};
use serde_json::json;

/// A number of the papers: what it is of, on which GPU, how much it is, and how much it is here.
type Claim = (&'static str, &'static str, f64, fn(&Study) -> Option<f64>);

/// The headline numbers about each net (arXiv 1804.04806; conv only, where the papers say so).
#[rustfmt::skip]
const CLAIMS: [(&str, &[Claim]); 4] = [
    ("alexnet", &[
        ("conv2 Forward, one byte less than the fastest algorithm wants: times slower", "P100", 4.51, |s| Some(byte_less(s)?.1)),
        ("conv2 Forward: MiB that the fastest algorithm wants", "P100", 323.0, |s| Some(byte_less(s)?.0.as_mib())),
        ("conv2 Forward at 64 MiB: gain of all sizes", "P100", 2.33, |s| closely(s, s.finest)?.gain()),
        ("conv2 Forward at 64 MiB: MiB that powers of two take", "P100", 48.9, |s| Some(closely(s, BatchSizePolicy::PowerOfTwo)?.workspace.as_mib())),
        ("convolutions at 64 MiB: gain of all sizes", "K80", 2.10, |s| gain_at(s, USUAL)),
        ("convolutions at 64 MiB: gain of all sizes", "P100", 1.63, |s| gain_at(s, USUAL)),
        ("convolutions at 64 MiB (V100 at mini-batch 1024): gain of all sizes", "V100", 1.63, |s| gain_at(s, USUAL)),
        ("convolutions at 8 MiB: gain of all sizes", "K80, P100", 1.00, |s| gain_at(s, LIMITS[0])),
        ("convolutions at 512 MiB: gain of all sizes", "K80, P100", 1.00, |s| gain_at(s, LIMITS[2])),
        ("memory of a layer, undivided at 512 MiB over all sizes at 64 MiB: times smaller at best", "P100", 3.43, |s| Some(s.most_saved()?.1)),
        ("separate workspaces, undivided at 512 MiB: GiB", "P100", 2.87, |s| Some(s.plenty_and_little()?[0].workspace_separate().as_mib() / 1024.0)),
        ("separate workspaces, all sizes at 64 MiB: GiB", "P100", 0.70, |s| Some(s.plenty_and_little()?[1].workspace_separate().as_mib() / 1024.0)),
        ("and the time for it: times as long", "P100", 1.04, and_longer),
        ("WD of 120 MiB against undivided kernels with 8 MiB each: gain", "P100", 1.38, |s| divided(s, 8, 8)),
        ("WD of 120 MiB against undivided kernels with 64 MiB each: gain of the iteration there, of convolutions here", "P100", 1.24, |s| divided(s, 8, 64)),
        ("WD of 120 MiB: percent of it in two layers, conv2 and conv3 there", "P100", 93.7, |s| Some(100.0 * two_layers(&s.divided(LIMITS[0])?)?.1)),
        ("WD of 120 MiB: MiB of a kernel of conv4 or conv5 at most", "P100", 3.0, |s| s.divided(LIMITS[0])?.kernels.iter().filter(|k| matches!(&k.kernel.name[..], "conv4" | "conv5")).map(|k| k.workspace.as_mib()).reduce(f64::max)),
        ("seconds to measure all sizes (here: every algorithm once)", "P100", 34.16, |s| Some(s.measuring_s(s.finest))),
        ("seconds to measure powers of two (likewise)", "P100", 3.82, |s| Some(s.measuring_s(BatchSizePolicy::PowerOfTwo))),
        ("largest desirable set of all sizes", "P100", 68.0, |s| s.fronts(&of_sizes(s.finest)).ok()?.iter().map(|(_, set)| set.len() as f64).reduce(f64::max)),
    ]),
    ("resnet18", &[
        ("convolutions at 64 MiB: gain of all sizes", "P100", 1.21, |s| gain_at(s, USUAL)),
        ("memory of a layer, undivided at 512 MiB over all sizes at 64 MiB: times smaller at best", "P100", 2.73, |s| Some(s.most_saved()?.1)),
        ("and the time for all: times as long (there at most)", "P100", 1.17, and_longer),
    ]),
    ("resnet50", &[
        ("WD of 16 MiB a kernel against undivided kernels with 32 MiB each: gain", "P100", 1.14, |s| divided(s, 16, 32)),
        ("binary variables of the ILP", "P100", 562.0, |s| Some(s.ilp(s.finest)?.0 as f64)),
        ("milliseconds to solve it, on a processor", "P100", 5.46, |s| s.ilp(s.finest)?.1),
    ]),
    ("deepbench", &[
        ("kernels with 3x3 filters within 128 to 512 MiB: largest gain", "-", 2.31, |s| largest_gain(s, 3)),
        ("kernels with 5x5 filters within 128 to 512 MiB: largest gain", "-", 3.85, |s| largest_gain(s, 5)),
    ]),
];

/// The table of what the papers found and what is found on each device, with its ratio to that.
pub fn claims(devices: &[Vec<Study>]) -> Table {
    let models = devices.iter().flat_map(|studies| studies.first()).map(Study::model);
    let columns = models.map(|model| format!(" {model} {model}/paper")).collect::<String>();
    let mut data = Table::new(format!("net what paper paper_gpu{columns}").split(' '));
    for (net, claims) in CLAIMS {
        let named: Vec<Option<&Study>> =
            devices.iter().map(|device| device.iter().find(|study| study.name == net)).collect();
        let Some(first) = named.iter().flatten().next() else { continue };
        // Not every table has measurements for all sizes, nor the same ones.
        let powers = "powers of two instead of all sizes";
        let finest = if first.finest == BatchSizePolicy::All { "all sizes" } else { powers };
        for (of, on, paper, here) in claims {
            let same = |study: &Option<&Study>| here(study.filter(|study| study.finest == first.finest)?);
            let found: Vec<Option<f64>> = named.iter().map(same).collect();
            if found.iter().any(Option::is_some) {
                let words =
                    [json!(first.label()), json!(of.replace("all sizes", finest)), json!(paper), json!(on)];
                let both = found.iter().flat_map(|found| [*found, found.map(|found| found / paper)]);
                data.row(words.into_iter().chain(both.map(|cell| json!(cell.map(rounded)))));
            }
        }
    }
    data
}

/// With as many digits as the papers give.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// What the fastest algorithm of the convolution that is looked at wants, and how many times slower one byte less is.
fn byte_less(study: &Study) -> Option<(Bytes, f64)> {
    let set = study.desirable(study.kernel_of_interest()?, &of_sizes(BatchSizePolicy::Undivided))?;
    let (at, [before_ms, after_ms]) = cliff(&set.curve())?;
    Some((at, before_ms / after_ms))
}

/// Its Forward within the usual limit.
fn closely(study: &Study, policy: BatchSizePolicy) -> Option<PlannedKernel> {
    study.limited(policy, USUAL)?.kernel(CLOSELY, ConvOp::Forward).cloned()
}

/// The gain of all kernels within a limit for each.
pub(super) fn gain_at(study: &Study, limit: Bytes) -> Option<f64> {
    study.limited(study.finest, limit)?.gain()
}

fn and_longer(study: &Study) -> Option<f64> {
    let [plenty, little] = study.plenty_and_little()?;
    Some(little.time_ms / plenty.time_ms)
}

/// WD of so many MiB for each kernel against undivided kernels that may have so many.
fn divided(study: &Study, share: u64, undivided: u64) -> Option<f64> {
    let undivided = study.limited(BatchSizePolicy::Undivided, Bytes::mib(undivided))?;
    Some(undivided.time_ms / study.divided(Bytes::mib(share))?.time_ms)
}

/// Of the kernels with square filters of this size.
fn largest_gain(list: &Study, size: u32) -> Option<f64> {
    let gains = GENEROUS.into_iter().filter_map(|limit| Some(list.gains(limit)?.get(&[size; 2])?.first()?.0));
    gains.reduce(f64::max)
}
