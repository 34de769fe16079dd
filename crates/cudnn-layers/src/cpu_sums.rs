//! Sums on the CPU that are fast, accurate, and the same whatever the number of threads: single precision over short
//! interleaved chains of additions, double precision above.

use crate::{AxisExtents, cpu_loops::vectorised};

/// Chains of additions side by side: four of the widest vectors, to hide the latency of an addition.
const CHAINS: usize = 64;
/// Elements summed in single precision before the partial sum joins a double.
const RUN: usize = 4096;

/// The sums of `terms` of the elements at each place, over one channel of `outer x axis x inner` blobs.
pub(crate) fn channel_sums<const INPUTS: usize, const COUNT: usize>(
    extents: &AxisExtents,
    channel: usize,
    blobs: [&[f32]; INPUTS],
    terms: impl Fn([f32; INPUTS]) -> [f32; COUNT],
) -> [f64; COUNT] {
    vectorised(
        #[inline(always)]
        || {
            let (mut totals, mut chains, mut held) = ([0.0; COUNT], [[0.0; CHAINS]; COUNT], 0);
            for sample in 0..extents.outer {
                let plane = extents.plane(sample, channel);
                for start in plane.clone().step_by(RUN) {
                    let run = start..plane.end.min(start + RUN);
                    if held + run.len() > RUN {
                        flush(&mut chains, &mut totals);
                        held = 0;
                    }
                    held += run.len();
                    let parts = blobs.map(|blob| blob[run.clone()].as_chunks::<CHAINS>());
                    // Of a known length, the whole ones are summed in registers.
                    for part in 0..run.len() / CHAINS {
                        add(&mut chains, parts.map(|(whole, _)| &whole[part][..]), &terms);
                    }
                    add(&mut chains, parts.map(|(_, rest)| rest), &terms);
                }
            }
            flush(&mut chains, &mut totals);
            totals
        },
    )
}

/// Adds the terms of at most one element for each chain. They are computed before any is added: together the compiler
/// does not vectorise the two.
#[inline(always)]
fn add<const INPUTS: usize, const COUNT: usize>(
    chains: &mut [[f32; CHAINS]; COUNT],
    values: [&[f32]; INPUTS],
    terms: &impl Fn([f32; INPUTS]) -> [f32; COUNT],
) {
    let mut added = [[0.0; CHAINS]; COUNT];
    for place in 0..values[0].len() {
        let terms = terms(std::array::from_fn(|input| values[input][place]));
        added.iter_mut().zip(terms).for_each(|(added, term)| added[place] = term);
    }
    let sums = chains.as_flattened_mut().iter_mut();
    sums.zip(added.as_flattened()).for_each(|(sum, term)| *sum += term);
}

/// Moves what the chains hold to the totals, added up by halves.
#[inline(always)]
fn flush<const COUNT: usize>(chains: &mut [[f32; CHAINS]; COUNT], totals: &mut [f64; COUNT]) {
    for (chains, total) in chains.iter_mut().zip(totals) {
        let mut half = CHAINS / 2;
        while half > 0 {
            let (left, right) = chains.split_at_mut(half);
            left.iter_mut().zip(right).for_each(|(left, right)| *left += *right);
            half /= 2;
        }
        *total += f64::from(chains[0]);
        *chains = [0.0; CHAINS];
    }
}
