//! ReLUs that run inside the layer before them, which saves passes over memory.

use super::graph::Graph;
use crate::layers::{Absorbed, Need};

/// Lets every layer absorb the ReLU that follows it in place, as far as it can.
///
/// An in-place ReLU is its input's only reader, so fusing it changes no observable value. A ReLU
/// whose backward pass is absorbed need not see its top again.
pub(super) fn absorb_relus(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        if !node.in_place || !node.declaration.rectifies {
            continue;
        }
        let before = graph.values[node.bottoms[0]].producer;
        let absorbed = graph.nodes[before].declaration.absorbs;
        graph.nodes[before].rectify = absorbed != Absorbed::No;
        graph.nodes[index].absorbed = absorbed;
        if absorbed == Absorbed::Both {
            graph.nodes[index].declaration.needs_top = Need::Nothing;
        }
    }
}
