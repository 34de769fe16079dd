//! Nets: read, built, planned and laid out, and run if they are small.

use crate::convolution::{MOST_ELEMENTS, MOST_FLOPS, device};
use crate::harness::{Accepted, Input, Random, Verdict, fuzz};
use crate::mutate::{Corpus, below, extent, extreme, one_in, pick};
use microbatch::cudnn_layers::conv::{candidates, geometry};
use microbatch::planner::{
    BatchSizePolicy, Bytes, Kernel, Measurement, PlanOptions, Profiler, ProfilerError, Request,
    WorkspacePolicy,
};
use microbatch::trainer::layers::{BuildOptions, SyntheticData};
use microbatch::trainer::planning::{Planning, header};
use microbatch::trainer::spec::{NetSpec, Phase};
use microbatch::trainer::{Net, NetRun, prototxt};
use microbatch::{memory::Room, tensor::Device, trainer::net::RunLayout, trainer::time::time};
use rand::RngExt;
use std::{fmt::Write, path::Path};

/// The notation's rarer forms.
const NOTATION: &str = "# a net\nname: \"n\\x41\\101\" 'et'; input: 'data', input_dim: [0x2, 03, 4, 5]
layer < name: 'c' type: 'Convolution' bottom: 'data' top: 'c' param { lr_mult: 1.5e0f } param: { lr_mult: -.0 }
  convolution_param < num_output: 2 kernel_size: [2, 3] pad_h: 1 pad_w: 0 engine: CAFFE > >\n";

const MODELS: [&str; 5] = [
    NOTATION,
    include_str!("../../models/lenet/net.prototxt"),
    include_str!("../../models/cifar10_quick/net.prototxt"),
    include_str!("../../models/caffe_alexnet/net.prototxt"),
    include_str!("../../models/resnet18/net.prototxt"),
];

/// What most inputs are allowed: any more is not run.
const MOST_BYTES: u64 = 64 << 20;

/// Layer types with fields of theirs; what stands behind a field is drawn.
const LAYERS: [(&str, &str, Fields); 20] = [
    ("Convolution", "convolution_param", &CONVOLUTION),
    ("Convolution", "convolution_param", &CONVOLUTION),
    ("Convolution", "convolution_param", &CONVOLUTION),
    ("Pooling", "pooling_param", &POOLING),
    ("Pooling", "pooling_param", &POOLING),
    ("InnerProduct", "inner_product_param", &[("axis", Field::Axis), ("transpose", Field::Switch)]),
    ("ReLU", "relu_param", &[("negative_slope", Field::Real)]),
    ("PReLU", "prelu_param", &[("channel_shared", Field::Switch), ("filler", Field::Filler)]),
    ("ELU", "elu_param", &[("alpha", Field::Real)]),
    ("Sigmoid", "sigmoid_param", &[]),
    ("TanH", "tanh_param", &[]),
    ("Power", "power_param", &[("power", Field::Real), ("scale", Field::Real), ("shift", Field::Real)]),
    ("Slice", "slice_param", &[("axis", Field::Axis), ("slice_point", Field::Extent)]),
    (
        "LRN",
        "lrn_param",
        &[
            ("local_size", Field::Extent),
            ("alpha", Field::Real),
            ("beta", Field::Real),
            ("k", Field::Real),
            ("norm_region", Field::Word(&["ACROSS_CHANNELS", "WITHIN_CHANNEL"])),
        ],
    ),
    (
        "BatchNorm",
        "batch_norm_param",
        &[
            ("use_global_stats", Field::Switch),
            ("moving_average_fraction", Field::Real),
            ("eps", Field::Real),
            ("scale_bias", Field::Switch),
        ],
    ),
    (
        "Scale",
        "scale_param",
        &[("axis", Field::Axis), ("num_axes", Field::Axis), ("bias_term", Field::Switch)],
    ),
    ("Dropout", "dropout_param", &[("dropout_ratio", Field::Real)]),
    ("Softmax", "softmax_param", &[("axis", Field::Axis)]),
    ("Flatten", "flatten_param", &[("axis", Field::Axis), ("end_axis", Field::Axis)]),
    ("Reshape", "reshape_param", &[("axis", Field::Axis), ("num_axes", Field::Axis), ("shape", Field::Dims)]),
];

const CONVOLUTION: [(&str, Field); 9] = [
    ("pad", Field::Extent),
    ("stride", Field::Extent),
    ("dilation", Field::Extent),
    ("pad_h", Field::Extent),
    ("group", Field::Word(&["1", "2", "3"])),
    ("stride_h: 1 stride_w", Field::Extent),
    ("bias_term", Field::Switch),
    ("weight_filler", Field::Filler),
    ("bias_filler", Field::Filler),
];

