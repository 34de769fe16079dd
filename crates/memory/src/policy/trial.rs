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

impl Choice {
    /// Whether a tensor is copied to the host: what is computed again is not.
    fn leaves(&self, problem: &Problem<'_>, tensor: usize) -> bool {
        self.offloaded[tensor]
            && problem.tensors[tensor].leaves
            && !self.repeated[problem.tensors[tensor].unit]
    }
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
    /// The node of the action with the largest need, and that need.
    pub(super) peak: (usize, u64),
    /// What is left to the workspaces of each node's passes.
    pub(super) limits: Vec<[Bytes; 2]>,
    /// The actions that compute, in order.
    steps: Vec<Step>,
    /// Tensors that leave: before which step their place is free, before which they come back, and which needs them.
    away: Vec<(usize, [usize; 3])>,
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
        for &(index, [gone, come, _]) in &self.away {
            let tensor = &problem.tensors[index];
            if gone > tensor.used + 1 {
                before[gone][1].push(Action::Hold(tensor.buffer));
            }
            before[come][2].push(Action::Prefetch(tensor.buffer));
        }
        let mut actions: Vec<Action> = Vec::new();
        for (at, copies) in before.into_iter().enumerate() {
            actions.extend(copies.into_iter().flatten());
            actions.extend(self.steps.get(at).map(|step| step.action));
        }
        actions.extend(problem.outline.updates.then_some(Action::Update));
        actions
    }
}

/// An action that computes: the node, its pass, and the action itself.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: usize,
    pass: usize,
    action: Action,
}

