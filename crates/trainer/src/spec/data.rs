//! The layers that bring data into a net.

use super::{Filler, HeightWidth, params::params};
use crate::prototxt::{Reader, Result, choices};
use std::path::PathBuf;

params! {
    /// `Input`: blobs that the program fills.
    InputParams(params: layer.input_param) {
        shapes: Vec<Vec<usize>> {
            let shapes = shapes(params, "shape")?;
            for_tops(layer, params, "shape", shapes)?
        }; "The shape of each top; one shape may serve all"
    }

    /// `DummyData`: blobs with synthetic contents, filled at each iteration unless constant.
    DummyDataParams(params: layer.dummy_data_param) {
        shapes: Vec<Vec<usize>> { dummy_shapes(layer, params)? }; "The shape of each top; one shape may serve all"
        fillers: Vec<Filler> { data_fillers(layer, params)? }; "The contents of each top; one filler may serve all"
    }

    /// `Data`: images and labels from a collection that is read in order.
    ///
    /// Caffe reads a database. Here `source` is a folder with the files of MNIST (IDX, plain or gzip) or of CIFAR-10
    /// (binary); the net's phase decides between the training and the test files.
    DataParams(params: layer.data_param) ignores [prefetch] {
        source: String; "What is read, as written; see [`super::NetSpec::resolve`]"
        batch_size: usize, batch_size > 0 => "at least 1"; "Samples per iteration, at least 1"
        backend: DataBackend = DataBackend::LevelDb; "The kind of database that the net was written for"
        rand_skip: usize = 0; "Skip a random number of samples below this at the start"
        transform: TransformParams { TransformParams::read(layer, params)? }; "What is done to each image"
    }

    /// `ImageData`: image files and labels from a list with one `path label` per line.
    ImageDataParams(params: layer.image_data_param) {
        source: String; "The list, as written; see [`super::NetSpec::resolve`]"
        root_folder: String = String::new(); "Put before each path of the list"
        batch_size: usize = 1, batch_size > 0 => "at least 1"; "Samples per iteration, at least 1"
        rand_skip: usize = 0; "Skip a random number of lines below this at the start"
        shuffle: bool = false; "Shuffle the list before each pass over it?"
        new_size: Option<HeightWidth> { new_size(params)? };
            "Height and width that each image is resized to first, if it is"
        is_color: bool = true; "Three channels (in the order blue, green, red) or one?"
        transform: TransformParams { TransformParams::read(layer, params)? }; "What is done to each image"
    }

    /// `transform_param`: what is done to each image, in this order: resize, crop, mirror, (pixel - mean) · scale.
    // The oldest files have the same fields in the layer's own message.
    TransformParams(params: layer.transform_param, old: &mut Reader<'_>) {
        resize: Option<usize>, resize != Some(0) => "at least 1",
            resize.is_none_or(|side| side <= MOST_SIDE) => MOST_SIDE_TEXT;
            "Resize the image to this many pixels in both directions first (bilinear). Ours, not Caffe's."
        crop_size: Option<usize> {
            params.get("crop_size")?.or(old.get("crop_size")?).filter(|&size: &usize| size > 0)
        }; "Crop to this many pixels in both directions: anywhere in TRAIN, the centre in TEST"
        mirror: bool { params.get("mirror")?.or(old.get("mirror")?).unwrap_or(false) };
            "Mirror every second image, chosen at random, left to right?"
        mean: Mean { mean(params, old)? }; "Subtracted"
        scale: f32 { params.get("scale")?.or(old.get("scale")?).unwrap_or(1.0) }; "Multiplied after that"
    }
}

impl Default for TransformParams {
    /// Nothing is done.
    fn default() -> Self {
        Self { resize: None, crop_size: None, mirror: false, mean: Mean::Zero, scale: 1.0 }
    }
}

choices! {
    /// The kind of database in [`DataParams`].
    pub enum DataBackend {
        LevelDb = "LEVELDB"; "LevelDB"
        Lmdb = "LMDB"; "LMDB"
    }
}

