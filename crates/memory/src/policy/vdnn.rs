//! vDNN as published (M. Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural
//! Network Design", MICRO 2016, §III): offloading beside the layer that uses a feature map last, prefetching one
//! layer's inputs beside another's backward pass, and nothing computed again. A baseline.
//!
//! The original has one stream for memory. Ours has one in each direction, which comes to the same: copies out all end
//! with their layers forward, and those back begin after.

use super::costs::Costs;
use super::plan::{BelowFloor, Fitting, MemoryPlan};
use super::problem::{Problem, Tensor};
use crate::action::{Action, Buffer};
use crate::outline::Outline;
use planner::Bytes;

/// Whose inputs are offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloading {
    /// Nobody's.
    Nothing,
    /// Those of convolutions: vDNN_conv.
    Convolutions,
    /// Those of every layer that extracts features: vDNN_all.
    All,
}

/// Which algorithms convolutions run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithms {
    /// Those with the least workspace: (m).
    LeastMemory,
    /// The fastest: (p).
    Fastest,
    /// Each the fastest for which there is room when it runs.
    Greedy,
}

/// What vDNN_dyn tries, after it has seen that offloading everything with the least workspace can be trained at all.
const TRIALS: [(Offloading, Algorithms); 5] = [
    (Offloading::Nothing, Algorithms::Fastest),
    (Offloading::Convolutions, Algorithms::Fastest),
    (Offloading::All, Algorithms::Fastest),
    (Offloading::Convolutions, Algorithms::Greedy),
    (Offloading::All, Algorithms::Greedy),
];

/// The plan of a static policy of vDNN within `budget` bytes: only inputs of nodes before `classifier` leave.
///
/// # Errors
/// [`BelowFloor`]: it does not fit.
pub fn vdnn(
    outline: &Outline,
    costs: &Costs,
    budget: Bytes,
    classifier: usize,
    (offloading, algorithms): (Offloading, Algorithms),
) -> Result<MemoryPlan, BelowFloor> {
    let problem = Problem::new(outline, costs);
    let fitting = Fitting::new(outline, costs, actions(&problem, (classifier, offloading)));
    let limit = match algorithms {
        Algorithms::Greedy => return fitting.within(budget),
        Algorithms::Fastest => Bytes::MAX,
        Algorithms::LeastMemory => Bytes::ZERO,
    };
    fitting.plan(costs.workspaces(|_, _| limit), budget)
}

/// vDNN_dyn: the first that fits, in the order of the paper, where `plan` is told what to try and says what fits.
///
/// # Errors
/// What `plan` says of offloading everything with the least workspace, without which nothing else is tried.
pub fn vdnn_dyn<E>(
    mut plan: impl FnMut(Offloading, Algorithms) -> Result<MemoryPlan, E>,
) -> Result<MemoryPlan, E> {
    let last = plan(Offloading::All, Algorithms::LeastMemory)?;
    let fits = TRIALS.into_iter().find_map(|(offloading, algorithms)| plan(offloading, algorithms).ok());
    Ok(fits.unwrap_or(last))
}

/// Of every layer, in the order of their forward passes, the inputs that it is the last to use and offloads.
fn offloads<'p>(
    problem: &'p Problem<'_>,
    is_convolution: &[bool],
    (classifier, offloading): (usize, Offloading),
) -> Vec<Vec<&'p Tensor>> {
    let mut offloads = vec![Vec::new(); problem.turn()];
    for tensor in problem.tensors.iter().filter(|tensor| tensor.back.is_some() && !tensor.stays) {
        let Buffer::Data(root) = tensor.buffer else { continue };
        // The layers that read it where it is complete; those in place only complete it.
        let reads = |at: usize| {
            let node = &problem.outline.nodes[problem.forward[at]];
            at > tensor.changed && node.bottoms.iter().any(|&id| problem.outline.values[id].root == root)
        };
        let mut readers = (0..problem.turn()).filter(|&at| reads(at) && problem.forward[at] < classifier);
        let is_wanted = match offloading {
            Offloading::Nothing => false,
            Offloading::Convolutions => readers.any(|at| is_convolution[at]),
            Offloading::All => readers.next().is_some(),
        };
        // Whatever the classifier reads stays.
        if is_wanted && problem.forward[tensor.used] < classifier {
            offloads[tensor.used].push(tensor);
        }
    }
    offloads
}

