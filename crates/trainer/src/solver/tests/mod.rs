//! Whole trainings: the same losses whatever the plan, Caffe's update, going on from a snapshot.

mod cuda;
mod formats;
mod frozen;
mod golden;
mod policies;
mod pytorch;
mod ranks;
mod resume;
mod update;

use super::{Solver, TestOutput, Training};
use crate::NetError;
use crate::spec::{NetSpec, Phase, SolverSpec};
use crate::testing::{Forced, plan_options, quick_profile, root};
use crate::{layers::BuildOptions, net::Net, planning::Planning, run::NetRun, stop::Stop};
use planner::{BatchSizePolicy, Plan, PlanOptions, WorkspacePolicy};
use std::{borrow::Cow, path::Path};
use tensor::{Cpu, Device};

impl Solver {
    /// The values of parameter `name`, as in `conv1.0`; `None` if there is none of that name, or the device is lost.
    fn parameter(&self, name: &str) -> Option<Cow<'_, [f32]>> {
        let (param, spans) = self.running.params().find(|(param, _)| param.name == name)?;
        self.running.read_param(param, spans.data).ok()
    }

    /// The outputs of its first test net.
    fn tested(&mut self) -> Vec<TestOutput> {
        self.test(0, &Stop::default(), |_| ()).unwrap().unwrap()
    }
}

/// The digits that ship with the project, a mini-batch of `batch`.
fn digits(batch: usize) -> String {
    format!(
        "layer {{ name: 'digits' type: 'Data' top: 'data' top: 'label' transform_param {{ scale: 0.00390625 }}
  data_param {{ source: '{}/data/digits' batch_size: {batch} }} }}\n",
        root().display()
    )
}

fn conv(name: &str, bottom: &str, params: &str) -> String {
    format!(
        "layer {{ name: '{name}' type: 'Convolution' bottom: '{bottom}' top: '{name}'
  convolution_param {{ {params} weight_filler {{ type: 'xavier' }} }} }}\n"
    )
}

fn layer(kind: &str, name: &str, bottom: &str, top: &str, fields: &str) -> String {
    format!("layer {{ name: '{name}' type: '{kind}' bottom: '{bottom}' top: '{top}' {fields} }}\n")
}

/// Ten classes, or another number, and the loss.
fn head(bottom: &str, classes: usize) -> String {
    let ip = format!("inner_product_param {{ num_output: {classes} weight_filler {{ type: 'xavier' }} }}");
    let loss = "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";
    format!("{}{loss}", layer("InnerProduct", "ip", bottom, "ip", &ip))
}

/// Two convolutions, of a size at which all kinds of algorithms apply.
fn plain(batch: usize) -> String {
    [
        digits(batch),
        conv("conv1", "data", "num_output: 4 kernel_size: 5 pad: 2"),
        layer("ReLU", "relu1", "conv1", "conv1", ""),
        layer("Pooling", "pool", "conv1", "pool", "pooling_param { kernel_size: 2 stride: 2 }"),
        conv("conv2", "pool", "num_output: 6 kernel_size: 3 pad: 1"),
        layer("ReLU", "relu2", "conv2", "conv2", ""),
        head("conv2", 10),
    ]
    .concat()
}

/// A residual block with batch norm, pooling before and a concatenation behind it.
fn residual(batch: usize) -> String {
    let norm = |name: &str, bottom: &str| {
        layer("BatchNorm", name, bottom, name, "batch_norm_param { scale_bias: true }")
    };
    [
        digits(batch),
        conv("conv1", "data", "num_output: 4 kernel_size: 3 pad: 1 bias_term: false"),
        norm("bn1", "conv1"),
        layer("ReLU", "relu1", "bn1", "bn1", ""),
        layer("Pooling", "pool1", "bn1", "pool1", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }"),
        conv("conv2", "pool1", "num_output: 4 kernel_size: 3 pad: 1 bias_term: false"),
        norm("bn2", "conv2"),
        "layer { name: 'sum' type: 'Eltwise' bottom: 'pool1' bottom: 'bn2' top: 'sum' }\n".to_owned(),
        layer("ReLU", "relu2", "sum", "sum", ""),
        conv("narrow", "sum", "num_output: 2 kernel_size: 1"),
        "layer { name: 'concat' type: 'Concat' bottom: 'sum' bottom: 'narrow' top: 'concat' }\n".to_owned(),
        layer("Pooling", "pool", "concat", "pool", "pooling_param { pool: AVE kernel_size: 3 stride: 3 }"),
        head("pool", 10),
    ]
    .concat()
}

