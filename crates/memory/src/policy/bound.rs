//! A time that no plan within a capacity beats, by prices on what is short.
//!
//! Every plan obeys, with p an action of the plain order (forward, then backward), M the capacity, B the copies' rate:
//!
//! ```text
//! memory      what is alive at p + workspace of p                      <= M               for every p        price λ(p)
//! copies out  bytes / B of what has left before forward action d       <= time before d   for every d        price y(d)
//! copies in   bytes / B of what comes back at backward action h or later <= time from h on  for every h        price z(h)
//! ```
//!
//! At any prices of at least zero (sums of y and of z at most 1, as computation can always wait), the least of time
//! plus priced violations is a lower bound, and it falls apart: each kernel chooses its workspace, each unit whether
//! its tensors are kept, offloaded or computed again, once or twice, and when they go and come. What is computed again
//! wants its input: along paths of units that read each other that is part of it, by dynamic programming. The other
//! inputs are left out, as are a third time, scratch at that time, what waiting for a copy costs, and the placing of
//! buffers. Prices rise along the violations (a subgradient).

use super::price::{Price, Prices};
use super::problem::{Problem, Tensor};
use super::trial::Choice;
use planner::Bytes;

/// After so many steps without a better bound they become smaller.
const PATIENCE: usize = 25;

/// The answer to prices.
pub(super) struct Answer {
    pub(super) bound_ms: f64,
    pub(super) choice: Choice,
    /// By how much each constraint is violated, in parts of what there is.
    violation: Prices,
}

/// The constraints of a net under a capacity.
pub(super) struct Bound<'a> {
    problem: &'a Problem<'a>,
    pub(super) capacity: u64,
    /// The first action after which something can leave, and the last before which something comes back.
    window: [usize; 2],
    /// What is alive at each action whatever is chosen.
    base: Vec<u64>,
    /// Units, each of which reads the one before it: every unit is in one of them.
    paths: Vec<Vec<usize>>,
}