/// When each tensor and unit comes back, in steps.
struct Returns {
    steps: Vec<Step>,
    /// The step before which a tensor that left must be back; for those computed again, the step that does so.
    back: Vec<Option<usize>>,
    /// The last step that uses a tensor.
    last: Vec<Option<usize>>,
    /// Of every backward action, its step.
    backward: Vec<usize>,
}

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
        choice
            .repeated
            .iter_mut()
            .zip(&self.units)
            .for_each(|(again, unit)| *again |= repeated && unit.repeats);
        choice
    }

    /// Carries out `choice` within `capacity` bytes.
    pub(super) fn carry_out(&self, choice: &Choice, capacity: u64) -> Trial {
        let returns = self.returns(choice);
        let mut trial = Trial::default();
        let (mut ms, mut needed) = (Vec::new(), Vec::new());
        let alive = self.alive(choice, &returns);
        let limits = self.limits(&returns.steps, &alive, capacity);
        for (step, alive) in returns.steps.iter().zip(&alive) {
            let costs = &self.costs.nodes[step.node][step.pass];
            let workspace = costs.workspace(limits[step.node][step.pass]).unwrap_or(costs.least());
            let need = alive + arena_bytes(workspace.0);
            trial.peak = if need > trial.peak.1 { (step.node, need) } else { trial.peak };
            ms.push(self.costs.pass_ms(step.action, workspace));
            needed.push(need);
        }
        let away: Vec<usize> = (0..self.tensors.len())
            .filter(|&tensor| choice.leaves(self, tensor) && returns.back[tensor].is_some())
            .collect();
        let mut stall_ms = 0.0;
        if !away.is_empty() {
            stall_ms = self.copy(&away, &returns, (&ms, &mut needed), capacity, &mut trial);
        }
        trial.time_ms = ms.iter().sum::<f64>()
            + self.costs.update_ms * f64::from(u8::from(self.outline.updates))
            + stall_ms;
        (trial.steps, trial.limits) = (returns.steps, limits);
        trial
    }

    /// When what is given up has to be back: what is computed again before its first use, its inputs before that.
    fn returns(&self, choice: &Choice) -> Returns {
        let (turn, never) = (self.turn(), usize::MAX);
        // Before which backward action a tensor is needed.
        let mut wanted: Vec<usize> =
            self.tensors.iter().map(|one| one.back.map_or(never, |back| back[0])).collect();
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.backward.len()];
        for (index, unit) in self.units.iter().enumerate().rev() {
            let group = unit.tensors.iter().map(|&tensor| wanted[tensor]).min().unwrap_or(never);
            if choice.repeated[index] && group != never {
                groups[group].push(index);
                unit.inputs.iter().for_each(|&(input, _)| wanted[input] = wanted[input].min(group));
            }
        }
        let mut steps: Vec<Step> =
            self.forward.iter().map(|&node| Step { node, pass: 0, action: Action::Forward(node) }).collect();
        let mut back: Vec<Option<usize>> = vec![None; self.tensors.len()];
        let mut last: Vec<Option<usize>> = vec![None; self.tensors.len()];
        let mut backward = Vec::with_capacity(self.backward.len());
        let mut starts = Vec::with_capacity(self.backward.len());
        for (at, group) in groups.iter().enumerate() {
            starts.push(steps.len());
            for &index in group.iter().rev() {
                let (unit, start) = (&self.units[index], steps.len());
                steps.extend(unit.nodes.iter().map(|&node| Step {
                    node,
                    pass: 0,
                    action: Action::Recompute(node),
                }));
                unit.inputs.iter().for_each(|&(input, offset)| last[input] = Some(start + offset));
                for &tensor in &unit.tensors {
                    back[tensor] = Some(start + self.tensors[tensor].offset);
                    last[tensor] = Some(start + self.tensors[tensor].last_change);
                }
            }
            let node = self.backward[at];
            backward.push(steps.len());
            steps.push(Step { node, pass: 1, action: Action::Backward(node) });
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            if let Some([_, end]) = tensor.back {
                last[index] = last[index].max(Some(backward[end]));
            }
            if !choice.repeated[tensor.unit] && wanted[index] != never {
                back[index] = Some(starts[wanted[index]]);
            }
            debug_assert!(tensor.used < turn);
        }
        Returns { steps, back, last, backward }
    }

    /// What is alive at each step without workspaces, and with tensors leaving and coming back as copies take no time.
    fn alive(&self, choice: &Choice, returns: &Returns) -> Vec<u64> {
        let mut changes = vec![[0u64, 0]; returns.steps.len() + 1];
        let mut add = |first: usize, last: usize, bytes: u64| {
            changes[first][0] += bytes;
            changes[last + 1][1] += bytes;
        };
        let end = returns.steps.len() - 1;
        for &(bytes, [first, last]) in &self.diffs {
            let at = |at: usize| returns.backward.get(at).copied().unwrap_or(end);
            add(at(first), at(last), bytes);
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            let last = if tensor.stays { Some(end) } else { returns.last[index] };
            let leaves = choice.repeated[tensor.unit] || choice.offloaded[index];
            match (last, returns.back[index]) {
                (Some(last), Some(back)) if leaves => {
                    add(tensor.made, tensor.used, tensor.bytes);
                    add(back, last, tensor.bytes);
                }
                (Some(last), _) => add(tensor.made, last, tensor.bytes),
                (None, _) => add(tensor.made, tensor.used, tensor.bytes),
            }
        }
        let mut alive = 0;
        let steps = returns.steps.iter().zip(&changes);
        steps
            .enumerate()
            .map(|(at, (step, [born, _]))| {
                alive += born;
                let here = alive + self.scratch(step);
                alive -= changes[at + 1][1];
                here
            })
            .collect()
    }

    /// The scratch of a step whose workspace is not chosen here.
    fn scratch(&self, step: &Step) -> u64 {
        match self.costs.nodes[step.node][step.pass].front.is_empty() {
            true => arena_bytes(self.outline.nodes[step.node].scratch[step.pass].transient().0),
            false => 0,
        }
    }

    /// The limits of a [`Trial`].
    fn limits(&self, steps: &[Step], alive: &[u64], capacity: u64) -> Vec<[Bytes; 2]> {
        let mut limits = vec![[Bytes::MAX; 2]; self.outline.nodes.len()];
        for (step, alive) in steps.iter().zip(alive) {
            let limit = &mut limits[step.node][step.pass];
            *limit = (*limit).min(Bytes(capacity.saturating_sub(*alive)));
        }
        limits
    }

    /// Copies tensors out and back, each copy as soon (as late) as it can without computation waiting for it, or at once
    /// where memory is short. Returns how long computation waits.
    fn copy(
        &self,
        away: &[usize],
        returns: &Returns,
        (ms, needed): (&[f64], &mut [u64]),
        capacity: u64,
        trial: &mut Trial,
    ) -> f64 {
        let end = ms.len() - 1;
        let tensor = |index: usize| &self.tensors[index];
        let out = |&index: &usize| Copy {
            ready: tensor(index).changed,
            needed: tensor(index).used,
            bytes: tensor(index).bytes,
            ms: self.costs.copy_ms(Bytes(tensor(index).bytes), 0),
        };
        // Coming back is leaving in a time that runs backward.
        let back = |&index: &usize| {
            let back = end - returns.back[index].expect("it comes back");
            let ms = self.costs.copy_ms(Bytes(tensor(index).bytes), 1);
            Copy { ready: back, needed: back, bytes: tensor(index).bytes, ms }
        };
        let (gone, out_ms, waited_out) =
            leave(&away.iter().map(out).collect::<Vec<_>>(), |at| ms[at], needed, capacity);
        needed.reverse();
        let (come, in_ms, waited_in) =
            leave(&away.iter().map(back).collect::<Vec<_>>(), |at| ms[end - at], needed, capacity);
        needed.reverse();
        trial.waited = waited_out.into_iter().chain(waited_in).map(|position| away[position]).collect();
        for (position, &index) in away.iter().enumerate() {
            // What is back before it is gone need not leave.
            let (gone, come) = (gone[position], end + 1 - come[position]);
            if gone < come {
                trial.host += tensor(index).bytes;
                trial.away.push((index, [gone, come, returns.back[index].expect("it comes back")]));
            }
        }
        // Copies back in the order of `leave`, which is that of need.
        trial.away.sort_by_key(|&(index, [_, _, back])| (back, std::cmp::Reverse(index)));
        out_ms + in_ms
    }
}

