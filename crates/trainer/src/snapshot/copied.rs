//! Weights of one net in another: copied by the names of layers, as Caffe does.

use super::modules::{Module, blue_first, fields, modules, turn};
use super::{CLASSES, NamedTensor, Tensors, load_weights, tensors::check};
use crate::net::graph::{Graph, Node};
use crate::{Execution, Net, NetError, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::{borrow::Cow, fmt, path::PathBuf};

/// Files of weights, of which later ones win.
pub struct Weights(Vec<Tensors>);

/// What of some files a net takes, by names of layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopiedWeights {
    /// The files, in order.
    pub files: Vec<CopiedFile>,
    /// The layers with weights of which no file has any: they keep their first values.
    pub initialised: Vec<String>,
}

/// What of a file a net takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopiedFile {
    /// The file.
    pub file: String,
    /// The net's layers that it has weights for.
    pub copied: Vec<String>,
    /// Its layers that the net has not.
    pub skipped: Vec<String>,
    /// The layers whose filters were made for red, green, blue and now read blue, green, red, as the net's images are.
    pub turned: Vec<String>,
}

/// The elements of parameters, by index.
type Values<'a> = BTreeMap<usize, Cow<'a, [u8]>>;

/// What PyTorch does not keep: the factor of running sums, which are means there.
static ONE: [u8; 4] = 1_f32.to_le_bytes();

impl Weights {
    /// The names of the classes that `net` tells apart, in the order of their labels, from the file that its last
    /// layer of outputs comes from; none where the data had none, in files of other programs and of earlier versions, and
    /// where there are more than outputs. `copied` is what it takes of them.
    ///
    /// # Errors
    /// [`NetError::Refused`] for names that cannot be read.
    pub fn class_names(&self, net: &Net, copied: &CopiedWeights) -> Result<Vec<String>> {
        let outputs = |node: &Node| Some((node.spec.name.clone(), node.spec.kind.outputs()?));
        let head = net.graph().nodes.iter().rev().find_map(outputs);
        let Some((head, outputs)) = head else { return Ok(Vec::new()) };
        let file = copied.files.iter().rposition(|file| file.copied.contains(&head));
        let names =
            file.map(|file| self.0[file].json(CLASSES, "its class names are", |_: &Vec<String>| Ok(())));
        Ok(names.transpose()?.flatten().filter(|names| names.len() <= outputs).unwrap_or_default())
    }

    /// The shape of the tensor of this name in the last file that has one.
    pub fn shape(&self, tensor: &str) -> Option<&[usize]> {
        self.0.iter().rev().find_map(|file| file.shape(tensor))
    }

    /// Whether a file has weights for a layer of this name.
    pub fn know(&self, layer: &str) -> bool {
        self.0.iter().flat_map(Tensors::shapes).any(|(name, _)| layer_of(name) == layer)
    }

    /// Reads them.
    ///
    /// # Errors
    /// Those of [`load_weights`].
    pub fn load(files: &[PathBuf]) -> Result<Self> {
        files.iter().map(|file| load_weights(file)).collect::<Result<_, _>>().map(Self)
    }

    /// Those of `tensors`, such as [`Execution::weights`], as if they were a file.
    ///
    /// # Errors
    /// A name is given twice or reserved, or a shape does not match its elements.
    pub fn of(tensors: &[NamedTensor<'_>]) -> Result<Self, NetError> {
        check(tensors)?;
        let mut file = Tensors::foreign("memory".as_ref());
        tensors.iter().for_each(|(name, shape, values)| file.add(name.clone(), shape.clone(), values));
        Ok(Self(vec![file]))
    }

    /// What `net` takes of them.
    ///
    /// # Errors
    /// [`NetError::Refused`] for a layer of one name and two shapes, and for a file of which nothing is taken.
    pub fn copied(&self, net: &Net) -> Result<CopiedWeights> {
        Ok(self.matched(net.graph())?.0)
    }

    /// The values of all parameters of `net`, in their order.
    ///
    /// # Errors
    /// As [`Weights::copied`], and a layer that has none.
    pub fn values(&self, net: &Net) -> Result<Vec<Vec<f32>>> {
        let (report, values) = self.matched(net.graph())?;
        report.complete()?;
        Ok(values.into_values().map(|values| bytemuck::pod_collect_to_vec(&values)).collect())
    }

    fn matched(&self, graph: &Graph) -> Result<(CopiedWeights, Values<'_>)> {
        let initialised = layers(graph).map(|(_, node)| node.spec.name.clone()).collect();
        let (mut report, mut values) = (CopiedWeights { files: Vec::new(), initialised }, Values::new());
        for tensors in &self.0 {
            let rename = |error| format!("{error}; to begin a layer afresh, rename it in the net");
            let of_file = matched(tensors, graph).map_err(|error| NetError::Refused(rename(error)));
            let (file, of_file) = of_file?;
            if file.copied.is_empty() {
                let what =
                    format!("has no weights for any layer of this net, but for {}", some(&file.skipped));
                return Err(NetError::refused(tensors.path(), what));
            }
            report.initialised.retain(|name| !file.copied.contains(name));
            report.files.push(file);
            values.extend(of_file);
        }
        Ok((report, values))
    }
}

impl Execution {
    /// Replaces those parameters of its first net that `weights` have, bit by bit, and says which.
    ///
    /// # Errors
    /// As [`Weights::copied`], and then nothing has changed; a GPU that is lost.
    pub fn load_weights(&mut self, weights: &Weights) -> Result<CopiedWeights> {
        let (report, values) = weights.matched(self.nets()[0].graph())?;
        for (param, values) in values {
            let span = self.layout().nets[0].params[param].data;
            self.fill_param((0, param), span, |out| bytemuck::cast_slice_mut(out).copy_from_slice(&values))?;
        }
        Ok(report)
    }
}

/// The nodes that have parameters.
fn layers(graph: &Graph) -> impl Iterator<Item = (usize, &Node)> {
    graph.nodes.iter().enumerate().filter(|(_, node)| !node.params.is_empty())
}

/// What of a file goes into which parameters.
fn matched<'a>(file: &'a Tensors, graph: &Graph) -> Result<(CopiedFile, Values<'a>)> {
    let (modules, mut used, mut values) = (modules(graph), BTreeSet::new(), Values::new());
    let (colours, refused) = (blue_first(graph), |error: &NetError| NetError::Refused(error.to_string()));
    let [mut copied, mut turned] = [Vec::new(), Vec::new()];
    for (index, node) in layers(graph) {
        let Some((is_pytorch, names)) = names(file, graph, node, &modules[index]) else { continue };
        let turns = is_pytorch && *colours[index].as_ref().map_err(refused)?;
        for (blob, (&param, name)) in node.params.iter().zip(names).enumerate() {
            let shape = graph.params[param].declaration.shape.dims();
            let given = name.as_ref().map_or(Ok(&ONE[..]), |name| file.bytes(name, shape))?;
            let is_filter = turns && blob == 0;
            values.insert(param, if is_filter { turn(given, shape).into() } else { given.into() });
            used.extend(name);
        }
        copied.push(node.spec.name.clone());
        turned.extend(turns.then(|| node.spec.name.clone()));
    }
    let skipped = skipped(file, &used)?;
    Ok((CopiedFile { file: file.path().display().to_string(), copied, skipped, turned }, values))
}