/// The iteration: each copy out begins with the forward pass of the last layer to use what is copied, and the next layer
/// waits for it; each copy back begins with a backward pass, and the next one waits for it.
fn actions(problem: &Problem<'_>, what: (usize, Offloading)) -> Vec<Action> {
    let has_kernels = |&node: &usize| problem.costs.nodes[node][0].has_kernels();
    let is_convolution: Vec<bool> = problem.forward.iter().map(has_kernels).collect();
    let offloads = offloads(problem, &is_convolution, what);
    let (mut actions, (updates, last_update)) = (Vec::new(), problem.outline.updates());
    for (&node, tensors) in problem.forward.iter().zip(&offloads) {
        actions.extend(tensors.iter().map(|tensor| Action::Offload(tensor.buffer)));
        actions.push(Action::Forward(node));
    }
    let mut prefetched: Vec<bool> = offloads.iter().map(Vec::is_empty).collect();
    for (back, &node) in problem.backward.iter().enumerate() {
        let at = problem.forward.iter().position(|&other| other == node).expect("it ran forward");
        // What the windows of all layers before have left out, if this one needs it.
        let needs = |tensor: &&Tensor| tensor.back.is_some_and(|[first, _]| first == back);
        for (tensors, prefetched) in offloads.iter().zip(&mut prefetched) {
            if !*prefetched && tensors.iter().any(needs) {
                *prefetched = true;
                actions.extend(tensors.iter().map(|tensor| Action::Prefetch(tensor.buffer)));
            }
        }
        let next = find_prefetch_layer(at, &is_convolution, &mut prefetched);
        let copied = || next.iter().flat_map(|&id| &offloads[id]).map(|tensor| tensor.buffer);
        actions.extend(copied().map(Action::Prefetch));
        actions.push(Action::Backward(node));
        actions.extend(copied().map(Action::Hold));
        actions.extend(updates[node]);
    }
    actions.extend(last_update);
    actions
}

/// The layer whose inputs are copied back beside the backward pass of layer `at`: the nearest before it whose are away,
/// but none beyond a convolution whose are not. (The algorithm of the paper's figure 10; its `else if` belongs into the
/// loop, as the caption says.)
fn find_prefetch_layer(at: usize, is_convolution: &[bool], prefetched: &mut [bool]) -> Option<usize> {
    for id in (0..at).rev() {
        if !prefetched[id] {
            prefetched[id] = true;
            return Some(id);
        }
        if is_convolution[id] {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers and their flags, from the first: convolution or not, offloaded or not; what is prefetched beside each.
    fn prefetches(layers: &[(bool, bool)]) -> Vec<Option<usize>> {
        let is_convolution: Vec<bool> = layers.iter().map(|layer| layer.0).collect();
        let mut prefetched: Vec<bool> = layers.iter().map(|layer| !layer.1).collect();
        (0..layers.len()).rev().map(|at| find_prefetch_layer(at, &is_convolution, &mut prefetched)).collect()
    }

    #[test]
    fn windows_end_at_convolutions() {
        let (conv, pool) = (true, false);
        // Everything is offloaded: each layer fetches for the one before it.
        assert_eq!(prefetches(&[(conv, true), (pool, true), (conv, true)]), [Some(1), Some(0), None]);
        // Only convolutions' inputs are: the window goes past the pool.
        assert_eq!(prefetches(&[(conv, true), (pool, false), (conv, true)]), [Some(0), None, None]);
        // A convolution whose input has stayed ends the window, and what lies before it comes later.
        let layers = [(conv, true), (conv, false), (pool, false), (pool, true), (pool, false)];
        assert_eq!(prefetches(&layers), [Some(3), None, None, Some(0), None]);
    }
}
