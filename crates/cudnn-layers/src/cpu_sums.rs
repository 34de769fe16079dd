//! Sums on the CPU that are fast, accurate, and the same whatever the number of threads: single precision over short
//! interleaved chains of additions, double precision above.

use crate::AxisExtents;
use tensor::cpu::{LANES, Lanes, WithLanes, dispatch};

/// Vectors summed independently, to hide the latency of additions.
const CHAINS: usize = 4;
/// Elements summed in single precision before the partial sum joins a double.
const RUN: usize = 4096;

/// What is summed: `COUNT` terms of the elements at one place of `INPUTS` slices.
pub(crate) trait Terms<const INPUTS: usize, const COUNT: usize>: Copy {
    /// The terms of sixteen places.
    fn of<L: Lanes>(self, lanes: L, values: [L::V; INPUTS]) -> [L::V; COUNT];

    /// Values that contribute nothing.
    fn neutral(self) -> [f32; INPUTS];
}

/// `x`.
#[derive(Clone, Copy)]
pub(crate) struct Itself;

impl Terms<1, 1> for Itself {
    #[inline(always)]
    fn of<L: Lanes>(self, _: L, x: [L::V; 1]) -> [L::V; 1] {
        x
    }
    #[inline(always)]
    fn neutral(self) -> [f32; 1] {
        [0.0]
    }
}

/// `(x - mean)^2`.
#[derive(Clone, Copy)]
pub(crate) struct SquaredDeviation {
    pub(crate) mean: f32,
}

impl Terms<1, 1> for SquaredDeviation {
    #[inline(always)]
    fn of<L: Lanes>(self, lanes: L, [x]: [L::V; 1]) -> [L::V; 1] {
        let deviation = lanes.sub(x, lanes.splat(self.mean));
        [lanes.mul(deviation, deviation)]
    }
    #[inline(always)]
    fn neutral(self) -> [f32; 1] {
        [self.mean]
    }
}

/// `dy * (x - mean)` and `dy`, of the slices `[x, dy]`.
#[derive(Clone, Copy)]
pub(crate) struct WithDeviation {
    pub(crate) mean: f32,
}

impl Terms<2, 2> for WithDeviation {
    #[inline(always)]
    fn of<L: Lanes>(self, lanes: L, [x, dy]: [L::V; 2]) -> [L::V; 2] {
        [lanes.mul(dy, lanes.sub(x, lanes.splat(self.mean))), dy]
    }
    #[inline(always)]
    fn neutral(self) -> [f32; 2] {
        [self.mean, 0.0]
    }
}

/// The sums of `terms` over slices of one length.
#[inline(always)]
pub(crate) fn sums<const INPUTS: usize, const COUNT: usize>(
    inputs: [&[f32]; INPUTS],
    terms: impl Terms<INPUTS, COUNT>,
) -> [f64; COUNT] {
    channel_sums(&AxisExtents { outer: 1, axis: 1, inner: inputs[0].len() }, 0, inputs, terms)
}

/// The sums of `terms` over one channel of `outer x axis x inner` blobs.
pub(crate) fn channel_sums<const INPUTS: usize, const COUNT: usize>(
    extents: &AxisExtents,
    channel: usize,
    blobs: [&[f32]; INPUTS],
    terms: impl Terms<INPUTS, COUNT>,
) -> [f64; COUNT] {
    dispatch(ChannelSums { extents, channel, blobs, terms })
}

struct ChannelSums<'a, T, const INPUTS: usize, const COUNT: usize> {
    extents: &'a AxisExtents,
    channel: usize,
    blobs: [&'a [f32]; INPUTS],
    terms: T,
}

