//! The layers that bring data into a net.

use super::{Filler, params::params};
use crate::prototxt::{Reader, Result, defaults};
use std::path::PathBuf;

params! {
    /// `Input`: blobs that the program fills, by [`Execution::set_blob`](crate::Execution::set_blob).
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
    // `backend` names the kind of database that the net was written for.
    DataParams(params: layer.data_param) ignores [prefetch backend] {
        source: String = String::new();
            "What is read, as written; see [`super::NetSpec::resolve`]. It may be empty where nothing is read"
        batch_size: usize, batch_size > 0 => "at least 1"; "Samples per iteration, at least 1"
        transform: TransformParams { TransformParams { is_rgb: true, ..TransformParams::read(layer, params)? } };
            "What is done to each image"
    }

    /// `ImageData`: image files and labels from a list with one `path label` per line.
    ImageDataParams(params: layer.image_data_param) {
        source: String = String::new(); "The list, as written, or empty as that of a [`DataParams`]"
        root_folder: String = String::new(); "Put before each path of the list"
        batch_size: usize = 1, batch_size > 0 => "at least 1"; "Samples per iteration, at least 1"
        shuffle: bool = false; "Shuffle the list before each pass over it?"
        new_size: Option<[usize; 2]> { new_size(params)? };
            "Height and width that each image is resized to first, if it is"
        is_color: bool = true; "Three channels or one?"
        transform: TransformParams { image_transform(layer, params, new_size, is_color)? };
            "What is done to each image"
        images: Vec<PathBuf> { Vec::new() }; "Image files that a program has read instead of the source"
    }

    /// `transform_param`: what is done to each image, in this order: resize, crop, mirror, rotate, change colours,
    /// (pixel - mean) · scale / std. What Caffe lacks is ours: resizing, but by `new_height` and `new_width`, and all
    /// that follows `scale`.
    // The oldest files have the same fields in the layer's own message.
    TransformParams(params: layer.transform_param, old: &mut Reader<'_>) {
        resize: Option<usize>, resize != Some(0) => "at least 1",
            resize.is_none_or(|side| side <= MOST_SIDE) => MOST_SIDE_TEXT;
            "Resize the image to this many pixels in both directions first (bilinear)"
        shorter_side: Option<usize>, shorter_side.is_none_or(|side| (1..=MOST_SIDE).contains(&side)) => SIDE_TEXT,
            shorter_side.is_none() || resize.is_none() => "left out where resize is given";
            "Resize the image so that its shorter side has this many pixels"
        new_size: Option<[usize; 2]> { None }; "`new_height` and `new_width` of an [`ImageDataParams`]: resized as by OpenCV"
        is_rgb: bool { false };
            "Colours stay in the order red, green, blue: in the files of a [`DataParams`], and by `is_rgb` of an \
             [`ImageDataParams`], which is ours; otherwise they are turned to Caffe's blue, green, red"
        crop_size: Option<usize> {
            params.get("crop_size")?.or(old.get("crop_size")?).filter(|&size: &usize| size > 0)
        }; "Crop to this many pixels in both directions: anywhere in TRAIN, the centre in TEST"
        mirror: bool { params.get("mirror")?.or(old.get("mirror")?).unwrap_or(false) };
            "Mirror every second image, chosen at random, left to right?"
        mean: Mean { mean(params, old)? }; "Subtracted"
        scale: f32 { params.get("scale")?.or(old.get("scale")?).unwrap_or(1.0) }; "Multiplied after that"
        std "std_value": Vec<f32> = Vec::new(), std.iter().all(|&std| std > 0.0) => "above 0";
            "One value, or one per channel, that is divided by"
        min_area: Option<f32>, min_area.is_none_or(|area| area > 0.0 && area <= 1.0) => "above 0 and at most 1",
            min_area.is_none() || crop_size.is_some() => "together with crop_size";
            "In TRAIN, crop a random part of the image as it was read, of at least this part of its area, and resize it to \
             crop_size; no other resizing is done then"
        max_aspect: f32 = 4.0 / 3.0, (1.0..=100.0).contains(&max_aspect) => "from 1 to 100";
            "Of that part: the longer side by the shorter, at most"
        mirror_vertically: bool = false; "In TRAIN, mirror every second image top to bottom, too?"
        rotation: f32 = 0.0, (0.0..=180.0).contains(&rotation) => "from 0 to 180 degrees";
            "In TRAIN, turn the image by up to so many degrees to either side; pixels from outside are those of the border"
        color_jitter: ColorJitter { ColorJitter::read(params)? }; "In TRAIN, random changes of colours"
    }

    /// `color_jitter`: how far the colours of an image are changed at random; torchvision's of that name.
    #[derive(Copy, Default)]
    ColorJitter(jitter: params.color_jitter) {
        brightness: f32 = 0.0, is_part(brightness) => PART_TEXT; "A factor of 1 ± this"
        contrast: f32 = 0.0, is_part(contrast) => PART_TEXT; "Differences from the mean grey, times 1 ± this"
        saturation: f32 = 0.0, is_part(saturation) => PART_TEXT; "Differences from a pixel's own grey, times 1 ± this"
        hue: f32 = 0.0, (0.0..=0.5).contains(&hue) => "from 0 to 0.5";
            "Colours are turned about the axis of greys by ± this part of a full turn"
    }
}

