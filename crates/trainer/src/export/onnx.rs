//! ONNX: a net in the phase TEST as a graph of operators, opset 17, that ONNX Runtime and others run.

use super::{inputs, is_copy, is_measure, outputs, refused, running_means};
use crate::{
    Net, NetError,
    net::graph::{Graph, Node},
    protobuf::Writer,
    spec::{EltwiseOperation, HeightWidth, LayerKind, PoolingMethod, PoolingParams, PoolingWindow, Region},
};
use tensor::{PoolGeometry, TensorType};

/// The format, and the set of operators in it.
const VERSIONS: [i64; 2] = [8, 17];
/// Numbers of the types in `TensorProto`.
const FLOAT: i64 = 1;
const INT64: i64 = 7;
/// More than protobuf can hold in one message.
const MOST_BYTES: usize = (1 << 31) - 1;

/// `net` with these `values`, one list for each parameter. It reads what the data layer brings, any number of samples, and
/// gives what losses would read.
///
/// # Errors
/// A layer without counterpart in ONNX, with its name and line; more than 2 GiB of weights, which the format does not hold.
pub fn onnx(net: &Net, values: &[Vec<f32>]) -> Result<Vec<u8>, NetError> {
    let mut model = Model::new(net.graph(), values);
    for node in &model.graph.nodes {
        if is_copy(node) {
            let from = model.names[node.bottoms[0]].clone();
            node.tops.iter().for_each(|&top| model.names[top].clone_from(&from));
        } else if !node.bottoms.is_empty() && !is_measure(node) {
            model.add(node).map_err(|message| refused(node, message))?;
        }
    }
    let graph = model.graph(net.name());
    let [version, opset] = VERSIONS;
    let file = Writer::default().number(1, version).bytes(2, "microbatch").bytes(7, graph);
    let file = file.bytes(8, Writer::default().number(2, opset)).finish();
    match file.len() {
        0..MOST_BYTES => Ok(file),
        _ => Err(NetError::Net {
            net: net.name().to_owned(),
            message: "an ONNX file holds at most 2 GiB".to_owned(),
        }),
    }
}

/// An attribute of an operator.
enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
}

/// A model under way.
struct Model<'a> {
    graph: &'a Graph,
    values: &'a [Vec<f32>],
    /// What every value is called.
    names: Vec<String>,
    nodes: Vec<Writer>,
    /// Constants, and which parameters are among them.
    constants: Vec<Writer>,
    known: Vec<bool>,
}

impl<'a> Model<'a> {
    fn new(graph: &'a Graph, values: &'a [Vec<f32>]) -> Self {
        // A blob that is written again, in place, has its name only at the end.
        let name = |(id, value): (usize, &crate::net::graph::Value)| match graph.values[id + 1..]
            .iter()
            .any(|later| later.name == value.name)
        {
            true => format!("{}#{id}", value.name),
            false => value.name.clone(),
        };
        let names = graph.values.iter().enumerate().map(name).collect();
        let (nodes, constants) = (Vec::new(), Vec::new());
        Self { graph, values, names, nodes, constants, known: vec![false; values.len()] }
    }