/// What the parameters of `node` are called in a file, if it has any of them, and whether that is PyTorch's way.
fn names(file: &Tensors, graph: &Graph, node: &Node, module: &Module) -> Option<(bool, Vec<Option<String>>)> {
    let ours = node.params.iter().map(|&param| Some(graph.params[param].name.clone()));
    // What layers share stands under each of them in a caffemodel, and in our files under the first.
    let of_caffe = (0..node.params.len()).map(|blob| Some(format!("{}.{blob}", node.spec.name)));
    let mut namings: Vec<(bool, Vec<Option<String>>)> = vec![
        (false, of_caffe.collect()),
        (false, ours.collect()),
        (true, fields(node, &module.own)),
        (true, fields(node, &of_old_densenet(&module.own))),
    ];
    let by_place = fields(node, &module.place);
    // What stands in the same place of a chain is another layer if it has another size.
    let has_other_size = |(name, &param): (&Option<String>, &usize)| {
        let given = name.as_ref().and_then(|name| file.shape(name));
        let count = graph.params[param].declaration.shape.count();
        given.is_some_and(|shape| shape.iter().product::<usize>() != count)
    };
    if !by_place.iter().zip(&node.params).any(has_other_size) {
        namings.push((true, by_place));
    }
    let found = |(_, names): &(bool, Vec<Option<String>>)| {
        names.iter().flatten().filter(|name| file.shape(name).is_some()).count()
    };
    namings.into_iter().rev().max_by_key(found).filter(|naming| found(naming) > 0)
}

/// The names of torchvision's first DenseNets, which its own reader still takes: `denselayer1.norm.1`, today `norm1`.
fn of_old_densenet(module: &str) -> String {
    match module.char_indices().next_back() {
        Some((at, '1' | '2')) => format!("{}.{}", &module[..at], &module[at..]),
        _ => module.to_owned(),
    }
}

/// The layers of a file of which nothing was used; an error if that is so of a part of a layer.
fn skipped(file: &Tensors, used: &BTreeSet<String>) -> Result<Vec<String>> {
    let taken: BTreeSet<&str> = used.iter().map(|name| layer_of(name)).collect();
    let mut skipped = BTreeSet::new();
    for (name, shape) in file.shapes().filter(|(name, _)| !used.contains(*name)) {
        let of = layer_of(name);
        if taken.contains(of) {
            let what =
                format!("it has a tensor {name} of shape {shape:?}, which layer {of} of this net has not");
            return Err(file.other_net(what));
        }
        skipped.insert(of.to_owned());
    }
    Ok(skipped.into_iter().collect())
}

/// The layer, or the module, that a tensor belongs to.
fn layer_of(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or(tensor, |(layer, _)| layer)
}

/// The first few of `names`.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

impl CopiedWeights {
    /// Makes sure that no layer is left without weights.
    ///
    /// # Errors
    /// [`NetError::Refused`], with the names of those that are.
    pub fn complete(&self) -> Result<()> {
        if self.initialised.is_empty() {
            return Ok(());
        }
        let files: Vec<&str> = self.files.iter().map(|file| file.file.as_str()).collect();
        let (files, missing) = (files.join(", "), some(&self.initialised));
        Err(NetError::Refused(format!("all layers need weights, and {files} has none for {missing}")))
    }
}

impl fmt::Display for CopiedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, CopiedFile { file, copied, skipped, turned }) in self.files.iter().enumerate() {
            let new_line = if index > 0 { "\n" } else { "" };
            write!(f, "{new_line}  weights     {file}: copied {}", some(copied))?;
            if !skipped.is_empty() {
                write!(f, "; only in the file: {}", some(skipped))?;
            }
            if !turned.is_empty() {
                write!(f, "; turned from red, green, blue to blue, green, red: {}", some(turned))?;
            }
        }
        if !self.initialised.is_empty() {
            write!(f, "\n              only in the net, and initialised: {}", some(&self.initialised))?;
        }
        Ok(())
    }
}
