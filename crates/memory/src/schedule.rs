//! When each buffer lies where in an iteration, and which action waits for which.

use crate::action::{Action, Buffer, Place, Residence, StreamKind};
use crate::outline::{Outline, OutlineParam, OutlineValue};
use planner::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use thiserror::Error;

/// Bytes of gradients whose parameters are updated together, and that ranks add up together, as in PyTorch's buckets:
/// enough for the full rate, few enough for the first to begin early. Towards the end of an iteration they become fewer,
/// as no backward pass is left to hide the last sum.
const UPDATED: RangeInclusive<u64> = 1 << 20..=25 << 20;

/// A list of actions that cannot be an iteration: one needs what is not there, or brings data again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ScheduleError(String);

/// The actions of an iteration and what follows from them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// In the order in which they are launched: first those that bring the data.
    pub actions: Vec<Action>,
    /// Every buffer with its residences, in the order of [`Buffer`].
    pub buffers: Vec<(Buffer, Vec<Residence>)>,
    /// For each action, the latest actions of other streams that must be done before it begins.
    pub waits: Vec<Vec<usize>>,
    /// As in the outline.
    pub keeps_gradients: bool,
}

/// How an action uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    /// Reads and writes it.
    Change,
    /// Fills it, whatever it held.
    Fill,
    /// Adds to it; the first to do so fills it.
    Add,
}

impl Schedule {
    /// Everything stays on the device: the nodes that bring data, all others forward, all backward, the update.
    pub fn plain(outline: &Outline) -> Self {
        let (sources, others): (Vec<_>, Vec<_>) =
            (0..outline.nodes.len()).partition(|&node| outline.is_source(node));
        let forward = sources.into_iter().chain(others).map(Action::Forward);
        let (updates, last) = outline.updates();
        let backward = (0..outline.nodes.len()).rev().filter(|&node| outline.nodes[node].backward);
        let backward = backward.flat_map(|node| [Some(Action::Backward(node)), updates[node]]).flatten();
        let actions = forward.chain(backward).chain(last).collect();
        Self::new(outline, actions).expect("a node comes after what it reads")
    }

    /// The schedule of `actions`.
    ///
    /// # Errors
    /// [`ScheduleError`]: an action needs what is not in its place at that time, reads data again, or is of another net.
    pub fn new(outline: &Outline, actions: Vec<Action>) -> Result<Self, ScheduleError> {
        let mut walk =
            Walk { outline, actions: &actions, residences: BTreeMap::new(), outdated: BTreeSet::new() };
        for (index, &action) in actions.iter().enumerate() {
            walk.visit(index, action)?;
        }
        let buffers = walk.finish();
        let schedule = Self { waits: Vec::new(), actions, buffers, keeps_gradients: outline.keeps_gradients };
        Ok(Self { waits: schedule.find_waits(outline), ..schedule })
    }

    /// A schedule of passes or an update alone, to be measured: every buffer that they use has a place of its own
    /// throughout, filled or not, and other nodes have none.
    pub fn alone(outline: &Outline, actions: Vec<Action>) -> Self {
        let mut walk =
            Walk { outline, actions: &actions, residences: BTreeMap::new(), outdated: BTreeSet::new() };
        let used = actions.iter().enumerate().flat_map(|(index, &action)| uses(outline, index, action));
        let read_at_the_end = |value: &&OutlineValue| value.output && !outline.values[value.root].constant;
        let updates = actions.iter().any(|action| matches!(action, Action::Update(..)));
        let outputs = outline.values.iter().filter(|_| updates);
        let outputs = outputs.filter(read_at_the_end).map(|value| Buffer::Data(value.root));
        for buffer in used.map(|(buffer, _)| buffer).chain(outputs) {
            let (last, bytes) = (actions.len() - 1, walk.size(buffer));
            let throughout = Residence { place: Place::Device, first: 0, last, bytes };
            walk.residences.insert(buffer, vec![throughout]);
        }
        let buffers = walk.finish();
        let (waits, keeps_gradients) = (vec![Vec::new(); actions.len()], outline.keeps_gradients);
        Self { waits, actions, buffers, keeps_gradients }
    }

    /// Where `buffer` stands in [`Schedule::buffers`].
    pub fn find(&self, buffer: Buffer) -> Option<usize> {
        self.buffers.binary_search_by_key(&buffer, |&(buffer, _)| buffer).ok()
    }

    /// Whether `buffer` holds something from one iteration to the next.
    pub fn outlives(&self, buffer: Buffer) -> bool {
        match buffer {
            Buffer::Data(_) | Buffer::Diff(_) | Buffer::Saved(_) | Buffer::Scratch(_) => false,
            Buffer::Gradient(_) => self.keeps_gradients,
            Buffer::Constant(_) | Buffer::Parameter(_) | Buffer::History(_) => true,
        }
    }

