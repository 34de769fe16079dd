//! Dropout on the CPU: two rounds of a 32-bit hash per element cost less than the memory traffic of a stored mask.

use super::Dropout;
use crate::cpu_loops::{TASK_LEN, for_each_run, inlined, put};
use tensor::{Cpu, Out, View, rng::mix64};

/// Chris Wellons' `lowbias32`: a bijection whose output bits each depend on all input bits nearly without bias.
#[inline(always)]
fn mix32(value: u32) -> u32 {
    let value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    let value = (value ^ (value >> 15)).wrapping_mul(0x846c_a68b);
    value ^ (value >> 16)
}

/// Elements whose factors are computed together: a loop of fixed length without branches, which vectorises.
const BLOCK: usize = 256;

/// The factors, `scale` or 0, of the elements from `start` on; a task never straddles a multiple of 2^32. Keying both
/// rounds keeps the masks of two iterations, whose `key`s differ, from being rearrangements of each other.
#[inline(always)]
fn factors(start: usize, key: u64, threshold: u32, scale: f32) -> [f32; BLOCK] {
    let keys = mix64(key ^ (start as u64 >> 32));
    let [first, second] = [keys as u32, (keys >> 32) as u32];
    let mut factors = [0.0; BLOCK];
    for (lane, factor) in (0..BLOCK as u32).zip(&mut factors) {
        let hash = mix32(mix32((start as u32).wrapping_add(lane) ^ first) ^ second);
        *factor = if hash >= threshold { scale } else { 0.0 };
    }
    factors
}

/// In place without a `from`.
pub(super) fn apply(cpu: &Cpu, dropout: &Dropout<'_>, from: Option<View<'_>>, to: Out<'_>) {
    let iteration: u64 = bytemuck::pod_read_unaligned(dropout.iteration.host::<u8>());
    let key = mix64(mix64(dropout.seed) ^ iteration);
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    let (from, (to, accumulate)) = (from.map(|from| from.host::<f32>()), to.into_host());
    inlined!(for_each_run(cpu, to.len(), TASK_LEN, [to]), |range, [to]| {
        for (start, to) in range.step_by(BLOCK).zip(to.chunks_mut(BLOCK)) {
            let factors = factors(start, key, threshold, scale);
            let elements = to.iter_mut().zip(&factors);
            match from {
                Some(from) => elements.zip(&from[start..]).for_each(|((to, &factor), &from)| {
                    put(accumulate, to, from * factor);
                }),
                None => elements.for_each(|(to, &factor)| *to *= factor),
            }
        }
    });
}