impl<T: Terms<INPUTS, COUNT>, const INPUTS: usize, const COUNT: usize> WithLanes<[f64; COUNT]>
    for ChannelSums<'_, T, INPUTS, COUNT>
{
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) -> [f64; COUNT] {
        let &AxisExtents { outer, axis, inner } = self.extents;
        let mut totals = [0.0; COUNT];
        let (mut chains, mut held) = ([[lanes.zero(); COUNT]; CHAINS], 0);
        for sample in 0..outer {
            let plane = (sample * axis + self.channel) * inner;
            for start in (0..inner).step_by(RUN) {
                let len = (inner - start).min(RUN);
                if held + len > RUN {
                    flush(lanes, &mut chains, &mut totals);
                    held = 0;
                }
                held += len;
                let run = self.blobs.map(|blob| &blob[plane + start..plane + start + len]);
                chains = add_run(lanes, run, self.terms, chains);
            }
        }
        flush(lanes, &mut chains, &mut totals);
        totals
    }
}

/// Adds the terms of a run to the chains.
#[inline(always)]
fn add_run<L: Lanes, const INPUTS: usize, const COUNT: usize>(
    lanes: L,
    run: [&[f32]; INPUTS],
    terms: impl Terms<INPUTS, COUNT>,
    mut chains: [[L::V; COUNT]; CHAINS],
) -> [[L::V; COUNT]; CHAINS] {
    let len = run[0].len();
    assert!(run.iter().all(|slice| slice.len() == len), "summed slices have one length");
    let vectors = len / LANES * LANES;
    let blocks = vectors / (CHAINS * LANES) * (CHAINS * LANES);
    let mut from = run.map(<[f32]>::as_ptr);
    for _ in (0..blocks).step_by(CHAINS * LANES) {
        for chain in &mut chains {
            // SAFETY: `from` has passed whole vectors of this block and those before it, all within `len`.
            let values = unsafe { load_next(lanes, &mut from) };
            add_terms(lanes, terms.of(lanes, values), chain);
        }
    }
    for _ in (blocks..vectors).step_by(LANES) {
        // SAFETY: as above, within `vectors`.
        let values = unsafe { load_next(lanes, &mut from) };
        add_terms(lanes, terms.of(lanes, values), &mut chains[0]);
    }
    if vectors < len {
        let mut rest = terms.neutral().map(|neutral| [neutral; LANES]);
        for (rest, slice) in rest.iter_mut().zip(run) {
            rest[..len - vectors].copy_from_slice(&slice[vectors..]);
        }
        let values = std::array::from_fn(|input| lanes.load(&rest[input]));
        add_terms(lanes, terms.of(lanes, values), &mut chains[1]);
    }
    chains
}

/// The next sixteen elements of every slice.
///
/// # Safety
/// Every pointer must be valid for reading sixteen elements.
#[inline(always)]
unsafe fn load_next<L: Lanes, const N: usize>(lanes: L, from: &mut [*const f32; N]) -> [L::V; N] {
    // SAFETY: the caller's promise.
    let values = std::array::from_fn(|input| unsafe { lanes.load_ptr(from[input]) });
    from.iter_mut().for_each(|from| *from = from.wrapping_add(LANES));
    values
}

#[inline(always)]
fn add_terms<L: Lanes, const COUNT: usize>(lanes: L, terms: [L::V; COUNT], chain: &mut [L::V; COUNT]) {
    chain.iter_mut().zip(&terms).for_each(|(sum, &term)| *sum = lanes.add(*sum, term));
}

/// Moves what the chains hold to the totals.
#[inline(always)]
fn flush<L: Lanes, const N: usize>(lanes: L, chains: &mut [[L::V; N]; CHAINS], totals: &mut [f64; N]) {
    for (count, total) in totals.iter_mut().enumerate() {
        let [a, b, c, d] = chains.map(|chain| chain[count]);
        *total += f64::from(tree_sum(lanes.to_array(lanes.add(lanes.add(a, b), lanes.add(c, d)))));
    }
    *chains = [[lanes.zero(); N]; CHAINS];
}

/// The sum of sixteen values, by halves.
#[inline(always)]
pub(crate) fn tree_sum(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + 8]);
    let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}
