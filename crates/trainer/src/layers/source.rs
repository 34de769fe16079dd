//! Layers that bring data: data sets, synthetic blobs, blobs that the program fills.

use super::{BuildOptions, Declaration, Layer, SyntheticData};
use crate::{
    data::{
        DataError, DataSummary, Dataset, ImageData, ImageOptions, Loader, LoaderOptions, Synthetic,
        TransformOptions, open_source, source_shape,
    },
    error::BoxError,
    fill::fill,
    spec::{
        DataParams, DummyDataParams, Filler, ImageDataParams, InputParams, LayerSpec, NetSpec,
        TransformParams, of_top,
    },
};
use std::sync::Arc;
use tensor::{Device, Staging, TensorType, ViewMut, arena::zeroed};

/// `Data` and `ImageData`: mini-batches of a data set, prepared by a background thread.
///
/// Or, if `constant`, synthetic data in the place of a data set: one mini-batch, made once, so that timing sees the net and
/// not its data.
pub struct DataLayer {
    loader: Loader,
    constant: bool,
    /// Labels, for a layer with one top that does not pass them on.
    labels: Vec<f32>,
    tops: usize,
    mini_batch: usize,
    /// The way of data and labels to the device.
    staging: [Staging; 2],
}

impl DataLayer {
    fn new(
        (net, layer): (&NetSpec, &LayerSpec),
        dataset: Arc<dyn Dataset>,
        transform: &TransformOptions,
        mini_batch: usize,
        (shuffle, seed, prefetch): (bool, u64, usize),
    ) -> Result<Self, BoxError> {
        let options = LoaderOptions { mini_batch, phase: net.state.phase, seed, shuffle, prefetch };
        let loader = Loader::new(dataset, transform, options)?;
        Ok(Self {
            loader,
            constant: false,
            labels: Vec::new(),
            tops: layer.tops.len(),
            mini_batch,
            staging: Default::default(),
        })
    }

    /// The layer for a `data_param`.
    pub(super) fn data(
        place: (&NetSpec, &LayerSpec),
        params: &DataParams,
        options: &BuildOptions,
    ) -> Result<Self, BoxError> {
        let net = place.0;
        let source = net.resolve(&params.source);
        if let Some(images) = options.synthetic {
            let of_data = || match (source_shape(&source, net.state.phase), side(&params.transform)) {
                (found, Some(side)) => Ok([found.map_or(3, |shape| shape[0]), side, side]),
                (found, None) => found.map_err(ask_size),
            };
            let shape = images.shape.map_or_else(of_data, Ok)?;
            return Self::synthetic(place, &params.transform, params.batch_size, shape, images, options.seed);
        }
        let dataset = open_source(&source, net.state.phase).map_err(advise_synthetic)?;
        let transform = TransformOptions::from_spec(&params.transform, |file| net.resolve(file));
        let mut layer = Self::new(place, dataset, &transform, params.batch_size, (false, options.seed, 1))?;
        skip(&mut layer, params.rand_skip, options.seed, &place.1.name);
        Ok(layer)
    }

    /// The layer for an `image_data_param`.
    pub(super) fn images(
        place: (&NetSpec, &LayerSpec),
        params: &ImageDataParams,
        options: &BuildOptions,
    ) -> Result<Self, BoxError> {
        let net = place.0;
        let decoding = ImageOptions::from_spec(params, |file| net.resolve(file));
        let source = net.resolve(&params.source);
        let open = if source.is_dir() { ImageData::open_folder } else { ImageData::open_list };
        if let Some(images) = options.synthetic {
            let square = side(&params.transform).map(|side| [side, side]);
            let size = params.new_size.map(|size| [size.h, size.w]).or(square);
            let shape = size.map(|[h, w]| [if params.is_color { 3 } else { 1 }, h, w]);
            let of_first = || open(&source, &decoding).map(|set| set.shape()).map_err(ask_size);
            let shape = images.shape.or(shape).map_or_else(of_first, Ok)?;
            return Self::synthetic(place, &params.transform, params.batch_size, shape, images, options.seed);
        }
        let dataset = Arc::new(open(&source, &decoding).map_err(advise_synthetic)?);
        let transform = TransformOptions::from_spec(&params.transform, |file| net.resolve(file));
        let order = (params.shuffle, options.seed, 1);
        let mut layer = Self::new(place, dataset, &transform, params.batch_size, order)?;
        skip(&mut layer, params.rand_skip, options.seed, &place.1.name);
        Ok(layer)
    }

    fn synthetic(
        place: (&NetSpec, &LayerSpec),
        params: &TransformParams,
        mini_batch: usize,
        shape: [usize; 3],
        images: SyntheticData,
        seed: u64,
    ) -> Result<Self, BoxError> {
        let dataset = Arc::new(Synthetic::new(shape, images.classes, mini_batch, seed)?);
        // Values of about unit size, whatever the file's mean and scale: raw pixels would saturate the loss of random weights,
        // and it would be the processor's slow handling of vanishing gradients that is timed.
        let transform = TransformOptions {
            scale: 1.0 / 128.0,
            mean_values: vec![128.0],
            crop_size: params.crop_size.filter(|&side| side <= shape[1].min(shape[2])),
            ..TransformOptions::default()
        };
        let prefetch = usize::from(images.stand_in);
        let source = Self::new(place, dataset, &transform, mini_batch, (false, seed, prefetch))?;
        Ok(Self { constant: !images.stand_in, ..source })
    }

