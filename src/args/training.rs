//! Training a net, and what is done with its weights.

use super::values::{count, image_shape, positive, seed};
use super::{DEFAULT_SEED, PlanningArgs, RunArgs, StateArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `microbatch train`.
#[derive(Clone, Debug, Args)]
pub struct TrainArgs {
    /// The solver: a file in Caffe's text format, or a model's name, such as lenet
    #[arg(long, value_name = "FILE")]
    pub solver: Option<PathBuf>,
    /// Resume from this solver state
    #[arg(long, value_name = "FILE", conflicts_with = "weights")]
    pub snapshot: Option<PathBuf>,
    /// Resume from the newest snapshot of the prefix that is whole, if there is one
    #[arg(long, conflicts_with_all = ["snapshot", "no_snapshot"])]
    pub resume: bool,
    /// Start from these weights, our own, PyTorch's as safetensors, or a caffemodel: layers of the same names are
    /// copied; of several files later ones win. With --resume, where there is no snapshot yet
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub weights: Vec<PathBuf>,
    /// Iterations of the whole training; overrides the file's
    #[arg(long, value_name = "N", value_parser = count::<1_000_000_000>, allow_negative_numbers = true)]
    pub max_iter: Option<usize>,
    /// Passes over the training data of the whole training; overrides the file's iterations
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = count::<1_000_000>, conflicts_with = "max_iter")]
    pub epochs: Option<usize>,
    /// Learning rate that the policy varies; overrides the file's
    #[arg(long, allow_negative_numbers = true, value_name = "RATE", value_parser = positive::<f32>)]
    pub base_lr: Option<f32>,
    /// End once N tests in a row have found no lower loss
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = count::<1_000_000>, conflicts_with = "no_test")]
    pub patience: Option<usize>,
    /// Samples per mini-batch of training; overrides the file's
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>, allow_negative_numbers = true)]
    pub batch: Option<usize>,
    /// How the paths of snapshots begin; overrides the file's snapshot_prefix
    #[arg(long, value_name = "PREFIX")]
    pub snapshot_prefix: Option<PathBuf>,
    /// Write no snapshot
    #[arg(long, conflicts_with = "snapshot_prefix")]
    pub no_snapshot: bool,
    /// Keep the last N snapshots and that of the test with the lowest loss, and remove others of this training
    /// [default: all]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = count::<1_000_000>, conflicts_with = "no_snapshot")]
    pub keep: Option<usize>,
    /// Write what is displayed, tested and saved into this file as it happens, a JSON object a line; a resumed training
    /// goes on in it
    #[arg(long, value_name = "FILE", help_heading = "Metrics")]
    pub log: Option<PathBuf>,
    /// Write the same numbers for TensorBoard into this folder
    #[arg(long, value_name = "FOLDER", help_heading = "Metrics")]
    pub tensorboard: Option<PathBuf>,
    /// Skip testing
    #[arg(long)]
    pub no_test: bool,
    /// How convolutions are planned.
    #[command(flatten)]
    pub planning: PlanningArgs,
    /// Seed of everything random
    #[arg(long, allow_negative_numbers = true, value_name = "SEED", value_parser = seed, help_heading = "Run")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// A net and its weights.
#[derive(Clone, Debug, Args)]
pub struct TrainedArgs {
    /// The net: a file in Caffe's text format, or a model's name, such as alexnet
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// Its weights, our own, PyTorch's as safetensors, or a caffemodel; of several files later ones win
    #[arg(long, value_name = "FILE,...", required = true, value_delimiter = ',')]
    pub weights: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// `microbatch test`.
#[derive(Clone, Debug, Args)]
pub struct TestArgs {
    #[command(flatten)]
    pub(crate) trained: TrainedArgs,
    /// Mini-batches to test [default: those of one pass over the data, or 50 where no data set is read]
    #[arg(long, value_name = "N", value_parser = count::<1_000_000_000>, allow_negative_numbers = true)]
    pub iterations: Option<usize>,
    /// Passes over the data
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = count::<1_000_000>, conflicts_with = "iterations")]
    pub epochs: Option<usize>,
    /// Count how often each class is taken for each
    #[arg(long)]
    pub confusion: bool,
    /// Samples per mini-batch; overrides the file's
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>, allow_negative_numbers = true)]
    pub batch: Option<usize>,
    /// How convolutions are planned.
    #[command(flatten)]
    pub planning: PlanningArgs,
    /// Seed of everything random
    #[arg(long, allow_negative_numbers = true, value_name = "SEED", value_parser = seed, help_heading = "Run", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `microbatch predict`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("synthetic", |option| option.hide(true)))]
pub struct PredictArgs {
    /// Images, and folders of images
    #[arg(value_name = "IMAGE|FOLDER", required = true)]
    pub images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) trained: TrainedArgs,
    /// Classes to name for each image
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value = "5", value_parser = count::<1_000_000>)]
    pub top: usize,
    /// Images at once; overrides the file's
    #[arg(long, value_name = "N", value_parser = count::<1_000_000>, allow_negative_numbers = true)]
    pub batch: Option<usize>,
    #[command(flatten)]
    pub(crate) planning: PlanningArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// `microbatch export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub(crate) trained: TrainedArgs,
    /// For whom
    #[arg(long)]
    pub to: Target,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The size of the images, whatever the net or its data says; a crop_size that fits cuts them down
    #[arg(long, value_name = "CxHxW", require_equals = true, value_parser = image_shape)]
    pub synthetic: Option<[usize; 3]>,
}

/// Who reads an exported net.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Target {
    /// PyTorch: a state dict in safetensors, with the names of torchvision's models
    Torchvision,
    /// ONNX Runtime and others: the net of phase TEST, opset 17
    Onnx,
}
