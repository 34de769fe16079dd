//! Caffe's data transformation: `(pixel - mean) * scale`, crop and mirror; before it, an optional resize of ours.

use std::path::PathBuf;

use rand::Rng;
use tensor::MemoryError;

use super::order::{below, sample_rng};
use super::resize::{Interleaved, Resizer};
use super::{DataError, MeanImage, Misfit, Phase, Sample};

/// What the user asks for; fields as in Caffe's `transform_param`, but for `resize`.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformOptions {
    /// Factor of every pixel, after the mean is subtracted.
    pub scale: f32,
    /// Mirror every second image, at random, left to right (in both phases, as Caffe does).
    pub mirror: bool,
    /// Side of the square to cut out: at random when training, the centre when testing.
    pub crop_size: Option<usize>,
    /// Mean to subtract: none, one for all channels, or one per channel.
    pub mean_values: Vec<f32>,
    /// Mean image to subtract (`.binaryproto`), as large as the images before cropping.
    pub mean_file: Option<PathBuf>,
    /// Height and width that every image is resized to first (bilinear).
    pub resize: Option<[usize; 2]>,
}

impl Default for TransformOptions {
    fn default() -> Self {
        Self {
            scale: 1.0,
            mirror: false,
            crop_size: None,
            mean_values: Vec::new(),
            mean_file: None,
            resize: None,
        }
    }
}

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

#[derive(Clone, Debug)]
enum Mean {
    /// One value per channel.
    Channels(Vec<f32>),
    Image(MeanImage),
}

/// A checked transformation for images of one data set.
#[derive(Clone, Debug)]
pub struct Transform {
    scale: f32,
    mirror: bool,
    crop_size: Option<usize>,
    mean: Mean,
    resize: Option<[usize; 2]>,
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
    /// Checks the options against images of `shape` (channels, height, width) and reads the mean image if there is one.
    ///
    /// # Errors
    /// Contradicting options, a crop larger than the images, an unreadable mean image or one of another shape.
    pub fn new(options: &TransformOptions, shape: [usize; 3], phase: Phase) -> Result<Self, DataError> {
        let [channels, height, width] = shape;
        if options.resize.is_some_and(|to| to.contains(&0)) || options.crop_size == Some(0) {
            return Err(DataError::Options("an image cannot be resized or cropped to 0 pixels".to_owned()));
        }
        let mean = mean(options, channels)?;
        let [height, width] = options.resize.unwrap_or([height, width]);
        let [out_height, out_width] = options.crop_size.map_or([height, width], |crop| [crop, crop]);
        let transform = Self {
            scale: options.scale,
            mirror: options.mirror,
            crop_size: options.crop_size,
            mean,
            resize: options.resize,
            phase,
            out_shape: [channels, out_height, out_width],
        };
        let checked = transform.check([channels, height, width]);
        checked.map_err(|misfit| DataError::Options(misfit.to_string()))?;
        Ok(transform)
    }

    /// Channels, height and width of every transformed image.
    pub fn out_shape(&self) -> [usize; 3] {
        self.out_shape
    }

    /// Channels, height and width of an image between resizing and cropping, if there is resizing.
    pub fn resized_shape(&self) -> Option<[usize; 3]> {
        self.resize.map(|[height, width]| [self.out_shape[0], height, width])
    }

    /// Transforms a sample into `out` (channel, row, column).
    ///
    /// # Errors
    /// The sample's shape does not fit, or what it is resized to does not fit into memory.
    ///
    /// # Panics
    /// If `out` is not as long as [`out_shape`](Self::out_shape) says.
    pub fn apply(
        &self,
        sample: &Sample,
        draw: Draw,
        scratch: &mut TransformScratch,
        out: &mut [f32],
    ) -> Result<(), Misfit> {
        let [channels, out_height, out_width] = self.out_shape;
        assert_eq!(out.len(), channels * out_height * out_width);
        let (pixels, [height, width]) = self.resized(sample, scratch)?;
        self.check([sample.shape[0], height, width])?;
        let window = self.window([height, width], draw);
        for (row, out) in out.chunks_exact_mut(out_width).enumerate() {
            let (channel, y) = (row / out_height, row % out_height + window.top);
            let start = (channel * height + y) * width + window.left;
            let pixels = &pixels[start..][..out_width];
            match &self.mean {
                Mean::Channels(means) => self.row(pixels, std::iter::repeat(means[channel]), out),
                Mean::Image(image) => self.row(pixels, image.values[start..].iter().copied(), out),
            }
            if window.mirrored {
                out.reverse();
            }
        }
        Ok(())
    }