    /// What comes and goes in `place`: each residence, with the buffer that has it.
    pub(crate) fn transient(&self, place: Place) -> (Vec<Buffer>, Vec<Residence>) {
        let transient = self.buffers.iter().filter(|&&(buffer, _)| !self.outlives(buffer));
        let each = transient.flat_map(|(buffer, all)| all.iter().map(|&one| (*buffer, one)));
        each.filter(|(_, one)| one.place == place).unzip()
    }

    /// The residence of `buffer` in `place` at action `at`.
    fn residence(&self, buffer: Buffer, place: Place, at: usize) -> Option<&Residence> {
        let mut residences = self.buffers[self.find(buffer)?].1.iter();
        residences.find(|residence| residence.place == place && residence.holds(at))
    }

    /// What each action waits for, without what its stream has waited for already. Copies wait for all computation
    /// launched before them, and for copies of the other direction from memory that they may overwrite; computation
    /// waits for what it reads to be back, and likewise for copies from memory that it may overwrite.
    fn find_waits(&self, outline: &Outline) -> Vec<Vec<usize>> {
        let mut waits = vec![Vec::new(); self.actions.len()];
        let mut launched: [Vec<usize>; 3] = Default::default();
        // For each stream, how many actions of each other one are known to be done.
        let mut done = [[0; 3]; 3];
        for (index, &action) in self.actions.iter().enumerate() {
            let stream = action.stream() as usize;
            for other in (0..3).filter(|&other| other != stream) {
                let unknown = &launched[other][done[stream][other]..];
                if let Some(at) = unknown.iter().rposition(|&before| self.must_wait(outline, index, before)) {
                    waits[index].push(unknown[at]);
                    done[stream][other] += at + 1;
                }
            }
            waits[index].sort_unstable_by_key(|&other| std::cmp::Reverse(other));
            launched[stream].push(index);
        }
        waits
    }

    /// Whether the action at `index` cannot begin before that at `before`, of another stream, is done.
    fn must_wait(&self, outline: &Outline, index: usize, before: usize) -> bool {
        let action = self.actions[index];
        let is_copy = action.stream() != StreamKind::Compute;
        let uses = |unwanted: Option<Use>, buffer| match is_copy {
            true => matches!(action, Action::Prefetch(back) if back == buffer),
            false => uses(outline, index, action).any(|(used, how)| used == buffer && Some(how) != unwanted),
        };
        match self.actions[before] {
            Action::Prefetch(buffer) => {
                let there = self.residence(buffer, Place::Device, index);
                is_copy || there.is_some_and(|there| there.first == before) && uses(None, buffer)
            }
            Action::Offload(buffer) => {
                let from = self.residence(buffer, Place::Device, before).expect("it is copied from there");
                from.last < index || uses(Some(Use::Read), buffer)
            }
            _ => is_copy,
        }
    }
}

/// A walk through the actions of an iteration that notes when buffers begin and end.
struct Walk<'a> {
    outline: &'a Outline,
    actions: &'a [Action],
    /// Those of each buffer so far.
    residences: BTreeMap<Buffer, Vec<Residence>>,
    /// Buffers that have changed since they were copied to the host.
    outdated: BTreeSet<Buffer>,
}

