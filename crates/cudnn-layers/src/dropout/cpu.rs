//! Dropout on the CPU: two rounds of a 32-bit hash per element cost less than the memory traffic of a stored mask.

use super::{Dropout, mix64};
use crate::cpu_loops::{for_each_element_run, inlined, put};
use tensor::{Cpu, Out, View};

/// Chris Wellons' `lowbias32`: a bijection whose output bits each depend on all input bits nearly without bias.
#[inline(always)]
fn mix32(value: u32) -> u32 {
    let value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    let value = (value ^ (value >> 15)).wrapping_mul(0x846c_a68b);
    value ^ (value >> 16)
}

/// Elements whose factors are computed together: a loop of fixed length without branches, which vectorises.
const BLOCK: usize = 256;

/// What the factors of one iteration's elements follow from.
#[derive(Clone, Copy)]
struct Mask {
    scale: f32,
    threshold: u32,
    key: u64,
}

impl Mask {
    fn new(dropout: &Dropout<'_>) -> Self {
        let iteration: u64 = bytemuck::pod_read_unaligned(dropout.iteration.host::<u8>());
        let key = mix64(mix64(dropout.seed) ^ iteration);
        Self { scale: dropout.scale(), threshold: dropout.threshold(), key }
    }

    /// The factors, `scale` or 0, of the elements from `start` on; a task never straddles a multiple of 2^32. Keying
    /// both rounds keeps the masks of two iterations from being rearrangements of each other.
    #[inline(always)]
    fn factors(&self, start: usize) -> [f32; BLOCK] {
        let keys = mix64(self.key ^ (start as u64 >> 32));
        let [first, second] = [keys as u32, (keys >> 32) as u32];
        let mut factors = [0.0; BLOCK];
        for (lane, factor) in (0..BLOCK as u32).zip(&mut factors) {
            let hash = mix32(mix32((start as u32).wrapping_add(lane) ^ first) ^ second);
            *factor = if hash >= self.threshold { self.scale } else { 0.0 };
        }
        factors
    }
}

/// In place without a `from`.
pub(super) fn apply(cpu: &Cpu, dropout: &Dropout<'_>, from: Option<View<'_>>, to: Out<'_>) {
    let (mask, from) = (Mask::new(dropout), from.map(|from| from.host::<f32>()));
    let (to, accumulate) = to.into_host();
    inlined!(for_each_element_run(cpu, [to]), |range, [to]| {
        for (start, to) in range.step_by(BLOCK).zip(to.chunks_mut(BLOCK)) {
            let factors = mask.factors(start);
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
