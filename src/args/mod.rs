//! What the user typed, checked.

mod data;
mod environment;
mod examples;
mod measuring;
mod planning;
#[cfg(test)]
mod tests;
mod training;
mod values;

pub use data::{DataCommand, InitArgs, RenderArgs};
pub use environment::Environment;
pub use measuring::MeasuringArgs;
pub use planning::PlanningArgs;
pub use training::{ExportArgs, PredictArgs, Target, TestArgs, TrainArgs, TrainedArgs};

pub use values::{Batch, Link};

use crate::shapes::{ShapeSpec, parse_shape};
use crate::{Result, device};
use clap::{Args, Parser};
use planner::{BatchSizePolicy, Bytes, ConvOp, Math};
use std::{ffi::OsString, path::PathBuf};
use tensor::{AxisOrder, Device, ElementType, Format};
use trainer::spec::{NetState, Phase};
use values::{batch, convexity, count, drawing, image_shape, link, one_of, op, positive, seed, threads};

/// The command line of `microbatch`: what the command can do.
#[derive(Debug, Parser)]
#[command(name = "microbatch", version, about, long_about = None, after_help = examples::EXIT_CODES)]
pub enum Command {
    /// Time a net layer by layer, and show what every convolution got and why
    #[command(after_help = examples::TIME)]
    Time(TimeArgs),
    /// Train a net, test it on the way, and write snapshots
    #[command(after_help = examples::TRAIN)]
    Train(TrainArgs),
    /// Test trained weights
    #[command(after_help = examples::TEST)]
    Test(TestArgs),
    /// Write a net and a solver for one's own images
    #[command(after_help = examples::INIT)]
    Init(InitArgs),
    /// Make data sets
    #[command(subcommand)]
    Data(DataCommand),
    /// Say of which class images are
    #[command(after_help = examples::PREDICT)]
    Predict(PredictArgs),
    /// Draw the learning curves of trainings from what `train --log` wrote
    Plot {
        /// The logs
        #[arg(value_name = "LOG", required = true)]
        logs: Vec<PathBuf>,
        /// The drawing: .svg or .png
        #[arg(long, value_name = "FILE", value_parser = drawing())]
        out: PathBuf,
        /// Over the seconds that iterations took, instead of their number
        #[arg(long)]
        seconds: bool,
    },
    /// Plan the convolutions of a net, or any others, without running them
    #[command(after_help = examples::PLAN)]
    Plan(PlanArgs),
    /// Find AccUDNN's largest mini-batch in a budget of device memory, and the learning rate for it
    Tune(TuneArgs),
    /// Measure the convolutions of a net for later, or take in what was measured elsewhere
    #[command(after_help = examples::PROFILE)]
    Profile(ProfileArgs),
    /// Draw the figures of the µ-cuDNN papers, of a recorded GPU or of this machine
    #[command(after_help = examples::FIGURES)]
    Figures(FiguresArgs),
    /// Write a net with its weights for PyTorch or ONNX Runtime
    #[command(after_help = examples::EXPORT)]
    Export(ExportArgs),
    /// Run another program with its convolutions in micro-batches, as in microbatch run -- python train.py
    Run(PreloadArgs),
    /// List the devices that nets can run on
    Devices {
        /// Print one JSON object and nothing else
        #[arg(long)]
        json: bool,
    },
    /// Print a net that is too deep to be kept as a file
    Model {
        /// The family: VGG with as many convolutions as wished; 116, 216, 316 and 416 layers are those of the vDNN paper
        #[arg(value_parser = ["vgg"])]
        family: String,
        /// Its layers with weights: 16 and any multiple of five more, which the five groups share
        #[arg(long, allow_negative_numbers = true, default_value_t = 16, value_parser = count::<10_016>)]
        depth: usize,
    },
    /// Print completions of the command line for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man {
        /// Of this subcommand, such as plan or data render
        command: Vec<String>,
    },
}

