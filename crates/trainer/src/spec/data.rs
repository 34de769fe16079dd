//! The layers that bring data into a net.

use super::Filler;
use crate::prototxt::{Error, Reader};

/// `Input`: blobs that the program fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputParams {
    /// The shape of each top; one shape may serve all
    pub shapes: Vec<Vec<usize>>,
}

impl InputParams {
    pub(super) fn read(layer: &mut Reader<'_>, tops: usize) -> Result<Self, Error> {
        let mut params = layer.message("input_param")?;
        let shapes = shapes(&mut params, "shape")?;
        one_or_each(&params, "shape", shapes.len(), tops)?;
        Ok(Self { shapes })
    }

    /// The shape of top number `top`.
    pub fn shape(&self, top: usize) -> &[usize] {
        of_top(&self.shapes, top)
    }
}

/// `DummyData`: blobs with made-up contents, filled anew at each iteration unless constant.
#[derive(Debug, Clone, PartialEq)]
pub struct DummyDataParams {
    /// The shape of each top; one shape may serve all
    pub shapes: Vec<Vec<usize>>,
    /// The contents of each top; one filler may serve all
    pub fillers: Vec<Filler>,
}

impl DummyDataParams {
    pub(super) fn read(layer: &mut Reader<'_>, tops: usize) -> Result<Self, Error> {
        let mut params = layer.message("dummy_data_param")?;
        let mut shapes = shapes(&mut params, "shape")?;
        if shapes.is_empty() {
            shapes = legacy_shapes(&mut params)?;
        }
        one_or_each(&params, "shape", shapes.len(), tops)?;
        let mut fillers = Vec::new();
        for filler in params.messages("data_filler")? {
            fillers.push(Filler::from_message(filler)?);
        }
        if fillers.is_empty() {
            fillers.push(Filler::Constant { value: 0.0 });
        }
        one_or_each(&params, "data_filler", fillers.len(), tops)?;
        Ok(Self { shapes, fillers })
    }

    /// The shape of top number `top`.
    pub fn shape(&self, top: usize) -> &[usize] {
        of_top(&self.shapes, top)
    }

    /// The contents of top number `top`.
    pub fn filler(&self, top: usize) -> Filler {
        *self.fillers.get(top).unwrap_or(&self.fillers[0])
    }
}

fn of_top(shapes: &[Vec<usize>], top: usize) -> &[usize] {
    shapes.get(top).unwrap_or(&shapes[0])
}

fn one_or_each(params: &Reader<'_>, name: &str, given: usize, tops: usize) -> Result<(), Error> {
    match given {
        0 => Err(params.missing(name)),
        1 => Ok(()),
        _ if given == tops => Ok(()),
        _ => Err(params.error_at(name, format!("{name} is given {given} times for {tops} tops"))),
    }
}

/// The messages `name`, each a list of the sizes `dim`.
pub(super) fn shapes(params: &mut Reader<'_>, name: &str) -> Result<Vec<Vec<usize>>, Error> {
    let mut shapes = Vec::new();
    for mut shape in params.messages(name)? {
        let dims: Vec<usize> = shape.list("dim")?;
        shape.check("dim", !dims.contains(&0), "at least 1")?;
        if dims.is_empty() {
            return Err(shape.missing("dim"));
        }
        shapes.push(dims);
    }
    Ok(shapes)
}

/// Four lists, one per axis, as shapes were written before blobs could have any number of axes.
fn legacy_shapes(params: &mut Reader<'_>) -> Result<Vec<Vec<usize>>, Error> {
    let mut axes = Vec::new();
    for name in ["num", "channels", "height", "width"] {
        let sizes: Vec<usize> = params.list(name)?;
        params.check(name, !sizes.contains(&0), "at least 1")?;
        axes.push(sizes);
    }
    if axes.iter().any(|sizes| sizes.len() != axes[0].len()) {
        let message = "num, channels, height and width must be given equally often";
        return Err(params.error_at("num", message));
    }
    Ok((0..axes[0].len()).map(|top| axes.iter().map(|sizes| sizes[top]).collect()).collect())
}

/// `Data`: images and labels from a collection that is read in order.
///
/// Caffe reads a database. Here `source` is a folder with the files of MNIST (IDX, plain or gzip) or of CIFAR-10
/// (binary); the net's phase decides between the training and the test files.
#[derive(Debug, Clone, PartialEq)]
pub struct DataParams {
    /// What is read, as written; see [`super::NetSpec::resolve`]
    pub source: String,
    /// Samples per iteration, at least 1
    pub batch_size: usize,
    /// The kind of database that the net was written for
    pub backend: Backend,
    /// Skip a random number of samples below this at the start
    pub rand_skip: usize,
    /// What is done to each image
    pub transform: TransformParams,
}

