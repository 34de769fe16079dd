//! Caffe's data transformation: `(pixel - mean) * scale`, crop and mirror; before it, an optional resize of ours.

use super::{
    DataError, Phase, Sample,
    mean_file::read_mean,
    order::below,
    resize::{Interleaved, Resizer},
};
use crate::spec::{Mean, TransformParams};
use ndarray::Array3;
use rand::Rng;
use tensor::{MemoryError, rng};

/// What the random choices of one sample are made from: nothing else enters them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the loader.
    pub seed: u64,
    /// Number of samples consumed before this one.
    pub position: u64,
}

/// Memory that [`Transform::apply`] needs, reused from sample to sample.
#[derive(Clone, Debug, Default)]
pub struct TransformScratch {
    resized: Vec<u8>,
    resizer: Resizer,
}

/// A checked transformation for images of one data set.
#[derive(Clone, Debug)]
pub struct Transform {
    params: TransformParams,
    /// One value for each channel, or an image, which is as large as the images before cropping.
    mean: Array3<f32>,
    phase: Phase,
    out_shape: [usize; 3],
}

/// Where the output lies in the (resized) image.
struct Window {
    top: usize,
    left: usize,
    mirrored: bool,
}

impl Transform {
    /// Checks `params` against images of `shape` (channels, height, width) and reads the mean image if there is one, whose path
    /// is taken as it stands.
    ///
    /// # Errors
    /// A crop larger than the images, an unreadable mean image or one of another shape.
    pub fn new(params: &TransformParams, shape: [usize; 3], phase: Phase) -> Result<Self, DataError> {
        let [channels, height, width] = shape;
        if [params.resize, params.crop_size].contains(&Some(0)) {
            return Err(DataError::Invalid("an image cannot be resized or cropped to 0 pixels".to_owned()));
        }
        let [height, width] = params.resize.map_or([height, width], |side| [side; 2]);
        let [out_height, out_width] = params.crop_size.map_or([height, width], |side| [side; 2]);
        let (mean, out_shape) = (mean(&params.mean, channels)?, [channels, out_height, out_width]);
        let transform = Self { params: params.clone(), mean, phase, out_shape };
        transform.check([channels, height, width]).map_err(DataError::Invalid)?;
        Ok(transform)
    }

    /// Channels, height and width of every transformed image.
    pub fn out_shape(&self) -> [usize; 3] {
        self.out_shape
    }

    /// Channels, height and width of an image between resizing and cropping, if there is resizing.
    pub fn resized_shape(&self) -> Option<[usize; 3]> {
        self.params.resize.map(|side| [self.out_shape[0], side, side])
    }

    /// Transforms a sample into `out` (channel, row, column).
    ///
    /// # Errors
    /// In a sentence: the sample's shape does not fit, or what it is resized to does not fit into memory.
    ///
    /// # Panics
    /// If `out` is not as long as [`out_shape`](Self::out_shape) says.
    pub fn apply(
        &self,
        sample: &Sample,
        draw: Draw,
        scratch: &mut TransformScratch,
        out: &mut [f32],
    ) -> Result<(), String> {
        assert_eq!(out.len(), self.out_shape.iter().product::<usize>());
        let (pixels, [height, width]) = self.resized(sample, scratch)?;
        let [_, out_height, out_width] = self.out_shape;
        self.check([sample.shape[0], height, width])?;
        let Window { top, left, mirrored } = self.window([height, width], draw);
        let means = self.mean.as_slice().expect("made in the order channel, row, column");
        let scaled = |pixel: u8, mean: f32| (f32::from(pixel) - mean) * self.params.scale;
        // By index: a fifth to a third faster than the rows of views by ndarray, which are short.
        for (row, out) in out.chunks_exact_mut(out_width).enumerate() {
            let (channel, y) = (row / out_height, row % out_height + top);
            let start = (channel * height + y) * width + left;
            let row = out.iter_mut().zip(&pixels[start..][..out_width]);
            if self.has_mean_image() {
                row.zip(&means[start..]).for_each(|((out, &pixel), &mean)| *out = scaled(pixel, mean));
            } else {
                let mean = means[channel];
                row.for_each(|(out, &pixel)| *out = scaled(pixel, mean));
            }
            if mirrored {
                out.reverse();
            }
        }
        Ok(())
    }