/// How and where a net runs, whatever is done with it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// Where to run: cpu, cuda, cuda:N, or auto, the first GPU if there is one; `train` and `time` take several, each
    /// with a mini-batch of its own: cuda:0,1, all (GPUs), or cpu,cpu; `plan` and `figures` a recorded GPU, h200 or
    /// h100, or recorded:FILE, a cost table
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Threads of the CPU to run on [default: all]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Arithmetic of matrix products on a GPU: fp32, or tf32 (inputs rounded to 10-bit mantissas)
    #[arg(long, value_name = "MATH", default_value = "fp32",
          value_parser = one_of([("fp32", Math::Fp32), ("tf32", Math::Tf32)]))]
    pub math: Math,
    /// Numbers of feature maps and their gradients on a GPU: fp32, or bf16 (8 bits of mantissa); weights, statistics
    /// and losses stay in fp32
    #[arg(long, value_name = "DTYPE", default_value = "fp32",
          value_parser = one_of([("fp32", ElementType::F32), ("bf16", ElementType::Bf16)]))]
    pub dtype: ElementType,
    /// Order of feature maps on a GPU: nchw, nhwc (channels last), or auto, the one in which the net's convolutions are
    /// planned to be faster; files of weights and snapshots stay in nchw
    #[arg(long, value_name = "LAYOUT", default_value = "nchw", value_parser = one_of(LAYOUTS))]
    pub layout: &'static [AxisOrder],
    /// Use synthetic images instead of the net's data; CxHxW sets their size, which a crop_size that fits cuts down
    #[arg(long, value_name = "CxHxW", require_equals = true, value_parser = image_shape)]
    pub synthetic: Option<Option<[usize; 3]>>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
    /// Samples per mini-batch on a CPU, if the user does not choose.
    #[arg(skip)]
    pub cpu_batch: Option<usize>,
    /// Defaults that were chosen, one sentence each, for the header.
    #[arg(skip)]
    pub notes: Vec<String>,
}

/// Which net, in which phase, with how large a mini-batch.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Net")]
pub struct NetArgs {
    /// The net: a file in Caffe's text format, or a model's name, such as alexnet
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// The phase: TRAIN, or TEST to run forward only
    #[arg(long, value_name = "PHASE", default_value = "TRAIN",
          value_parser = one_of([("TRAIN", Phase::Train), ("TEST", Phase::Test)]))]
    pub phase: Phase,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    /// Samples per mini-batch; overrides the file's. `time` and `plan` take max, too: as many as --device-memory holds
    #[arg(long, value_name = "N", value_parser = batch, allow_negative_numbers = true)]
    pub batch: Option<Batch>,
}

/// Of which layers a net consists, beside its phase.
#[derive(Clone, Debug, Args)]
pub struct StateArgs {
    /// A stage that layers' include and exclude rules may ask for; may be repeated
    #[arg(long, value_name = "STAGE")]
    pub stage: Vec<String>,
    /// The level that they may ask for
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub level: i32,
}

impl StateArgs {
    /// The state with this phase.
    pub(crate) fn of(&self, phase: Phase) -> NetState {
        NetState { phase, level: self.level, stages: self.stage.clone() }
    }
}

impl NetArgs {
    /// Samples per mini-batch, if they are given, where there is nothing to find.
    pub(crate) fn samples(&self) -> Result<Option<usize>> {
        match self.batch {
            None => Ok(None),
            Some(Batch::Samples(samples)) => Ok(Some(samples)),
            Some(Batch::Largest) => Err(usage!("--batch max needs a net to plan and --device-memory")),
        }
    }
}

/// `microbatch time`.
#[derive(Clone, Debug, Args)]
pub struct TimeArgs {
    #[command(flatten)]
    pub(crate) net: NetArgs,
    /// How its convolutions are planned.
    #[command(flatten)]
    pub planning: PlanningArgs,
    /// Seed of everything random
    #[arg(long, allow_negative_numbers = true, value_name = "SEED", value_parser = seed, help_heading = "Run", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Iterations to time, after one that is not
    #[arg(long, value_name = "N", default_value = "10", value_parser = count::<1_000_000>, allow_negative_numbers = true)]
    pub iterations: usize,
    /// Write the last iteration in Chrome's trace format, which chrome://tracing and Perfetto show
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Time the net undivided first, then with the chosen policy, and compare
    #[arg(long)]
    pub compare: bool,
    /// Draw what every kernel took, and would take undivided, into this file: .svg or .png
    #[arg(long, value_name = "FILE", value_parser = drawing())]
    pub plot: Option<PathBuf>,
}