impl Walk<'_> {
    fn visit(&mut self, index: usize, action: Action) -> Result<(), ScheduleError> {
        let missing = |buffer| {
            let action = format!("action {index}, {action:?}");
            ScheduleError(format!("{action}, needs {buffer:?}, which is not there at that time"))
        };
        let is_known = match action {
            Action::Update(first, end) => first <= end && end <= self.outline.params.len(),
            _ => action.pass().is_none_or(|(node, _)| node < self.outline.nodes.len()),
        };
        match action {
            _ if !is_known => {
                return Err(ScheduleError(format!("action {index}, {action:?}, is of another net")));
            }
            Action::Offload(buffer) => {
                let there = self.current(buffer, Place::Device).ok_or_else(|| missing(buffer))?;
                there.last = index;
                let copy = Residence { place: Place::Host, first: index, last: index, ..*there };
                self.residences.entry(buffer).or_default().push(copy);
                self.outdated.remove(&buffer);
            }
            Action::Prefetch(buffer) => {
                let is_outdated = self.outdated.contains(&buffer);
                let copy = self.current(buffer, Place::Host).filter(|_| !is_outdated);
                let copy = copy.ok_or_else(|| missing(buffer))?;
                copy.last = index;
                let back = Residence { place: Place::Device, first: index, last: index, ..*copy };
                self.residences.entry(buffer).or_default().push(back);
            }
            Action::Recompute(node) if self.outline.is_source(node) => {
                let node = &self.outline.nodes[node].name;
                return Err(ScheduleError(format!("action {index} would read the data of '{node}' again")));
            }
            _ => {
                for (buffer, how) in uses(self.outline, index, action) {
                    self.compute(index, buffer, how).ok_or_else(|| missing(buffer))?;
                }
            }
        }
        Ok(())
    }

    /// Notes a use by computation; `None` if what it needs is not on the device.
    fn compute(&mut self, index: usize, buffer: Buffer, how: Use) -> Option<()> {
        if how != Use::Read {
            self.outdated.insert(buffer);
        }
        match self.current(buffer, Place::Device) {
            Some(there) if how != Use::Fill => there.last = index,
            None if matches!(how, Use::Read | Use::Change) => return None,
            _ => {
                let keeps = |(node, _): (usize, _)| self.outline.nodes[node].keeps_scratch;
                let stays =
                    matches!(buffer, Buffer::Scratch(_)) && self.actions[index].pass().is_some_and(keeps);
                let [first, last] = if stays { [0, self.actions.len() - 1] } else { [index; 2] };
                let residence = Residence { place: Place::Device, first, last, bytes: self.size(buffer) };
                self.residences.entry(buffer).or_default().push(residence);
            }
        }
        Some(())
    }

    /// The last residence of `buffer` in `place`, which an action may still extend.
    fn current(&mut self, buffer: Buffer, place: Place) -> Option<&mut Residence> {
        self.residences.get_mut(&buffer)?.iter_mut().rev().find(|residence| residence.place == place)
    }

    /// What is read after the iteration stays to its end; what outlives it is there all the time.
    fn finish(mut self) -> Vec<(Buffer, Vec<Residence>)> {
        let Outline { nodes, values, .. } = self.outline;
        let end = self.actions.len().saturating_sub(1);
        let mut flows_on = vec![false; values.len()];
        for value in values.iter().filter(|value| value.needs_diff && nodes[value.producer].backward) {
            flows_on[value.root] = true;
        }
        for (id, value) in values.iter().enumerate() {
            let is_read = value.output && !values[value.root].constant;
            let is_sink = value.root == id && !flows_on[id];
            for (stays, buffer) in [(is_read, Buffer::Data(value.root)), (is_sink, Buffer::Diff(id))] {
                if stays && let Some(there) = self.current(buffer, Place::Device) {
                    there.last = end;
                }
            }
        }
        for buffer in self.outline.kept().into_iter().flatten() {
            let residence = Residence { place: Place::Device, first: 0, last: end, bytes: self.size(buffer) };
            self.residences.insert(buffer, vec![residence]);
        }
        self.residences.into_iter().collect()
    }

    fn size(&self, buffer: Buffer) -> Bytes {
        match buffer {
            Buffer::Scratch(index) => {
                let (node, pass) = self.actions[index].pass().expect("only passes use scratch");
                self.outline.nodes[node].scratch[pass]
            }
            _ => self.outline.size(buffer),
        }
    }
}

impl Outline {
    /// For each node, the update that follows its backward pass, if one does, and that at the end of the iteration.
    /// Parameters are updated together, from the last to the first, once they have complete gradients of 25 MiB, and of
    /// fewer towards the end.
    pub fn updates(&self) -> (Vec<Option<Action>>, Option<Action>) {
        let mut after = vec![None; self.nodes.len()];
        let mut last_node = vec![self.nodes.len(); self.params.len()];
        for (node, outline) in self.nodes.iter().enumerate().rev() {
            outline.gradients.iter().for_each(|&param| last_node[param] = node);
        }
        let size = |param: &OutlineParam| if param.trained { param.bytes.0 } else { 0 };
        let mut left: u64 = self.params.iter().map(size).sum();
        let (mut end, mut bytes, mut complete) = (self.params.len(), 0, self.nodes.len());
        for (param, &node) in last_node.iter().enumerate().rev() {
            // What no loss reaches has no gradient to wait for.
            let is_due = node < complete && complete < after.len();
            if is_due && bytes >= left.clamp(*UPDATED.start(), *UPDATED.end()) {
                after[complete] = Some(Action::Update(param + 1, end));
                (end, bytes) = (param + 1, 0);
            }
            complete = complete.min(node);
            let size = size(&self.params[param]);
            (bytes, left) = (bytes + size, left - size);
        }
        let after = if self.updates { after } else { vec![None; after.len()] };
        (after, self.updates.then_some(Action::Update(0, end)))
    }

