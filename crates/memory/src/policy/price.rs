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

impl Prices {
    pub(super) fn iter(&self) -> impl Iterator<Item = &f64> {
        self.memory.iter().chain(&self.copies)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        self.memory.iter_mut().chain(&mut self.copies)
    }

    /// Turns a direction towards a gradient, without what would lead below zero.
    pub(super) fn mix(&mut self, gradient: &Prices, at: &Prices, part: f64) {
        for ((own, new), at) in self.iter_mut().zip(gradient.iter()).zip(at.iter()) {
            *own = if *at <= 0.0 && *new < 0.0 { 0.0 } else { part * *new + (1.0 - part) * *own };
        }
    }

    pub(super) fn step(&mut self, direction: &Prices, step: f64) {
        let both = self.iter_mut().zip(direction.iter());
        both.for_each(|(own, direction)| *own = (*own + step * direction).max(0.0));
    }
}

/// Prices as they are used.
pub(super) struct Price<'a> {
    problem: &'a Problem<'a>,
    /// Of a byte at each action, in milliseconds.
    pub(super) byte: Vec<f64>,
    /// Their sums before each action.
    bytes: Vec<f64>,
    /// Of a millisecond of copying: out, by the action before which the place is free, up to the turn; then in, by the
    /// backward action before which it begins.
    copy: Vec<f64>,
    /// The first action after which something can leave, and the last before which something comes back.
    window: [usize; 2],
}

impl<'a> Price<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, prices: &Prices, capacity: u64, window: [usize; 2]) -> Self {
        let turn = problem.turn();
        let byte: Vec<f64> = prices.memory.iter().map(|price| price / capacity as f64).collect();
        let mut bytes = vec![0.0];
        byte.iter().for_each(|price| bytes.push(bytes[bytes.len() - 1] + price));
        let mut copy: Vec<f64> = prices.copies.iter().map(|price| price / problem.unlimited_ms).collect();
        (0..turn).rev().for_each(|at| copy[at] += copy[at + 1]);
        (turn + 2..copy.len()).for_each(|at| copy[at] += copy[at - 1]);
        Self { problem, byte, bytes, copy, window }
    }

    /// Of copying for a millisecond back, if that begins before an action.
    pub(super) fn back(&self, come: usize) -> f64 {
        if come >= self.problem.turn() { self.copy[come + 1] } else { 0.0 }
    }

    /// What copies pay for a millisecond of action `at`.
    pub(super) fn time(&self, at: usize) -> f64 {
        if (self.window[0] + 1..self.window[1]).contains(&at) { self.copy[at + 1] } else { 0.0 }
    }

    /// Of `bytes` from one action to before another.
    pub(super) fn alive(&self, bytes: u64, first: usize, end: usize) -> f64 {
        if first >= end { 0.0 } else { bytes as f64 * (self.bytes[end] - self.bytes[first]) }
    }

    /// Of keeping a tensor until backward action `back`.
    pub(super) fn kept(&self, tensor: &Tensor, back: usize) -> f64 {
        self.alive(tensor.bytes, tensor.used + 1, self.problem.turn() + back)
    }

    /// The cheapest way to offload a tensor, if that costs less than keeping it: the cost, before which action it has
    /// left, and before which backward action, at most that where it is `wanted`, its way back begins.
    pub(super) fn away(&self, tensor: &Tensor, back: usize, wanted: usize) -> Option<(f64, usize, usize)> {
        let kept_ms = self.kept(tensor, back);
        if !tensor.leaves || kept_ms == 0.0 {
            return None;
        }
        let (out_ms, gone) = self.leaving(tensor, kept_ms)?;
        let (in_ms, come) = (0..=back.min(wanted))
            .map(|come| (self.coming(tensor, back, come), come))
            .min_by(|a, b| a.0.total_cmp(&b.0))?;
        (out_ms + in_ms < kept_ms).then_some((out_ms + in_ms, gone, come))
    }

    /// The cheapest way to leave, if that costs less than `most_ms`, and before which action it has left.
    pub(super) fn leaving(&self, tensor: &Tensor, most_ms: f64) -> Option<(f64, usize)> {
        let (turn, copy_ms) = (self.problem.turn(), self.problem.costs.copy_ms(Bytes(tensor.bytes), 0));
        let mut best = (most_ms, None);
        for gone in tensor.used + 1..=turn + 1 {
            let alive_ms = self.alive(tensor.bytes, tensor.used + 1, gone);
            if alive_ms >= best.0 {
                break;
            }
            // Of what leaves after the turn nobody waits for the copy.
            let ms = alive_ms + if gone <= turn { copy_ms * self.copy[gone] } else { 0.0 };
            best = if ms < best.0 { (ms, Some(gone)) } else { best };
        }
        best.1.map(|gone| (best.0, gone))
    }

    /// What it costs to come back before backward action `come`.
    pub(super) fn coming(&self, tensor: &Tensor, back: usize, come: usize) -> f64 {
        let (turn, copy_ms) = (self.problem.turn(), self.problem.costs.copy_ms(Bytes(tensor.bytes), 1));
        self.alive(tensor.bytes, turn + come, turn + back) + copy_ms * self.back(turn + come)
    }
}