const POOLING: [(&str, Field); 6] = [
    ("pool", Field::Word(&["MAX", "AVE"])),
    ("pad", Field::Extent),
    ("stride", Field::Extent),
    ("stride_h: 1 stride_w", Field::Extent),
    ("global_pooling", Field::Switch),
    ("round_mode", Field::Word(&["CEIL", "FLOOR"])),
];

/// Names, and what stands behind them.
type Fields = &'static [(&'static str, Field)];

#[derive(Clone, Copy)]
enum Field {
    Extent,
    Axis,
    Real,
    Switch,
    Word(&'static [&'static str]),
    Filler,
    Dims,
}

impl Field {
    fn value(self, random: &mut Random) -> String {
        match self {
            Field::Extent => format!(": {}", extent(random)),
            Field::Axis if one_in(random, 10) => format!(": {}", extreme(random)),
            Field::Axis => format!(": {}", random.random_range(-4..5)),
            Field::Real if one_in(random, 3) => format!(": {}", extreme(random)),
            Field::Real => format!(": {}", random.random_range(0.0..1.0f32)),
            Field::Switch => format!(": {}", one_in(random, 2)),
            Field::Word(words) => format!(": {}", pick(random, words)),
            Field::Filler => {
                let kind = pick(random, &["constant", "uniform", "gaussian", "xavier", "msra"]);
                format!(" {{ type: '{kind}' }}")
            }
            Field::Dims => {
                let dims =
                    pick(random, &["0", "-1", "dim: 0 dim: -1", "dim: 0 dim: 1 dim: -1 dim: 2", "dim: -1"]);
                format!(" {{ dim: {} }}", dims.trim_start_matches("dim: "))
            }
        }
    }
}

/// A small net, some of whose numbers are large.
pub(crate) fn net(random: &mut Random) -> String {
    let [n, c] = [1 + below(random, 4), 1 + below(random, 4)];
    let [h, w] =
        [0; 2].map(|_| if one_in(random, 20) { extent(random) } else { below(random, 12).to_string() });
    let mut text = format!(
        "name: 'net'\nlayer {{ name: 'data' type: 'DummyData' top: 'data' top: 'label'\n dummy_data_param {{ \
         shape {{ dim: {n} dim: {c} dim: {h} dim: 1{w} }} shape {{ dim: {n} }}\n data_filler {{ type: 'uniform' }} \
         data_filler {{ value: 1 }} }} }}\n"
    );
    let mut blobs = vec!["data".to_owned()];
    for index in 0..below(random, 5) {
        let blob = layer(&mut text, index, &blobs, random);
        blobs.push(blob);
    }
    let last = blobs.last().expect("there is data");
    let classes = 2 + below(random, 3);
    let _ = write!(
        text,
        "layer {{ name: 'ip' type: 'InnerProduct' bottom: '{last}' top: 'ip'\n inner_product_param {{ num_output: \
         {classes} weight_filler {{ type: 'xavier' }} }} }}\nlayer {{ name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' \
         bottom: 'label' top: 'loss' }}\nlayer {{ name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: \
         'accuracy' accuracy_param {{ top_k: {} }} }}\n",
        1 + below(random, 3)
    );
    text
}

/// Adds a layer that reads one of `blobs`, or two; returns its top.
fn layer(text: &mut String, index: usize, blobs: &[String], random: &mut Random) -> String {
    let bottom = if one_in(random, 5) { pick(random, blobs) } else { &blobs[blobs.len() - 1] };
    if one_in(random, 6) {
        let kind =
            pick(random, &["Eltwise' eltwise_param { operation: PROD } #", "Eltwise", "Concat", "Split"]);
        let both =
            if *kind == "Split" { String::new() } else { format!("bottom: '{}'", pick(random, blobs)) };
        let _ = write!(
            text,
            "layer {{ {both} name: 'l{index}' bottom: '{bottom}' top: 'l{index}' type: '{kind}'\n }}\n"
        );
        return format!("l{index}");
    }
    let (kind, message, fields) = *pick(random, &LAYERS);
    let mut params = match kind {
        "Convolution" => {
            format!("num_output: {} kernel_size: {} ", pick(random, &["1", "2", "4", "6"]), extent(random))
        }
        "InnerProduct" => format!("num_output: {} ", extent(random)),
        "Pooling" => format!("kernel_size: {} ", extent(random)),
        _ => String::new(),
    };
    let often = *pick(random, &[2, 4]);
    for (field, kind) in fields {
        if one_in(random, often) {
            let _ = write!(params, "{field}{} ", kind.value(random));
        }
    }
    let in_place = matches!(kind, "ReLU" | "Dropout" | "BatchNorm" | "Scale") && one_in(random, 2);
    let top = if in_place { bottom.clone() } else { format!("l{index}") };
    let _ = write!(
        text,
        "layer {{ name: 'l{index}' type: '{kind}' bottom: '{bottom}' top: '{top}'\n {message} {{ {params} }} }}\n"
    );
    top
}

