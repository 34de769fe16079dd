//! Layers that bring data: data sets, synthetic blobs, blobs that the program fills.

use super::{Declaration, Layer, Place};
use crate::data::{Dataset, ImageData, ImageRecords, Loader, LoaderOptions, Synthetic};
use crate::spec::{DataParams, Filler, FillerKind, ImageDataParams, Mean, TransformParams, of_top};
use crate::{NetError, error::BoxError, fill::fill};
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

impl DataLayer {
    /// The layer for a `data_param`.
    pub(super) fn data(place: &Place<'_>, params: &DataParams) -> Result<Self, BoxError> {
        let (source, phase) = (place.net.resolve(&params.source), place.net.state.phase);
        let shape = || match (ImageRecords::shape_of(&source, phase), side(&params.transform)) {
            (found, Some(side)) => Ok([found.map_or(3, |shape| shape[0]), side, side]),
            (found, None) => found,
        };
        let open = (!params.source.is_empty()).then_some(|| ImageRecords::open(&source, phase));
        Self::new(place, &params.transform, (params.batch_size, false), shape, open)
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
        let shape = || {
            let square = side(&params.transform).map(|side| [side, side]);
            let shape = params.new_size.or(square).map(|[h, w]| [if params.is_color { 3 } else { 1 }, h, w]);
            shape.map_or_else(|| open().map(|set| set.facts().shape), Ok)
        };
        let has_source = !(params.source.is_empty() && params.images.is_empty());
        let (order, open) = ((params.batch_size, params.shuffle), has_source.then_some(open));
        Self::new(place, &params.transform, order, shape, open)
    }

    /// The layer that reads what `open` opens, if there is a source, or synthetic data instead, of a shape that is given
    /// or else `shape`.
    fn new<D: Dataset + 'static>(
        &Place { net, options, .. }: &Place<'_>,
        transform: &TransformParams,
        (mini_batch, shuffle): (usize, bool),
        shape: impl FnOnce() -> Result<[usize; 3], NetError>,
        open: Option<impl FnOnce() -> Result<D, NetError>>,
    ) -> Result<Self, BoxError> {
        let mut transform = transform.clone();
        let dataset: Arc<dyn Dataset> = if let Some(images) = options.synthetic {
            let ask = |error| {
                format!("{error}, and no crop_size says how large the images are; --synthetic=CxHxW does")
            };
            let shape = images.shape.map_or_else(shape, Ok).map_err(ask)?;
            // Values of about unit size, whatever the file's mean and scale: raw pixels would saturate the loss of random
            // weights, and it would be the processor's slow handling of vanishing gradients that is timed.
            transform = TransformParams {
                scale: 1.0 / 128.0,
                mean: Mean::Values(vec![128.0]),
                is_rgb: true,
                crop_size: transform.crop_size.filter(|&side| side <= shape[1].min(shape[2])),
                ..TransformParams::default()
            };
            Arc::new(Synthetic::new(shape, net.classes(), mini_batch * net.share.ranks, options.seed)?)
        } else {
            if let Mean::File(file) = &mut transform.mean {
                *file = net.resolve(&*file);
            }
            let missing = || Err(NetError::Refused("source is missing".to_owned()));
            let opened = open.map_or_else(missing, |open| open());
            let advise = |error| format!("{error} (--synthetic replaces the data with synthetic images)");
            Arc::new(opened.map_err(advise)?)
        };
        let constant = options.synthetic.is_some_and(|images| !images.stand_in);
        let order = LoaderOptions {
            mini_batch,
            phase: net.state.phase,
            seed: options.seed,
            shuffle: shuffle && options.synthetic.is_none(),
            prefetch: usize::from(!constant),
            share: net.share,
        };
        let loader = Loader::new(dataset, &transform, order, &options.device)?;
        Ok(Self { loader, constant, mini_batch })
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
    /// Each with its way to the device.
    tops: Vec<(TensorType, Filler, Staging)>,
    constant: bool,
    seed: u64,
}

impl FilledData {
    /// Of `fillers`, one for each top or for all; of an `Input` made once, until a program writes others there.
    pub(super) fn new(place: &Place<'_>, shapes: &[Vec<usize>], fillers: &[Filler], is_input: bool) -> Self {
        let shape = |top| TensorType::f32(of_top::<Vec<usize>>(shapes, top));
        let top = |top| (shape(top), *of_top(fillers, top), Staging::default());
        let tops: Vec<_> = (0..place.layer.tops.len()).map(top).collect();
        let constant = is_input || tops.iter().all(|(_, filler, _)| filler.kind == FillerKind::Constant);
        Self { name: place.layer.name.clone(), tops, constant, seed: place.options.seed }
    }
}

impl Layer for FilledData {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        let tops = self.tops.iter().map(|(shape, ..)| shape.clone()).collect();
        Ok(Declaration { tops, constant: self.constant, ..Declaration::default() })
    }

    fn upload(&mut self, device: &Device, iteration: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        let seed = self.seed.wrapping_add(if self.constant { 0 } else { iteration });
        for (index, ((shape, filler, way), top)) in self.tops.iter_mut().zip(tops).enumerate() {
            way.fill(device, top, |values| -> Result<(), BoxError> {
                fill(values, shape, *filler, seed, &format!("{}.{index}", self.name));
                Ok(())
            })?;
        }
        Ok(())
    }
}
