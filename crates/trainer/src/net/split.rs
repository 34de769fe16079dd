//! Bottoms that stand twice in one layer.

use crate::spec::{LayerKind, LayerSpec, NetSpec};
use std::collections::HashSet;

/// The layers of `spec`, where no layer reads a blob twice: each further mention of a bottom is a copy of it, made by a
/// `Split` before the layer. Caffe does the same, for every blob with several readers; here only these need it, since
/// the gradients of several layers add up in one place, but one layer gives each of its bottoms a gradient of its own.
pub(super) fn separate(spec: &NetSpec) -> NetSpec {
    let mut layers = Vec::with_capacity(spec.layers.len());
    for layer in &spec.layers {
        let mut layer = layer.clone();
        layers.extend(copies(&mut layer));
        layers.push(layer);
    }
    NetSpec { layers, ..spec.clone() }
}

/// The layers that copy what `layer` reads again, now under names of their own.
fn copies(layer: &mut LayerSpec) -> Vec<LayerSpec> {
    let (mut copies, mut before) = (Vec::new(), HashSet::new());
    for index in 0..layer.bottoms.len() {
        let bottom = &layer.bottoms[index];
        if !before.insert(bottom.clone()) {
            let copy = format!("{bottom}_{}_{index}_split", layer.name);
            let blob = std::mem::replace(&mut layer.bottoms[index], copy.clone());
            let [name, top] = [copy.clone(), copy];
            let blobs = [vec![blob], vec![top]];
            copies.push(LayerSpec::new(name, LayerKind::Split, blobs, layer.location.clone()));
        }
    }
    copies
}