/// The solver of `net`; later `fields` take the place of earlier ones only where they are named anew.
fn solver(net: &str, fields: &str) -> SolverSpec {
    let text = format!("max_iter: 100 random_seed: 3 {fields} net_param {{ name: 'net' {net} }}");
    let spec = SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap();
    assert_eq!(spec.warnings, []);
    spec
}

const SGD: &str = "base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.001";

/// A training that is laid out and has not begun.
struct Prepared {
    training: Training,
    run: NetRun,
}

impl Prepared {
    fn plans(&self) -> &[Plan] {
        &self.run.plans
    }

    fn start(self) -> Result<Solver, NetError> {
        self.training.start(self.run)
    }
}

fn build(spec: SolverSpec, device: &Device) -> Result<(Training, Vec<Net>), NetError> {
    let options = BuildOptions { device: device.clone(), seed: 1, synthetic: None };
    Training::build(spec, &options)
}

/// A training under what is measured to be fastest.
fn measured(spec: SolverSpec, options: &PlanOptions) -> Prepared {
    let device = Device::Cpu(Cpu::new(2));
    let mut planning = Planning::new(&device, quick_profile());
    planned(spec, &device, |net| {
        let kernels = net.kernels();
        planning.complete(&kernels, options, |_| ()).unwrap();
        planning.plan(&kernels, None, options).unwrap()
    })
}

/// A training under a plan that does not depend on measurements.
fn forced(spec: SolverSpec, threads: usize, forced: Forced, plan: &PlanOptions) -> Prepared {
    let device = Device::Cpu(Cpu::new(threads));
    planned(spec, &device, |net| forced.install(net, plan))
}

/// A training whose nets get their plans from `plan`.
fn planned(spec: SolverSpec, device: &Device, plan: impl FnMut(&mut Net) -> Plan) -> Prepared {
    let (training, mut nets) = build(spec, device).unwrap();
    let plans = nets.iter_mut().map(plan).collect();
    Prepared { training, run: NetRun::lay_out(nets, plans, true).unwrap() }
}

/// A training with every convolution undivided and by the algorithm that always applies.
fn start(spec: SolverSpec) -> Solver {
    start_on(&Device::Cpu(Cpu::new(2)), spec)
}

/// The same on `device`: by the first deterministic algorithm.
fn start_on(device: &Device, spec: SolverSpec) -> Solver {
    let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
    planned(spec, device, |net| Forced::IMPLICIT_GEMM.install(net, &plan)).start().unwrap()
}

fn losses(solver: &mut Solver, iterations: usize) -> Vec<f64> {
    (0..iterations).map(|_| solver.step().unwrap().loss).collect()
}

/// All parameters and state.
fn parameters(solver: &Solver) -> Vec<Vec<f32>> {
    let names = solver.net().graph().params.iter().map(|param| param.name.clone());
    names.map(|name| solver.parameter(&name).unwrap().to_vec()).collect()
}

fn assert_near(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_within(found, expected, |_| tolerance, what);
}

/// Each within its own tolerance, relative to what is expected.
fn assert_within(found: &[f64], expected: &[f64], tolerance: impl Fn(usize) -> f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / expected.abs();
        assert!(
            error <= tolerance(index),
            "{what}: loss {index} is {found}, not {expected} (off by {error:.1e})"
        );
    }
}

/// Labels that come from a layer are not known before it runs; those of a data set are looked at before.
const LABELS_OF_A_LAYER: &str = "layer { name: 'same' type: 'Power' bottom: 'label' top: 'label' }";

#[test]
fn a_label_that_is_no_class_is_named_with_layer_and_sample() {
    // The first labels of the digits are 2, 8, 0.
    let net = format!("{}{LABELS_OF_A_LAYER}{}", digits(8), head("data", 5));
    let mut solver = start(solver(&net, SGD));
    let before = parameters(&solver);
    let error = solver.step().unwrap_err().to_string();
    assert_eq!(error, "layer 'loss': the label 8 of sample 1 is none of the classes 0 to 4");
    assert_eq!((solver.iteration(), parameters(&solver)), (0, before));
}

/// Known before anything runs: a training would end when the turn of that sample comes.
#[test]
fn a_set_with_a_label_that_is_no_class_is_refused_at_once() {
    let net = |loss: &str| {
        let text = format!("{}{}", digits(8), head("data", 5));
        assert!(text.contains("type: 'SoftmaxWithLoss'"));
        let text = text.replace("type: 'SoftmaxWithLoss'", &format!("type: 'SoftmaxWithLoss' {loss}"));
        let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap().for_phase(Phase::Train);
        Net::new(&spec, &BuildOptions { device: Device::cpu(), seed: 0, synthetic: None }, true)
    };
    let error = net("").err().unwrap().to_string();
    assert!(error.contains("net.prototxt:") && error.contains(": layer 'loss': "), "{error}");
    let sample = "train-labels-idx1-ubyte.gz (sample 1): label 8 is out of range, the classes are 0 to 4";
    assert!(error.ends_with(sample), "{error}");
    // The first label above 4 that is not ignored is the 7 of sample 3.
    let error = net("loss_param { ignore_label: 8 }").err().unwrap().to_string();
    assert!(error.contains("(sample 3): label 7 is out of range"), "{error}");
}

