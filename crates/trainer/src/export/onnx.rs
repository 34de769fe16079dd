//! ONNX: a net in the phase TEST as a graph of operators, opset 17, that ONNX Runtime and others run.

use super::{ends, is_copy, is_measure, running_means};
use crate::net::graph::{Graph, Node};
use crate::spec::{Combination, LayerKind, PoolingMethod, PoolingParams, Region};
use crate::{Net, NetError, Result, protobuf::Writer};
use std::collections::{HashMap, HashSet};
use tensor::{PoolGeometry, TensorType};

/// The format, and the set of operators in it.
const VERSIONS: [i64; 2] = [8, 17];
/// Numbers of the types in `TensorProto`.
const FLOAT: i64 = 1;
const INT64: i64 = 7;
/// More than protobuf can hold in one message.
const MOST_BYTES: usize = (1 << 31) - 1;

/// `net` with these `values`, one list for each parameter: from any number of samples to what losses would read.
///
/// # Errors
/// A layer that cannot be exported, with its name and line; more than the 2 GiB of weights that the format holds.
pub fn onnx(net: &Net, values: &[Vec<f32>]) -> Result<Vec<u8>> {
    let mut model = Model::new(net.graph(), values);
    let graph = model.graph;
    for node in &graph.nodes {
        if is_copy(node) {
            let from = model.names[node.bottoms[0]].clone();
            node.tops.iter().for_each(|&top| model.names[top].clone_from(&from));
        } else if !node.bottoms.is_empty() && !node.tops.is_empty() && !is_measure(node) {
            let message =
                || format!("this form of {} cannot be exported to ONNX", node.spec.kind.type_name());
            let mut from = node.bottoms.iter().map(|&bottom| &graph.nodes[graph.values[bottom].producer]);
            let added = model.add(node).filter(|()| !from.any(is_measure));
            added.ok_or_else(|| NetError::layer(&node.spec, message()))?;
        }
    }
    let graph = model.graph(if net.name().is_empty() { "net" } else { net.name() });
    let [version, opset] = VERSIONS;
    let file = Writer::default().number(1, version).bytes(2, "microbatch").bytes(7, graph);
    let file = file.bytes(8, Writer::default().number(2, opset)).0;
    match file.len() {
        0..MOST_BYTES => Ok(file),
        _ => Err(net.error("an ONNX file holds at most 2 GiB")),
    }
}

/// A model under way.
struct Model<'a> {
    graph: &'a Graph,
    values: &'a [Vec<f32>],
    /// What every value is called.
    names: Vec<String>,
    nodes: Vec<Writer>,
    /// Constants, and which parameters with so many ones behind their shapes are among them.
    constants: Vec<Writer>,
    known: HashMap<(usize, usize), String>,
    /// All names.
    taken: HashSet<String>,
}

impl<'a> Model<'a> {
    fn new(graph: &'a Graph, values: &'a [Vec<f32>]) -> Self {
        let taken = graph.params.iter().map(|param| param.name.clone()).collect();
        let (names, nodes, constants) = (vec![String::new(); graph.values.len()], Vec::new(), Vec::new());
        let mut model = Self { graph, values, names, nodes, constants, known: HashMap::new(), taken };
        // A blob that is written again, in place, has its name only at the end, and never that of a parameter.
        for (index, value) in graph.values.iter().enumerate().rev() {
            model.names[index] = model.free(value.name.clone());
        }
        model
    }