impl<'a> Bound<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let turn = problem.turn();
        let first = problem.tensors.iter().map(|tensor| tensor.changed).min().unwrap_or(0);
        let last = problem.tensors.iter().filter_map(|tensor| tensor.back).map(|back| turn + back[0]).max();
        let window = [first, last.unwrap_or(turn)];
        Self { problem, capacity: 1, window, base: base(problem), paths: paths(problem) }
    }

    pub(super) fn zero(&self) -> Prices {
        Prices { memory: vec![0.0; self.base.len()], copies: vec![0.0; self.base.len() + 1] }
    }

    /// The least of time plus priced violations.
    pub(super) fn answer(&self, prices: &Prices) -> Answer {
        let problem = self.problem;
        let (turn, actions) = (problem.turn(), self.base.len());
        let price = Price::new(problem, prices, self.capacity, self.window);
        // First what each action adds: of what copying takes before d, or from h on, less the time there is.
        let used = self.base.iter().map(|&bytes| bytes as f64).collect();
        let mut answer = Answer {
            bound_ms: if problem.outline.updates { problem.costs.update_ms } else { 0.0 },
            choice: problem.keep(),
            violation: Prices { memory: used, copies: vec![0.0; actions + 1] },
        };
        for at in 0..actions {
            let (node, pass) = problem.action(at);
            let costs = &problem.costs.nodes[node][pass];
            let worth = 1.0 - price.time(at);
            let candidates = costs.front.points().iter().map(|cost| (cost.time_ms, cost.workspace.aligned()));
            // No plan has what does not fit beside what is alive in any case.
            let least = costs.within(Bytes::ZERO).map_or(Bytes::ZERO, |cost| cost.workspace);
            let free = Bytes(self.capacity.saturating_sub(self.base[at])).max(least).aligned();
            let candidates = candidates.filter(|one| one.1 <= free);
            let cost = |&(ms, workspace): &(f64, Bytes)| worth * ms + price.byte[at] * workspace.0 as f64;
            let best = candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default();
            answer.bound_ms += worth * costs.fixed_ms + cost(&best);
            answer.violation.memory[at] += best.1.0 as f64;
            if (self.window[0] + 1..self.window[1]).contains(&at) {
                answer.violation.copies[at + 1] -= costs.fixed_ms + best.0;
            }
        }
        self.paths.iter().for_each(|path| self.choose(path, &price, &mut answer));
        let capacity = self.capacity as f64;
        let prices = prices.memory.iter().zip(&self.base);
        answer.bound_ms += prices.map(|(price, &base)| price * (base as f64 / capacity - 1.0)).sum::<f64>();
        let Prices { memory, copies } = &mut answer.violation;
        let (out, back) = copies.split_at_mut(turn + 1);
        (1..out.len()).for_each(|at| out[at] += out[at - 1]);
        (1..back.len()).rev().for_each(|at| back[at - 1] += back[at]);
        memory.iter_mut().for_each(|used| *used = *used / capacity - 1.0);
        copies.iter_mut().for_each(|ms| *ms /= self.problem.unlimited_ms);
        answer
    }

    /// Adds the cheapest for the units of a path, each of which reads the one before, and what it takes.
    fn choose(&self, path: &[usize], price: &Price, answer: &mut Answer) {
        let none = self.problem.backward.len();
        let mut tables: Vec<Table> = Vec::with_capacity(path.len());
        let free = vec![0.0; none + 1];
        for (at, &unit) in path.iter().enumerate() {
            // The tensor that the next one on the path reads.
            let reader = path.get(at + 1).map(|&reader| &self.problem.units[reader]);
            let mut inputs = reader.into_iter().flat_map(|reader| &reader.inputs).map(|input| input.0);
            let read = inputs.find(|&input| self.problem.tensors[input].unit == unit);
            let below = tables.last().map_or(&free, |table| &table.ms);
            tables.push(Table::new(self.problem, unit, read, price, below));
        }
        answer.bound_ms += tables.last().map_or(0.0, |table| table.ms[none]);
        let mut wanted = none;
        for (&unit, table) in path.iter().zip(&tables).rev() {
            wanted = self.note(unit, table, wanted, price, answer);
        }
    }

    /// Notes what a unit does that is wanted before a backward action; returns before which it wants what it reads.
    fn note(&self, index: usize, table: &Table, wanted: usize, price: &Price, answer: &mut Answer) -> usize {
        let (problem, turn, none) = (self.problem, self.problem.turn(), self.problem.backward.len());
        let Answer { choice, violation: Prices { memory, copies }, .. } = answer;
        let [again, held] = table.again[wanted];
        for &id in &problem.units[index].tensors {
            let tensor = &problem.tensors[id];
            let mut alive =
                |first: usize, end: usize| (first..end).for_each(|at| memory[at] += tensor.bytes as f64);
            let is_read = table.read == Some(id);
            let back = tensor.back.map(|back| back[0]).or((is_read && wanted != none).then_some(wanted));
            let Some(back) = back.filter(|_| !tensor.stays) else { continue };
            if again != none {
                if again != held && is_read {
                    alive(turn + again, turn + wanted);
                }
                if again == held || tensor.back.is_some() {
                    alive(turn + held, turn + back);
                }
                continue;
            }
            match price.away(tensor, back, if is_read { wanted } else { none }) {
                Some((_, gone, come)) => {
                    choice.offloaded[id] = true;
                    alive(tensor.used + 1, gone);
                    alive(turn + come, turn + back);
                    let copy_ms = |direction| problem.costs.copy_ms(Bytes(tensor.bytes), direction);
                    // What leaves after the turn is no part of any constraint.
                    if gone <= turn {
                        copies[gone] += copy_ms(0);
                    }
                    copies[turn + come + 1] += copy_ms(1);
                }
                None => alive(tensor.used + 1, turn + back),
            }
        }
        choice.repeated[index] = again != none || table.is_unseen && problem.units[index].repeats;
        choice.briefly[index] = again != held;
        if again != none {
            copies[turn + again + 1] -= problem.units[index].repeat_ms;
        }
        if held != again {
            copies[turn + held + 1] -= problem.units[index].repeat_ms;
        }
        again
    }

    /// Better prices: the best bound after so many `steps`, each shown to `see`, which says the best time known.
    pub(super) fn rise(&self, prices: &mut Prices, steps: usize, mut see: impl FnMut(&Answer) -> f64) -> f64 {
        let mut best = (f64::NEG_INFINITY, prices.clone());
        let (mut step, mut since) = (1.0, 0);
        let mut direction = self.zero();
        for _ in 0..steps {
            let answer = self.answer(prices);
            let target_ms = see(&answer);
            since += 1;
            if answer.bound_ms > best.0 {
                let is_much = answer.bound_ms > best.0 + 1e-4 * (target_ms - best.0).abs();
                since = if is_much { 0 } else { since };
                best = (answer.bound_ms, prices.clone());
            }
            if since > PATIENCE {
                (step, since, direction) = (0.75 * step, 0, self.zero());
                prices.clone_from(&best.1);
                continue;
            }
            if step < 1e-3 || target_ms - best.0 <= 1e-5 * target_ms {
                break;
            }
            direction.mix(&answer.violation, prices, 0.6);
            let length: f64 = direction.iter().map(|value| value * value).sum();
            let gap_ms = (target_ms - answer.bound_ms).max(1e-3 * target_ms);
            prices.step(&direction, step * gap_ms / length.max(1e-30));
            self.project(prices);
        }
        *prices = best.1;
        best.0
    }

    /// Sums of the prices of copies in each direction are at most 1, and at the turn only one counts.
    fn project(&self, prices: &mut Prices) {
        let (out, back) = prices.copies.split_at_mut(self.problem.turn() + 1);
        back.iter_mut().take(1).for_each(|price| *price = 0.0);
        for half in [out, back] {
            let sum: f64 = half.iter().sum::<f64>() / self.problem.unlimited_ms;
            half.iter_mut().filter(|_| sum > 1.0).for_each(|price| *price /= sum);
        }
    }
}

