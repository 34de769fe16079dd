//! `microbatch figures`.

use super::{
    draw::{refused, write, write_data, write_figure},
    origin::{Origin, in_math},
};
use crate::{
    Console, Error,
    args::{DEFAULT_SEED, FiguresArgs, PlanningArgs, RunArgs},
    models::Model,
};
use ::figures::{
    draw::{Data, Figure},
    study::{Study, accuracy, claims, gains, page, programme},
};
use planner::{BatchSizePolicy, Bytes, CostTable, Kernel, KernelId, Math, PlanOptions};
use std::{collections::BTreeMap, fs, sync::Arc};
use tensor::{Device, Format};
use trainer::{
    Net,
    layers::{BuildOptions, SyntheticData},
    spec::Phase,
};

/// A net of the papers.
struct PaperNet {
    name: &'static str,
    title: &'static str,
    mini_batch: usize,
    /// The convolution that is looked at closely.
    convolution: Option<&'static str>,
    /// Channels, height and width of an image, where only the data says.
    image: Option<[usize; 3]>,
}

impl PaperNet {
    /// How the names of its figures begin: not at all for the first; with the mini-batch where the net stands twice.
    fn prefix(&self) -> String {
        let twice = NETS
            .iter()
            .filter(|other| other.name == self.name)
            .position(|other| other.mini_batch == self.mini_batch);
        match twice {
            _ if self.name == NETS[0].name => String::new(),
            Some(1..) => format!("{}-{}", self.name, self.mini_batch),
            _ => self.name.to_owned(),
        }
    }
}

const fn net(
    name: &'static str,
    title: &'static str,
    mini_batch: usize,
    convolution: Option<&'static str>,
    image: Option<[usize; 3]>,
) -> PaperNet {
    PaperNet { name, title, mini_batch, convolution, image }
}

/// Their nets, with their mini-batches; the first is looked at most. A recorded device has figures of those that its
/// tables have.
const NETS: [PaperNet; 7] = [
    net("alexnet", "AlexNet", 256, Some("conv2"), None),
    net("resnet18", "ResNet-18", 128, None, None),
    net("resnet50", "ResNet-50", 32, None, None),
    net("resnet50", "ResNet-50", 256, None, None),
    net("densenet40", "DenseNet-40", 256, None, Some([3, 32, 32])),
    net("vgg16", "VGG-16", 64, None, None),
    net("googlenet", "GoogLeNet", 128, None, None),
];

/// Limits under which all recorded kernels are compared: the papers' for DeepBench's list, and one below.
const LIMITS: [Bytes; 4] = [Bytes::mib(64), Bytes::mib(128), Bytes::mib(256), Bytes::mib(512)];

/// Draws the papers' figures from recorded measurements, or from new ones of this machine.
pub(crate) fn figures(args: &FiguresArgs) -> Result<(), Error> {
    let mut console = Console::new(false);
    let maths = if args.device == "cpu" { &[Math::Fp32][..] } else { &[Math::Fp32, Math::Tf32] };
    let mut studies = Vec::new();
    for &math in maths {
        studies.extend(measure(args, math, &mut console)?);
    }
    let is_fp32 = |study: &&Study| study.kernels.iter().all(|kernel| kernel.id.math == Math::Fp32);
    let fp32: Vec<Study> = studies.iter().filter(is_fp32).cloned().collect();
    let mut all: Vec<Figure> = fp32.iter().flat_map(Study::figures).collect();
    all.extend([programme(&fp32), accuracy(&studies), kernels(&fp32)].into_iter().flatten());
    let wanted = |figure: &&Figure| args.only.as_ref().is_none_or(|part| figure.name.contains(part));
    let chosen: Vec<&Figure> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|figure| figure.name.as_str()).collect();
        return Err(Error::Usage(match &args.only {
            Some(part) if !names.is_empty() => format!("--only {part} is in no name of {}", names.join(", ")),
            _ => format!("--device {} has none of the nets of the figures", args.device),
        }));
    }
    fs::create_dir_all(&args.out).map_err(|source| refused(&args.out, source))?;
    for figure in &chosen {
        write_figure(&args.out, figure, args.csv)?;
        console.text(format!("{:<28} {}", figure.name, figure.title))?;
    }
    let claims = claims(&fp32);
    if args.only.is_none() {
        write_page(args, (&fp32, &all, &claims))?;
    }
    console.text(format!("figures in {}: {}", args.out.display(), chosen.len()))
}