/// An accuracy compares labels as a loss does, whatever copies and shapes lie between it and the data.
#[test]
fn a_label_that_is_no_class_of_an_accuracy_is_refused_at_once() {
    let between = "layer { name: 'copies' type: 'Split' bottom: 'label' top: 'label1' top: 'label2' }
  layer { name: 'column' type: 'Reshape' bottom: 'label2' top: 'column' reshape_param { shape { dim: 0 dim: 1 } } }";
    for (between, labels) in [("", "label"), (between, "label1"), (between, "column")] {
        let few = layer("InnerProduct", "few", "data", "few", "inner_product_param { num_output: 5 }");
        let accuracy = format!(
            "layer {{ name: 'right' type: 'Accuracy' bottom: 'few' bottom: '{labels}' top: 'right' }}\n"
        );
        let text = [digits(8), head("data", 10), between.to_owned(), few, accuracy].concat();
        let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap().for_phase(Phase::Train);
        let options = BuildOptions { device: Device::cpu(), seed: 0, synthetic: None };
        let error = Net::new(&spec, &options, true).err().expect("labels above 4").to_string();
        assert!(
            error.contains("layer 'right': ") && error.contains("(sample 1): label 8 is out of range"),
            "{error}"
        );
    }
}

#[test]
fn a_loss_that_is_no_number_ends_the_training() {
    let mut solver = start(solver(&plain(8), "base_lr: 1e30 lr_policy: 'fixed'"));
    let error = (0..9).find_map(|_| solver.step().err()).expect("such a rate diverges");
    assert!(matches!(error, NetError::Diverged { iteration: 1.., .. }), "{error}");
}

#[test]
fn nets_whose_shared_parameters_differ_are_refused() {
    let net = |classes| format!("name: 'net' {}{}", digits(8), head("data", classes));
    let text = format!(
        "max_iter: 1 {SGD} test_iter: 1 test_interval: 1 train_net_param {{ {} }} test_net_param {{ {} }}",
        net(10),
        net(12)
    );
    let spec = SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap();
    let Err(error) = build(spec, &Device::Cpu(Cpu::new(2))) else { panic!("it should be refused") };
    assert_eq!(
        error.to_string(),
        "net 'net (TEST)': parameter 'ip.0' has the shape 12 64 (768), but 10 64 (640) in the net that is trained"
    );
}

/// Caffe's test nets take the parameters of the net that is trained, and never fill them.
#[test]
fn what_nets_share_begins_as_the_net_that_is_trained_says() {
    let net = |filler: &str| {
        let head = head("data", 10).replace("weight_filler { type: 'xavier' }", filler);
        format!("name: 'net' {}{head}", digits(8))
    };
    let begun = |tested: &str| {
        let text = format!(
            "max_iter: 1 random_seed: 3 {SGD} test_iter: 1 test_interval: 1 train_net_param {{ {} }} test_net_param {{ {} }}",
            net("weight_filler { type: 'xavier' }"),
            net(tested)
        );
        parameters(&start(SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap()))
    };
    assert_eq!(begun(""), begun("weight_filler { type: 'xavier' }"));
}

/// As in Caffe, whose test nets take the parameters of the layers of the same names.
#[test]
fn a_layer_whose_parameters_another_one_has_first_in_training_is_tested_as_it_is_trained() {
    let shared = "param { name: 'w' } param { name: 'b' }";
    let second = head("data", 10).replace("'InnerProduct'", &format!("'InnerProduct' {shared}"));
    let first = second.replace("'ip'", "'first'").replace("'loss'", "'first_loss'");
    let text = format!(
        "max_iter: 1 {SGD} test_iter: 1 test_interval: 1 train_net_param {{ {0}{first}{second} }} test_net_param {{ {0}{second} }}",
        digits(8)
    );
    let solver = start(SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap());
    let names = |net: &Net| net.graph().params.iter().map(|param| param.name.clone()).collect::<Vec<_>>();
    for net in solver.running.nets() {
        assert_eq!(names(net), ["first.0", "first.1"]);
    }
}

