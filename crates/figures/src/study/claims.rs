//! What the papers say, and what is found here.

use super::{LIMITS, Study, USUAL, kernel::cliff};
use crate::draw::{Data, row};
use planner::{BatchSizePolicy, Bytes, ConvOp, WorkspacePolicy};
use std::slice;

/// A number of the papers: what it is of, on which GPU, and how much it is.
struct Claim {
    of: &'static str,
    on: &'static str,
    paper: f64,
    here: fn(&Study) -> Option<f64>,
}

/// The headline numbers about each net (arXiv 1804.04806; conv only, where the papers say so).
#[rustfmt::skip]
const CLAIMS: [(&str, &[Claim]); 3] = [
    ("alexnet", &[
        Claim { of: "conv2 Forward, one byte less than the fastest algorithm wants: times slower", on: "P100", paper: 4.51, here: byte_less },
        Claim { of: "conv2 Forward at 64 MiB: gain of all sizes", on: "P100", paper: 2.33, here: conv2_gain },
        Claim { of: "convolutions at 64 MiB: gain of all sizes", on: "K80", paper: 2.10, here: usual_gain },
        Claim { of: "convolutions at 64 MiB: gain of all sizes", on: "P100", paper: 1.63, here: usual_gain },
        Claim { of: "convolutions at 64 MiB (V100 at mini-batch 1024): gain of all sizes", on: "V100", paper: 1.63, here: usual_gain },
        Claim { of: "convolutions at 512 MiB: gain of all sizes", on: "P100", paper: 1.00, here: |s| gain_at(s, LIMITS[2]) },
        Claim { of: "separate workspaces, undivided at 512 MiB over all sizes at 64 MiB: times smaller", on: "P100", paper: 4.10, here: less_workspace },
        Claim { of: "and the time for it: times as long", on: "P100", paper: 1.04, here: and_longer },
        Claim { of: "WD of 120 MiB against undivided kernels with 8 MiB each: gain", on: "P100", paper: 1.38, here: |s| divided(s, 8, 8) },
        Claim { of: "WD of 120 MiB against undivided kernels with 64 MiB each: gain of the iteration there, of convolutions here", on: "P100", paper: 1.24, here: |s| divided(s, 8, 64) },
        Claim { of: "WD of 120 MiB: percent of it in conv2 and conv3", on: "P100", paper: 93.7, here: in_two_layers },
        Claim { of: "largest desirable set", on: "P100", paper: 68.0, here: largest_set },
    ]),
    ("resnet18", &[
        Claim { of: "convolutions at 64 MiB: gain of all sizes", on: "P100", paper: 1.21, here: usual_gain },
    ]),
    ("resnet50", &[
        Claim { of: "WD of 16 MiB a kernel against undivided kernels with 32 MiB each: gain", on: "P100", paper: 1.14, here: |s| divided(s, 16, 32) },
        Claim { of: "binary variables of the ILP", on: "P100", paper: 562.0, here: binaries },
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
            row!(data; study.title.as_str(), *of, *paper, *on, here, study.device(), ratio);
        }
    }
    data
}

/// With as many digits as the papers give.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn byte_less(study: &Study) -> Option<f64> {
    let kernel = study.kernel_of_interest()?;
    let fronts = study.fronts(slice::from_ref(kernel), BatchSizePolicy::Undivided)?;
    let edge = cliff(&fronts.iter().next()?.1.curve())?;
    Some(edge.before_ms / edge.after_ms)
}

fn conv2_gain(study: &Study) -> Option<f64> {
    let plan = study.limited(study.finest, USUAL)?;
    plan.kernel(study.convolution.as_deref()?, ConvOp::Forward)?.gain()
}

fn usual_gain(study: &Study) -> Option<f64> {
    gain_at(study, USUAL)
}

fn gain_at(study: &Study, limit: Bytes) -> Option<f64> {
    study.limited(study.finest, limit)?.gain()
}

fn less_workspace(study: &Study) -> Option<f64> {
    let plenty = study.limited(BatchSizePolicy::Undivided, LIMITS[2])?.workspace_separate();
    let little = study.limited(study.finest, USUAL)?.workspace_separate();
    Some(plenty.0 as f64 / little.0 as f64)
}

fn and_longer(study: &Study) -> Option<f64> {
    let plenty = study.limited(BatchSizePolicy::Undivided, LIMITS[2])?;
    Some(study.limited(study.finest, USUAL)?.time_ms / plenty.time_ms)
}

/// WD with so many MiB for each kernel against undivided kernels that may have so many.
fn divided(study: &Study, share: u64, undivided: u64) -> Option<f64> {
    let total = study.total(Bytes::mib(share));
    let plan = study.plan(study.finest, WorkspacePolicy::Wd, total)?;
    Some(study.limited(BatchSizePolicy::Undivided, Bytes::mib(undivided))?.time_ms / plan.time_ms)
}

fn in_two_layers(study: &Study) -> Option<f64> {
    let plan = study.plan(study.finest, WorkspacePolicy::Wd, study.total(LIMITS[0]))?;
    let named = ["conv2", "conv3"];
    let all: Bytes = plan.kernels.iter().map(|planned| planned.workspace).sum();
    let of_both = plan.kernels.iter().filter(|planned| named.contains(&planned.kernel.name.as_str()));
    let both: Bytes = of_both.map(|planned| planned.workspace).sum();
    Some(100.0 * both.0 as f64 / all.0 as f64)
}

fn largest_set(study: &Study) -> Option<f64> {
    let fronts = study.fronts(&study.kernels, study.finest)?;
    fronts.iter().map(|(_, set)| set.iter().count()).max().map(|count| count as f64)
}

fn binaries(study: &Study) -> Option<f64> {
    let total = study.total(Bytes::mib(16));
    let plan = study.plan(study.finest, WorkspacePolicy::Wd, total)?;
    plan.division.map(|division| division.binaries as f64)
}