/// The kind of database in [`DataParams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// LevelDB
    #[default]
    LevelDb,
    /// LMDB
    Lmdb,
}

impl DataParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("data_param")?;
        params.ignore(&["prefetch"]);
        let backends = [("LEVELDB", Backend::LevelDb), ("LMDB", Backend::Lmdb)];
        Ok(Self {
            source: params.require("source")?,
            batch_size: params.positive("batch_size")?.ok_or_else(|| params.missing("batch_size"))?,
            backend: params.choice("backend", &backends)?.unwrap_or_default(),
            rand_skip: params.get_or("rand_skip", 0)?,
            transform: TransformParams::read(layer, &mut params)?,
        })
    }
}

/// `ImageData`: image files and labels from a list with one `path label` per line.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageDataParams {
    /// The list, as written; see [`super::NetSpec::resolve`]
    pub source: String,
    /// Put before each path of the list
    pub root_folder: String,
    /// Samples per iteration, at least 1
    pub batch_size: usize,
    /// Skip a random number of lines below this at the start
    pub rand_skip: usize,
    /// Shuffle the list before each pass over it?
    pub shuffle: bool,
    /// Height and width that each image is resized to first, if it is
    pub new_size: Option<super::HeightWidth>,
    /// Three channels (in the order blue, green, red) or one?
    pub is_color: bool,
    /// What is done to each image
    pub transform: TransformParams,
}

impl ImageDataParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("image_data_param")?;
        let new_size = match (params.get_or("new_height", 0)?, params.get_or("new_width", 0)?) {
            (0, 0) => None,
            (h, w) if h > 0 && w > 0 => {
                check_side(&params, "new_height", h)?;
                check_side(&params, "new_width", w)?;
                Some(super::HeightWidth { h, w })
            }
            _ => return Err(params.error_at("new_height", "give both new_height and new_width, or neither")),
        };
        Ok(Self {
            source: params.require("source")?,
            root_folder: params.get_or("root_folder", String::new())?,
            batch_size: params.positive("batch_size")?.unwrap_or(1),
            rand_skip: params.get_or("rand_skip", 0)?,
            shuffle: params.get_or("shuffle", false)?,
            new_size,
            is_color: params.get_or("is_color", true)?,
            transform: TransformParams::read(layer, &mut params)?,
        })
    }
}

/// Largest height or width that images are resized to.
const MOST_SIDE: usize = 65536;

fn check_side(params: &Reader<'_>, name: &str, side: usize) -> Result<(), Error> {
    params.check(name, side <= MOST_SIDE, &format!("at most {MOST_SIDE}"))
}

/// `transform_param`: what is done to each image, in this order: resize, crop, mirror, (pixel - mean) · scale.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformParams {
    /// Resize the image to this many pixels in both directions first (bilinear). Ours, not Caffe's.
    pub resize: Option<usize>,
    /// Crop to this many pixels in both directions: anywhere in TRAIN, the centre in TEST
    pub crop_size: Option<usize>,
    /// Mirror every second image, chosen at random, left to right?
    pub mirror: bool,
    /// Subtracted
    pub mean: Mean,
    /// Multiplied after that
    pub scale: f32,
}

/// What [`TransformParams`] subtracts.
#[derive(Debug, Clone, PartialEq)]
pub enum Mean {
    /// Nothing
    Zero,
    /// One value, or one per channel
    Values(Vec<f32>),
    /// The image in this file, as written, which has the size of the images before the crop
    File(String),
}

impl TransformParams {
    /// From the layer's `transform_param`; the oldest files have the same fields in `old`, the layer's own message.
    fn read(layer: &mut Reader<'_>, old: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("transform_param")?;
        let old_crop = old.get("crop_size")?;
        let old_mean_file = old.get::<String>("mean_file")?;
        let (old_mirror, old_scale) = (old.get("mirror")?, old.get("scale")?);
        let resize = params.positive("resize")?;
        check_side(&params, "resize", resize.unwrap_or(1))?;
        let mean_values: Vec<f32> = params.list("mean_value")?;
        let mean = match (params.get("mean_file")?.or(old_mean_file), mean_values.is_empty()) {
            (None, true) => Mean::Zero,
            (None, false) => Mean::Values(mean_values),
            (Some(file), true) => Mean::File(file),
            (Some(_), false) => {
                return Err(params.error_at("mean_value", "give either mean_file or mean_value, not both"));
            }
        };
        Ok(Self {
            resize,
            crop_size: params.get("crop_size")?.or(old_crop).filter(|&size| size > 0),
            mirror: params.get("mirror")?.or(old_mirror).unwrap_or(false),
            mean,
            scale: params.get("scale")?.or(old_scale).unwrap_or(1.0),
        })
    }
}
