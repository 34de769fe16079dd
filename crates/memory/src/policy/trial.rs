//! What comes of a choice for every feature map: the order of actions, the memory they need, and the time.

use super::problem::{Problem, arena_bytes};
use crate::schedule::Action;
use planner::Bytes;

/// A choice for every feature map; what is neither stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    /// For every tensor, whether it is offloaded.
    pub(super) offloaded: Vec<bool>,
    /// For every unit, whether it is computed again.
    pub(super) repeated: Vec<bool>,
}

/// A choice carried out.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// Time of an iteration, in milliseconds.
    pub(super) time_ms: f64,
    /// Bytes that are copied to the host.
    pub(super) host: u64,
    /// Tensors whose copies computation waits for.
    pub(super) waited: Vec<usize>,
    /// The largest need of an action.
    pub(super) peak: u64,
    /// The actions that compute, in order: how long each takes, and what it needs.
    steps: Vec<Action>,
    ms: Vec<f64>,
    needed: Vec<u64>,
    /// The step before which a tensor that left must be back; for those computed again, the step that does so.
    back: Vec<usize>,
    /// One past the last step that uses a tensor again; 0 if none does.
    end: Vec<usize>,
    /// Of every backward action, its step.
    backward: Vec<usize>,
    /// Tensors that leave: before which step their place is free, and before which they come back.
    away: Vec<(usize, [usize; 2])>,
}

impl Trial {
    /// The actions of the iteration, copies included.
    pub(super) fn actions(&self, problem: &Problem<'_>) -> Vec<Action> {
        // Copies out, places that are freed later than at their last use, copies back: each before a step.
        let mut before: Vec<[Vec<Action>; 3]> = vec![Default::default(); self.steps.len() + 1];
        let mut out: Vec<usize> = self.away.iter().map(|&(index, _)| index).collect();
        out.sort_by_key(|&index| (problem.tensors[index].used, index));
        for tensor in out.into_iter().map(|index| &problem.tensors[index]) {
            before[tensor.changed + 1][0].push(Action::Offload(tensor.buffer));
        }
        for &(index, [gone, come]) in &self.away {
            let tensor = &problem.tensors[index];
            if gone > tensor.used + 1 {
                before[gone][1].push(Action::Hold(tensor.buffer));
            }
            before[come][2].push(Action::Prefetch(tensor.buffer));
        }
        let mut actions: Vec<Action> = Vec::new();
        for (at, copies) in before.into_iter().enumerate() {
            actions.extend(copies.into_iter().flatten());
            actions.extend(self.steps.get(at));
        }
        actions.extend(problem.outline.updates.then_some(Action::Update));
        actions
    }
}

/// A step at which nothing happens.
const NEVER: usize = usize::MAX;

