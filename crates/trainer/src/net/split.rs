//! Layers that are not in the file: copies of bottoms that stand twice in one layer, and parts of the objective.

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
        let objectives = objectives(&mut layer);
        layers.push(layer);
        layers.extend(objectives);
    }
    NetSpec { layers, ..spec.clone() }
}

/// The layers that add tops of `layer`, which is no loss, to the objective, each in place; its weights go to them.
fn objectives(layer: &mut LayerSpec) -> Vec<LayerSpec> {
    if matches!(layer.kind, LayerKind::SoftmaxWithLoss(_) | LayerKind::Objective) {
        return Vec::new();
    }
    let weights = std::mem::take(&mut layer.loss_weights).into_iter().zip(&layer.tops);
    let objective = |(weight, top): (f32, &String)| {
        let blobs = [vec![top.clone()], vec![top.clone()]];
        let name = format!("{}_{top}_objective", layer.name);
        let objective = LayerSpec::new(name, LayerKind::Objective, blobs, layer.location.clone());
        LayerSpec { loss_weights: vec![weight], ..objective }
    };
    weights.filter(|(weight, _)| *weight != 0.0).map(objective).collect()
}

/// The layers that copy what `layer` reads again, now under names of their own.
fn copies(layer: &mut LayerSpec) -> Vec<LayerSpec> {
    let (mut copies, mut before) = (Vec::new(), HashSet::new());
    for index in 0..layer.bottoms.len() {
        let bottom = &layer.bottoms[index];
        if !before.insert(bottom.clone()) {
            let copy = format!("{bottom}_{}_{index}_split", layer.name);
            let blob = std::mem::replace(&mut layer.bottoms[index], copy.clone());
            let blobs = [vec![blob], vec![copy.clone()]];
            copies.push(LayerSpec::new(copy, LayerKind::Split, blobs, layer.location.clone()));
        }
    }
    copies
}