/// A copy, beside the steps of an iteration.
struct Copy {
    /// It begins after this step.
    ready: usize,
    /// The place that it is from is needed until after this one.
    needed: usize,
    bytes: u64,
    ms: f64,
}

/// Copies one after the other, as soon as they are ready. Before which step the place of each is free, and how long all steps
/// wait, as they do only where memory is short, and for which. What still lies there is added to what steps need.
fn leave(
    copies: &[Copy],
    ms: impl Fn(usize) -> f64,
    needed: &mut [u64],
    capacity: u64,
) -> (Vec<usize>, f64, Vec<usize>) {
    let sorted = |key: fn(&Copy) -> (usize, usize)| {
        let mut order: Vec<usize> = (0..copies.len()).collect();
        order.sort_by_key(|&index| (key(&copies[index]), index));
        order
    };
    let order = sorted(|copy| (copy.ready, copy.needed));
    let mut leaving = sorted(|copy| (copy.needed, 0)).into_iter().peekable();
    let mut free = vec![needed.len(); copies.len()];
    let mut ends_ms: Vec<f64> = Vec::with_capacity(copies.len());
    let mut place = vec![0; copies.len()];
    order.iter().enumerate().for_each(|(at, &index)| place[index] = at);
    let (mut now_ms, mut stall_ms, mut done, mut waited) = (0.0f64, 0.0, 0, Vec::new());
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
            waited.push(order[done]);
            now_ms = ends_ms[done];
        }
        *needed += lying;
        now_ms += ms(at);
        while let Some(&index) = order.get(ends_ms.len()).filter(|&&index| copies[index].ready == at) {
            ends_ms.push(ends_ms.last().copied().unwrap_or(0.0).max(now_ms) + copies[index].ms);
        }
    }
    (free, stall_ms, waited)
}