/// `microbatch tune`.
#[derive(Clone, Debug, Args)]
#[command(mut_args(|option| option.clone().hide(NOT_OF_TUNE.contains(&option.get_id().as_str()))))]
pub struct TuneArgs {
    /// The net, whose mini-batch is the one of the rate, and how it is timed.
    #[command(flatten)]
    pub time: TimeArgs,
    /// Learning rate at the net's own mini-batch
    #[arg(long, allow_negative_numbers = true, value_name = "RATE", default_value_t = 0.01, value_parser = positive::<f64>)]
    pub base_lr: f64,
    /// How soon larger steps stop to help: 0 is a rate in proportion to the mini-batch, and no rate is above 1/C
    #[arg(long, allow_negative_numbers = true, value_name = "C", default_value_t = 0.0, value_parser = convexity)]
    pub convexity: f64,
}

/// `microbatch plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub(crate) net: NetArgs,
    #[command(flatten)]
    pub(crate) shapes: ShapeArgs,
    /// Show every kernel's Pareto front, what it was refused and what a MiB is worth, and the time at every limit
    #[arg(long, help_heading = "Planning")]
    pub explain: bool,
    /// Write the planned iteration of a policy for memory in Chrome's trace format, which chrome://tracing and Perfetto
    /// show
    #[arg(long, value_name = "FILE", requires = "device_memory", help_heading = "Planning")]
    pub trace: Option<PathBuf>,
    /// List the kernels that were recorded of --device, and plan nothing
    #[arg(long, help_heading = "Planning", conflicts_with_all = OF_PLANNING)]
    pub list: bool,
    /// Draw what every kernel would take, undivided and as planned (with --gpus: images/s by their number), into this
    /// file: .svg or .png
    #[arg(long, value_name = "FILE", value_parser = drawing(), help_heading = "Planning")]
    pub plot: Option<PathBuf>,
    /// Predict images/s of up to N GPUs, each with this mini-batch
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = count::<65_536>, help_heading = "Several GPUs", conflicts_with = "ShapeArgs")]
    pub gpus: Option<usize>,
    /// What joins them: nvlink, infiniband, ethernet, or microseconds of latency and GB/s between two, such as 10,290
    #[arg(long, value_name = "LINK", value_parser = link, help_heading = "Several GPUs", requires = "gpus",
          conflicts_with = "ShapeArgs", default_value = "nvlink")]
    pub link: Link,
    /// How convolutions are planned.
    #[command(flatten)]
    pub planning: PlanningArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The values of `--layout`: orders of feature maps, of which one is chosen.
const LAYOUTS: [(&str, &[AxisOrder]); 3] = [
    ("nchw", &[AxisOrder::Nchw]),
    ("nhwc", &[AxisOrder::Nhwc]),
    ("auto", &[AxisOrder::Nchw, AxisOrder::Nhwc]),
];
/// The convolutions that may stand instead of a net.
const SHAPES: &str = "shapes";
/// What has an effect on a net only.
const OF_A_NET: [&str; 4] = ["model", "phase", "StateArgs", "synthetic"];
/// What has an effect where something is planned only.
#[rustfmt::skip]
const OF_PLANNING: [&str; 23] = [
    "model", "phase", "batch", "StateArgs", "ShapeArgs", "MeasuringArgs", "explain", "plot", "trace", "gpus", "workspace_limit",
    "total_workspace", "device_memory", "memory_policy", "workspace_policy", "wd_solver", "policy", "max_error", "deterministic",
    "verify", "synthetic", "threads", "link",
];
/// What has an effect where something is measured only.
#[rustfmt::skip]
const OF_MEASURING: [&str; 18] = [
    "model", "phase", "batch", "StateArgs", "ShapeArgs", "synthetic", "op", "policy", "every_algorithm", "out", "date", "offline",
    "benchmark_devices", "device", "threads", "math", "dtype", "layout",
];
/// What `tune` refuses, which measures a training net within a budget, under a policy of its own.
#[rustfmt::skip]
const NOT_OF_TUNE: [&str; 8] = [
    "phase", "workspace_limit", "total_workspace", "memory_policy", "workspace_policy", "wd_solver", "offline", "compare",
];

