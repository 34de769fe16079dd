//! Caffe's data transformation: crop, mirror and `(pixel - mean) * scale`; and what it lacks: resizing, random regions,
//! changes of pixels, a divisor of each channel.

use super::augment::{jitter, region, rotate};
use super::resize::{AVERAGING, NEAREST2, Pixels, Region};
use super::{NetError, Phase, Result, Sample, mean_file::read_mean, order::below, resize};
use crate::spec::{ColorJitter, Mean, TransformParams};
use fast_image_resize::Resizer;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tensor::rng;

/// Memory that [`Transform::apply`] needs, reused from sample to sample.
#[derive(Clone, Debug, Default)]
pub struct TransformScratch {
    resizer: Resizer,
    resized: Vec<u8>,
    changed: Vec<u8>,
    turned: Vec<u8>,
}

/// A checked transformation for images of one data set.
#[derive(Clone, Debug)]
pub struct Transform {
    params: TransformParams,
    /// One value for each channel, or an image, which is as large as the images before cropping; and its shape.
    mean: ([usize; 3], Vec<f32>),
    /// What the difference from the mean is multiplied by, for each channel.
    factors: Vec<f32>,
    phase: Phase,
    out_shape: [usize; 3],
}

impl Transform {
    /// Checks `params` against images of `shape` (channels, height, width) and reads the mean image if there is one,
    /// whose path is taken as it stands.
    ///
    /// # Errors
    /// A crop larger than the images, unless in training it is of random areas, which are resized to it; images that are
    /// too large once they are resized; an unreadable mean image, one of another shape or of images that are changed at
    /// random; a mean or a divisor for other channels.
    pub fn new(params: &TransformParams, shape: [usize; 3], phase: Phase) -> Result<Self> {
        let [channels, height, width] = shape;
        if [params.resize, params.shorter_side, params.crop_size].contains(&Some(0)) {
            return Err(NetError::Refused("an image cannot be resized or cropped to 0 pixels".to_owned()));
        }
        let mut params = params.clone();
        params.min_area = params.min_area.filter(|_| phase == Phase::Train);
        let size = resized(&params, [height, width]);
        let [out_height, out_width] = params.crop_size.map_or(size, |side| [side; 2]);
        let out_shape = [channels, out_height, out_width];
        let stds = if params.std.is_empty() { &[1.0][..] } else { &params.std };
        let stds = per_channel("std_value", stds, channels)?;
        let factors = stds.iter().map(|std| params.scale / std).collect();
        let mean = mean(&params.mean, channels)?;
        let transform = Self { params, mean, factors, phase, out_shape };
        if (transform.params.min_area.is_some() || transform.changes_pixels()) && transform.has_mean_image() {
            let reason = "a mean image fits no image that is changed at random (min_area, mirror_vertically, rotation, \
                          color_jitter); mean_value does";
            return Err(NetError::Refused(reason.to_owned()));
        }
        resize::check([height, width], size, channels).map_err(NetError::Refused)?;
        transform.check([channels, size[0], size[1]]).map_err(NetError::Refused)?;
        Ok(transform)
    }

    /// Channels, height and width of every transformed image.
    pub fn out_shape(&self) -> [usize; 3] {
        self.out_shape
    }

    /// Bytes that transforming images of `shape` takes beside the sample and the result.
    pub fn scratch_bytes(&self, [channels, height, width]: [usize; 3]) -> u64 {
        let bytes = |[height, width]: [usize; 2]| (channels as u64) * (height as u64) * (width as u64);
        let to = resized(&self.params, [height, width]);
        let resizing = if to == [height, width] { 0 } else { bytes(to) + bytes([to[0], width]) };
        resizing + if self.changes_pixels() { 2 * bytes(self.out_size()) } else { 0 }
    }