    fn shape(&self, value: usize) -> &'a TensorType {
        &self.graph.values[value].shape
    }

    /// Adds the operators of a layer.
    fn add(&mut self, node: &Node) -> Result<(), String> {
        use Attribute::{Float, Int, Ints};
        let bottoms: Vec<String> = node.bottoms.iter().map(|&bottom| self.names[bottom].clone()).collect();
        let (x, top) = (bottoms[0].clone(), self.names[node.tops[0]].clone());
        let shape = self.shape(node.bottoms[0]);
        let none = || format!("this form of {} has no counterpart in ONNX", node.type_name);
        match &node.kind {
            LayerKind::Convolution(p) => {
                let attributes = [
                    ("kernel_shape", Ints(pair(p.kernel))),
                    ("strides", Ints(pair(p.stride))),
                    ("pads", Ints(pair(p.pad).repeat(2))),
                    ("dilations", Ints(pair(p.dilation))),
                    ("group", Int(p.group as i64)),
                ];
                let inputs = self.with_params(x, node);
                self.op("Conv", inputs, top, attributes);
            }
            LayerKind::InnerProduct(p) if shape.axis(p.axis.into()) == Some(1) => {
                let rows = format!("{top}/rows");
                self.op("Flatten", [x], rows.clone(), [("axis", Int(1))]);
                let inputs = self.with_params(rows, node);
                self.op("Gemm", inputs, top, [("transB", Int((!p.transpose).into()))]);
            }
            LayerKind::ReLU(p) if p.negative_slope == 0.0 => self.op("Relu", [x], top, []),
            LayerKind::ReLU(p) => self.op("LeakyRelu", [x], top, [("alpha", Float(p.negative_slope))]),
            LayerKind::Softmax(p) => self.op("Softmax", [x], top, [("axis", Int(p.axis.into()))]),
            LayerKind::Concat(p) => self.op("Concat", bottoms, top, [("axis", Int(p.axis.into()))]),
            LayerKind::LRN(p) if p.norm_region == Region::AcrossChannels => {
                let attributes = [
                    ("size", Int(p.local_size as i64)),
                    ("alpha", Float(p.alpha)),
                    ("beta", Float(p.beta)),
                    ("bias", Float(p.k)),
                ];
                self.op("LRN", [x], top, attributes);
            }
            LayerKind::Pooling(p) => {
                let (name, attributes) = pooling(p, shape).ok_or_else(none)?;
                self.op(name, [x], top, attributes);
            }
            LayerKind::BatchNorm(p) if p.use_global_stats != Some(false) => {
                let inputs = self.batch_norm(node, x);
                self.op("BatchNormalization", inputs, top, [("epsilon", Float(p.eps))]);
            }
            LayerKind::Scale(p) => {
                let axis = shape.axis(p.axis.into()).unwrap_or_default();
                let behind = shape.rank() - axis - self.graph.params[node.params[0]].declaration.shape.rank();
                let params: Vec<String> =
                    node.params.iter().map(|&param| self.parameter(param, behind)).collect();
                match params.get(1) {
                    None => self.op("Mul", [x, params[0].clone()], top, []),
                    Some(bias) => {
                        let scaled = format!("{top}/scaled");
                        self.op("Mul", [x, params[0].clone()], scaled.clone(), []);
                        self.op("Add", [scaled, bias.clone()], top, []);
                    }
                }
            }
            LayerKind::Eltwise(p) => match &p.operation {
                EltwiseOperation::Sum { coefficients }
                    if coefficients.iter().any(|&factor| factor != 1.0) =>
                {
                    return Err(none());
                }
                EltwiseOperation::Sum { .. } => self.fold("Add", bottoms, &top),
                EltwiseOperation::Product => self.fold("Mul", bottoms, &top),
                EltwiseOperation::Max => self.fold("Max", bottoms, &top),
            },
            LayerKind::Flatten(_) | LayerKind::Reshape(_) => {
                let to = self.shape(node.tops[0]).dims();
                if to.first() != shape.dims().first() {
                    return Err(none());
                }
                // 0 stands for as many samples as there are.
                let dims: Vec<i64> =
                    std::iter::once(0).chain(to[1..].iter().map(|&dim| dim as i64)).collect();
                let constant = format!("{top}/shape");
                self.constant(&constant, &[dims.len()], INT64, bytemuck::cast_slice(&dims));
                self.op("Reshape", [x, constant], top, []);
            }
            _ => return Err(none()),
        }
        Ok(())
    }

    /// One operator of two inputs after the other.
    fn fold(&mut self, name: &str, bottoms: Vec<String>, top: &str) {
        let last = bottoms.len() - 1;
        let mut bottoms = bottoms.into_iter().enumerate();
        let Some((_, mut sum)) = bottoms.next() else { return };
        for (index, bottom) in bottoms {
            let result = if index == last { top.to_owned() } else { format!("{top}/{index}") };
            self.op(name, [sum, bottom], result.clone(), []);
            sum = result;
        }
    }

    /// `x` and the parameters of `node`.
    fn with_params(&mut self, x: String, node: &Node) -> Vec<String> {
        let params = node.params.iter().map(|&param| self.parameter(param, 0));
        std::iter::once(x).chain(params.collect::<Vec<_>>()).collect()
    }

    /// The inputs of a batch norm: `x`, scale, bias, mean and variance.
    fn batch_norm(&mut self, node: &Node, x: String) -> Vec<String> {
        let [mean, variance] = running_means(node, self.values).expect("a batch norm has running statistics");
        let channels = mean.len();
        let affine = [vec![1.0; channels], vec![0.0; channels]];
        let affine: Vec<String> = match node.params.get(3..5) {
            Some(params) => params.iter().map(|&param| self.parameter(param, 0)).collect(),
            None => self.vectors(node, [("scale", &affine[0]), ("bias", &affine[1])]),
        };
        let statistics = self.vectors(node, [("mean", &mean), ("variance", &variance)]);
        std::iter::once(x).chain(affine).chain(statistics).collect()
    }

    fn vectors(&mut self, node: &Node, vectors: [(&str, &Vec<f32>); 2]) -> Vec<String> {
        let add = |(name, values): (&str, &Vec<f32>)| {
            let name = format!("{}.{name}", node.name);
            self.constant(&name, &[values.len()], FLOAT, bytemuck::cast_slice(values));
            name
        };
        vectors.map(add).into()
    }

    /// The name of a parameter, which becomes a constant, with so many ones behind its shape.
    fn parameter(&mut self, param: usize, ones: usize) -> String {
        let declared = &self.graph.params[param];
        if !std::mem::replace(&mut self.known[param], true) {
            let shape = [declared.declaration.shape.dims(), &vec![1; ones]].concat();
            self.constant(&declared.name, &shape, FLOAT, bytemuck::cast_slice(&self.values[param]));
        }
        declared.name.clone()
    }

    fn constant(&mut self, name: &str, shape: &[usize], element: i64, bytes: &[u8]) {
        let dims = shape.iter().fold(Writer::default(), |tensor, &dim| tensor.number(1, dim as i64));
        self.constants.push(dims.number(2, element).bytes(8, name).bytes(9, bytes));
    }

    fn op<const N: usize>(
        &mut self,
        operator: &str,
        inputs: impl IntoIterator<Item = String>,
        output: String,
        attributes: [(&str, Attribute); N],
    ) {
        let node = Writer::default().each(1, inputs).bytes(2, &output).bytes(3, &output).bytes(4, operator);
        self.nodes.push(node.each(5, attributes.iter().map(attribute)));
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
        let [inputs, outputs] = [inputs(self.graph).collect::<Vec<_>>(), outputs(self.graph).collect()];
        let graph = Writer::default().each(1, &self.nodes).bytes(2, name).each(5, &self.constants);
        graph.each(11, inputs.into_iter().map(value)).each(12, outputs.into_iter().map(value))
    }
}

