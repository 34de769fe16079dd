//! `microbatch figures`.

use super::draw::{check, write, write_data, write_figure};
use super::inputs::in_math;
use super::origin::Origin;
use super::plan::shape_kernels;
use crate::args::{DEFAULT_SEED, FiguresArgs, PlanningArgs, RunArgs};
use crate::{Console, Result, models::Model};
use ::figures::draw::Figure;
use ::figures::study::{self, Study, claims, page};
use planner::{BatchSizePolicy, Math, PlanOptions};
use std::{collections::BTreeSet, sync::Arc};
use tensor::{AxisOrder, Device, ElementType, Format};
use trainer::layers::{BuildOptions, SyntheticData};
use trainer::{Net, shapes::parse_csv, spec::Phase};

/// A net of the papers: its name, how the names of its figures begin, its title, its mini-batch, and channels, height
/// and width of an image where only the data says.
type PaperNet = (&'static str, &'static str, &'static str, usize, Option<[usize; 3]>);

/// All of them; the first is looked at most. A recorded device has figures of those that its tables have.
const NETS: [PaperNet; 8] = [
    ("alexnet", "", "AlexNet", 256, None),
    ("resnet18", "resnet18-", "ResNet-18", 128, None),
    ("resnet50", "resnet50-", "ResNet-50", 32, None),
    ("resnet50", "resnet50-256-", "ResNet-50", 256, None),
    ("densenet40", "densenet40-", "DenseNet-40", 256, Some([3, 32, 32])),
    ("vgg16", "vgg16-", "VGG-16", 64, None),
    ("googlenet", "googlenet-", "GoogLeNet", 128, None),
    (DEEPBENCH, "", "DeepBench", 256, None),
];

/// A list of convolutions, as if they were one net.
const DEEPBENCH: &str = "deepbench";
const SHAPES: &str = include_str!("../../data/deepbench.csv");

/// The largest mini-batch that is measured on a CPU, in powers of two.
const MOST_ON_CPU: usize = 32;

/// Draws the papers' figures from recorded measurements, or from new ones of this machine.
pub(super) fn figures(args: &FiguresArgs) -> Result<()> {
    let mut console = Console::new(false);
    let names: BTreeSet<&str> = NETS.iter().map(|net| net.0).collect();
    if let Some(net) = args.net.iter().find(|net| !names.contains(net.as_str())) {
        let names = Vec::from_iter(names).join(", ");
        return Err(usage!("--net {net} has no figures: choose one of {names}"));
    }
    check(&[args.out.join("papers.csv")], &[])?;
    let (mut devices, mut left_out) = (Vec::new(), String::new());
    for device in &args.device {
        let (mut studies, lacks, on_gpu) = measure(args, device, Math::Fp32, &mut console)?;
        if on_gpu {
            studies.extend(measure(args, device, Math::Tf32, &mut console)?.0);
        }
        // Drawings are of the first device; only the page looks at others.
        if !lacks.is_empty() && (args.only.is_none() || devices.is_empty()) {
            left_out += &format!("What {device} has no measurements of is left out: {}.\n", lacks.join(", "));
        }
        devices.extend(Some(studies).filter(|studies| !studies.is_empty()));
    }
    let all = devices.first().map_or_else(Vec::new, |studies| study::figures(studies));
    let wanted = |figure: &&Figure| args.only.as_ref().is_none_or(|part| figure.name.contains(part));
    let chosen: Vec<&Figure> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|figure| figure.name.as_str()).collect();
        return Err(match &args.only {
            Some(part) if !names.is_empty() => usage!("--only {part} is in no name of {}", names.join(", ")),
            _ => usage!("--device {} has no measurements of the nets that are wanted", args.device[0]),
        });
    }
    for figure in &chosen {
        write_figure(&args.out, figure, args.csv)?;
        console.text(format!("{:<28} {}", figure.name, figure.title))?;
    }
    if args.only.is_none() {
        let claims = claims(&devices);
        write_data(&args.out.join("papers.csv"), &claims)?;
        if !args.csv {
            let page = page(&devices, &all, &claims, [&command(args), &left_out]);
            write(&args.out.join("README.md"), page.into_bytes())?;
        }
    }
    console.text(format!("{left_out}figures in {}: {}", args.out.display(), chosen.len()))
}

