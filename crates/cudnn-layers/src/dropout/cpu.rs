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

/// The factor of the element `index` (modulo 2^32). Keying both rounds keeps masks of two iterations from being
/// rearrangements of each other.
#[inline(always)]
fn survives([first, second]: [u32; 2], threshold: u32, index: u32) -> bool {
    mix32(mix32(index ^ first) ^ second) >= threshold
}

/// The keys for elements from `start` on; a task never straddles a multiple of 2^32.
#[inline(always)]
fn keys(dropout: &Dropout, start: usize) -> [u32; 2] {
    dropout.keys(start as u64 >> 32)
}

pub(super) fn apply(cpu: &Cpu, dropout: &Dropout, from: &[f32], to: &mut [f32], accumulate: Accumulate) {
    let (scale, threshold) = (dropout.scale(), dropout.threshold());
    for_each_element_run(
        cpu,
        [to],
        #[inline(always)]
        |range, [to]| {
            let (keys, start) = (keys(dropout, range.start), range.start as u32);
            for (index, (to, &from)) in to.iter_mut().zip(&from[range]).enumerate() {
                let survives = survives(keys, threshold, start.wrapping_add(index as u32));
                put(accumulate, to, if survives { from * scale } else { 0.0 });
            }
        },
    );
}

pub(super) fn apply_in_place(cpu: &Cpu, dropout: &Dropout, elements: &mut [f32]) {
    let (scale, threshold) = (dropout.scale(), dropout.threshold());
    for_each_element_run(
        cpu,
        [elements],
        #[inline(always)]
        |range, [elements]| {
            let (keys, start) = (keys(dropout, range.start), range.start as u32);
            for (index, element) in elements.iter_mut().enumerate() {
                let survives = survives(keys, threshold, start.wrapping_add(index as u32));
                *element = if survives { *element * scale } else { 0.0 };
            }
        },
    );
}
