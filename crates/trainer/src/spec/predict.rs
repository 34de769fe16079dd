//! A net that is fed with images of which nothing is known.

use super::{ImageDataParams, LayerKind, LayerSpec, NetSpec, SoftmaxParams, TransformParams};
use crate::prototxt::defaults;
use std::path::Path;

impl NetSpec {
    /// The net, of one phase, fed with files of images, none yet, transformed as its data; and the blob of what it says of
    /// their classes: the softmax of what the last accuracy reads, or else the last. Of a loss remain the probabilities, and
    /// of accuracies nothing. Without either kind of softmax, one is over what an accuracy reads, or the last top, unless
    /// that is a sigmoid's. `shape` says the channels, height and width of what the source of a `Data` layer holds.
    ///
    /// # Errors
    /// A sentence: nothing says what images it takes, it is fed with more, or it has no scores.
    pub fn predicting(
        &self,
        shape: impl FnOnce(&Path) -> Result<[usize; 3], String>,
    ) -> Result<(Self, String), String> {
        let mut net = self.clone();
        let source = |layer: &&mut LayerSpec| layer.kind.mini_batch().is_some();
        let input = net.layers.iter_mut().find(source).ok_or("it has no layer that is fed with images")?;
        if input.tops.len() > 2 {
            return Err("it is fed with more than images and labels".to_owned());
        }
        let of_size = |[c, h, w]: [usize; 3], transform: TransformParams| {
            (c == 3, TransformParams { new_size: Some([h, w]), ..transform })
        };
        let (is_color, transform) = match &input.kind {
            LayerKind::ImageData(data) => (data.is_color, data.transform.clone()),
            LayerKind::Data(data) => of_size(shape(&self.resolve(&data.source))?, data.transform.clone()),
            LayerKind::Input(input) => match input.shapes[0][..] {
                [_, c, h, w] => of_size([c, h, w], TransformParams::default()),
                _ => return Err("its Input takes no images (N, C, H, W)".to_owned()),
            },
            _ => return Err("its data are no images".to_owned()),
        };
        input.kind = LayerKind::ImageData(ImageDataParams {
            batch_size: input.kind.mini_batch().expect("a layer that is fed with images"),
            new_size: transform.new_size,
            is_color,
            transform: TransformParams { mirror: false, ..transform },
            ..defaults(ImageDataParams::read)
        });
        if input.tops.len() == 1 {
            input.tops.push("labels of nothing".to_owned());
        }
        let is_accuracy = |layer: &LayerSpec| matches!(layer.kind, LayerKind::Accuracy(_));
        let measured =
            net.layers.iter().rfind(|layer| is_accuracy(layer)).map(|layer| layer.bottoms[0].clone());
        net.layers.retain(|layer| !is_accuracy(layer));
        for layer in &mut net.layers {
            if let LayerKind::SoftmaxWithLoss(loss) = &layer.kind {
                layer.kind = LayerKind::Softmax(SoftmaxParams { axis: loss.axis });
                layer.bottoms.truncate(1);
                layer.tops.truncate(1);
                layer.loss_weights.clear();
            }
        }
        let is_scores = |layer: &&LayerSpec| matches!(layer.kind, LayerKind::Softmax(_));
        let is_measured = |layer: &&LayerSpec| {
            let mut blobs = layer.bottoms.iter().chain(&layer.tops);
            is_scores(layer) && blobs.any(|blob| Some(blob) == measured.as_ref())
        };
        let layers = || net.layers.iter();
        if let Some(layer) = layers().rfind(is_measured).or_else(|| layers().rfind(is_scores)) {
            let scores = layer.tops[0].clone();
            return Ok((net, scores));
        }
        let last = net.layers.iter().rfind(|layer| !layer.tops.is_empty()).ok_or("it has no layers")?;
        let blob = measured.unwrap_or_else(|| last.tops[0].clone());
        let is_ready =
            |layer: &LayerSpec| matches!(layer.kind, LayerKind::Sigmoid(_)) && layer.tops.contains(&blob);
        if net.layers.iter().any(is_ready) {
            return Ok((net, blob));
        }
        let (scores, kind) = (format!("{blob}, softmax"), LayerKind::Softmax(SoftmaxParams { axis: 1 }));
        let blobs = [vec![blob], vec![scores.clone()]];
        net.layers.push(LayerSpec::new(scores.clone(), kind, blobs, last.location.clone()));
        Ok((net, scores))
    }
}
