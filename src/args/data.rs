//! One's own images, and images that are drawn.

use super::DEFAULT_SEED;
use super::values::{count, part, seed};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use trainer::data::MOST_CLASSES;

/// `microbatch init`.
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    /// Folder to write net.prototxt, solver.prototxt and lists of images into
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// The images: a folder of class folders, one with folders train and val (or valid, validation, test) of these, or
    /// a list of paths with labels
    #[arg(long, value_name = "SOURCE")]
    pub data: PathBuf,
    /// The net to start from: a model's name, such as resnet18, or a file
    #[arg(long, value_name = "NET")]
    pub like: PathBuf,
    /// The training will start from these weights: it gets their normalization, and a low rate
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Part of each class that is kept for validation, unless the images have a folder for that [default: 0.1]
    #[arg(long, allow_negative_numbers = true, value_name = "PART", value_parser = part)]
    pub validation: Option<f64>,
    /// Height and width that the net sees [default: the model's]
    #[arg(long, allow_negative_numbers = true, value_name = "PIXELS", value_parser = count::<4096>)]
    pub size: Option<usize>,
    /// Samples per mini-batch of training; tests have up to 50
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value = "32", value_parser = count::<1_000_000>)]
    pub batch: usize,
    /// Passes over the images to train with
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value = "30", value_parser = count::<100_000>)]
    pub epochs: usize,
    /// Seed of the split and of the training
    #[arg(long, allow_negative_numbers = true, value_name = "SEED", value_parser = seed, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Refuse images that cannot be read, instead of leaving them out
    #[arg(long)]
    pub strict: bool,
}

/// What `microbatch data` can make.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Draw a labelled set of images: figures with textures, which convolutional nets learn and linear models do not
    Render(RenderArgs),
}

/// `microbatch data render`.
#[derive(Clone, Debug, Args)]
pub struct RenderArgs {
    /// Classes
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value = "100", value_parser = count::<MOST_CLASSES>)]
    pub classes: usize,
    /// Images of each class
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value = "600", value_parser = count::<1_000_000>)]
    pub per_class: usize,
    /// Height and width of an image in pixels
    #[arg(long, allow_negative_numbers = true, value_name = "PIXELS", default_value = "64", value_parser = count::<4096>)]
    pub size: usize,
    /// Folder to write into, a folder for each class
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Seed: the same one draws the same images on every machine
    #[arg(long, allow_negative_numbers = true, value_name = "SEED", value_parser = seed, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
}
