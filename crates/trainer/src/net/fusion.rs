//! ReLUs that run inside the layer before them, which saves passes over memory.

use super::graph::Graph;
use crate::layers::{Absorbed, Layer, Need};

/// Lets every layer absorb the ReLU that follows it in place, as far as it can; says how many ReLUs were absorbed.
///
/// An in-place ReLU is its input's only reader, so fusing it changes no observable value. A ReLU
/// whose backward pass is absorbed need not see its top again.
pub(super) fn absorb_relus(graph: &mut Graph, layers: &mut [Box<dyn Layer>]) -> usize {
    let mut count = 0;
    for index in 0..layers.len() {
        let node = &mut graph.nodes[index];
        if !node.in_place || layers[index].as_relu().is_none() {
            continue;
        }
        let absorbed = layers[graph.values[node.bottoms[0]].producer].absorb_relu();
        if absorbed == Absorbed::Both {
            node.declaration.needs_top = Need::Nothing;
        }
        count += usize::from(absorbed != Absorbed::No);
        layers[index].as_relu().expect("as above").absorbed(absorbed);
    }
    count
}
