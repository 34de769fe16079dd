//! Prices on memory and on the time of copies, and what a tensor costs at them.

use super::problem::{Problem, Tensor};
use planner::Bytes;

/// What memory and copies cost.
#[derive(Clone)]
pub(super) struct Prices {
    /// λ in milliseconds for the whole capacity, by action.
    pub(super) memory: Vec<f64>,
    /// In milliseconds for the whole time: y by forward action and one for the turn, then z by backward action.
    pub(super) copies: Vec<f64>,
}

/// What prices are relative to.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) capacity: u64,
    /// The time of an iteration in any amount of memory.
    pub(super) whole_ms: f64,
    /// How many actions go forward.
    pub(super) turn: usize,
    /// The first action after which something can leave, and the last before which something comes back.
    pub(super) window: [usize; 2],
}

impl Prices {
    /// Turns a direction towards a gradient, without what would lead below zero.
    pub(super) fn mix(&mut self, gradient: &Prices, at: &Prices, part: f64) {
        let mix = |own: &mut [f64], new: &[f64], at: &[f64]| {
            for ((own, new), at) in own.iter_mut().zip(new).zip(at) {
                *own = if *at <= 0.0 && *new < 0.0 { 0.0 } else { part * *new + (1.0 - part) * *own };
            }
        };
        mix(&mut self.memory, &gradient.memory, &at.memory);
        mix(&mut self.copies, &gradient.copies, &at.copies);
    }

    pub(super) fn square(&self) -> f64 {
        self.memory.iter().chain(&self.copies).map(|value| value * value).sum()
    }

    pub(super) fn step(&mut self, direction: &Prices, step: f64) {
        let go = |own: &mut [f64], direction: &[f64]| {
            own.iter_mut()
                .zip(direction)
                .for_each(|(own, direction)| *own = (*own + step * direction).max(0.0));
        };
        go(&mut self.memory, &direction.memory);
        go(&mut self.copies, &direction.copies);
    }
}

/// Prices as they are used.
pub(super) struct Price {
    /// Of a byte at each action, in milliseconds.
    pub(super) byte: Vec<f64>,
    /// Their sums before each action.
    bytes: Vec<f64>,
    /// Of a millisecond of copying: out, by the action before which the place is free, up to the turn; then in, by the
    /// backward action before which it begins.
    copy: Vec<f64>,
    turn: usize,
    window: [usize; 2],
}

impl Price {
    pub(super) fn new(prices: &Prices, scale: Scale) -> Self {
        let Scale { capacity, whole_ms, turn, window } = scale;
        let byte: Vec<f64> = prices.memory.iter().map(|price| price / capacity as f64).collect();
        let mut bytes = vec![0.0];
        bytes.extend(byte.iter().scan(0.0, |sum, price| {
            *sum += price;
            Some(*sum)
        }));
        let mut copy: Vec<f64> = prices.copies.iter().map(|price| price / whole_ms).collect();
        (0..turn).rev().for_each(|at| copy[at] += copy[at + 1]);
        (turn + 2..copy.len()).for_each(|at| copy[at] += copy[at - 1]);
        Self { byte, bytes, copy, turn, window }
    }

    /// Of copying for a millisecond back, if that begins before an action.
    pub(super) fn back(&self, come: usize) -> f64 {
        if come >= self.turn { self.copy[come + 1] } else { 0.0 }
    }

    /// What copies pay for a millisecond of action `at`.
    pub(super) fn time(&self, at: usize) -> f64 {
        if (self.window[0] + 1..self.window[1]).contains(&at) { self.copy[at + 1] } else { 0.0 }
    }

    /// Of `bytes` from one action to before another.
    pub(super) fn alive(&self, bytes: u64, first: usize, end: usize) -> f64 {
        if first >= end { 0.0 } else { bytes as f64 * (self.bytes[end] - self.bytes[first]) }
    }

    /// The cheapest way to offload a tensor, if that costs less than keeping it: the cost, before which action it has
    /// left, and before which backward action, at most that where it is `wanted`, its way back begins.
    pub(super) fn away(
        &self,
        problem: &Problem<'_>,
        tensor: &Tensor,
        back: usize,
        wanted: usize,
    ) -> Option<(f64, usize, usize)> {
        let kept_ms = self.alive(tensor.bytes, tensor.used + 1, self.turn + back);
        if !tensor.leaves || kept_ms == 0.0 {
            return None;
        }
        let (out_ms, gone) = self.leaving(problem, tensor, kept_ms)?;
        let (in_ms, come) = (0..=back.min(wanted))
            .map(|come| (self.coming(problem, tensor, back, come), come))
            .min_by(|a, b| a.0.total_cmp(&b.0))?;
        (out_ms + in_ms < kept_ms).then_some((out_ms + in_ms, gone, come))
    }

    /// The cheapest way to leave, if that costs less than `most_ms`, and before which action it has left.
    pub(super) fn leaving(
        &self,
        problem: &Problem<'_>,
        tensor: &Tensor,
        most_ms: f64,
    ) -> Option<(f64, usize)> {
        let copy_ms = problem.costs.copy_ms(Bytes(tensor.bytes), 0);
        let mut best = (most_ms, None);
        for gone in tensor.used + 1..=self.turn + 1 {
            let alive_ms = self.alive(tensor.bytes, tensor.used + 1, gone);
            if alive_ms >= best.0 {
                break;
            }
            // Of what leaves after the turn nobody waits for the copy.
            let ms = alive_ms + if gone <= self.turn { copy_ms * self.copy[gone] } else { 0.0 };
            best = if ms < best.0 { (ms, Some(gone)) } else { best };
        }
        best.1.map(|gone| (best.0, gone))
    }

    /// What it costs to come back before backward action `come`.
    pub(super) fn coming(&self, problem: &Problem<'_>, tensor: &Tensor, back: usize, come: usize) -> f64 {
        let copy_ms = problem.costs.copy_ms(Bytes(tensor.bytes), 1);
        self.alive(tensor.bytes, self.turn + come, self.turn + back) + copy_ms * self.back(self.turn + come)
    }
}