/// The command that draws them again.
fn command(args: &FiguresArgs) -> String {
    let devices = args.device.iter().map(|device| format!("--device {device} "));
    let options: String = devices.chain(args.net.iter().map(|net| format!("--net {net} "))).collect();
    format!("microbatch figures {options}--out {}", args.out.display())
}

/// Nets on a device, the names of those that its table has not, and whether it is a GPU.
type Known = (Vec<Study>, Vec<String>, bool);

/// Measures the nets in one arithmetic; of a recorded device takes those that were recorded.
fn measure(args: &FiguresArgs, device: &str, math: Math, console: &mut Console) -> Result<Known> {
    let (device, dtype, layout) = (device.to_owned(), ElementType::F32, &[AxisOrder::Nchw][..]);
    let (threads, synthetic, json, cpu_batch, notes) = (None, None, false, None, Vec::new());
    let run = RunArgs { device, threads, math, dtype, layout, synthetic, json, cpu_batch, notes };
    let planning = PlanningArgs { measuring: args.measuring.clone(), ..PlanningArgs::default() };
    let mut origin = Origin::any(&run, &planning)?;
    let (on_gpu, is_recorded) = (origin.on_gpu(), origin.recorded.is_some());
    let most = if on_gpu { usize::MAX } else { MOST_ON_CPU };
    let is_wanted = |&&(name, ..): &&PaperNet| {
        // The list is looked at in FP32 alone, and on a CPU only if it is asked for.
        let by_default = args.net.is_empty() && (on_gpu || name != DEEPBENCH);
        (by_default || args.net.iter().any(|net| net == name)) && (math == Math::Fp32 || name != DEEPBENCH)
    };
    let nets = NETS.iter().filter(is_wanted);
    let mut studies = nets.map(|net| build(net, most, math)).collect::<Result<Vec<_>, _>>()?;
    // A net that stands twice may not any more.
    studies.dedup_by(|a, b| a.kernels == b.kernels);
    for Study { name, kernels, .. } in studies.iter().filter(|_| !is_recorded) {
        let all = on_gpu && name != DEEPBENCH;
        let batch_size_policy = if all { BatchSizePolicy::All } else { BatchSizePolicy::PowerOfTwo };
        origin.profile(kernels, &PlanOptions { batch_size_policy, ..PlanOptions::default() }, console)?;
    }
    // A figure shows what was measured, never an estimate.
    let table = Arc::new(origin.planning.table.clone());
    let (mut measured, mut lacks) = (Vec::new(), Vec::new());
    for study in studies {
        let mut finest = [BatchSizePolicy::All, BatchSizePolicy::PowerOfTwo].into_iter();
        match finest.find(|&policy| table.missing(&study.kernels, policy).is_empty()) {
            Some(finest) => measured.push(Study { finest, table: Arc::clone(&table), is_recorded, ..study }),
            None => lacks.push(study.label()),
        }
    }
    Ok((measured, lacks, on_gpu))
}

/// A net of which nothing is measured yet.
fn build(net: &PaperNet, most: usize, math: Math) -> Result<Study> {
    let &(name, prefix, title, mini_batch, shape) = net;
    let study = Study { name: name.into(), prefix: prefix.into(), title: title.into(), ..Study::default() };
    if name == DEEPBENCH {
        let mut shapes = parse_csv("data/deepbench.csv", SHAPES)?;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        shapes.iter_mut().for_each(|shape| shape.mini_batch = shape.mini_batch.min(most));
        return Ok(Study { kernels: shape_kernels(&shapes, &[], Format::F32, math), ..study });
    }
    let model = Model::find(name).expect("the papers' nets are part of the command");
    let mut spec = model.net()?.for_phase(Phase::Train);
    spec.set_mini_batch(mini_batch.min(most));
    let synthetic = Some(SyntheticData { shape, stand_in: true });
    let options = BuildOptions { device: Device::cpu(), seed: DEFAULT_SEED, synthetic };
    let mut built = Net::new(&spec, &options, true)?;
    let (outline, layers) = (built.outline(true), built.layer_memory());
    Ok(Study { kernels: in_math(built.kernels(), math), outline, layers, ..study })
}
