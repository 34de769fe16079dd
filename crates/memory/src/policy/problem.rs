//! A net as far as it can be kept, offloaded or computed again.

use super::costs::Costs;
use crate::action::{Action, Buffer, Place};
use crate::outline::Outline;
use crate::schedule::{Schedule, Use, uses};
use planner::Bytes;
use std::collections::BTreeMap;

/// What is so many times smaller than the largest feature map stays where it is.
const SMALL: u64 = 1000;

/// What may leave the device between its last use forward and its first use backward: data of a blob, or what a node
/// keeps for its backward pass. Positions count the forward actions, or the backward ones, from 0.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) buffer: Buffer,
    /// Its size in an arena.
    pub(super) bytes: u64,
    /// What makes it.
    pub(super) unit: usize,
    /// Which of the unit's nodes makes it first.
    pub(super) offset: usize,
    /// Which of them changes it last.
    pub(super) last_change: usize,
    /// The forward action that makes it, the last that changes it, and the last that uses it.
    pub(super) made: usize,
    pub(super) changed: usize,
    pub(super) used: usize,
    /// The first and the last backward action that use it.
    pub(super) back: Option<[usize; 2]>,
    /// Whether it is read after the iteration.
    pub(super) stays: bool,
    /// Whether it is large enough to be worth a copy.
    pub(super) leaves: bool,
}

/// A layer with those that work in place on what it makes: computed again together.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    pub(super) nodes: Vec<usize>,
    pub(super) tensors: Vec<usize>,
    /// What it reads of other units, and which of its nodes is the last to do so.
    pub(super) inputs: Vec<(usize, usize)>,
    /// Whether it can be computed again.
    pub(super) repeats: bool,
    /// How long that takes at best, in milliseconds.
    pub(super) repeat_ms: f64,
}

/// An action that computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    /// Its node and pass, if it has kernels.
    pub(super) kernels: Option<(usize, usize)>,
    /// How long it takes.
    pub(super) ms: f64,
    /// What is alive beside its workspace, or scratch, and that.
    pub(super) alive: u64,
    pub(super) workspace: u64,
}

/// The net with its costs.
pub(super) struct Problem<'a> {
    pub(super) outline: &'a Outline,
    pub(super) costs: &'a Costs,
    /// The nodes in their order forward, and in their order backward.
    pub(super) forward: Vec<usize>,
    pub(super) backward: Vec<usize>,
    /// By rising position of what makes them.
    pub(super) tensors: Vec<Tensor>,
    /// In the order of their first nodes.
    pub(super) units: Vec<Unit>,
    /// Gradients: sizes, and from which backward action to which (one past the last backward action: the end).
    pub(super) diffs: Vec<(u64, [usize; 2])>,
    /// Each node's pass forward, backward, and forward again, without the workspace of kernels.
    pub(super) steps: Vec<[Step; 3]>,
    /// Time of an iteration in any amount of memory.
    pub(super) unlimited_ms: f64,
}

impl<'a> Problem<'a> {
    pub(super) fn new(outline: &'a Outline, costs: &'a Costs) -> Self {
        costs.check(outline);
        let plain = Schedule::plain(outline);
        let passes = || plain.actions.iter().filter_map(|action| action.pass());
        let pass = |of: usize| passes().filter(|one| one.1 == of).map(|one| one.0).collect::<Vec<_>>();
        let (forward, backward) = (pass(0), pass(1));
        let turn = forward.len();
        let (buffers, residences) = plain.transient(Place::Device);
        let is_diff = |buffer: &Buffer| matches!(buffer, Buffer::Diff(_) | Buffer::Gradient(_));
        let diffs = buffers.iter().zip(&residences).filter(|one| is_diff(one.0));
        // An update belongs to the backward action before it, but for the last.
        let is_backward = |action: &&Action| matches!(action, Action::Backward(_));
        let position = |at: usize| match plain.actions[turn..=at].iter().filter(is_backward).count() {
            count if at + 1 == plain.actions.len() => count,
            count => count - 1,
        };
        let diffs = diffs.map(|(_, one)| (one.bytes.aligned().0, [one.first, one.last].map(position)));
        let step = |action: Action| {
            let (node, pass) = action.pass().expect("it computes");
            let has_kernels = costs.nodes[node][pass].has_kernels();
            let scratch = outline.nodes[node].scratch[pass].aligned().0;
            Step {
                action,
                kernels: has_kernels.then_some((node, pass)),
                ms: costs.pass_ms(action, Bytes::MAX),
                alive: 0,
                workspace: if has_kernels { 0 } else { scratch },
            }
        };
        let steps = |node| [Action::Forward(node), Action::Backward(node), Action::Recompute(node)].map(step);
        let mut problem = Self {
            forward,
            backward,
            diffs: diffs.collect(),
            tensors: vec![],
            units: vec![],
            steps: (0..outline.nodes.len()).map(steps).collect(),
            unlimited_ms: costs.unlimited_ms(outline),
            outline,
            costs,
        };
        problem.find_tensors();
        for unit in &mut problem.units {
            unit.repeat_ms = unit.nodes.iter().map(|&node| problem.steps[node][2].ms).sum();
        }
        problem
    }