    /// What outlives an iteration: parameters, their gradients if they are kept, history, constants.
    pub(crate) fn kept(&self) -> [Vec<Buffer>; 4] {
        let trained = |is_kept: bool| {
            let params = self.params.iter().enumerate();
            params.filter(move |(_, param)| is_kept && param.trained).map(|(id, _)| id)
        };
        [
            (0..self.params.len()).map(Buffer::Parameter).collect(),
            trained(self.keeps_gradients).map(Buffer::Gradient).collect(),
            trained(self.updates).map(Buffer::History).collect(),
            (0..self.values.len()).filter(|&id| self.values[id].constant).map(Buffer::Constant).collect(),
        ]
    }

    /// The size of a buffer. Panics for scratch, which only actions have.
    pub(crate) fn size(&self, buffer: Buffer) -> Bytes {
        match buffer {
            Buffer::Data(id) | Buffer::Diff(id) | Buffer::Constant(id) => self.values[id].bytes,
            Buffer::Saved(node) => self.nodes[node].saved,
            Buffer::Parameter(id) => self.params[id].bytes + self.params[id].copy,
            Buffer::Gradient(id) => self.params[id].bytes,
            Buffer::History(id) => self.params[id].history,
            Buffer::Scratch(_) => panic!("{buffer:?} is of an action"),
        }
    }
}

/// The transient buffers that an action, at `index`, uses.
pub(crate) fn uses(outline: &Outline, index: usize, action: Action) -> std::vec::IntoIter<(Buffer, Use)> {
    let mut uses = match action {
        Action::Forward(node) | Action::Recompute(node) => {
            let repeats = matches!(action, Action::Recompute(_)) && outline.nodes[node].repeats_from_saved;
            forward_uses(outline, index, node, if repeats { Use::Read } else { Use::Fill })
        }
        Action::Backward(node) => backward_uses(outline, index, node),
        Action::Hold(buffer) => vec![(buffer, Use::Read)],
        Action::Update(first, end) => gradients(outline, first..end, Use::Read).collect(),
        Action::Offload(_) | Action::Prefetch(_) => Vec::new(),
    };
    let is_constant = |root: usize| outline.values.get(root).is_some_and(|value| value.constant);
    uses.retain(|&(buffer, _)| !matches!(buffer, Buffer::Data(root) if is_constant(root)));
    uses.into_iter()
}

/// The uses of a forward pass, and how it uses what is saved.
fn forward_uses(outline: &Outline, index: usize, node: usize, saved: Use) -> Vec<(Buffer, Use)> {
    let (id, node, values) = (node, &outline.nodes[node], &outline.values);
    let mut uses = Vec::new();
    uses.extend(node.bottoms.iter().map(|&id| (Buffer::Data(values[id].root), Use::Read)));
    uses.extend(node.tops.iter().map(|&id| match values[id].root {
        root if root == id => (Buffer::Data(id), Use::Fill),
        root => (Buffer::Data(root), Use::Change),
    }));
    uses.extend([(Buffer::Saved(id), saved), (Buffer::Scratch(index), Use::Fill)]);
    uses
}

fn backward_uses(outline: &Outline, index: usize, node: usize) -> Vec<(Buffer, Use)> {
    let (id, node, values) = (node, &outline.nodes[node], &outline.values);
    let bottoms = node.bottoms[..node.read_bottoms].iter();
    let tops = node.tops.iter().filter(|_| node.needs_top);
    let data = bottoms.chain(tops).map(|&id| (Buffer::Data(values[id].root), Use::Read));
    let mut uses: Vec<_> = data.collect();
    let diff = |id: usize, how| (Buffer::Diff(values[id].root), how);
    uses.extend(node.tops.iter().filter(|&&top| values[top].needs_diff).map(|&top| diff(top, Use::Read)));
    let wanted = node.bottoms.iter().zip(&node.propagates).filter(|(_, wanted)| **wanted);
    uses.extend(wanted.map(|(&bottom, _)| diff(bottom, Use::Add)));
    uses.extend(gradients(outline, node.gradients.iter().copied(), Use::Add));
    uses.extend([(Buffer::Saved(id), Use::Read), (Buffer::Scratch(index), Use::Fill)]);
    uses
}

/// The gradients of parameters, if they are not kept.
fn gradients(
    outline: &Outline,
    params: impl Iterator<Item = usize>,
    how: Use,
) -> impl Iterator<Item = (Buffer, Use)> {
    let is_there = |&param: &usize| outline.params[param].trained && !outline.keeps_gradients;
    params.filter(is_there).map(move |param| (Buffer::Gradient(param), how))
}