/// Says of every algorithm that applies that it takes some time, without running it.
struct Guesses {
    device: Device,
    random: Random,
}

impl Profiler for Guesses {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let candidates = candidates(&self.device, &request.kernel, request.micro_batch)?;
        let asked = candidates.iter().filter(|convolver| request.asks_for(&convolver.facts().name));
        let mut guess_ms = || self.random.random_range(0.01..1.0) * f64::from(request.micro_batch);
        Ok(asked.map(|convolver| convolver.measurement(guess_ms(), 0.0)).collect())
    }
}

/// How a net is built: with made-up images in the place of data.
pub(crate) fn build_options(device: &Device, random: &mut Random) -> BuildOptions {
    let shape = *pick(random, &[None, Some([1, 8, 8]), Some([3, 9, 7])]);
    BuildOptions {
        device: device.clone(),
        seed: 1,
        synthetic: Some(SyntheticData { shape, stand_in: one_in(random, 4) }),
    }
}

/// Whether an iteration of `net` takes no time to speak of.
pub(crate) fn is_small(net: &Net, kernels: &[Kernel]) -> bool {
    let flops =
        kernels.iter().map(|kernel| geometry(&kernel.id.shape, kernel.mini_batch).flops()).sum::<f64>();
    RunLayout::new(&[net], true).bytes() <= MOST_ELEMENTS
        && flops <= MOST_FLOPS
        && kernels.iter().all(|kernel| kernel.mini_batch <= 64)
}

fn options(random: &mut Random) -> PlanOptions {
    PlanOptions {
        batch_size_policy: *pick(random, &BatchSizePolicy::ALL),
        workspace_policy: *pick(random, &WorkspacePolicy::ALL),
        limit: Bytes(extreme(random).parse().unwrap_or(1 << 20)),
        ..PlanOptions::default()
    }
}

/// Builds, plans, lays out and runs.
fn use_up(spec: &NetSpec, input: &mut Input<'_>) -> Verdict {
    let random = &mut input.random;
    let device = device(random);
    let mut net = Net::new(spec, &build_options(&device, random), spec.state.phase == Phase::Train)?;
    let kernels = net.kernels();
    let mut guesses = Guesses { device: device.clone(), random: random.clone() };
    for kernel in &kernels {
        guesses.measure(&Request::all(kernel.id, kernel.mini_batch)).map_err(|error| error.to_string())?;
    }
    let room = Room::new(&[net.outline(true)], 0, &kernels);
    let budget = Bytes(extreme(random).parse().unwrap_or(room.least().0 + 4096));
    for kernel in 0..kernels.len() {
        let limit = room.limit(kernel, budget);
        assert!(room.budget(kernel, limit) <= budget.max(room.least()), "what is promised fits");
    }
    if !is_small(&net, &kernels) {
        return Ok(Accepted::Huge);
    }
    let mut planning = Planning::with_profiler(header(&device), Box::new(guesses));
    let options = options(random);
    planning.complete(&kernels, &options, |_| ())?;
    let plan = planning.plan(&kernels, None, &options)?;
    let run = NetRun::lay_out(vec![net], vec![plan], true)?;
    let bytes = run.memory().arena.0 + run.memory().host.0;
    if bytes > MOST_BYTES {
        return Ok(Accepted::Huge);
    }
    input.foretold = bytes;
    time(run, 1, 1, || ())?;
    Ok(Accepted::Used)
}

/// The error, which must say in which file it is.
pub(crate) fn from_file(error: prototxt::SpecError, file: &str) -> prototxt::SpecError {
    assert!(error.to_string().starts_with(&format!("{file}:")), "{error}");
    error
}

#[test]
fn nets() {
    let corpus = Corpus::new(MODELS);
    let make = |random: &mut Random| match below(random, 8) {
        0 => corpus.text(random),
        1 | 2 => {
            let net = net(random);
            corpus.damage_text(net.into_bytes(), random)
        }
        _ => net(random).into_bytes(),
    };
    fuzz("nets", 3000, make, |input| {
        let phase = *pick(&mut input.random, &[Phase::Train, Phase::Train, Phase::Test]);
        let read = NetSpec::parse(Path::new("net.prototxt"), &input.text());
        let mut spec = read.map_err(|error| from_file(error, "net.prototxt"))?.for_phase(phase);
        if one_in(&mut input.random, 8) {
            spec.set_mini_batch(extreme(&mut input.random).parse().unwrap_or(2).max(1));
        }
        use_up(&spec, input)
    });
}
