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
        self.offloaded[tensor] && !self.repeated[problem.tensors[tensor].unit]
    }
}

/// A choice carried out.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// Time of an iteration, in milliseconds.
    pub(super) time_ms: f64,
    /// By how many bytes the capacity is exceeded, summed over all actions; 0 for what fits.
    pub(super) excess: u64,
    /// The node of the action with the largest need, and that need.
    pub(super) peak: (usize, u64),
    /// The actions that compute, in order.
    steps: Vec<Step>,
    /// Tensors that leave: before which step their place is free, and before which they come back.
    away: Vec<(usize, [usize; 2])>,
    /// What the kernels of each node's passes have.
    pub(super) workspace: Vec<[Bytes; 2]>,
}

impl Trial {
    /// The actions of the iteration, copies included.
    pub(super) fn actions(&self, problem: &Problem<'_>) -> Vec<Action> {
        // Copies out, places that are freed later than at their last use, copies back: each before a step.
        let mut before: Vec<[Vec<Action>; 3]> = vec![Default::default(); self.steps.len() + 1];
        for &(index, [gone, come]) in &self.away {
            let tensor = &problem.tensors[index];
            before[tensor.changed + 1][0].push(Action::Offload(tensor.buffer));
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
    /// The choice to keep everything.
    pub(super) fn keep(&self) -> Choice {
        Choice { offloaded: vec![false; self.tensors.len()], repeated: vec![false; self.units.len()] }
    }

    /// Carries out `choice` within `capacity` bytes.
    pub(super) fn carry_out(&self, choice: &Choice, capacity: u64) -> Trial {
        let returns = self.returns(choice);
        let mut trial =
            Trial { workspace: vec![[Bytes::ZERO; 2]; self.outline.nodes.len()], ..Trial::default() };
        let (mut ms, mut needed) = (Vec::new(), Vec::new());
        let alive = self.alive(choice, &returns);
        let limits = self.limits(&returns.steps, &alive, capacity);
        for (step, alive) in returns.steps.iter().zip(&alive) {
            let costs = &self.costs.nodes[step.node][step.pass];
            let workspace = costs.workspace(limits[step.node][step.pass]).unwrap_or(costs.least());
            trial.workspace[step.node][step.pass] = workspace;
            let need = alive + arena_bytes(workspace.0);
            trial.excess += need.saturating_sub(capacity);
            trial.peak = if need > trial.peak.1 { (step.node, need) } else { trial.peak };
            ms.push(costs.time_ms(workspace));
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
        trial.steps = returns.steps;
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

    /// What is left to the workspaces of each node's passes.
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
        let (gone, out_ms) = leave(away.iter().map(out).collect(), |at| ms[at], needed, capacity);
        needed.reverse();
        let (come, in_ms) = leave(away.iter().map(back).collect(), |at| ms[end - at], needed, capacity);
        needed.reverse();
        for (position, &index) in away.iter().enumerate() {
            // What is back before it is gone need not leave.
            let (gone, come) = (gone[position], end + 1 - come[position]);
            if gone < come {
                trial.away.push((index, [gone, come]));
            }
        }
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
/// wait, as they do only where memory is short. What still lies there is added to what steps need.
fn leave(
    copies: Vec<Copy>,
    ms: impl Fn(usize) -> f64,
    needed: &mut [u64],
    capacity: u64,
) -> (Vec<usize>, f64) {
    let mut order: Vec<usize> = (0..copies.len()).collect();
    order.sort_by_key(|&index| (copies[index].ready, copies[index].needed, index));
    let mut free = vec![needed.len(); copies.len()];
    let (mut now_ms, mut engine_ms, mut stall_ms) = (0.0f64, 0.0f64, 0.0);
    let mut next = order.iter().copied().peekable();
    // Those that still lie there, with the ends of their copies.
    let mut there: Vec<(usize, f64)> = Vec::new();
    for at in 0..needed.len() {
        loop {
            there.retain(|&(index, end_ms)| {
                let is_there = copies[index].needed >= at || end_ms > now_ms;
                if !is_there {
                    free[index] = at;
                }
                is_there
            });
            let waiting = there.iter().filter(|(index, _)| copies[*index].needed < at);
            let lying: u64 = waiting.clone().map(|(index, _)| copies[*index].bytes).sum();
            let first_ms = waiting.map(|&(_, end_ms)| end_ms).fold(f64::INFINITY, f64::min);
            if needed[at] + lying <= capacity || first_ms == f64::INFINITY {
                needed[at] += lying;
                break;
            }
            stall_ms += first_ms - now_ms;
            now_ms = first_ms;
        }
        now_ms += ms(at);
        while let Some(index) = next.next_if(|&index| copies[index].ready == at) {
            engine_ms = engine_ms.max(now_ms) + copies[index].ms;
            there.push((index, engine_ms));
        }
    }
    (free, stall_ms)
}