impl Default for TransformParams {
    /// Nothing is done.
    fn default() -> Self {
        defaults(|old| Self::read(&mut old.message("")?, old))
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
const SIDE_TEXT: &str = "from 1 to 65536";
const PART_TEXT: &str = "from 0 to 1";

fn is_part(number: f32) -> bool {
    (0.0..=1.0).contains(&number)
}

/// What belongs to top number `top`: of `each` top's own one, or the only one, which serves all.
pub fn of_top<T>(each: &[T], top: usize) -> &T {
    each.get(top).unwrap_or(&each[0])
}

/// `given` by the field `name`, if it is one for all tops or one for each.
fn for_tops<T>(layer: &mut Reader<'_>, params: &Reader<'_>, name: &str, given: Vec<T>) -> Result<Vec<T>> {
    match given.len() {
        0 => Err(params.missing(name)),
        1 => Ok(given),
        count => params.check_each(name, count, "tops", layer.fields("top").len()).map(|()| given),
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
        let are_alike = axes.iter().all(|sizes| sizes.len() == axes[0].len());
        params.ensure("num", are_alike, "num, channels, height and width must be given equally often")?;
        shapes.extend((0..axes[0].len()).map(|top| axes.iter().map(|sizes| sizes[top]).collect()));
    }
    for_tops(layer, params, "shape", shapes)
}

fn data_fillers(layer: &mut Reader<'_>, params: &mut Reader<'_>) -> Result<Vec<Filler>> {
    let mut fillers = params.read_all("data_filler", Filler::read)?;
    if fillers.is_empty() {
        fillers.push(Filler::constant(0.0));
    }
    for_tops(layer, params, "data_filler", fillers)
}

/// What is done to images, with what stands beside their source.
fn image_transform(
    layer: &mut Reader<'_>,
    params: &mut Reader<'_>,
    new_size: Option<[usize; 2]>,
    is_color: bool,
) -> Result<TransformParams> {
    let is_rgb = params.get_or("is_rgb", false)?;
    params.check("is_rgb", is_color || !is_rgb, "left out where is_color is false")?;
    let transform = TransformParams::read(layer, params)?;
    let is_alone = new_size.is_none() || transform.resize.or(transform.shorter_side).is_none();
    let message = "give new_height and new_width, or resize or shorter_side, not both";
    params.ensure("new_height", is_alone, message)?;
    Ok(TransformParams { new_size, is_rgb, ..transform })
}

fn new_size(params: &mut Reader<'_>) -> Result<Option<[usize; 2]>> {
    let (h, w) = (params.get_or("new_height", 0)?, params.get_or("new_width", 0)?);
    params.check("new_height", h <= MOST_SIDE, MOST_SIDE_TEXT)?;
    params.check("new_width", w <= MOST_SIDE, MOST_SIDE_TEXT)?;
    let message = "give both new_height and new_width, or neither";
    params.ensure("new_height", (h > 0) == (w > 0), message)?;
    Ok((h > 0).then_some([h, w]))
}

fn mean(params: &mut Reader<'_>, old: &mut Reader<'_>) -> Result<Mean> {
    let file: Option<String> = params.get("mean_file")?.or(old.get("mean_file")?);
    let values = params.list("mean_value")?;
    let is_one = file.is_none() || values.is_empty();
    params.ensure("mean_value", is_one, "give either mean_file or mean_value, not both")?;
    Ok(match file {
        Some(file) => Mean::File(PathBuf::from(file)),
        None if values.is_empty() => Mean::Zero,
        None => Mean::Values(values),
    })
}