    /// Transforms a sample into `out` (channel, row, column). Random choices are made from the loader's `seed` and the
    /// number of samples consumed before, and nothing else.
    ///
    /// # Errors
    /// In a sentence: the sample's shape does not fit, or what it is resized to does not fit into memory.
    ///
    /// # Panics
    /// If `out` is not as long as [`out_shape`](Self::out_shape) says.
    pub fn apply(
        &self,
        sample: &Sample,
        (seed, position): (u64, u64),
        scratch: &mut TransformScratch,
        out: &mut [f32],
    ) -> Result<(), String> {
        assert_eq!(out.len(), self.out_shape.iter().product::<usize>());
        let mut rng = rng::stream(seed, position);
        // Drawn first and always, so that adding a crop does not change which images are mirrored.
        let mirrored = rng.next_u32() & 1 == 1 && self.params.mirror;
        let TransformScratch { resizer, resized, changed, turned } = scratch;
        let turns = sample.shape[0] == 3 && !self.params.is_rgb;
        let image = self.resize(sample, &mut rng, resizer, resized)?;
        self.check([image.channels, image.size[0], image.size[1]])?;
        let window = self.window(image.size, &mut rng);
        if !self.changes_pixels() {
            self.normalize(image, window, (mirrored, turns), out);
            return Ok(());
        }
        self.change(image, window, &mut rng, (changed, turned));
        let image = Pixels { bytes: changed, size: window.size, ..image };
        self.normalize(image, Region::whole(window.size), (mirrored, turns), out);
        Ok(())
    }

    /// The sample's pixels in the size before cropping.
    fn resize<'a>(
        &self,
        sample: &'a Sample,
        rng: &mut ChaCha8Rng,
        resizer: &mut Resizer,
        into: &'a mut Vec<u8>,
    ) -> Result<Pixels<'a>, String> {
        let [channels, height, width] = sample.shape;
        let image = Pixels { bytes: &sample.pixels, size: [height, width], channels };
        let TransformParams { resize, shorter_side, min_area, max_aspect, .. } = self.params;
        let part = min_area.map(|area| region(rng, image.size, area, max_aspect));
        let (region, to) = (part.unwrap_or(Region::whole(image.size)), resized(&self.params, image.size));
        if to == image.size && region == Region::whole(to) {
            return Ok(image);
        }
        let is_ours = part.is_some() || resize.or(shorter_side).is_some();
        let sampling = if is_ours { AVERAGING } else { NEAREST2 };
        resize::resize(resizer, image, region, (to, sampling), into)?;
        Ok(Pixels { bytes: into, size: to, channels })
    }

    /// Copies a window of `image` and changes it at random as it is asked for.
    fn change(
        &self,
        image: Pixels<'_>,
        window: Region,
        rng: &mut ChaCha8Rng,
        (changed, turned): (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let TransformParams { mirror_vertically, rotation, color_jitter, .. } = &self.params;
        let (row, channels) = (window.size[1] * image.channels, image.channels);
        let upside_down = rng.next_u32() & 1 == 1 && *mirror_vertically;
        changed.clear();
        for y in 0..window.size[0] {
            let y = window.top + if upside_down { window.size[0] - 1 - y } else { y };
            changed.extend_from_slice(&image.bytes[(y * image.size[1] + window.left) * channels..][..row]);
        }
        if *rotation > 0.0 {
            rotate(rng, changed, (window.size, channels), *rotation, turned);
            std::mem::swap(changed, turned);
        }
        if *color_jitter != ColorJitter::default() {
            jitter(rng, color_jitter, changed, channels);
        }
    }

    /// Whether [`Transform::change`] has anything to do.
    fn changes_pixels(&self) -> bool {
        let TransformParams { mirror_vertically, rotation, color_jitter, .. } = &self.params;
        self.phase == Phase::Train
            && (*mirror_vertically || *rotation > 0.0 || *color_jitter != ColorJitter::default())
    }

    /// Writes a window of `image`, (pixel - mean) times the factor, channel by channel, from the last on if it `turns`.
    fn normalize(&self, image: Pixels<'_>, window: Region, (mirrored, turns): (bool, bool), out: &mut [f32]) {
        let Pixels { bytes, size: [height, width], channels } = image;
        let (plane, is_image) = (window.size[0] * window.size[1], self.has_mean_image());
        let (_, means) = &self.mean;
        for (channel, out) in out.chunks_exact_mut(plane).enumerate() {
            let from = if turns { channels - 1 - channel } else { channel };
            let factor = self.factors[channel];
            for (y, out) in out.chunks_exact_mut(window.size[1]).enumerate() {
                let start = (window.top + y) * width + window.left;
                let row = &bytes[start * channels..][..out.len() * channels];
                match channels {
                    1 if !is_image => normalize_row::<1>(row, from, (means[channel], factor), out),
                    3 if !is_image => normalize_row::<3>(row, from, (means[channel], factor), out),
                    _ => {
                        let first = if is_image { channel * height * width + start } else { channel };
                        let row = row[from..].iter().step_by(channels);
                        for (x, (out, &pixel)) in out.iter_mut().zip(row).enumerate() {
                            let mean = means[first + if is_image { x } else { 0 }];
                            *out = (f32::from(pixel) - mean) * factor;
                        }
                    }
                }
                if mirrored {
                    out.reverse();
                }
            }
        }
    }

    /// Height and width of every transformed image.
    fn out_size(&self) -> [usize; 2] {
        [self.out_shape[1], self.out_shape[2]]
    }

    fn has_mean_image(&self) -> bool {
        matches!(self.params.mean, Mean::File(_))
    }

    /// Checks the shape of a resized image.
    fn check(&self, found: [usize; 3]) -> Result<(), String> {
        let ([channels, height, width], [out_channels, out_height, out_width]) = (found, self.out_shape);
        let [c, h, w] = self.mean.0;
        match self.params.crop_size {
            _ if channels != out_channels => {
                Err(format!("the image has {channels} channels where {out_channels} are expected"))
            }
            Some(crop) if height < crop || width < crop => {
                Err(format!("the image is {width}x{height} (width x height), too small for crop_size {crop}"))
            }
            None if [height, width] != [out_height, out_width] => Err(format!(
                "the image is {width}x{height} (width x height) where {out_width}x{out_height} is expected; resize all \
                 images to one size (new_height, new_width) or crop them (crop_size)"
            )),
            _ if self.has_mean_image() && [c, h, w] != found => {
                Err(format!("the image is {channels}x{height}x{width} but the mean image is {c}x{h}x{w}"))
            }
            _ => Ok(()),
        }
    }

    /// Where the output lies in an image of `size`.
    fn window(&self, size: [usize; 2], rng: &mut ChaCha8Rng) -> Region {
        let out = self.out_size();
        let middle = Region::centre(size, out);
        if self.phase == Phase::Test {
            return middle;
        }
        let [top, left] = [size[0] - out[0], size[1] - out[1]].map(|room| below(rng, room + 1));
        Region { top, left, ..middle }
    }
}