    /// A name that nothing else has: this one, or the first of it with a number.
    fn free(&mut self, name: String) -> String {
        let numbered = (2..).map(|number| format!("{name}#{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names.find(|name| self.taken.insert(name.clone())).expect("there are numbers enough")
    }

    fn shape(&self, value: usize) -> &'a TensorType {
        &self.graph.values[value].shape
    }

    /// Adds the operators of a layer; `None` if there are none that do the same.
    fn add(&mut self, node: &Node) -> Option<()> {
        let bottoms: Vec<String> = node.bottoms.iter().map(|&bottom| self.names[bottom].clone()).collect();
        let (x, top) = (bottoms[0].clone(), self.names[node.tops[0]].clone());
        let shape = self.shape(node.bottoms[0]);
        match &node.spec.kind {
            LayerKind::InnerProduct(p) if shape.axis(p.axis.into()) == Some(1) => {
                let rows = self.free(format!("{top}/rows"));
                self.op("Flatten", [x], &rows, [int("axis", 1)]);
                let inputs = std::iter::once(rows).chain(self.parameters(&node.params, 0));
                self.op("Gemm", inputs, &top, [int("transB", (!p.transpose).into())]);
            }
            LayerKind::BatchNorm(p) if p.use_global_stats != Some(false) => {
                let inputs = [x].into_iter().chain(self.batch_norm(node));
                self.op("BatchNormalization", inputs, &top, [float("epsilon", p.eps)]);
            }
            LayerKind::Scale(p) if node.bottoms.len() == 1 => {
                let behind = shape.rank() - shape.axis(p.axis.into())? - self.param(node.params[0]).rank();
                let mut params = self.parameters(&node.params, behind).into_iter();
                let scaled = if params.len() > 1 { self.free(format!("{top}/scaled")) } else { top.clone() };
                self.op("Mul", [x].into_iter().chain(params.next()), &scaled, []);
                params.for_each(|bias| self.op("Add", [scaled.clone(), bias], &top, []));
            }
            LayerKind::PReLU(_) => {
                // A slope for each channel, or one for all.
                let ones = if self.param(node.params[0]).count() == 1 { 0 } else { shape.rank() - 2 };
                let inputs = [x].into_iter().chain(self.parameters(&node.params, ones));
                self.op("PRelu", inputs, &top, []);
            }
            LayerKind::Eltwise(p) => {
                let name = match &p.operation {
                    Combination::Sum(coefficients) if coefficients.iter().any(|&one| one != 1.0) => None,
                    Combination::Sum(_) => Some("Add"),
                    Combination::Product => Some("Mul"),
                    Combination::Maximum => Some("Max"),
                }?;
                // One operator of two inputs after the other.
                (1..bottoms.len()).fold(x, |before, index| {
                    let is_last = index + 1 == bottoms.len();
                    let result = if is_last { top.clone() } else { self.free(format!("{top}/{index}")) };
                    self.op(name, [before, bottoms[index].clone()], &result, []);
                    result
                });
            }
            LayerKind::Flatten(_) | LayerKind::Reshape(_) => {
                let to = self.shape(node.tops[0]).dims();
                // 0 stands for as many samples as there are.
                let dims: Vec<i64> =
                    std::iter::once(0).chain(to.iter().skip(1).map(|&dim| dim as i64)).collect();
                (to.first() == shape.dims().first()).then_some(())?;
                let constant = self.free(format!("{top}/shape"));
                self.constant(&constant, &[dims.len()], INT64, bytemuck::cast_slice(&dims));
                self.op("Reshape", [x, constant], &top, []);
            }
            kind => {
                let (name, attributes) = operator(kind, shape)?;
                let inputs = bottoms.into_iter().chain(self.parameters(&node.params, 0));
                self.op(name, inputs, &top, attributes);
            }
        }
        Some(())
    }

    /// The constants of a batch norm: scale, bias, mean and variance.
    fn batch_norm(&mut self, node: &Node) -> [String; 4] {
        let [mean, variance] = running_means(node, self.values).expect("a batch norm has running statistics");
        let affine = |blob: usize, default: f32| match node.params.get(blob) {
            Some(&param) => self.values[param].clone(),
            None => vec![default; mean.len()],
        };
        let (scale, bias) = (affine(3, 1.0), affine(4, 0.0));
        [("scale", scale), ("bias", bias), ("mean", mean), ("variance", variance)].map(|(name, values)| {
            let name = self.free(format!("{}.{name}", node.spec.name));
            self.constant(&name, &[values.len()], FLOAT, bytemuck::cast_slice(&values));
            name
        })
    }

    fn param(&self, param: usize) -> &'a TensorType {
        &self.graph.params[param].declaration.shape
    }

    /// The names of parameters, which become constants, with so many ones behind their shapes.
    fn parameters(&mut self, params: &[usize], ones: usize) -> Vec<String> {
        let named = |&param: &usize| {
            if let Some(name) = self.known.get(&(param, ones)) {
                return name.clone();
            }
            let own = self.graph.params[param].name.clone();
            let name = if ones == 0 { own } else { self.free(own + &"/1".repeat(ones)) };
            let shape = [self.param(param).dims(), &vec![1; ones]].concat();
            self.constant(&name, &shape, FLOAT, bytemuck::cast_slice(&self.values[param]));
            self.known.insert((param, ones), name.clone());
            name
        };
        params.iter().map(named).collect()
    }

    fn constant(&mut self, name: &str, shape: &[usize], element: i64, bytes: &[u8]) {
        let dims = shape.iter().fold(Writer::default(), |tensor, &dim| tensor.number(1, dim as i64));
        self.constants.push(dims.number(2, element).bytes(8, name).bytes(9, bytes));
    }