/// What [`TransformParams`] subtracts.
#[derive(Debug, Clone, PartialEq)]
pub enum Mean {
    /// Nothing
    Zero,
    /// One value, or one per channel
    Values(Vec<f32>),
    /// The image in this file, as written, which has the size of the images before the crop
    File(PathBuf),
}

/// Largest height or width that images are resized to.
const MOST_SIDE: usize = 65536;
const MOST_SIDE_TEXT: &str = "at most 65536";

/// What belongs to top number `top`: of `each` top's own one, or the only one, which serves all.
pub fn of_top<T>(each: &[T], top: usize) -> &T {
    each.get(top).unwrap_or(&each[0])
}

/// `given` by the field `name`, if it is one for all tops or one for each.
fn for_tops<T>(layer: &mut Reader<'_>, params: &Reader<'_>, name: &str, given: Vec<T>) -> Result<Vec<T>> {
    match (given.len(), layer.fields("top").len()) {
        (0, _) => Err(params.missing(name)),
        (1, _) => Ok(given),
        (count, tops) if count == tops => Ok(given),
        (count, tops) => Err(params.error_at(name, format!("{name} is given {count} times for {tops} tops"))),
    }
}

/// The messages `name`, each a list of the sizes `dim`.
pub(super) fn shapes(params: &mut Reader<'_>, name: &str) -> Result<Vec<Vec<usize>>> {
    params.read_all(name, |shape| match sizes(shape, "dim")? {
        dims if dims.is_empty() => Err(shape.missing("dim")),
        dims => Ok(dims),
    })
}

/// The sizes in the field `name`.
pub(super) fn sizes(params: &mut Reader<'_>, name: &str) -> Result<Vec<usize>> {
    let sizes: Vec<usize> = params.list(name)?;
    params.check(name, !sizes.contains(&0), "at least 1")?;
    Ok(sizes)
}

fn dummy_shapes(layer: &mut Reader<'_>, params: &mut Reader<'_>) -> Result<Vec<Vec<usize>>> {
    let mut shapes = shapes(params, "shape")?;
    if shapes.is_empty() {
        // Four lists, one per axis, as shapes were written before blobs could have any number of axes.
        let names = ["num", "channels", "height", "width"];
        let axes = names.into_iter().map(|name| sizes(params, name)).collect::<Result<Vec<_>, _>>()?;
        if axes.iter().any(|sizes| sizes.len() != axes[0].len()) {
            let message = "num, channels, height and width must be given equally often";
            return Err(params.error_at("num", message));
        }
        shapes.extend((0..axes[0].len()).map(|top| axes.iter().map(|sizes| sizes[top]).collect()));
    }
    for_tops(layer, params, "shape", shapes)
}

fn data_fillers(layer: &mut Reader<'_>, params: &mut Reader<'_>) -> Result<Vec<Filler>> {
    let mut fillers = params.read_all("data_filler", Filler::from_message)?;
    if fillers.is_empty() {
        fillers.push(Filler::constant(0.0));
    }
    for_tops(layer, params, "data_filler", fillers)
}

fn new_size(params: &mut Reader<'_>) -> Result<Option<HeightWidth>> {
    let (h, w) = (params.get_or("new_height", 0)?, params.get_or("new_width", 0)?);
    params.check("new_height", h <= MOST_SIDE, MOST_SIDE_TEXT)?;
    params.check("new_width", w <= MOST_SIDE, MOST_SIDE_TEXT)?;
    match (h, w) {
        (0, 0) => Ok(None),
        (0, _) | (_, 0) => {
            Err(params.error_at("new_height", "give both new_height and new_width, or neither"))
        }
        _ => Ok(Some(HeightWidth { h, w })),
    }
}

fn mean(params: &mut Reader<'_>, old: &mut Reader<'_>) -> Result<Mean> {
    let file: Option<String> = params.get("mean_file")?.or(old.get("mean_file")?);
    let values = params.list("mean_value")?;
    match (file, values.is_empty()) {
        (None, true) => Ok(Mean::Zero),
        (None, false) => Ok(Mean::Values(values)),
        (Some(file), true) => Ok(Mean::File(PathBuf::from(file))),
        (Some(_), false) => {
            Err(params.error_at("mean_value", "give either mean_file or mean_value, not both"))
        }
    }
}