    fn row(&self, pixels: &[u8], means: impl Iterator<Item = f32>, out: &mut [f32]) {
        for ((out, &pixel), mean) in out.iter_mut().zip(pixels).zip(means) {
            *out = (f32::from(pixel) - mean) * self.scale;
        }
    }

    fn resized<'a>(
        &self,
        sample: &'a Sample,
        scratch: &'a mut TransformScratch,
    ) -> Result<(&'a [u8], [usize; 2]), Misfit> {
        let [channels, height, width] = sample.shape;
        match self.resize {
            Some(to) if to != [height, width] => {
                let bytes = channels * to[0] * to[1];
                scratch.resized.clear();
                let room = scratch.resized.try_reserve_exact(bytes);
                room.map_err(|_| Misfit::Memory(MemoryError::Host { bytes }))?;
                let TransformScratch { resized, resizer } = scratch;
                for pixels in sample.pixels.chunks_exact(height * width) {
                    resizer.resize(
                        Interleaved { pixels, size: [height, width], channels: 1 },
                        &[0],
                        to,
                        resized,
                    );
                }
                Ok((&scratch.resized, to))
            }
            _ => Ok((&sample.pixels, [height, width])),
        }
    }

    /// Checks the shape of a resized image.
    fn check(&self, found: [usize; 3]) -> Result<(), Misfit> {
        let [channels, out_height, out_width] = self.out_shape;
        let [_, height, width] = found;
        if found[0] != channels {
            return Err(Misfit::Channels { expected: channels, found: found[0] });
        }
        match self.crop_size {
            Some(crop) if height < crop || width < crop => return Err(Misfit::Crop { crop, height, width }),
            None if [height, width] != [out_height, out_width] => {
                return Err(Misfit::Size { expected: [out_height, out_width], found: [height, width] });
            }
            _ => {}
        }
        match &self.mean {
            Mean::Image(image) if image.shape != found => Err(Misfit::Mean { expected: image.shape, found }),
            _ => Ok(()),
        }
    }

    fn window(&self, [height, width]: [usize; 2], draw: Draw) -> Window {
        let [_, out_height, out_width] = self.out_shape;
        let (rows, columns) = (height - out_height, width - out_width);
        let random_crop = self.phase == Phase::Train && (rows, columns) != (0, 0);
        if !random_crop && !self.mirror {
            return Window { top: rows / 2, left: columns / 2, mirrored: false };
        }
        let mut rng = sample_rng(draw.seed, draw.position);
        // Drawn first and always, so that adding a crop does not change which images are mirrored.
        let mirrored = rng.next_u32() & 1 == 1 && self.mirror;
        let [top, left] = match self.phase {
            Phase::Train => [below(&mut rng, rows + 1), below(&mut rng, columns + 1)],
            Phase::Test => [rows / 2, columns / 2],
        };
        Window { top, left, mirrored }
    }
}

fn mean(options: &TransformOptions, channels: usize) -> Result<Mean, DataError> {
    match (&options.mean_file, &options.mean_values[..]) {
        (Some(_), [_, ..]) => {
            Err(DataError::Options("mean_file and mean_value exclude each other".to_owned()))
        }
        (Some(path), []) => MeanImage::open(path).map(Mean::Image),
        (None, []) => Ok(Mean::Channels(vec![0.0; channels])),
        (None, [one]) => Ok(Mean::Channels(vec![*one; channels])),
        (None, each) if each.len() == channels => Ok(Mean::Channels(each.to_vec())),
        (None, each) => Err(DataError::Options(format!(
            "{} mean_value given for images of {channels} channels; give none, one or {channels}",
            each.len()
        ))),
    }
}