/// What a unit and all before it on its path cost, by the backward action that wants it; last, if nobody does.
struct Table {
    /// The least cost, in milliseconds.
    ms: Vec<f64>,
    /// Before which backward action it is computed again for what wants it, and before which to be held until its own
    /// use; one past the last if it is not.
    again: Vec<[usize; 2]>,
    /// The tensor that is wanted.
    read: Option<usize>,
    /// Whether no backward pass sees it.
    is_unseen: bool,
}

impl Table {
    fn new(problem: &Problem<'_>, index: usize, read: Option<usize>, price: &Price, below: &[f64]) -> Self {
        let (unit, turn, none) = (&problem.units[index], problem.turn(), problem.backward.len());
        let tensors = || unit.tensors.iter().map(|&id| &problem.tensors[id]).filter(|tensor| !tensor.stays);
        let seen = || tensors().filter_map(|tensor| Some((tensor, tensor.back?[0])));
        let first = seen().map(|(_, back)| back).min();
        let wanted = read.map(|read| &problem.tensors[read]).filter(|tensor| !tensor.stays);
        // What the tensors cost that nobody wants, if they are not computed again.
        let least = |tensor: &Tensor, back: usize| {
            price.away(tensor, back, none).map_or_else(|| price.kept(tensor, back), |away| away.0)
        };
        let is_wanted = |tensor: &Tensor| wanted.is_some_and(|wanted| wanted.buffer == tensor.buffer);
        let others = seen().filter(|(tensor, _)| !is_wanted(tensor));
        let others_ms: f64 = others.map(|(tensor, back)| least(tensor, back)).sum();
        let again = vec![[none; 2]; none + 1];
        let mut table = Self { ms: vec![0.0; none + 1], again, read, is_unseen: first.is_none() };
        let unseen = wanted.filter(|tensor| tensor.back.is_none());
        let seen_wanted = wanted.and_then(|tensor| Some((tensor, tensor.back?[0])));
        let leaving = seen_wanted.filter(|(tensor, _)| tensor.leaves);
        let leaving = leaving.and_then(|(tensor, back)| price.leaving(tensor, price.kept(tensor, back)));
        let seen_bytes = seen().map(|(tensor, _)| tensor.bytes).sum();
        let alive_ms: f64 = seen().map(|(tensor, back)| price.alive(tensor.bytes, turn, turn + back)).sum();
        let made_ms = |at: usize| unit.repeat_ms * (1.0 - price.back(turn + at));
        let own_ms = |at: usize| alive_ms - price.alive(seen_bytes, turn, turn + at);
        let wanted_bytes = wanted.map_or(0, |tensor| tensor.bytes);
        // The cheapest until now: made for what wants it, or for its own use, too; and back from the host.
        let [mut brief, mut held] = [(f64::INFINITY, none); 2];
        let mut come_ms = f64::INFINITY;
        let less = |old: (f64, usize), ms: f64, at: usize| if ms < old.0 { (ms, at) } else { old };
        // From then on nothing changes.
        let settled = seen_wanted.map(|(_, back)| back).or(first).filter(|_| unseen.is_none());
        for at in 0..=settled.unwrap_or(none) {
            let since_ms = |tensor: &Tensor| price.alive(tensor.bytes, turn, turn + at);
            let since_ms = unseen.filter(|_| at < none).map_or(0.0, since_ms);
            if at < none && unit.repeats {
                let ms = made_ms(at) + below[at];
                brief.0 += price.alive(wanted_bytes, turn + at - 1, turn + at);
                brief = less(brief, ms, at);
                // What is first seen before that is there anyway.
                if first.is_some_and(|first| at <= first) {
                    held = less(held, ms + own_ms(at) - since_ms, at);
                }
            }
            let wanted_ms = match (seen_wanted, unseen) {
                (Some((tensor, back)), _) => {
                    if at <= back {
                        come_ms = come_ms.min(price.coming(tensor, back, at));
                    }
                    let kept_ms = price.kept(tensor, back);
                    leaving.map_or(kept_ms, |(out_ms, _)| kept_ms.min(out_ms + come_ms))
                }
                (_, Some(tensor)) if at < none => price.kept(tensor, at),
                _ => 0.0,
            };
            let stays = (others_ms + wanted_ms + below[none], [none; 2]);
            let once = (held.0 + since_ms, [held.1; 2]);
            let each = match first {
                Some(own) => (brief.0 + made_ms(own) + own_ms(own), [brief.1, own]),
                None => (brief.0, [brief.1; 2]),
            };
            let ways = [stays, once, each].into_iter().take(if at < none { 3 } else { 2 });
            let cheapest = ways.min_by(|a, b| a.0.total_cmp(&b.0));
            (table.ms[at], table.again[at]) = cheapest.expect("there are several");
        }
        if let Some(settled) = settled {
            let (ms, again) = (table.ms[settled], table.again[settled]);
            table.ms[settled..].fill(ms);
            table.again[settled..].fill(again);
        }
        table
    }
}

