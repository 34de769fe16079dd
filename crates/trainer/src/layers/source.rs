//! Layers that bring data: data sets, synthetic blobs, blobs that the program fills.

use super::{Declaration, Layer, Place, SyntheticData};
use crate::data::{DataError, Dataset, ImageData, ImageRecords, Loader, LoaderOptions, Synthetic};
use crate::spec::{DataParams, Filler, FillerKind, ImageDataParams, Mean, TransformParams, of_top};
use crate::{error::BoxError, fill::fill};
use std::sync::Arc;
use tensor::{Device, Staging, TensorType, ViewMut};

/// `Data` and `ImageData`: mini-batches of a data set, prepared by a background thread.
///
/// Or, if `constant`, one mini-batch of synthetic data, made once, so that timing sees the net and not its data.
pub struct DataLayer {
    loader: Loader,
    constant: bool,
    mini_batch: usize,
}

/// What both types of data layer say about reading.
struct Reading<'a> {
    place: &'a Place<'a>,
    transform: &'a TransformParams,
    mini_batch: usize,
    shuffle: bool,
    has_source: bool,
}

impl DataLayer {
    /// The layer for a `data_param`.
    pub(super) fn data(place: &Place<'_>, params: &DataParams) -> Result<Self, BoxError> {
        let (source, phase) = (place.net.resolve(&params.source), place.net.state.phase);
        let &DataParams { ref transform, batch_size: mini_batch, .. } = params;
        let has_source = !params.source.is_empty();
        let reading = Reading { place, transform, mini_batch, shuffle: false, has_source };
        let shape = || match (ImageRecords::shape_of(&source, phase), side(transform)) {
            (found, Some(side)) => Ok([found.map_or(3, |shape| shape[0]), side, side]),
            (found, None) => found,
        };
        reading.layer(shape, || Ok(Arc::new(ImageRecords::open(&source, phase)?)))
    }

    /// The layer for an `image_data_param`.
    pub(super) fn images(place: &Place<'_>, params: &ImageDataParams) -> Result<Self, BoxError> {
        let net = place.net;
        let source = net.resolve(&params.source);
        // No root folder means the current one, as in Caffe, and not the folder of the net.
        let root = Some(&params.root_folder).filter(|root| !root.is_empty()).map(|root| net.resolve(root));
        let open = || match &params.images[..] {
            [] if source.is_dir() => ImageData::open_folder(&source, params.is_color),
            [] => ImageData::open_list(&source, &root.clone().unwrap_or_default(), params.is_color),
            images => ImageData::open_files(images, params.is_color),
        };
        let &ImageDataParams { ref transform, batch_size: mini_batch, shuffle, .. } = params;
        let has_source = !(params.source.is_empty() && params.images.is_empty());
        let reading = Reading { place, transform, mini_batch, shuffle, has_source };
        let shape = || {
            let square = side(transform).map(|side| [side, side]);
            let shape = params.new_size.or(square).map(|[h, w]| [if params.is_color { 3 } else { 1 }, h, w]);
            shape.map_or_else(|| open().map(|set| set.facts().shape), Ok)
        };
        reading.layer(shape, || Ok(Arc::new(open()?)))
    }

    /// What reads its data set, unless that is synthetic and constant.
    pub fn loader(&self) -> Option<&Loader> {
        (!self.constant).then_some(&self.loader)
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
}

impl Reading<'_> {
    /// The layer that reads what `open` opens, or synthetic data instead, of a shape that is given or else `shape`.
    fn layer(
        &self,
        shape: impl FnOnce() -> Result<[usize; 3], DataError>,
        open: impl FnOnce() -> Result<Arc<dyn Dataset>, DataError>,
    ) -> Result<DataLayer, BoxError> {
        let &Place { net, options, .. } = self.place;
        if let Some(images) = options.synthetic {
            let ask = |error| {
                format!("{error}, and no crop_size says how large the images are; --synthetic=CxHxW does")
            };
            return self.synthetic(images.shape.map_or_else(shape, Ok).map_err(ask)?, images);
        }
        let mut transform = self.transform.clone();
        if let Mean::File(file) = &mut transform.mean {
            *file = net.resolve(&*file);
        }
        let advise = |error: String| format!("{error} (--synthetic replaces the data with synthetic images)");
        if !self.has_source {
            return Err(advise("source is missing".to_owned()).into());
        }
        self.read(open().map_err(|error| advise(error.to_string()))?, &transform, 1)
    }

