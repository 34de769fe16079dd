//! Layers that bring data: data sets, synthetic blobs, blobs that the program fills.

use super::{Declaration, Layer, Place};
use crate::data::{Dataset, DatasetFacts, ImageData, ImageRecords, Loader, LoaderOptions, StandIn};
use crate::spec::{DataParams, Filler, FillerKind, ImageDataParams, Mean, TransformParams, of_top};
use crate::{NetError, Result, error::BoxError, fill::fill};
use std::sync::Arc;
use tensor::{Device, Staging, TensorType, ViewMut};

/// `Data`: what reads the data set of a `data_param`.
pub(super) fn data(place: &Place<'_>, params: &DataParams) -> Result<Box<dyn Layer>, BoxError> {
    let (source, phase) = (place.net.resolve(&params.source), place.net.state.phase);
    let shape = || match (ImageRecords::shape_of(&source, phase), side(&params.transform)) {
        (found, Some(side)) => Ok([found.map_or(3, |shape| shape[0]), side, side]),
        (found, None) => found,
    };
    let open = (!params.source.is_empty()).then_some(|| ImageRecords::open(&source, phase));
    loader(place, &params.transform, (params.batch_size, false), shape, open)
}

/// `ImageData`: what reads the images of an `image_data_param`.
pub(super) fn images(place: &Place<'_>, params: &ImageDataParams) -> Result<Box<dyn Layer>, BoxError> {
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
/// `shape`: one mini-batch, filled once, so that timing sees the net and not its data, unless they stand in for the data.
fn loader<D: Dataset + 'static>(
    place: &Place<'_>,
    transform: &TransformParams,
    (mini_batch, shuffle): (usize, bool),
    shape: impl FnOnce() -> Result<[usize; 3]>,
    open: Option<impl FnOnce() -> Result<D>>,
) -> Result<Box<dyn Layer>, BoxError> {
    let &Place { net, options, .. } = place;
    let mut transform = transform.clone();
    let dataset: Arc<dyn Dataset> = if let Some(images) = options.synthetic {
        let ask = |error| {
            format!("{error}, and no crop_size says how large the images are; --synthetic=CxHxW does")
        };
        let shape @ [c, h, w] = images.shape.map_or_else(shape, Ok).map_err(ask)?;
        let (crop_size, classes) = (transform.crop_size.filter(|&side| side <= h.min(w)), net.classes());
        if !images.stand_in {
            let [h, w] = crop_size.map_or([h, w], |side| [side; 2]);
            // Values of about unit size, whatever the file's mean and scale: raw pixels would saturate the loss of random
            // weights, and it would be the processor's slow handling of vanishing gradients that is timed.
            let fillers = [Filler::uniform(-1.0, 1.0), Filler::uniform(0.0, classes as f32)];
            let shapes = [vec![mini_batch, c, h, w], vec![mini_batch]];
            return Ok(FilledData::new(place, &shapes, &fillers, true).into());
        }
        transform = TransformParams { crop_size, ..TransformParams::default() };
        let len = mini_batch * net.share.ranks;
        let resident_bytes = (len * size_of::<u32>()) as u64; // a set's labels
        Arc::new(StandIn(DatasetFacts { len, shape, classes, resident_bytes, ..DatasetFacts::default() }))
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
        share: net.share,
    };
    Ok(Loader::new(dataset, &transform, order, &options.device)?.into())
}

impl Layer for Loader {
    fn declare(&mut self, _: &[TensorType]) -> Result<Declaration, String> {
        let (mini_batch, [c, h, w]) = (self.options().mini_batch, self.out_shape());
        let tops = vec![TensorType::f32(&[mini_batch, c, h, w]), TensorType::f32(&[mini_batch])];
        Ok(Declaration { tops, ..Declaration::default() })
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

/// `DummyData`, `Input` and synthetic images: blobs from fillers. Constant ones are filled once, others at every iteration.
pub(super) struct FilledData {
    name: String,
    /// Each with its way to the device.
    tops: Vec<(TensorType, Filler, Staging)>,
    constant: bool,
    /// Whether the second top holds labels, which are whole.
    is_labelled: bool,
    seed: u64,
}

impl FilledData {
    /// Of `fillers`, one for each top or for all; of those `made_once`, such as an `Input`'s until a program writes others
    /// there, no filler need be constant.
    pub(super) fn new(place: &Place<'_>, shapes: &[Vec<usize>], fillers: &[Filler], made_once: bool) -> Self {
        let shape = |top| TensorType::f32(of_top::<Vec<usize>>(shapes, top));
        let top = |top| (shape(top), *of_top(fillers, top), Staging::default());
        let tops: Vec<_> = (0..place.layer.tops.len()).map(top).collect();
        let constant = made_once || tops.iter().all(|(_, filler, _)| filler.kind == FillerKind::Constant);
        let is_labelled = place.layer.kind.reads_data();
        Self { name: place.layer.name.clone(), tops, constant, is_labelled, seed: place.options.seed }
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
                if self.is_labelled && index == 1 {
                    values.iter_mut().for_each(|label| *label = label.floor());
                }
                Ok(())
            })?;
            if self.constant {
                *way = Staging::default(); // which is not needed again
            }
        }
        Ok(())
    }
}
