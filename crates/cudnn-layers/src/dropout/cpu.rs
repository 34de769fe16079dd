//! Dropout on the CPU: two rounds of a 32-bit hash per element cost less than the memory traffic of a stored mask.

use super::Dropout;
use crate::cpu_loops::{for_each_element_run, put};
use tensor::{Accumulate, Cpu};

/// Chris Wellons' `lowbias32`: a bijection whose output bits each depend on all input bits nearly without bias.
#[inline(always)]
fn mix32(value: u32) -> u32 {
    let value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    let value = (value ^ (value >> 15)).wrapping_mul(0x846c_a68b);
    value ^ (value >> 16)
}

/// Elements whose factors are computed together: a loop of fixed length without branches, which vectorises.
const BLOCK: usize = 256;

/// The factors, `scale` or 0, of the elements from `start` on; a task never straddles a multiple of 2^32. Keying both rounds
/// keeps the masks of two iterations from being rearrangements of each other.
#[inline(always)]
fn factors(dropout: &Dropout, start: usize) -> [f32; BLOCK] {
    let (scale, threshold) = (dropout.scale(), dropout.threshold());
    let [first, second] = dropout.keys(start as u64 >> 32);
    let mut factors = [0.0; BLOCK];
    for (lane, factor) in (0..BLOCK as u32).zip(&mut factors) {
        let hash = mix32(mix32((start as u32).wrapping_add(lane) ^ first) ^ second);
        *factor = if hash >= threshold { scale } else { 0.0 };
    }
    factors
}

pub(super) fn apply(cpu: &Cpu, dropout: &Dropout, from: &[f32], to: &mut [f32], accumulate: Accumulate) {
    for_each_element_run(
        cpu,
        [to],
        #[inline(always)]
        |range, [to]| {
            let blocks = to.chunks_mut(BLOCK).zip(from[range.clone()].chunks(BLOCK));
            for (start, (to, from)) in range.step_by(BLOCK).zip(blocks) {
                let factors = factors(dropout, start);
                let elements = to.iter_mut().zip(from).zip(&factors);
                elements.for_each(|((to, &from), &factor)| put(accumulate, to, from * factor));
            }
        },
    );
}

pub(super) fn apply_in_place(cpu: &Cpu, dropout: &Dropout, elements: &mut [f32]) {
    for_each_element_run(
        cpu,
        [elements],
        #[inline(always)]
        |range, [elements]| {
            for (start, elements) in range.step_by(BLOCK).zip(elements.chunks_mut(BLOCK)) {
                let factors = factors(dropout, start);
                elements.iter_mut().zip(&factors).for_each(|(element, &factor)| *element *= factor);
            }
        },
    );
}