    fn synthetic(&self, shape: [usize; 3], images: SyntheticData) -> Result<DataLayer, BoxError> {
        let Place { net, options, .. } = self.place;
        let images_of_ranks = self.mini_batch * net.share.ranks;
        let dataset = Arc::new(Synthetic::new(shape, net.classes(), images_of_ranks, options.seed)?);
        // Values of about unit size, whatever the file's mean and scale: raw pixels would saturate the loss of random
        // weights, and it would be the processor's slow handling of vanishing gradients that is timed.
        let transform = TransformParams {
            scale: 1.0 / 128.0,
            mean: Mean::Values(vec![128.0]),
            is_rgb: true,
            crop_size: self.transform.crop_size.filter(|&side| side <= shape[1].min(shape[2])),
            ..TransformParams::default()
        };
        let in_order = Reading { shuffle: false, ..*self };
        let layer = in_order.read(dataset, &transform, usize::from(images.stand_in))?;
        Ok(DataLayer { constant: !images.stand_in, ..layer })
    }

    fn read(
        &self,
        dataset: Arc<dyn Dataset>,
        transform: &TransformParams,
        prefetch: usize,
    ) -> Result<DataLayer, BoxError> {
        let &Reading { place: &Place { net, options, .. }, mini_batch, shuffle, .. } = self;
        let (phase, seed, share) = (net.state.phase, options.seed, net.share);
        let order = LoaderOptions { mini_batch, phase, seed, shuffle, prefetch, share };
        let loader = Loader::new(dataset, transform, order, &options.device)?;
        Ok(DataLayer { loader, constant: false, mini_batch })
    }
}

impl Layer for DataLayer {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        let [c, h, w] = self.loader.out_shape();
        let tops = vec![TensorType::f32(&[self.mini_batch, c, h, w]), TensorType::f32(&[self.mini_batch])];
        Ok(Declaration { tops, constant: self.constant, ..Declaration::default() })
    }

    fn upload(&mut self, _: &Device, _: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        let mut tops = tops.into_iter();
        let data = tops.next().expect("a data layer has one top or two");
        Ok(self.loader.upload(data, tops.next())?)
    }
}

/// Height and width of the images that leave a transformation, as far as it says.
fn side(params: &TransformParams) -> Option<usize> {
    params.crop_size.or(params.resize)
}

/// `DummyData` and `Input`: blobs from fillers. Constant ones are filled once, others at every iteration.
pub(super) struct FilledData {
    name: String,
    tops: Vec<(TensorType, Filler)>,
    constant: bool,
    seed: u64,
    /// The way of each top to the device.
    staging: Vec<Staging>,
}

impl FilledData {
    /// Of `fillers`, one for each top or for all; of an `Input` made once, until a program writes others there.
    pub(super) fn new(place: &Place<'_>, shapes: &[Vec<usize>], fillers: &[Filler], is_input: bool) -> Self {
        let top = |top| (TensorType::f32(of_top::<Vec<usize>>(shapes, top)), *of_top(fillers, top));
        let tops: Vec<_> = (0..place.layer.tops.len()).map(top).collect();
        let constant = is_input || tops.iter().all(|(_, filler)| filler.kind == FillerKind::Constant);
        let staging = tops.iter().map(|_| Staging::default()).collect();
        Self { name: place.layer.name.clone(), tops, constant, seed: place.options.seed, staging }
    }
}

impl Layer for FilledData {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        let tops = self.tops.iter().map(|(shape, _)| shape.clone()).collect();
        Ok(Declaration { tops, constant: self.constant, ..Declaration::default() })
    }

    fn upload(&mut self, device: &Device, iteration: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        let seed = self.seed.wrapping_add(if self.constant { 0 } else { iteration });
        let ways = self.staging.iter_mut().zip(&self.tops).zip(tops);
        for (index, ((way, (shape, filler)), top)) in ways.enumerate() {
            way.fill(device, top, |values| -> Result<(), BoxError> {
                fill(values, shape, *filler, seed, &format!("{}.{index}", self.name));
                Ok(())
            })?;
        }
        Ok(())
    }
}