    /// What it reads, unless that is synthetic and constant.
    pub fn summary(&self) -> Option<DataSummary> {
        (!self.constant).then(|| self.loader.summary())
    }

    /// Where the next sample comes from: samples consumed so far.
    pub fn position(&self) -> Option<u64> {
        (!self.constant).then(|| self.loader.position())
    }

    /// Continues reading at `position`.
    pub fn set_position(&mut self, position: u64) {
        if !self.constant {
            self.loader.set_position(position);
        }
    }

    /// A number for the contents of the data set.
    pub fn digest(&self) -> u32 {
        if !self.constant {
            return self.loader.dataset().digest();
        }
        // Synthetic images follow from the seed and their shape, and are not worth making twice.
        let mut crc = flate2::Crc::new();
        let shape = self.loader.out_shape();
        shape.into_iter().for_each(|extent| crc.update(&(extent as u64).to_le_bytes()));
        crc.sum()
    }

    /// Bytes of host memory that it holds: a data set, mini-batches prepared ahead.
    pub fn host_bytes(&self) -> u64 {
        if self.constant { 0 } else { self.loader.dataset().resident_bytes() + self.loader.buffer_bytes() }
    }

    fn load(&mut self, device: &Device, mut tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        let [data_way, label_way] = &mut self.staging;
        match &mut tops[..] {
            [data] => {
                if self.labels.is_empty() {
                    self.labels = zeroed(self.mini_batch)?;
                }
                data_way.fill(device, data.reborrow(), |data| {
                    Ok(self.loader.next_into(data, &mut self.labels)?)
                })
            }
            [data, labels] => data_way.fill(device, data.reborrow(), |data| {
                let labels = labels.reborrow();
                label_way.fill(device, labels, |labels| Ok(self.loader.next_into(data, labels)?))
            }),
            tops => unreachable!("a data layer has one top or two, not {}", tops.len()),
        }
    }
}

impl Layer for DataLayer {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        let [c, h, w] = self.loader.out_shape();
        let shapes = [TensorType::f32(&[self.mini_batch, c, h, w]), TensorType::f32(&[self.mini_batch])];
        Ok(Declaration {
            tops: shapes[..self.tops].to_vec(),
            constant: self.constant,
            ..Declaration::default()
        })
    }

    fn upload(&mut self, device: &Device, _: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        self.load(device, tops)
    }
}

fn advise_synthetic(error: DataError) -> BoxError {
    format!("{error} (--synthetic replaces the data with synthetic images)").into()
}

fn ask_size(error: DataError) -> BoxError {
    format!("{error}, and no crop_size says how large the images are; --synthetic=CxHxW does").into()
}

/// Height and width of the images that leave a transformation, as far as it says.
fn side(params: &TransformParams) -> Option<usize> {
    params.crop_size.or(params.resize)
}

/// Caffe starts somewhere among the first `rand_skip` samples; here the seed says where.
fn skip(layer: &mut DataLayer, rand_skip: usize, seed: u64, name: &str) {
    if rand_skip > 0 {
        let mut draw = [0.0f32];
        let uniform = Filler::Uniform { min: 0.0, max: rand_skip as f32 };
        fill(&mut draw, &TensorType::f32(&[1]), uniform, seed, &format!("{name}.rand_skip"));
        layer.set_position(draw[0] as u64);
    }
}

/// `DummyData` and `Input`: blobs from fillers. Constant ones are filled once, others at every iteration.
pub(super) struct FilledData {
    name: String,
    shapes: Vec<TensorType>,
    fillers: Vec<Filler>,
    constant: bool,
    seed: u64,
    /// The way of each top to the device.
    staging: Vec<Staging>,
}

impl FilledData {
    pub(super) fn dummy(layer: &LayerSpec, params: &DummyDataParams, seed: u64) -> Self {
        let tops = 0..layer.tops.len();
        let fillers: Vec<Filler> = tops.clone().map(|top| *of_top(&params.fillers, top)).collect();
        let constant = fillers.iter().all(|filler| matches!(filler, Filler::Constant { .. }));
        let shapes = tops.map(|top| TensorType::f32(of_top(&params.shapes, top).as_slice())).collect();
        let staging = fillers.iter().map(|_| Staging::default()).collect();
        Self { name: layer.name.clone(), shapes, fillers, constant, seed, staging }
    }

    /// What an `Input` holds until a program writes to it: numbers between -1 and 1, made once.
    pub(super) fn input(layer: &LayerSpec, params: &InputParams, seed: u64) -> Self {
        let shapes: Vec<TensorType> = (0..layer.tops.len())
            .map(|top| TensorType::f32(of_top(&params.shapes, top).as_slice()))
            .collect();
        let fillers = vec![Filler::Uniform { min: -1.0, max: 1.0 }; shapes.len()];
        let staging = fillers.iter().map(|_| Staging::default()).collect();
        Self { name: layer.name.clone(), shapes, fillers, constant: true, seed, staging }
    }
}

impl Layer for FilledData {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        Ok(Declaration { tops: self.shapes.clone(), constant: self.constant, ..Declaration::default() })
    }

    fn upload(&mut self, device: &Device, iteration: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        for (index, top) in tops.into_iter().enumerate() {
            let stream = format!("{}.{index}", self.name);
            let seed = self.seed.wrapping_add(if self.constant { 0 } else { iteration });
            self.staging[index].fill(device, top, |values| -> Result<(), BoxError> {
                fill(values, &self.shapes[index], self.fillers[index], seed, &stream);
                Ok(())
            })?;
        }
        Ok(())
    }
}