/// Such as one for display: what is judged is the loss all the same.
#[test]
fn a_loss_that_a_layer_reads_is_an_output_and_one_that_leads_to_another_is_refused() {
    let of = |fields: &str| {
        let half = layer("Power", "half", "loss", "half", &format!("power_param {{ scale: 0.5 }} {fields}"));
        let text = format!("{}{}{half}", digits(8), head("data", 10));
        let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap().for_phase(Phase::Train);
        Net::new(&spec, &BuildOptions { device: Device::cpu(), seed: 0, synthetic: None }, true)
    };
    let net = of("").unwrap();
    let outputs: Vec<_> = net.outputs().map(|(id, weight)| (&*net.graph().values[id].name, weight)).collect();
    assert!(net.has_loss());
    assert_eq!(outputs, [("loss", 1.0), ("half", 0.0)]);
    let error = of("loss_weight: 1").err().unwrap().to_string();
    assert!(error.contains("layer 'loss': a layer that leads to a loss reads this one"), "{error}");
}

#[test]
fn only_tops_with_a_weight_are_added_up() {
    let text =
        format!("{}{}", digits(8), head("data", 10)).replace("top: 'loss'", "top: 'loss' top: 'classes'");
    let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap().for_phase(Phase::Train);
    let options = BuildOptions { device: Device::cpu(), seed: 0, synthetic: None };
    let net = Net::new(&spec, &options, true).unwrap();
    let names = |tops: Vec<(usize, f32)>| {
        tops.into_iter().map(|(id, weight)| (&*net.graph().values[id].name, weight)).collect::<Vec<_>>()
    };
    assert_eq!(names(net.outputs().collect()), [("loss", 1.0), ("classes", 0.0)]);
    assert_eq!(names(net.losses().collect()), [("loss", 1.0)]);
}

#[test]
fn what_a_run_was_not_laid_out_for_is_refused() {
    let device = Device::Cpu(Cpu::new(2));
    let (training, mut nets) = build(solver(&plain(8), SGD), &device).unwrap();
    let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
    let plans = nets.iter_mut().map(|net| Forced::IMPLICIT_GEMM.install(net, &plan)).collect();
    let error = training.start(NetRun::lay_out(nets, plans, false).unwrap()).err().unwrap().to_string();
    assert_eq!(error, "net 'net': it cannot be trained, as it is laid out without updates");
    // Built to be tested, and one too few.
    let tested = "test_iter: 1 test_interval: 1 test_initialization: false";
    for (fields, is_trained, fault) in [
        ("", false, "it cannot be trained, as it is not built for training"),
        (tested, true, "it cannot be tested as the solver says, as a net for that is missing"),
    ] {
        let (training, _) = build(solver(&plain(8), &format!("{SGD} {fields}")), &device).unwrap();
        let spec = NetSpec::parse(Path::new("net.prototxt"), &format!("name: 'net' {}", plain(8))).unwrap();
        let options = BuildOptions { device: device.clone(), seed: 1, synthetic: None };
        let mut net = Net::new(&spec.for_phase(Phase::Train), &options, is_trained).unwrap();
        let plans = vec![Forced::IMPLICIT_GEMM.install(&mut net, &plan)];
        let run = NetRun::lay_out(vec![net], plans, true).unwrap();
        assert_eq!(training.start(run).err().unwrap().to_string(), format!("net 'net': {fault}"));
    }

    let mut solver = start(solver(&plain(8), SGD));
    let loss = solver.step().unwrap().loss;
    assert_eq!(solver.execution().blob(0, "loss").unwrap(), [loss]);
    let error = solver.execution().blob(0, "conv1").unwrap_err().to_string();
    assert!(error.starts_with("net 'net': blob 'conv1' is gone at the end of an iteration"), "{error}");
}

/// Two classes that a program makes up: the larger of two numbers.
#[test]
fn a_program_trains_on_data_of_its_own() {
    let inputs = "layer { name: 'in' type: 'Input' top: 'data' top: 'label'
        input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }";
    let text = format!("{inputs} {}", head("data", 2));
    let mut solver = start(solver(&text, "base_lr: 1 lr_policy: 'fixed'"));
    let mut losses = Vec::new();
    for iteration in 0..40 {
        let point = |at: usize| ((at * 7 + iteration * 3) % 11) as f32 / 11.0;
        let data: Vec<f32> = (0..8).map(point).collect();
        let labels: Vec<f32> = data.chunks(2).map(|pair| f32::from(u8::from(pair[1] > pair[0]))).collect();
        solver.execution_mut().set_blob(0, "data", &data).unwrap();
        solver.execution_mut().set_blob(0, "label", &labels).unwrap();
        losses.push(solver.step().unwrap().loss);
    }
    assert!(losses[36..].iter().sum::<f64>() < 0.5 * losses[..4].iter().sum::<f64>(), "{losses:?}");
}