/// A row of pixels with `C` channels, of which `channel` is written.
fn normalize_row<const C: usize>(row: &[u8], channel: usize, (mean, factor): (f32, f32), out: &mut [f32]) {
    for (out, pixel) in out.iter_mut().zip(row.as_chunks::<C>().0) {
        *out = (f32::from(pixel[channel]) - mean) * factor;
    }
}

/// Height and width of an image of `size` when it has been resized: a random part of it to the size of the crop.
fn resized(params: &TransformParams, size: [usize; 2]) -> [usize; 2] {
    let short = size[0].min(size[1]).max(1);
    match (params.min_area.and(params.crop_size).or(params.resize), params.shorter_side, params.new_size) {
        (Some(side), ..) => [side; 2],
        // As torchvision rounds.
        (_, Some(side), _) => size.map(|extent| side.saturating_mul(extent) / short),
        (.., Some(size)) => size,
        _ => size,
    }
}

/// What is subtracted: an image, or a value of each channel.
fn mean(mean: &Mean, channels: usize) -> Result<([usize; 3], Vec<f32>)> {
    let values = match mean {
        Mean::File(path) => return read_mean(path),
        Mean::Zero => vec![0.0; channels],
        Mean::Values(values) => per_channel("mean_value", values, channels)?,
    };
    Ok(([channels, 1, 1], values))
}

/// The value of each channel, if `values` are one or one for each.
fn per_channel(name: &str, values: &[f32], channels: usize) -> Result<Vec<f32>> {
    let count = values.len();
    if [1, channels].contains(&count) {
        return Ok((0..channels).map(|channel| values[channel % count]).collect());
    }
    let reason =
        format!("{count} {name} given for images of {channels} channels; give none, one or {channels}");
    Err(NetError::Refused(reason))
}