/// Convolutions instead of a net.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Convolutions without a net")]
pub struct ShapeArgs {
    /// A CSV file of convolutions in DeepBench's columns, in this order or named in a first line: source (may be left
    /// out), W, H, C_in, N, C_out, kernel_w, kernel_h, pad_w, pad_h, stride_w, stride_h
    #[arg(long, value_name = "FILE", group = SHAPES, conflicts_with_all = OF_A_NET)]
    pub csv: Option<PathBuf>,
    /// A convolution, such as n=256,c=64,h=27,w=27,k=192,r=5,s=5,pad=2; may be repeated
    #[arg(long, value_name = "SHAPE", value_parser = parse_shape, group = SHAPES, conflicts_with_all = OF_A_NET)]
    pub conv: Vec<ShapeSpec>,
    /// An operation of --csv and --conv: forward, backwardData or backwardFilter; may be repeated [default: all]
    #[arg(long, value_name = "OP", value_parser = op, requires = SHAPES)]
    pub op: Vec<ConvOp>,
}

/// `microbatch profile`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("offline", |option| option.hide(true)))]
pub struct ProfileArgs {
    #[command(flatten)]
    pub(crate) net: NetArgs,
    #[command(flatten)]
    pub(crate) shapes: ShapeArgs,
    /// Micro-batch sizes to measure: undivided, powerOfTwo or all
    #[arg(long, value_name = "POLICY", default_value = "powerOfTwo", help_heading = "Measuring")]
    pub policy: BatchSizePolicy,
    /// Measure and write algorithms that no plan would use, too
    #[arg(long, help_heading = "Measuring")]
    pub every_algorithm: bool,
    /// Write the net's measurements to this file: a cost table for `plan --device recorded:FILE`
    #[arg(long, value_name = "FILE", help_heading = "Cost tables")]
    pub out: Option<PathBuf>,
    /// Date to write into the table's header
    #[arg(long, value_name = "DATE", default_value = "", requires = "out", help_heading = "Cost tables")]
    pub date: String,
    /// Take these cost tables into the database, and measure nothing
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Cost tables",
          conflicts_with_all = OF_MEASURING)]
    pub merge: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) measuring: MeasuringArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `microbatch figures`.
#[derive(Clone, Debug, Args)]
pub struct FiguresArgs {
    /// Folder to write into
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Only figures whose names contain this, such as limit or resnet18
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// A net of the figures, or deepbench; may be repeated [default: all that were recorded; on a CPU all nets, at
    /// mini-batch 32]
    #[arg(long, value_name = "NET")]
    pub net: Vec<String>,
    /// Whose measurements: h200, h100 or recorded:FILE, or a device of this machine, which is measured: cpu, cuda, cuda:N;
    /// may be repeated: others are compared with the first
    #[arg(long, value_name = "DEVICE", default_values = ["h200", "h100"])]
    pub device: Vec<String>,
    /// The numbers alone, as CSV and JSON, and no drawings
    #[arg(long)]
    pub csv: bool,
    #[command(flatten)]
    pub(crate) measuring: MeasuringArgs,
}

/// `microbatch run`.
#[derive(Clone, Debug, Args)]
pub struct PreloadArgs {
    /// Workspace of a convolution for which the program gives none [default: 64MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub workspace_limit: Option<Bytes>,
    /// What every convolution got, when the program ends: a file, JSON if it is called .json [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub report: Option<OsString>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

/// The default seed: runs are alike unless they are given different ones.
pub const DEFAULT_SEED: u64 = 1;

impl RunArgs {
    /// The device to run on.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) if there is none of that name.
    pub fn device(&self) -> Result<Device> {
        device::open(&self.device, self.threads, self.math == Math::Tf32, self.formats()[0])
    }

    /// What feature maps consist of, and in which order: with `--layout auto` one format for each.
    pub(crate) fn formats(&self) -> Vec<Format> {
        self.layout.iter().map(|&layout| Format { dtype: self.dtype, layout }).collect()
    }

    /// The mini-batch that is chosen for a CPU, unless one is given; and notes on all that was chosen.
    pub(crate) fn chosen(&self, is_given: bool, on_gpu: bool) -> (Option<usize>, Vec<String>) {
        let chosen = self.cpu_batch.filter(|_| !is_given && !on_gpu);
        let default = "the default on a CPU (the paper's suits a GPU); --batch N overrides it";
        let note = chosen.map(|samples| format!("mini-batch {samples}, {default}"));
        (chosen, note.into_iter().chain(self.notes.iter().cloned()).collect())
    }
}

/// The file that `--option` must name.
pub(crate) fn required<'a>(file: &'a Option<PathBuf>, option: &str) -> Result<&'a PathBuf> {
    file.as_ref().ok_or_else(|| usage!("{option} FILE is missing"))
}