impl Problem<'_> {
    /// The choice to keep everything that a backward pass sees again.
    pub(super) fn keep(&self) -> Choice {
        let is_seen = |&tensor: &usize| self.tensors[tensor].back.is_some();
        let repeated = self.units.iter().map(|unit| unit.repeats && !unit.tensors.iter().any(is_seen));
        Choice { offloaded: vec![false; self.tensors.len()], repeated: repeated.collect() }
    }

    /// The choice to offload, or to compute again, whatever can be.
    pub(super) fn all(&self, offloaded: bool, repeated: bool) -> Choice {
        let mut choice = self.keep();
        choice.offloaded.fill(offloaded);
        for (again, unit) in choice.repeated.iter_mut().zip(&self.units) {
            *again |= repeated && unit.repeats;
        }
        choice
    }

    /// Carries out `choice` within `capacity` bytes.
    pub(super) fn carry_out(&self, choice: &Choice, capacity: u64) -> Trial {
        let mut trial = self.compute(choice, capacity);
        self.copy(choice, capacity, &mut trial);
        trial
    }

    /// The same as if copies took no time: nothing is faster, nor needs less.
    pub(super) fn compute(&self, choice: &Choice, capacity: u64) -> Trial {
        let mut trial = self.returns(choice);
        trial.needed = self.alive(choice, &trial);
        // What is left to the workspaces of each node's passes.
        let mut limits = vec![[Bytes::MAX; 2]; self.outline.nodes.len()];
        let Trial { ms, needed, steps, peak, .. } = &mut trial;
        for (&step, &mut alive) in steps.iter().zip(&mut *needed) {
            let (node, pass) = computing(step);
            limits[node][pass] = limits[node][pass].min(Bytes(capacity.saturating_sub(alive)));
        }
        for (&step, needed) in steps.iter().zip(needed) {
            let of @ (node, pass) = computing(step);
            let (time_ms, workspace) = self.costs.within(step, of, limits[node][pass]);
            ms.push(time_ms);
            *needed += arena_bytes(workspace.0);
            *peak = (*peak).max(*needed);
        }
        trial.time_ms = ms.iter().sum();
        trial.time_ms += if self.outline.updates { self.costs.update_ms } else { 0.0 };
        trial
    }

    /// When what is given up has to be back: what is computed again before its first use, its inputs before that.
    fn returns(&self, choice: &Choice) -> Trial {
        // Before which backward action a tensor is needed.
        let mut wanted: Vec<usize> =
            self.tensors.iter().map(|one| one.back.map_or(NEVER, |back| back[0])).collect();
        // Of every backward action the first unit that is computed again before it, and of every unit the next.
        let (mut first, mut next) = (vec![NEVER; self.backward.len()], vec![NEVER; self.units.len()]);
        for (index, unit) in self.units.iter().enumerate().rev().filter(|&(index, _)| choice.repeated[index])
        {
            let group = unit.tensors.iter().map(|&tensor| wanted[tensor]).min().unwrap_or(NEVER);
            if group != NEVER {
                next[index] = std::mem::replace(&mut first[group], index);
                unit.inputs.iter().for_each(|&(input, _)| wanted[input] = wanted[input].min(group));
            }
        }
        let mut steps: Vec<Action> = self.forward.iter().map(|&node| Action::Forward(node)).collect();
        let (mut back, mut end) = (vec![NEVER; self.tensors.len()], vec![0; self.tensors.len()]);
        let mut backward = Vec::with_capacity(self.backward.len());
        for (&node, first) in self.backward.iter().zip(&mut first) {
            // From now on the step at which all that begins.
            let mut index = std::mem::replace(first, steps.len());
            while index != NEVER {
                let (unit, start) = (&self.units[index], steps.len());
                steps.extend(unit.nodes.iter().map(|&node| Action::Recompute(node)));
                unit.inputs.iter().for_each(|&(input, offset)| end[input] = start + offset + 1);
                for &tensor in &unit.tensors {
                    back[tensor] = start + self.tensors[tensor].offset;
                    end[tensor] = start + self.tensors[tensor].last_change + 1;
                }
                index = next[index];
            }
            backward.push(steps.len());
            steps.push(Action::Backward(node));
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            if let Some([_, last]) = tensor.back {
                end[index] = end[index].max(backward[last] + 1);
            }
            if !choice.repeated[tensor.unit] && wanted[index] != NEVER {
                back[index] = first[wanted[index]];
            }
        }
        Trial { ms: Vec::with_capacity(steps.len()), steps, back, end, backward, ..Trial::default() }
    }

    /// What is alive at each step without workspaces, and with tensors leaving and coming back as copies take no time.
    fn alive(&self, choice: &Choice, returns: &Trial) -> Vec<u64> {
        let all = returns.steps.len();
        let mut changes = vec![[0u64, 0]; all + 1];
        let mut add = |first: usize, end: usize, bytes: u64| {
            changes[first][0] += bytes;
            changes[end][1] += bytes;
        };
        for &(bytes, [first, last]) in &self.diffs {
            let at = |at: usize| returns.backward.get(at).copied().unwrap_or(all - 1);
            add(at(first), at(last) + 1, bytes);
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            let (back, end) = (returns.back[index], if tensor.stays { all } else { returns.end[index] });
            let leaves = choice.repeated[tensor.unit] || choice.offloaded[index] && tensor.leaves;
            if end == 0 {
                add(tensor.made, tensor.used + 1, tensor.bytes);
            } else if back != NEVER && leaves {
                add(tensor.made, tensor.used + 1, tensor.bytes);
                add(back, end, tensor.bytes);
            } else {
                add(tensor.made, end, tensor.bytes);
            }
        }
        let mut alive = 0;
        let steps = returns.steps.iter().zip(&changes);
        let here = steps.map(|(&step, [born, died])| {
            alive = alive + born - died;
            alive + self.scratch(computing(step))
        });
        here.collect()
    }

    /// Copies tensors out and back, each copy as soon (as late) as it can without computation waiting for it, or at
    /// once where memory is short.
    pub(super) fn copy(&self, choice: &Choice, capacity: u64, trial: &mut Trial) {
        let (mut out, mut back, end) = (Vec::new(), Vec::new(), trial.steps.len() - 1);
        // What is computed again is not copied.
        let leaves = |&index: &usize| {
            let tensor = &self.tensors[index];
            let is_wanted = choice.offloaded[index] && !choice.repeated[tensor.unit];
            is_wanted && tensor.leaves && trial.back[index] != NEVER
        };
        for index in (0..self.tensors.len()).filter(leaves) {
            let tensor = &self.tensors[index];
            let copy = |ready, needed, direction| {
                let ms = self.costs.copy_ms(Bytes(tensor.bytes), direction);
                Copy { index, ready, needed, bytes: tensor.bytes, ms }
            };
            // Coming back is leaving in a time that runs backward.
            let last = end - trial.back[index];
            out.push(copy(tensor.changed, tensor.used, 0));
            back.push(copy(last, last, 1));
        }
        if out.is_empty() {
            return;
        }
        let Trial { ms, needed, waited, .. } = trial;
        let (gone, out_ms) = leave(&out, |at| ms[at], needed, capacity, waited);
        needed.reverse();
        let (come, in_ms) = leave(&back, |at| ms[end - at], needed, capacity, waited);
        for (copy, (gone, come)) in out.iter().zip(gone.into_iter().zip(come)) {
            // What is back before it is gone need not leave.
            let come = end + 1 - come;
            if gone < come {
                trial.host += copy.bytes;
                trial.away.push((copy.index, [gone, come]));
            }
        }
        // Copies back in the order of `leave`, which is that of need.
        let Trial { away, back, .. } = trial;
        away.sort_by_key(|&(index, _)| (back[index], std::cmp::Reverse(index)));
        trial.time_ms += out_ms + in_ms;
    }
}

