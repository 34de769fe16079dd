//! What comes of a choice for every feature map: the order of actions, the memory they need, and the time.

use super::problem::{Problem, Step};
use crate::action::Action;
use planner::Bytes;

/// A choice for every feature map; what is neither stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    /// For every tensor, whether it is offloaded.
    pub(super) offloaded: Vec<bool>,
    /// For every unit, whether it is computed again.
    pub(super) repeated: Vec<bool>,
    /// For every unit that is, whether for each that wants it, and given up in between, or for the first, and held.
    pub(super) briefly: Vec<bool>,
}

/// How many states a unit has.
pub(super) const STATES: usize = 4;

impl Choice {
    /// Lets a unit be kept (0), offloaded (1) or computed again, to be held (2) or for each that wants it (3).
    pub(super) fn set(&mut self, problem: &Problem<'_>, unit: usize, state: usize) {
        self.repeated[unit] = problem.units[unit].repeats && state >= 2;
        self.briefly[unit] = state == 3;
        let tensors = problem.units[unit].tensors.iter();
        tensors.for_each(|&one| self.offloaded[one] = state == 1 && problem.tensors[one].leaves);
    }

    /// The state that a unit has.
    pub(super) fn state(&self, problem: &Problem<'_>, unit: usize) -> usize {
        let leaves = problem.units[unit].tensors.iter().any(|&one| self.offloaded[one]);
        if self.repeated[unit] { 2 + usize::from(self.briefly[unit]) } else { usize::from(leaves) }
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
    /// The largest need of an action.
    pub(super) peak: u64,
    /// Whether kernels wait for copies rather than take less workspace.
    patient: bool,
    /// The actions that compute, in order.
    steps: Vec<Step>,
    /// What is left to the workspaces of each node's passes.
    limits: Vec<[u64; 2]>,
    /// The step before which a tensor that left must be back; for those computed again, the step that does so.
    back: Vec<usize>,
    /// One past the last step that uses a tensor again; 0 if none does.
    end: Vec<usize>,
    /// Of every backward action, its step.
    backward: Vec<usize>,
    /// Tensors that leave, by rising need: before which step their place is free, and before which they come back.
    away: Vec<(usize, [usize; 2])>,
    /// Before which backward action each tensor that is not computed again is needed.
    wanted: Vec<usize>,
    /// Before which backward actions each unit that is computed again is needed.
    times: Vec<Vec<usize>>,
    /// What is computed again, and the index of the first of that before each backward action.
    again: Vec<Again>,
    first: Vec<usize>,
    /// From which step to before which tensors live that are given up then, and their bytes.
    brief: Vec<(usize, usize, u64)>,
}

/// A unit that is computed again before a backward action.
#[derive(Clone, Copy, Debug)]
struct Again {
    unit: usize,
    /// Whether it is given up before that action.
    is_given_up: bool,
    /// What follows it before the same action, as an index.
    next: usize,
}

impl Trial {
    /// The actions of the iteration, copies included.
    pub(super) fn actions(&self, problem: &Problem<'_>) -> Vec<Action> {
        // Copies out, places that are freed later than at their last use, copies back: each before a step.
        let mut before: Vec<[Vec<Action>; 3]> = vec![Default::default(); self.steps.len() + 1];
        let mut out: Vec<usize> = self.away.iter().map(|&(index, _)| index).collect();
        out.sort_by_key(|&index| (problem.tensors[index].used, index));
        // Data are all brought first.
        let sources = problem.forward.iter().filter(|&&node| problem.outline.is_source(node)).count();
        for tensor in out.into_iter().map(|index| &problem.tensors[index]) {
            before[sources.max(tensor.changed + 1)][0].push(Action::Offload(tensor.buffer));
        }
        for &(index, [gone, come]) in &self.away {
            let tensor = &problem.tensors[index];
            if gone > tensor.used + 1 {
                before[gone][1].push(Action::Hold(tensor.buffer));
            }
            before[come][2].push(Action::Prefetch(tensor.buffer));
        }
        let (mut actions, (updates, last_update)) = (Vec::<Action>::new(), problem.outline.updates());
        for (at, copies) in before.into_iter().enumerate() {
            actions.extend(copies.into_iter().flatten());
            let action = self.steps.get(at).map(|step| step.action);
            actions.extend(action);
            if let Some(Action::Backward(node)) = action {
                actions.extend(updates[node]);
            }
        }
        actions.extend(last_update);
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
        Choice {
            offloaded: vec![false; self.tensors.len()],
            repeated: repeated.collect(),
            briefly: vec![false; self.units.len()],
        }
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

    /// Carries out `choice` within `capacity` bytes. Where memory is short, kernels that are `patient` wait for copies,
    /// as AccUDNN's do; others take less workspace where that is faster.
    pub(super) fn carry_out(&self, choice: &Choice, capacity: u64, patient: bool) -> Trial {
        let mut trial = Trial { patient, ..Trial::default() };
        self.compute(choice, capacity, f64::INFINITY, &mut trial);
        self.copy(choice, capacity, &mut trial);
        trial
    }

    /// The same as if copies took no time: nothing is faster, nor needs less. Of what takes more than `most_ms` only a
    /// part of the time may be known. `trial` lends its memory.
    pub(super) fn compute(&self, choice: &Choice, capacity: u64, most_ms: f64, trial: &mut Trial) {
        (trial.host, trial.peak) = (0, 0);
        trial.waited.clear();
        trial.away.clear();
        trial.time_ms = self.unlimited_ms + self.order(choice, trial);
        if trial.time_ms > most_ms {
            return;
        }
        self.returns(choice, trial);
        self.find_alive(choice, trial);
        let Trial { steps, limits, peak, time_ms, .. } = trial;
        refill(limits, std::iter::repeat_n([u64::MAX; 2], self.outline.nodes.len()));
        for step in &*steps {
            if let Some((node, pass)) = step.kernels {
                limits[node][pass] = limits[node][pass].min(capacity.saturating_sub(step.alive));
            }
        }
        *time_ms = if self.outline.updates { self.costs.update_ms } else { 0.0 };
        for step in steps {
            self.give(step, |(node, pass)| limits[node][pass]);
            *peak = (*peak).max(step.alive + step.workspace);
            *time_ms += step.ms;
        }
    }

    /// Gives a step the fastest workspace within the limit of its pass, or else the least.
    fn give(&self, step: &mut Step, limit: impl Fn((usize, usize)) -> u64) {
        if let Some((node, pass)) = step.kernels {
            let costs = &self.costs.nodes[node][pass];
            let cost = costs.within(Bytes(limit((node, pass)))).expect("it has kernels");
            (step.ms, step.workspace) = (costs.fixed_ms + cost.time_ms, cost.workspace.aligned().0);
        }
    }

    /// Finds before which backward action what is given up has to be back: what is computed again before its first use,
    /// or before each, its inputs before that. How long computing again takes at best, in milliseconds.
    fn order(&self, choice: &Choice, trial: &mut Trial) -> f64 {
        let Trial { wanted, times, again, first, .. } = trial;
        refill(wanted, self.tensors.iter().map(|one| one.back.map_or(NEVER, |back| back[0])));
        refill(first, std::iter::repeat_n(NEVER, self.backward.len()));
        times.resize_with(self.units.len(), Vec::new);
        times.iter_mut().for_each(Vec::clear);
        again.clear();
        let mut repeats_ms = 0.0;
        let units = self.units.iter().enumerate().rev();
        for (index, unit) in units.filter(|&(index, _)| choice.repeated[index]) {
            let mut groups = std::mem::take(&mut times[index]);
            let own = unit.tensors.iter().map(|&tensor| wanted[tensor]).min().unwrap_or(NEVER);
            groups.extend(Some(own).filter(|&own| own != NEVER));
            groups.sort_unstable();
            groups.dedup();
            // From its own use on it is held.
            let briefly = groups.partition_point(|&group| group <= own);
            groups.truncate(if choice.briefly[index] { briefly } else { 1 });
            for (number, &group) in groups.iter().enumerate() {
                repeats_ms += unit.repeat_ms;
                let next = std::mem::replace(&mut first[group], again.len());
                again.push(Again { unit: index, is_given_up: number + 1 < groups.len(), next });
                for &(input, _) in &unit.inputs {
                    let maker = self.tensors[input].unit;
                    if choice.repeated[maker] {
                        times[maker].push(group);
                    } else {
                        wanted[input] = wanted[input].min(group);
                    }
                }
            }
            times[index] = groups;
        }
        repeats_ms
    }

    /// The steps in that order.
    fn returns(&self, choice: &Choice, trial: &mut Trial) {
        let Trial { steps, back, end, backward, wanted, again, first, brief, .. } = trial;
        refill(steps, self.forward.iter().map(|&node| self.steps[node][0]));
        refill(back, std::iter::repeat_n(NEVER, self.tensors.len()));
        refill(end, std::iter::repeat_n(0, self.tensors.len()));
        backward.clear();
        brief.clear();
        for (&node, first) in self.backward.iter().zip(&mut *first) {
            // From now on the step at which all that begins.
            let one = again.get(std::mem::replace(first, steps.len()));
            let group = || std::iter::successors(one, |one| again.get(one.next));
            for one in group() {
                let (unit, start) = (&self.units[one.unit], steps.len());
                steps.extend(unit.nodes.iter().map(|&node| self.steps[node][2]));
                unit.inputs.iter().for_each(|&(input, offset)| end[input] = start + offset + 1);
                for &tensor in &unit.tensors {
                    back[tensor] = start + self.tensors[tensor].offset;
                    end[tensor] = start + self.tensors[tensor].last_change + 1;
                }
            }
            let given_up = group().filter(|one| one.is_given_up);
            for &tensor in given_up.flat_map(|one| &self.units[one.unit].tensors) {
                brief.push((back[tensor], end[tensor], self.tensors[tensor].bytes));
                (back[tensor], end[tensor]) = (NEVER, 0);
            }
            backward.push(steps.len());
            steps.push(self.steps[node][1]);
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            if let Some([_, last]) = tensor.back {
                end[index] = end[index].max(backward[last] + 1);
            }
            if !choice.repeated[tensor.unit] && wanted[index] != NEVER {
                back[index] = first[wanted[index]];
            }
        }
    }

    /// What is alive at each step without workspaces, and with tensors leaving and coming back as copies take no time.
    fn find_alive(&self, choice: &Choice, trial: &mut Trial) {
        let Trial { steps, back, end, backward, brief, .. } = trial;
        let all = steps.len();
        // First by how much it changes, then in sum.
        let mut add = |first: usize, end: usize, bytes: u64| {
            steps[first].alive = steps[first].alive.wrapping_add(bytes);
            if let Some(after) = steps.get_mut(end) {
                after.alive = after.alive.wrapping_sub(bytes);
            }
        };
        for &(bytes, [first, last]) in &self.diffs {
            let at = |at: usize| backward.get(at).copied().unwrap_or(all - 1);
            add(at(first), at(last) + 1, bytes);
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            let (back, end) = (back[index], if tensor.stays { all } else { end[index] });
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
        brief.iter().for_each(|&(first, end, bytes)| add(first, end, bytes));
        let mut alive = 0u64;
        for step in steps {
            alive = alive.wrapping_add(step.alive);
            step.alive = alive;
        }
    }

    /// Copies tensors out and back as soon (as late) as no computation waits for it, or at once where memory is short.
    pub(super) fn copy(&self, choice: &Choice, capacity: u64, trial: &mut Trial) {
        let Trial { steps, waited, patient, away, back, host, time_ms, .. } = trial;
        let copy = |index: usize, [ready, needed]: [usize; 2], direction| {
            let bytes = self.tensors[index].bytes;
            Copy { index, ready, needed, bytes, ms: self.costs.copy_ms(Bytes(bytes), direction) }
        };
        // What is computed again is not copied.
        let leaves = |&index: &usize| {
            let tensor = &self.tensors[index];
            let is_wanted = choice.offloaded[index] && !choice.repeated[tensor.unit];
            is_wanted && tensor.leaves && back[index] != NEVER
        };
        let copied = |index: usize| copy(index, [self.tensors[index].changed, self.tensors[index].used], 0);
        let mut out: Vec<Copy> = (0..self.tensors.len()).filter(leaves).map(copied).collect();
        if out.is_empty() {
            return;
        }
        out.sort_by_key(|copy| (copy.ready, copy.needed));
        // Coming back is leaving in a time that runs backward.
        let end = steps.len() - 1;
        let coming = out.iter().map(|one| copy(one.index, [end - back[one.index]; 2], 1));
        let mut coming: Vec<Copy> = coming.collect();
        coming.sort_unstable_by_key(|copy| (copy.ready, copy.index));
        let (gone, out_ms) = self.leave(&out, steps.iter_mut(), (capacity, *patient), waited);
        let (come, in_ms) = self.leave(&coming, steps.iter_mut().rev(), (capacity, *patient), waited);
        out.iter().zip(gone).for_each(|(copy, gone)| back[copy.index] = gone);
        for (copy, come) in coming.iter().zip(come).rev() {
            // What is back before it is gone need not leave.
            let times = [back[copy.index], end + 1 - come];
            if times[0] < times[1] {
                *host += copy.bytes;
                away.push((copy.index, times));
            }
        }
        // Computation waits for it to be gone, and to be back.
        *time_ms += out_ms + in_ms + 2.0 * self.costs.launch_ms * away.len() as f64;
    }

    /// Copies one after the other, as soon as they are ready, in which order they are given. Before which step the
    /// place of each is free, and how much time is lost, as it is only where memory is short: a step waits, and `waited` gets
    /// for which tensors, or, unless kernels are `patient`, takes less workspace if that is faster. What still lies
    /// there is added to what is alive.
    fn leave<'s>(
        &self,
        copies: &[Copy],
        steps: impl ExactSizeIterator<Item = &'s mut Step>,
        (capacity, patient): (u64, bool),
        waited: &mut Vec<usize>,
    ) -> (Vec<usize>, f64) {
        let mut leaving: Vec<usize> = (0..copies.len()).collect();
        leaving.sort_by_key(|&copy| copies[copy].needed);
        let mut leaving = leaving.into_iter().peekable();
        let mut free = vec![steps.len(); copies.len()];
        let mut ends_ms: Vec<f64> = Vec::with_capacity(copies.len());
        let (mut now_ms, mut lost_ms, mut done) = (0.0f64, 0.0, 0);
        // What is needed no more, but not copied yet.
        let (mut lying, mut lies) = (0, vec![false; copies.len()]);
        for (at, step) in steps.enumerate() {
            while let Some(copy) = leaving.next_if(|&copy| copies[copy].needed < at) {
                if ends_ms[copy] <= now_ms {
                    free[copy] = at;
                } else {
                    lies[copy] = true;
                    lying += copies[copy].bytes;
                }
            }
            loop {
                while ends_ms.get(done).is_some_and(|&end_ms| end_ms <= now_ms) {
                    if lies[done] {
                        free[done] = at;
                        lying -= copies[done].bytes;
                    }
                    done += 1;
                }
                let lacks = (step.alive + step.workspace + lying).saturating_sub(capacity);
                if lacks == 0 || lying == 0 {
                    break;
                }
                let mut less = *step;
                self.give(&mut less, |_| capacity.saturating_sub(step.alive + lying));
                let slower_ms = less.ms - step.ms;
                let mut gone = 0;
                let last = (done..ends_ms.len()).filter(|&copy| lies[copy]).find(|&copy| {
                    gone += copies[copy].bytes;
                    gone >= lacks
                });
                let is_faster = !patient && last.is_some_and(|last| now_ms + slower_ms < ends_ms[last]);
                if is_faster && less.alive + less.workspace + lying <= capacity {
                    (*step, lost_ms) = (less, lost_ms + slower_ms);
                    break;
                }
                waited.push(copies[done].index);
                (now_ms, lost_ms) = (ends_ms[done], lost_ms + ends_ms[done] - now_ms);
            }
            step.alive += lying;
            now_ms += step.ms;
            while let Some(copy) = copies.get(ends_ms.len()).filter(|copy| copy.ready == at) {
                ends_ms.push(ends_ms.last().copied().unwrap_or(0.0).max(now_ms) + copy.ms);
            }
        }
        (free, lost_ms)
    }
}

/// Replaces what a vector holds, in its memory.
fn refill<T>(own: &mut Vec<T>, new: impl Iterator<Item = T>) {
    own.clear();
    own.extend(new);
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