    /// Node and pass of an action.
    pub(super) fn action(&self, at: usize) -> (usize, usize) {
        match at.checked_sub(self.turn()) {
            None => (self.forward[at], 0),
            Some(back) => (self.backward[back], 1),
        }
    }

    /// How many actions go forward.
    pub(super) fn turn(&self) -> usize {
        self.forward.len()
    }

    fn find_tensors(&mut self) {
        let outline = self.outline;
        let mut tensor_of: BTreeMap<Buffer, usize> = BTreeMap::new();
        for (at, &node) in self.forward.iter().enumerate() {
            let in_place = outline.nodes[node].tops.iter().map(|&top| outline.values[top].root);
            let root = in_place.filter_map(|root| tensor_of.get(&Buffer::Data(root))).next();
            let unit = root.map_or(self.units.len(), |&tensor| self.tensors[tensor].unit);
            if unit == self.units.len() {
                self.units.push(Unit { repeats: !outline.is_source(node), ..Unit::default() });
            }
            self.units[unit].nodes.push(node);
            let offset = self.units[unit].nodes.len() - 1;
            let tensors =
                uses(outline, at, Action::Forward(node)).filter(|(one, _)| is_tensor(outline, *one));
            for (buffer, how) in tensors {
                let known = tensor_of.get(&buffer).copied();
                let tensor = known.unwrap_or(self.tensors.len());
                // What a repeated pass reads, instead of making it again, is a unit of its own, which has no passes.
                let is_apart = buffer == Buffer::Saved(node) && outline.nodes[node].repeats_from_saved;
                if known.is_none() {
                    tensor_of.insert(buffer, tensor);
                    self.units.extend(is_apart.then(Unit::default));
                    let unit = if is_apart { self.units.len() - 1 } else { unit };
                    self.units[unit].tensors.push(tensor);
                    self.tensors.push(Tensor {
                        buffer,
                        bytes: outline.size(buffer).aligned().0,
                        unit,
                        offset,
                        last_change: offset,
                        made: at,
                        changed: at,
                        used: at,
                        back: None,
                        stays: false,
                        leaves: !is_apart,
                    });
                }
                let there = &mut self.tensors[tensor];
                there.used = at;
                if how != Use::Read {
                    (there.changed, there.last_change) = (at, offset);
                }
                if there.unit != unit && !is_apart {
                    let inputs = &mut self.units[unit].inputs;
                    inputs.retain(|&(input, _)| input != tensor);
                    inputs.push((tensor, offset));
                    // Those that read what is made later than themselves are left alone.
                    self.units[unit].repeats &= self.tensors[tensor].unit < unit;
                }
            }
        }
        // By its part of memory, whatever a copy takes: in the smallest budget only bytes count.
        let largest = self.tensors.iter().map(|tensor| tensor.bytes).max().unwrap_or(0);
        let least = if self.costs.host > Bytes::ZERO { largest / SMALL } else { u64::MAX };
        self.tensors.iter_mut().for_each(|tensor| tensor.leaves &= tensor.bytes >= least);
        for (at, &node) in self.backward.iter().enumerate() {
            for (buffer, _) in uses(outline, at, Action::Backward(node)) {
                if let Some(&tensor) = tensor_of.get(&buffer) {
                    self.tensors[tensor].back.get_or_insert([at, at])[1] = at;
                }
            }
        }
        for value in outline.values.iter().filter(|value| value.output) {
            if let Some(&tensor) = tensor_of.get(&Buffer::Data(value.root)) {
                self.tensors[tensor].stays = true;
                self.units[self.tensors[tensor].unit].repeats = false;
            }
        }
    }
}

fn is_tensor(outline: &Outline, buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Data(_) | Buffer::Saved(_)) && outline.size(buffer).0 > 0
}