    fn resized<'a>(
        &self,
        sample: &'a Sample,
        scratch: &'a mut TransformScratch,
    ) -> Result<(&'a [u8], [usize; 2]), String> {
        let [channels, height, width] = sample.shape;
        match self.params.resize.map(|side| [side; 2]) {
            Some(to) if to != [height, width] => {
                let bytes = channels * to[0] * to[1];
                let TransformScratch { resized, resizer } = scratch;
                resized.clear();
                resized.try_reserve_exact(bytes).map_err(|_| MemoryError::Host { bytes }.to_string())?;
                for pixels in sample.pixels.chunks_exact(height * width) {
                    let channel = Interleaved { pixels, size: [height, width], channels: 1 };
                    resizer.resize(channel, &[0], to, resized);
                }
                Ok((resized, to))
            }
            _ => Ok((&sample.pixels, [height, width])),
        }
    }

    fn has_mean_image(&self) -> bool {
        matches!(self.params.mean, Mean::File(_))
    }

    /// Checks the shape of a resized image.
    fn check(&self, found: [usize; 3]) -> Result<(), String> {
        let ([channels, height, width], [out_channels, out_height, out_width]) = (found, self.out_shape);
        let (c, h, w) = self.mean.dim();
        match self.params.crop_size {
            _ if channels != out_channels => {
                Err(format!("the image has {channels} channels where {out_channels} are expected"))
            }
            Some(crop) if height < crop || width < crop => {
                Err(format!("the image is {height}x{width}, too small for crop_size {crop}"))
            }
            None if [height, width] != [out_height, out_width] => Err(format!(
                "the image is {height}x{width} where {out_height}x{out_width} is expected; resize all images to one size \
                 (new_height, new_width) or crop them (crop_size)"
            )),
            _ if self.has_mean_image() && [c, h, w] != found => {
                Err(format!("the image is {channels}x{height}x{width} but the mean image is {c}x{h}x{w}"))
            }
            _ => Ok(()),
        }
    }

    fn window(&self, [height, width]: [usize; 2], draw: Draw) -> Window {
        let [_, out_height, out_width] = self.out_shape;
        let (rows, columns) = (height - out_height, width - out_width);
        let random_crop = self.phase == Phase::Train && (rows, columns) != (0, 0);
        if !random_crop && !self.params.mirror {
            return Window { top: rows / 2, left: columns / 2, mirrored: false };
        }
        let mut rng = rng::stream(draw.seed, draw.position);
        // Drawn first and always, so that adding a crop does not change which images are mirrored.
        let mirrored = rng.next_u32() & 1 == 1 && self.params.mirror;
        let [top, left] = match self.phase {
            Phase::Train => [below(&mut rng, rows + 1), below(&mut rng, columns + 1)],
            Phase::Test => [rows / 2, columns / 2],
        };
        Window { top, left, mirrored }
    }
}

/// What is subtracted: an image, or a value of each channel.
fn mean(mean: &Mean, channels: usize) -> Result<Array3<f32>, DataError> {
    let shape = [channels, 1, 1];
    match mean {
        Mean::File(path) => read_mean(path),
        Mean::Zero => Ok(Array3::zeros(shape)),
        Mean::Values(values) if [1, channels].contains(&values.len()) => {
            Ok(Array3::from_shape_fn(shape, |(channel, ..)| values[channel % values.len()]))
        }
        Mean::Values(values) => Err(DataError::Invalid(format!(
            "{} mean_value given for images of {channels} channels; give none, one or {channels}",
            values.len()
        ))),
    }
}
