//! What the papers say, and what is found here.

use super::{GENEROUS, LIMITS, Study, USUAL, kernel::cliff, net::two_layers};
use crate::draw::{Data, row};
use planner::{BatchSizePolicy, Bytes, ConvOp};

/// A number of the papers: what it is of, on which GPU, and how much it is.
struct Claim {
    of: &'static str,
    on: &'static str,
    paper: f64,
    here: fn(&Study) -> Option<f64>,
}

/// What the papers call the finest policy, which not every table has measurements for.
const ALL: &str = "all sizes";

/// The headline numbers about each net (arXiv 1804.04806; conv only, where the papers say so).
#[rustfmt::skip]
const CLAIMS: [(&str, &[Claim]); 4] = [
    ("alexnet", &[
        Claim { of: "conv2 Forward, one byte less than the fastest algorithm wants: times slower", on: "P100", paper: 4.51, here: byte_less },
        Claim { of: "conv2 Forward at 64 MiB: gain of all sizes", on: "P100", paper: 2.33, here: |s| s.limited(s.finest, USUAL)?.kernel(s.convolution.as_deref()?, ConvOp::Forward)?.gain() },
        Claim { of: "convolutions at 64 MiB: gain of all sizes", on: "K80", paper: 2.10, here: |s| gain_at(s, USUAL) },
        Claim { of: "convolutions at 64 MiB: gain of all sizes", on: "P100", paper: 1.63, here: |s| gain_at(s, USUAL) },
        Claim { of: "convolutions at 64 MiB (V100 at mini-batch 1024): gain of all sizes", on: "V100", paper: 1.63, here: |s| gain_at(s, USUAL) },
        Claim { of: "convolutions at 8 MiB: gain of all sizes", on: "P100", paper: 1.00, here: |s| gain_at(s, LIMITS[0]) },
        Claim { of: "convolutions at 512 MiB: gain of all sizes", on: "P100", paper: 1.00, here: |s| gain_at(s, LIMITS[2]) },
        Claim { of: "memory of a layer, undivided at 512 MiB over all sizes at 64 MiB: times smaller at best", on: "P100", paper: 3.43, here: |s| Some(s.most_saved()?.1) },
        Claim { of: "separate workspaces, undivided at 512 MiB over all sizes at 64 MiB: times smaller", on: "P100", paper: 4.10, here: less_workspace },
        Claim { of: "and the time for it: times as long", on: "P100", paper: 1.04, here: and_longer },
        Claim { of: "WD of 120 MiB against undivided kernels with 8 MiB each: gain", on: "P100", paper: 1.38, here: |s| divided(s, 8, 8) },
        Claim { of: "WD of 120 MiB against undivided kernels with 64 MiB each: gain of the iteration there, of convolutions here", on: "P100", paper: 1.24, here: |s| divided(s, 8, 64) },
        Claim { of: "WD of 120 MiB: percent of it in two layers, conv2 and conv3 there", on: "P100", paper: 93.7, here: |s| Some(100.0 * two_layers(&*s.divided(Bytes::mib(8))?)?.1) },
        Claim { of: "seconds to measure all sizes (here: every algorithm once)", on: "P100", paper: 34.16, here: |s| Some(s.measuring_s(s.finest)) },
        Claim { of: "seconds to measure powers of two (likewise)", on: "P100", paper: 3.82, here: |s| Some(s.measuring_s(BatchSizePolicy::PowerOfTwo)) },
        Claim { of: "largest desirable set of all sizes", on: "P100", paper: 68.0, here: |s| s.set_sizes(s.finest)?.into_iter().max().map(|points| points as f64) },
    ]),
    ("resnet18", &[
        Claim { of: "convolutions at 64 MiB: gain of all sizes", on: "P100", paper: 1.21, here: |s| gain_at(s, USUAL) },
        Claim { of: "memory of a layer, undivided at 512 MiB over all sizes at 64 MiB: times smaller at best", on: "P100", paper: 2.73, here: |s| Some(s.most_saved()?.1) },
    ]),
    ("resnet50", &[
        Claim { of: "WD of 16 MiB a kernel against undivided kernels with 32 MiB each: gain", on: "P100", paper: 1.14, here: |s| divided(s, 16, 32) },
        Claim { of: "binary variables of the ILP", on: "P100", paper: 562.0, here: |s| Some(s.divided(Bytes::mib(16))?.division?.binaries as f64) },
    ]),
    ("deepbench", &[
        Claim { of: "kernels with 3x3 filters within 128 to 512 MiB: largest gain", on: "-", paper: 2.31, here: |s| largest_gain(s, 3) },
        Claim { of: "kernels with 5x5 filters within 128 to 512 MiB: largest gain", on: "-", paper: 3.85, here: |s| largest_gain(s, 5) },
    ]),
];

/// The table of what the papers found and what is found here, with the ratio.
pub fn claims(studies: &[Study]) -> Data {
    let mut data = Data::new("net what paper paper_gpu here here_gpu ratio");
    for (net, claims) in CLAIMS {
        let Some(study) = studies.iter().find(|study| study.name == net) else { continue };
        for Claim { of, on, paper, here } in claims {
            let Some(found) = here(study) else { continue };
            let (here, ratio) = (rounded(found), rounded(found / paper));
            let sizes =
                if study.finest == BatchSizePolicy::All { ALL } else { "powers of two instead of all sizes" };
            row!(data; study.label(), of.replace(ALL, sizes), paper, on, here, study.device(), ratio);
        }
    }
    data
}

/// With as many digits as the papers give.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn byte_less(study: &Study) -> Option<f64> {
    let set = study.desirable(study.kernel_of_interest()?, BatchSizePolicy::Undivided)?;
    let (_, [before_ms, after_ms]) = cliff(&set.curve())?;
    Some(before_ms / after_ms)
}

/// The gain of all kernels within a limit for each.
pub(super) fn gain_at(study: &Study, limit: Bytes) -> Option<f64> {
    study.limited(study.finest, limit)?.gain()
}

fn less_workspace(study: &Study) -> Option<f64> {
    let [plenty, little] = study.plenty_and_little()?.map(|plan| plan.workspace_separate().0 as f64);
    Some(plenty / little)
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
