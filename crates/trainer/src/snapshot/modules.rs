//! The names that PyTorch's state dicts have for our parameters.
//!
//! A layer is the module of its name, so that a net whose layers are named after the modules of a PyTorch model
//! (`layer1.0.conv1`) takes its weights: torchvision's ResNets, DenseNets and GoogLeNet. In a chain, such as AlexNet
//! and VGG, it may also be `features.N` or `classifier.N`, where torchvision counts the layers of these two parts.

use crate::net::graph::{Graph, Node, Value};
use crate::spec::{LayerKind, LayerSpec};
use crate::{NetError, Result};

/// The names that a layer's module may have.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// As the layer.
    pub(crate) own: String,
    /// By its number in a chain.
    pub(crate) place: String,
}

/// The module of every node. A `Scale` behind a `BatchNorm` that leaves the scaling to it has that layer's.
pub(crate) fn modules(graph: &Graph) -> Vec<Module> {
    let (mut part, mut count) = ("features", 0);
    let mut modules: Vec<Module> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        if part == "features" && matches!(node.spec.kind, LayerKind::InnerProduct(_) | LayerKind::Dropout(_))
        {
            (part, count) = ("classifier", 0);
        }
        let norm = norm_of(graph, node);
        let own = || Module { own: node.spec.name.clone(), place: format!("{part}.{count}") };
        let module = norm.map_or_else(own, |norm| modules[norm].clone());
        let pool = usize::from(node.spec.pool.is_some());
        count += pool + usize::from(norm.is_none() && is_counted(&node.spec.kind));
        modules.push(module);
    }
    modules
}

/// Whether every layer has one before and one behind it, and a module, as in torchvision's AlexNet and VGG; a norm may be
/// a sum.
pub(crate) fn is_chain(graph: &Graph) -> bool {
    let joins = |node: &Node| match node.spec.kind {
        LayerKind::Scale(_) => norm_of(graph, node).is_none(),
        _ => matches!(node.spec.kind, LayerKind::Eltwise(_) | LayerKind::Concat(_)),
    };
    let is_sum = |node: &Node| matches!(node.spec.kind, LayerKind::BatchNorm(_)) && node.bottoms.len() > 1;
    let is_classifier = |node: &Node| matches!(node.spec.kind, LayerKind::InnerProduct(_));
    let is_behind = |&&node: &&usize| !is_measure(&graph.nodes[node]) && !graph.nodes[node].tops.is_empty();
    let forks = |value: &Value| value.consumers.iter().filter(is_behind).count() > 1;
    !graph.nodes.iter().any(|node| joins(node) || is_sum(node))
        && !graph.values.iter().any(forks)
        && graph.nodes.iter().any(is_classifier)
}

/// Whether a layer belongs to training and tests alone.
pub(crate) fn is_measure(node: &Node) -> bool {
    matches!(node.spec.kind, LayerKind::SoftmaxWithLoss(_) | LayerKind::Accuracy(_))
}

/// The names of the parameters of `node` in module `module`, in the order of ours; `None` for what PyTorch does not
/// keep, the factor of running statistics. None at all for a filter that PyTorch would keep transposed.
pub(crate) fn fields(node: &Node, module: &str) -> Vec<Option<String>> {
    let fields = match &node.spec.kind {
        LayerKind::InnerProduct(params) if params.transpose => return Vec::new(),
        LayerKind::BatchNorm(_) => &["running_mean", "running_var", "", "weight", "bias"][..],
        LayerKind::Scale(_) if node.bottoms.len() > 1 => &["bias"], // its factors are a blob
        _ => &["weight", "bias"],
    };
    let name = |field: &&str| (!field.is_empty()).then(|| format!("{module}.{field}"));
    fields.iter().map(name).take(node.params.len()).collect()
}

/// Of every node whether it is a convolution of images that are blue, green, red, where PyTorch has red, green, blue;
/// an error for any other that has parameters and sees such images: only a filter is turned.
pub(crate) fn blue_first(graph: &Graph) -> Vec<Result<bool>> {
    use LayerKind::{Concat, Convolution, Flatten, ImageData, Reshape, Slice};
    // Of values that show these colours, whether they are their channels.
    let mut colours = vec![None; graph.values.len()];
    let of_node = |node: &Node| {
        let is_seen = node.bottoms.iter().any(|&bottom| colours[bottom].is_some());
        let by_channel = node.bottoms.iter().all(|&bottom| colours[bottom] == Some(true));
        match &node.spec.kind {
            ImageData(images) => {
                colours[node.tops[0]] = (images.is_color && !images.transform.is_rgb).then_some(true);
            }
            _ if !is_seen => {}
            Convolution(params) if params.group == 1 && by_channel => return Ok(true),
            kind if node.params.is_empty() => {
                let keeps = !matches!(kind, Concat(_) | Flatten(_) | Reshape(_) | Slice(_));
                node.tops.iter().for_each(|&top| colours[top] = Some(by_channel && keeps));
            }
            kind => {
                let message = format!(
                    "this {} sees images as blue, green, red, and PyTorch's as red, green, blue; only a net that is \
                     trained with `is_rgb: true` in the image_data_param, and means in that order, sees them so",
                    kind.type_name()
                );
                return Err(NetError::layer(&node.spec, message));
            }
        }
        Ok(false)
    };
    graph.nodes.iter().map(of_node).collect()
}

/// The bytes of a filter (K, C, R, S) with its channels in the opposite order.
pub(crate) fn turn(filter: &[u8], shape: &[usize]) -> Vec<u8> {
    let plane = size_of::<f32>() * shape[2..].iter().product::<usize>();
    let planes =
        filter.chunks_exact(plane * shape[1]).flat_map(|channels| channels.chunks_exact(plane).rev());
    planes.flatten().copied().collect()
}

/// The normalisation whose other half `node` is: a factor and a bias for each channel, of all that reads it.
fn norm_of(graph: &Graph, node: &Node) -> Option<usize> {
    let (LayerKind::Scale(_), &[bottom], &[factor, _]) =
        (&node.spec.kind, &node.bottoms[..], &node.params[..])
    else {
        return None;
    };
    let Value { producer: before, consumers, .. } = &graph.values[bottom];
    let Node { spec: LayerSpec { kind, bottoms, pool, .. }, params, .. } = &graph.nodes[*before];
    let is_bare = matches!(kind, LayerKind::BatchNorm(norm) if norm.scale_bias.is_none());
    let dims = |param: usize| graph.params[param].declaration.shape.dims();
    // With a sum or a pooling in it, that lies between them.
    let is_alone = bottoms.len() == 1 && pool.is_none() && consumers.len() == 1;
    (is_bare && is_alone && dims(factor) == dims(params[0])).then_some(*before)
}

/// Whether a layer is a module in a chain.
fn is_counted(kind: &LayerKind) -> bool {
    use LayerKind::*;
    matches!(
        kind,
        BatchNorm(_) | Convolution(_) | Dropout(_) | ELU(_) | InnerProduct(_) | LRN(_) | Pooling(_)
    ) || matches!(kind, PReLU(_) | ReLU(_) | Sigmoid(_) | TanH(_))
}