fn attribute((name, value): &(&str, Attribute)) -> Writer {
    let named = Writer::default().bytes(1, name);
    match value {
        Attribute::Float(value) => named.float(2, *value).number(20, 1),
        Attribute::Int(value) => named.number(3, *value).number(20, 2),
        Attribute::Ints(values) => {
            values.iter().fold(named, |attribute, &value| attribute.number(8, value)).number(20, 7)
        }
    }
}

fn pair(size: HeightWidth) -> Vec<i64> {
    vec![size.h as i64, size.w as i64]
}

/// The operator of a pooling and its attributes. Windows are given by paddings that make exactly as many of them as here: readers
/// differ in how they round up. `None` for averages over windows that hang over a padded edge, which each reader divides by
/// another number.
fn pooling(params: &PoolingParams, x: &TensorType) -> Option<(&'static str, [(&'static str, Attribute); 4])> {
    let is_average = params.method == PoolingMethod::Average;
    let &[n, c, h, w] = x.dims() else { return None };
    let (window, pad, stride) = match params.window {
        PoolingWindow::Global => ([h, w], [0; 2], [1; 2]),
        PoolingWindow::Sliding { kernel, pad, stride } => {
            ([kernel.h, kernel.w], [pad.h, pad.w], [stride.h, stride.w])
        }
    };
    let g = PoolGeometry { n, c, h, w, window, pad, stride, rounding: params.round_mode };
    let behind = |axis: usize, size: usize, windows: usize| {
        ((windows - 1) * stride[axis] + window[axis]).saturating_sub(size + pad[axis])
    };
    let end = [behind(0, h, g.out_h()), behind(1, w, g.out_w())];
    let hangs_over = (0..2).any(|axis| end[axis] > pad[axis]);
    if is_average && hangs_over && pad != [0; 2] {
        return None;
    }
    let ints = |sizes: &[usize]| Attribute::Ints(sizes.iter().map(|&size| size as i64).collect());
    // A maximum ignores padding. An average counts it here, but not what lies behind it.
    let count = match is_average {
        true => ("count_include_pad", Attribute::Int((!hangs_over).into())),
        false => ("ceil_mode", Attribute::Int(0)),
    };
    let pads = [pad, end].concat();
    let attributes =
        [("kernel_shape", ints(&window)), ("strides", ints(&stride)), ("pads", ints(&pads)), count];
    Some((if is_average { "AveragePool" } else { "MaxPool" }, attributes))
}