    fn op(
        &mut self,
        operator: &str,
        inputs: impl IntoIterator<Item = String>,
        output: &str,
        attributes: impl IntoIterator<Item = Writer>,
    ) {
        let node = Writer::default().each(1, inputs).bytes(2, output).bytes(3, output).bytes(4, operator);
        self.nodes.push(node.each(5, attributes));
    }

    /// The `GraphProto`.
    fn graph(self, name: &str) -> Writer {
        let value = |value: usize| {
            let elements = |dims: Writer, (axis, &dim): (usize, &usize)| match axis {
                0 => dims.bytes(1, Writer::default().bytes(2, "N")),
                _ => dims.bytes(1, Writer::default().number(1, dim as i64)),
            };
            let dims = self.shape(value).dims().iter().enumerate().fold(Writer::default(), elements);
            let tensor = Writer::default().number(1, FLOAT).bytes(2, dims);
            Writer::default().bytes(1, &self.names[value]).bytes(2, Writer::default().bytes(1, tensor))
        };
        let [inputs, outputs] = ends(self.graph);
        let graph = Writer::default().each(1, &self.nodes).bytes(2, name).each(5, &self.constants);
        graph.each(11, inputs.into_iter().map(value)).each(12, outputs.into_iter().map(value))
    }
}

/// An attribute of an operator; a whole number is one, too, and so are several.
fn float(name: &str, value: f32) -> Writer {
    Writer::default().bytes(1, name).float(2, value).number(20, 1)
}

fn int(name: &str, value: i64) -> Writer {
    Writer::default().bytes(1, name).number(3, value).number(20, 2)
}

fn ints(name: &str, values: &[usize]) -> Writer {
    let named = Writer::default().bytes(1, name);
    values.iter().fold(named, |attribute, &value| attribute.number(8, value as i64)).number(20, 7)
}

/// An operator and its attributes.
type Operator = (&'static str, Vec<Writer>);

/// The operator over bottoms, of which the first has the shape `x`, and parameters that is what a layer does.
fn operator(kind: &LayerKind, x: &TensorType) -> Option<Operator> {
    Some(match kind {
        LayerKind::Convolution(p) => {
            let window = [ints("kernel_shape", &p.kernel), ints("strides", &p.stride)];
            let place = [ints("pads", &[p.pad; 2].concat()), ints("dilations", &p.dilation)];
            let group = int("group", p.group as i64);
            ("Conv", window.into_iter().chain(place).chain([group]).collect())
        }
        LayerKind::ReLU(p) if p.negative_slope == 0.0 => ("Relu", vec![]),
        LayerKind::ReLU(p) => ("LeakyRelu", vec![float("alpha", p.negative_slope)]),
        LayerKind::ELU(p) => ("Elu", vec![float("alpha", p.alpha)]),
        LayerKind::Sigmoid(_) => ("Sigmoid", vec![]),
        LayerKind::TanH(_) => ("Tanh", vec![]),
        LayerKind::Softmax(p) => ("Softmax", vec![int("axis", p.axis.into())]),
        LayerKind::Concat(p) => ("Concat", vec![int("axis", p.axis.into())]),
        LayerKind::LRN(p) if p.norm_region == Region::AcrossChannels => {
            let size = int("size", p.local_size as i64);
            ("LRN", vec![size, float("alpha", p.alpha), float("beta", p.beta), float("bias", p.k)])
        }
        LayerKind::Pooling(p) => return pooling(p, x),
        _ => return None,
    })
}

/// Windows are given by paddings that make exactly as many of them as here: readers differ in how they round up. `None`
/// for averages over windows that hang over a padded edge, which each reader divides by another number.
fn pooling(params: &PoolingParams, x: &TensorType) -> Option<Operator> {
    let is_average = params.method == PoolingMethod::Average;
    let g = params.geometry(x.dims().try_into().ok()?);
    let PoolGeometry { h, w, window, pad, stride, .. } = g;
    let behind = |axis: usize, size: usize, windows: usize| {
        ((windows - 1) * stride[axis] + window[axis]).saturating_sub(size + pad[axis])
    };
    let end = [behind(0, h, g.out_h()), behind(1, w, g.out_w())];
    let hangs_over = (0..2).any(|axis| end[axis] > pad[axis]);
    if is_average && hangs_over && pad != [0; 2] {
        return None;
    }
    let sizes = [ints("kernel_shape", &window), ints("strides", &stride), ints("pads", &[pad, end].concat())];
    // A maximum ignores padding. An average counts it here, but not what lies behind it.
    let count = is_average.then(|| int("count_include_pad", (!hangs_over).into()));
    Some((if is_average { "AveragePool" } else { "MaxPool" }, sizes.into_iter().chain(count).collect()))
}