/// Units that each read the one before: from the last on, each goes on to the latest that it reads on no path yet.
fn paths(problem: &Problem<'_>) -> Vec<Vec<usize>> {
    let mut is_taken = vec![false; problem.units.len()];
    let paths = (0..problem.units.len()).rev().map(|last| {
        let mut path = Vec::new();
        let mut next = Some(last).filter(|&unit| !is_taken[unit]);
        while let Some(unit) = next {
            is_taken[unit] = true;
            path.push(unit);
            let inputs = problem.units[unit].inputs.iter().map(|&(input, _)| problem.tensors[input].unit);
            next = inputs.filter(|&unit| !is_taken[unit]).max();
        }
        path.reverse();
        path
    });
    paths.filter(|path| !path.is_empty()).collect()
}

/// What is alive at each action whatever is chosen: gradients, scratch, and tensors that it is between uses of.
fn base(problem: &Problem<'_>) -> Vec<u64> {
    let (turn, actions) = (problem.turn(), problem.turn() + problem.backward.len());
    let mut base = vec![0; actions];
    let mut add = |first: usize, last: usize, bytes| {
        base[first..=last.min(actions - 1)].iter_mut().for_each(|sum| *sum += bytes)
    };
    for &(bytes, [first, last]) in &problem.diffs {
        add(turn + first, turn + last, bytes);
    }
    for tensor in &problem.tensors {
        let stays = tensor.stays && !tensor.leaves;
        add(tensor.made, if stays { actions } else { tensor.used }, tensor.bytes);
        if let Some([first, last]) = tensor.back.filter(|_| !stays) {
            add(turn + first, if tensor.stays { actions } else { turn + last }, tensor.bytes);
        }
    }
    for (at, sum) in base.iter_mut().enumerate() {
        let (node, pass) = problem.action(at);
        *sum += problem.steps[node][pass].workspace;
    }
    base
}