/// Node and pass of a step.
fn computing(step: Action) -> (usize, usize) {
    step.pass().expect("steps compute")
}

/// A copy of a tensor, beside the steps of an iteration.
struct Copy {
    index: usize,
    /// It begins after this step.
    ready: usize,
    /// The place that it is from is needed until after this one.
    needed: usize,
    bytes: u64,
    ms: f64,
}

/// Copies one after the other, as soon as they are ready. Before which step the place of each is free, and how long all
/// steps wait, as they do only where memory is short; `waited` gets for which tensors. What still lies there is added
/// to what steps need.
fn leave(
    copies: &[Copy],
    ms: impl Fn(usize) -> f64,
    needed: &mut [u64],
    capacity: u64,
    waited: &mut Vec<usize>,
) -> (Vec<usize>, f64) {
    let sorted = |key: fn(&Copy) -> (usize, usize)| {
        let mut order: Vec<usize> = (0..copies.len()).collect();
        order.sort_unstable_by_key(|&index| (key(&copies[index]), index));
        order
    };
    let order = sorted(|copy| (copy.ready, copy.needed));
    let mut leaving = sorted(|copy| (copy.needed, 0)).into_iter().peekable();
    let mut free = vec![needed.len(); copies.len()];
    let mut ends_ms: Vec<f64> = Vec::with_capacity(copies.len());
    let mut place = vec![0; copies.len()];
    order.iter().enumerate().for_each(|(at, &index)| place[index] = at);
    let (mut now_ms, mut stall_ms, mut done) = (0.0f64, 0.0, 0);
    // What is needed no more, but not copied yet.
    let (mut lying, mut lies) = (0, vec![false; copies.len()]);
    for (at, needed) in needed.iter_mut().enumerate() {
        while let Some(index) = leaving.next_if(|&index| copies[index].needed < at) {
            if ends_ms[place[index]] <= now_ms {
                free[index] = at;
            } else {
                lies[index] = true;
                lying += copies[index].bytes;
            }
        }
        loop {
            while ends_ms.get(done).is_some_and(|&end_ms| end_ms <= now_ms) {
                let index = order[done];
                if lies[index] {
                    (lies[index], free[index]) = (false, at);
                    lying -= copies[index].bytes;
                }
                done += 1;
            }
            if *needed + lying <= capacity || lying == 0 {
                break;
            }
            stall_ms += ends_ms[done] - now_ms;
            waited.push(copies[order[done]].index);
            now_ms = ends_ms[done];
        }
        *needed += lying;
        now_ms += ms(at);
        while let Some(&index) = order.get(ends_ms.len()).filter(|&&index| copies[index].ready == at) {
            ends_ms.push(ends_ms.last().copied().unwrap_or(0.0).max(now_ms) + copies[index].ms);
        }
    }
    (free, stall_ms)
}