/// The page about all of them, and the table of the papers' numbers.
fn write_page(args: &FiguresArgs, (studies, all, claims): (&[Study], &[Figure], &Data)) -> Result<(), Error> {
    write_data(&args.out.join("papers.csv"), claims)?;
    if args.csv {
        return Ok(());
    }
    let command = format!("microbatch figures --device {} --out docs/figures", args.device);
    write(&args.out.join("README.md"), page(studies, all, claims, &command).into_bytes())
}

/// Measures the nets in one arithmetic; of a recorded device takes those that were recorded.
fn measure(args: &FiguresArgs, math: Math, console: &mut Console) -> Result<Vec<Study>, Error> {
    let Format { dtype, layout } = Format::F32;
    let run = RunArgs {
        device: args.device.clone(),
        threads: None,
        math,
        dtype,
        layout,
        synthetic: None,
        json: false,
    };
    let planning = PlanningArgs { measuring: args.measuring.clone(), ..PlanningArgs::default() };
    let mut origin = Origin::any(&run, &planning)?;
    let mut nets = Vec::new();
    for net in NETS.iter().filter(|net| args.net.is_empty() || args.net.iter().any(|name| name == net.name)) {
        let study = build(net, math)?;
        if origin.recorded.is_none() {
            let options = PlanOptions { batch_size_policy: BatchSizePolicy::All, ..PlanOptions::default() };
            origin.profile(&study.kernels, &options, console)?;
        }
        nets.push(study);
    }
    // A figure shows what was measured, never an estimate.
    let table = Arc::new(origin.planning.table().clone());
    let studies = nets.into_iter().filter_map(|study| {
        let finest = [BatchSizePolicy::All, BatchSizePolicy::PowerOfTwo];
        let finest = finest.into_iter().find(|&policy| table.missing(&study.kernels, policy).is_empty())?;
        Some(Study { finest, table: Arc::clone(&table), is_recorded: origin.recorded.is_some(), ..study })
    });
    Ok(studies.collect())
}

/// A net of which nothing is measured yet.
fn build(net: &PaperNet, math: Math) -> Result<Study, Error> {
    let model = Model::find(net.name).expect("the papers' nets are part of the command");
    let mut spec = model.net()?.for_phase(Phase::Train);
    spec.set_mini_batch(net.mini_batch);
    let synthetic = Some(SyntheticData { shape: net.image, stand_in: true });
    let options = BuildOptions { device: Device::cpu(), seed: DEFAULT_SEED, synthetic };
    let mut built = Net::new(&spec, &options, true)?;
    Ok(Study {
        name: net.name.to_owned(),
        prefix: net.prefix(),
        title: net.title.to_owned(),
        kernels: in_math(built.kernels(), math),
        table: Arc::default(),
        finest: BatchSizePolicy::All,
        is_recorded: false,
        outline: built.outline(true),
        layers: built.layer_memory(),
        convolution: net.convolution.map(str::to_owned),
    })
}

/// What each of all kernels that were measured gains, whatever net it is of.
fn kernels(studies: &[Study]) -> Option<Figure> {
    let study = studies.first()?;
    gains(study, &recorded_kernels(&study.table), &LIMITS)
}

/// The kernels that were measured, with the largest mini-batch.
fn recorded_kernels(table: &CostTable) -> Vec<Kernel> {
    let largest: BTreeMap<KernelId, u32> = table.iter().map(|(&id, size, _)| (id, size)).collect();
    let kernels = largest.into_iter().map(|(id, mini_batch)| Kernel { name: String::new(), id, mini_batch });
    let is_complete =
        |kernel: &Kernel| table.missing(std::slice::from_ref(kernel), BatchSizePolicy::PowerOfTwo).is_empty();
    kernels.filter(is_complete).collect()
}
