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
        TransformParams,
    },
};
use std::sync::Arc;
use tensor::{Device, Staging, TensorType, ViewMut, arena::zeroed};

/// `Data` and `ImageData`: mini-batches of a data set, prepared by a background thread.
pub(super) struct DataLayer {
    loader: Loader,
    /// Labels, for a layer with one top that does not pass them on.
    labels: Vec<f32>,
    tops: usize,
    mini_batch: usize,
    /// The way of data and labels to the device.
    staging: [Staging; 2],
}

/// Synthetic data in the place of a data set: one mini-batch, made once, so that timing sees the net and not its data.
pub(super) struct ConstantData {
    source: DataLayer,
    filled: bool,
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
            labels: Vec::new(),
            tops: layer.tops.len(),
            mini_batch,
            staging: Default::default(),
        })
    }

    fn declaration(&self) -> Declaration {
        let [c, h, w] = self.loader.out_shape();
        let shapes = [TensorType::f32(&[self.mini_batch, c, h, w]), TensorType::f32(&[self.mini_batch])];
        Declaration { tops: shapes[..self.tops].to_vec(), ..Declaration::default() }
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
        Ok(self.declaration())
    }

    fn upload(&mut self, device: &Device, _: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        self.load(device, tops)
    }

    fn data(&self) -> Option<DataSummary> {
        Some(self.loader.summary())
    }

    fn position(&self) -> Option<u64> {
        Some(self.loader.position())
    }

    fn set_position(&mut self, position: u64) {
        self.loader.set_position(position);
    }

    fn data_digest(&self) -> Option<u32> {
        Some(self.loader.dataset().digest())
    }

    fn host_bytes(&self) -> u64 {
        self.loader.dataset().resident_bytes() + self.loader.buffer_bytes()
    }
}

impl Layer for ConstantData {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        Ok(Declaration { constant: true, ..self.source.declaration() })
    }

    fn enter_arena(&mut self) {
        self.filled = false;
    }

    fn data_digest(&self) -> Option<u32> {
        // Synthetic images follow from the seed and their shape, and are not worth making twice.
        let mut crc = flate2::Crc::new();
        self.source
            .loader
            .out_shape()
            .into_iter()
            .for_each(|extent| crc.update(&(extent as u64).to_le_bytes()));
        Some(crc.sum())
    }

    fn upload(&mut self, device: &Device, _: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        if !self.filled {
            self.source.load(device, tops)?;
            self.filled = true;
        }
        Ok(())
    }
}

/// The layer for a `data_param`.
pub(super) fn data(
    place: (&NetSpec, &LayerSpec),
    params: &DataParams,
    options: &BuildOptions,
) -> Result<Box<dyn Layer>, BoxError> {
    let net = place.0;
    let source = net.resolve(&params.source);
    if let Some(images) = options.synthetic {
        let of_data = || match (source_shape(&source, net.state.phase), side(&params.transform)) {
            (found, Some(side)) => Ok([found.map_or(3, |shape| shape[0]), side, side]),
            (found, None) => found.map_err(ask_size),
        };
        let shape = images.shape.map_or_else(of_data, Ok)?;
        return synthetic(place, &params.transform, params.batch_size, shape, images, options.seed);
    }
    let dataset = open_source(&source, net.state.phase).map_err(advise_synthetic)?;
    let transform = TransformOptions::from_spec(&params.transform, |file| net.resolve(file));
    let mut layer = DataLayer::new(place, dataset, &transform, params.batch_size, (false, options.seed, 1))?;
    skip(&mut layer, params.rand_skip, options.seed, &place.1.name);
    Ok(Box::new(layer))
}

/// The layer for an `image_data_param`.
pub(super) fn image_data(
    place: (&NetSpec, &LayerSpec),
    params: &ImageDataParams,
    options: &BuildOptions,
) -> Result<Box<dyn Layer>, BoxError> {
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
        return synthetic(place, &params.transform, params.batch_size, shape, images, options.seed);
    }
    let dataset = Arc::new(open(&source, &decoding).map_err(advise_synthetic)?);
    let transform = TransformOptions::from_spec(&params.transform, |file| net.resolve(file));
    let order = (params.shuffle, options.seed, 1);
    let mut layer = DataLayer::new(place, dataset, &transform, params.batch_size, order)?;
    skip(&mut layer, params.rand_skip, options.seed, &place.1.name);
    Ok(Box::new(layer))
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

fn synthetic(
    place: (&NetSpec, &LayerSpec),
    params: &TransformParams,
    mini_batch: usize,
    shape: [usize; 3],
    images: SyntheticData,
    seed: u64,
) -> Result<Box<dyn Layer>, BoxError> {
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
    let source = DataLayer::new(place, dataset, &transform, mini_batch, (false, seed, prefetch))?;
    Ok(if images.stand_in { Box::new(source) } else { Box::new(ConstantData { source, filled: false }) })
}

/// `DummyData` and `Input`: blobs from fillers. Constant ones are filled once, others at every iteration.
pub(super) struct FilledData {
    name: String,
    shapes: Vec<TensorType>,
    fillers: Vec<Filler>,
    constant: bool,
    filled: bool,
    seed: u64,
    /// The way of each top to the device.
    staging: Vec<Staging>,
}

impl FilledData {
    pub(super) fn dummy(layer: &LayerSpec, params: &DummyDataParams, seed: u64) -> Self {
        let tops = 0..layer.tops.len();
        let fillers: Vec<Filler> = tops.clone().map(|top| params.filler(top)).collect();
        let constant = fillers.iter().all(|filler| matches!(filler, Filler::Constant { .. }));
        let shapes = tops.map(|top| TensorType::f32(params.shape(top))).collect();
        let staging = fillers.iter().map(|_| Staging::default()).collect();
        Self { name: layer.name.clone(), shapes, fillers, constant, filled: false, seed, staging }
    }

    /// What an `Input` holds until a program writes to it: numbers between -1 and 1, made once.
    pub(super) fn input(layer: &LayerSpec, params: &InputParams, seed: u64) -> Self {
        let shapes: Vec<TensorType> =
            (0..layer.tops.len()).map(|top| TensorType::f32(params.shape(top))).collect();
        let fillers = vec![Filler::Uniform { min: -1.0, max: 1.0 }; shapes.len()];
        let staging = fillers.iter().map(|_| Staging::default()).collect();
        Self { name: layer.name.clone(), shapes, fillers, constant: true, filled: false, seed, staging }
    }
}

impl Layer for FilledData {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        Ok(Declaration { tops: self.shapes.clone(), constant: self.constant, ..Declaration::default() })
    }

    fn enter_arena(&mut self) {
        self.filled = false;
    }

    fn upload(&mut self, device: &Device, iteration: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        if self.constant && self.filled {
            return Ok(());
        }
        for (index, top) in tops.into_iter().enumerate() {
            let stream = format!("{}.{index}", self.name);
            let seed = self.seed.wrapping_add(if self.constant { 0 } else { iteration });
            self.staging[index].fill(device, top, |values| -> Result<(), BoxError> {
                fill(values, &self.shapes[index], self.fillers[index], seed, &stream);
                Ok(())
            })?;
        }
        self.filled = true;
        Ok(())
    }
}
