//! Layers that bring data: data sets, synthetic blobs, blobs that the program fills.

use super::{Declaration, Layer, Place};
use crate::data::{Dataset, ImageData, ImageRecords, Loader, LoaderOptions, Synthetic};
use crate::spec::{DataParams, Filler, FillerKind, ImageDataParams, Mean, TransformParams, of_top};
use crate::{NetError, error::BoxError, fill::fill};
use std::sync::Arc;
use tensor::{Device, Staging, TensorType, ViewMut};

/// `Data`: what reads the data set of a `data_param`.
pub(super) fn data(place: &Place<'_>, params: &DataParams) -> Result<Loader, BoxError> {
    let (source, phase) = (place.net.resolve(&params.source), place.net.state.phase);
    let shape = || match (ImageRecords::shape_of(&source, phase), side(&params.transform)) {
        (found, Some(side)) => Ok([found.map_or(3, |shape| shape[0]), side, side]),
        (found, None) => found,
    };
    let open = (!params.source.is_empty()).then_some(|| ImageRecords::open(&source, phase));
    loader(place, &params.transform, (params.batch_size, false), shape, open)
}

/// `ImageData`: what reads the images of an `image_data_param`.
pub(super) fn images(place: &Place<'_>, params: &ImageDataParams) -> Result<Loader, BoxError> {
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
    loader(place, &params.transform, order, shape, open)
}

/// What reads what `open` opens, if there is a source, or synthetic data instead, of a shape that is given or else
/// `shape`: one mini-batch, made once, so that timing sees the net and not its data, unless they stand in for the data.
fn loader<D: Dataset + 'static>(
    &Place { net, options, .. }: &Place<'_>,
    transform: &TransformParams,
    (mini_batch, shuffle): (usize, bool),
    shape: impl FnOnce() -> Result<[usize; 3], NetError>,
    open: Option<impl FnOnce() -> Result<D, NetError>>,
) -> Result<Loader, BoxError> {
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
    let order = LoaderOptions {
        mini_batch,
        phase: net.state.phase,
        seed: options.seed,
        shuffle: shuffle && options.synthetic.is_none(),
        prefetch: options.synthetic.is_none_or(|images| images.stand_in),
        share: net.share,
    };
    Ok(Loader::new(dataset, &transform, order, &options.device)?)
}

impl Layer for Loader {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        let LoaderOptions { mini_batch, prefetch, .. } = *self.options();
        let [c, h, w] = self.out_shape();
        let tops = vec![TensorType::f32(&[mini_batch, c, h, w]), TensorType::f32(&[mini_batch])];
        // Where there is no next mini-batch to prepare, there is one for ever.
        Ok(Declaration { tops, constant: !prefetch, ..Declaration::default() })
    }

    fn upload(&mut self, _: &Device, _: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        let mut tops = tops.into_iter();
        let data = tops.next().expect("a data layer has one top or two");
        Ok(Loader::upload(self, data, tops.next())?)
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
