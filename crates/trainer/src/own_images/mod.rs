//! A net and a solver for somebody's own images, written after those of a model.

#[cfg(test)]
mod tests;

use crate::spec::{LayerKind, LayerSpec, Mean, NetSpec, SolverSpec, TransformParams};
use crate::{data::Survey, prototxt::quoted};
use std::{collections::BTreeSet, path::Path};

/// By how much the rate is lower for weights that have been trained before.
const TUNED: f32 = 0.1;
/// Adam's rate.
const ADAM: f32 = 0.0002;
/// Least part of an image's area that training sees.
const MIN_AREA: f32 = 0.25;
/// Most samples in a mini-batch of a test.
const TEST_BATCH: usize = 50;

/// What is to be decided beside the images themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Name of the net, and the end of the names of layers that are new.
    pub name: String,
    /// Height and width of the images that the net sees.
    pub side: usize,
    /// Samples per mini-batch.
    pub batch: usize,
    /// Passes over the images.
    pub epochs: usize,
    /// Whether the training starts from weights of another.
    pub is_tuned: bool,
    /// Whether these are for grey images.
    pub is_grey: bool,
    /// Seed of the training.
    pub seed: u64,
}

/// What is done to the images that `net` is written for, if it reads any.
pub fn transform(net: &NetSpec) -> Option<&TransformParams> {
    net.layers.iter().find_map(|layer| match &layer.kind {
        LayerKind::Data(params) => Some(&params.transform),
        LayerKind::ImageData(params) => Some(&params.transform),
        _ => None,
    })
}

impl Recipe {
    /// The lists of the images to train and to validate with, beside the net.
    pub const LISTS: [&str; 2] = ["train.txt", "val.txt"];

    /// Adapts `text`, which is that of `template`, to the images of `survey`, and names the layers that are new: those
    /// before the losses. They have as many outputs as there are classes, and other names than before, so that weights
    /// that are copied by name leave them alone. Data layers are replaced, accuracies that are always 1 left out.
    ///
    /// # Errors
    /// In a sentence: the net learns no classes, or is written in a way that cannot be adapted.
    pub fn net(
        &self,
        survey: &Survey,
        template: &NetSpec,
        text: &str,
    ) -> Result<(String, Vec<String>), String> {
        let heads: BTreeSet<&str> = template.heads().map(|layer| layer.name.as_str()).collect();
        let is_loss = |layer: &LayerSpec| matches!(layer.kind, LayerKind::SoftmaxWithLoss(_));
        if heads.is_empty() || !template.layers.iter().any(is_loss) {
            return Err("it has no layer with weights before a SoftmaxWithLoss".to_owned());
        }
        let lines: Vec<&str> = text.lines().collect();
        let starts: Vec<usize> = template.layers.iter().map(|layer| layer.location.line - 1).collect();
        // The comments above describe the model, with its own images.
        let above: Vec<&str> =
            lines[..starts[0]].iter().copied().filter(|line| !line.starts_with('#')).collect();
        let mut net = match template.name.as_str() {
            "" => format!("name: {}\n{}", quoted(&self.name), above.join("\n")),
            _ => with_value(&above.join("\n"), "name", &quoted(&self.name)),
        };
        net = format!("{}\n\n{}", net.trim_end(), self.data_layers(survey, template));
        let is_kept = |layer: &LayerSpec| match &layer.kind {
            LayerKind::Data(_) | LayerKind::ImageData(_) => false,
            LayerKind::Accuracy(params) => params.top_k < survey.classes,
            _ => true,
        };
        let kept: Vec<_> = template.layers.iter().enumerate().filter(|(_, layer)| is_kept(layer)).collect();
        for &(index, layer) in &kept {
            let end = starts.get(index + 1).copied().unwrap_or(lines.len());
            // Two layers in a line: what is made is looked at below.
            let mut block = lines[starts[index]..end.max(starts[index])].join("\n");
            if heads.contains(&layer.name.as_str()) {
                block = with_value(&block, "num_output", &survey.classes.to_string());
                block = with_value(&block, "name", &quoted(&self.head(&layer.name)));
            }
            net = net + &block + "\n";
        }
        let unlike = "it cannot be adapted; its layers must begin as `layer {` in lines of their own, with their names";
        let made = NetSpec::parse(Path::new("net.prototxt"), &net).map_err(|_| unlike)?;
        let wanted: BTreeSet<String> = heads.iter().map(|name| self.head(name)).collect();
        let new: BTreeSet<String> = made.heads().map(|head| head.name.clone()).collect();
        if new != wanted || made.classes() != survey.classes || made.layers.len() != kept.len() + 2 {
            return Err(unlike.to_owned());
        }
        Ok((net, wanted.into_iter().collect()))
    }

    /// What a layer of this name is called if it is new.
    pub fn head(&self, name: &str) -> String {
        format!("{name}_{}", self.name)
    }

    /// What is subtracted from pixels, and what they are multiplied and divided by: as weights expect it that were
    /// trained `before`, else the images' own mean and deviation. A model that takes pixels as they are has fillers for
    /// numbers of that size: only their mean is subtracted.
    fn normalization(&self, survey: &Survey, before: Option<&TransformParams>) -> String {
        let wide = |values: &[f32]| values.iter().map(|&value| value.into()).collect::<Vec<f64>>();
        let (mut mean, mut scale, mut std) = (survey.mean.to_vec(), 1.0, survey.std.to_vec());
        if let (Some(before), true) = (before, self.is_tuned) {
            (scale, std) = (before.scale, wide(&before.std));
            match &before.mean {
                Mean::Values(known) => mean = wide(known),
                Mean::Zero => mean.clear(),
                // Not kept with the weights; the mean of these images is near it.
                Mean::File(_) => {}
            }
        } else if before.is_some_and(|before| before.scale == 1.0 && before.std.is_empty()) {
            std.clear();
        }
        // Grey is as the decoder weighs colours.
        for values in [&mut mean, &mut std].into_iter().filter(|values| self.is_grey && values.len() == 3) {
            *values = vec![0.114 * values[0] + 0.587 * values[1] + 0.299 * values[2]];
        }
        let values = |name: &str, values: &[f64]| -> String {
            values.iter().map(|value| format!(" {name}: {value:.3}")).collect()
        };
        let scale = if scale == 1.0 { String::new() } else { format!(" scale: {scale}") };
        let lines = [values("mean_value", &mean), scale, values("std_value", &std)];
        lines.iter().filter(|line| !line.is_empty()).map(|line| format!("\n   {line}")).collect()
    }

    /// The layers that read the images. A test sees the middle of an image that is an eighth larger, as torchvision's
    /// do, and the images to train with where there are no others: `predict` and `export` read it, too. Weights that
    /// were trained before see colours in the order that they know.
    fn data_layers(&self, survey: &Survey, template: &NetSpec) -> String {
        let before = transform(template);
        let normalization = self.normalization(survey, before);
        let (channels, order_of_channels) = match before {
            _ if self.is_grey => ("grey", " is_color: false"),
            Some(before) if self.is_tuned && before.is_rgb => ("red, green, blue", " is_rgb: true"),
            _ => ("blue, green, red", ""),
        };
        let tops = template.layers.iter().find(|layer| layer.kind.reads_data()).map(|layer| &layer.tops[..]);
        let top = |at: usize, usual| quoted(tops.and_then(|tops| tops.get(at)).map_or(usual, String::as_str));
        let [data, label] = [top(0, "data"), top(1, "label")];
        let root = quoted(&survey.root.join("").display().to_string());
        let layer = |phase: &str, transform: &str, list: &str, order: &str| {
            format!(
                "layer {{\n  name: \"data\" type: \"ImageData\" top: {data} top: {label}\n  include {{ phase: {phase} }}\n  \
                 transform_param {{  # channels: {channels}\n    {transform} crop_size: {}{normalization}\n  }}\n  \
                 image_data_param {{\n    source: {list:?} root_folder: {root}\n    {order}{order_of_channels}\n  }}\n}}\n",
                self.side,
            )
        };
        let [train, validation] = Self::LISTS;
        let test = if survey.validation.1 == 0 { train } else { validation };
        let random = format!("min_area: {MIN_AREA} mirror: true");
        let train = layer("TRAIN", &random, train, &format!("batch_size: {} shuffle: true", self.batch));
        let larger = format!("shorter_side: {}", self.side * 8 / 7);
        train + &layer("TEST", &larger, test, &format!("batch_size: {}", test_batch(survey)))
    }

    /// The solver of the net beside it, made from `template`: the rate of its solver `model`, for this mini-batch, and
    /// its decay, or usual ones; the rate falls to 0 in a straight line. Snapshots lie
    /// beside it, wherever it is started from.
    ///
    /// Where nothing normalizes between layers it is Adam's: gradients of other layers differ by orders of magnitude
    /// then, and at the rates of SGD for large sets a small one teaches nothing, and at higher ones the net diverges.
    pub fn solver(&self, survey: &Survey, like: (&NetSpec, Option<&SolverSpec>)) -> String {
        let (&Self { batch, epochs, seed, .. }, (template, model)) = (self, like);
        let images = survey.train.1;
        // The last mini-batch of a pass goes on with the images of the next one.
        let passes = |passes: usize| (passes * images).div_ceil(batch);
        let display = passes(1).div_ceil(10);
        let is_norm = |layer: &LayerSpec| matches!(layer.kind, LayerKind::BatchNorm(_));
        let is_adam = !self.is_tuned && !template.layers.iter().any(is_norm);
        let rate = match (model, template.mini_batch()) {
            _ if is_adam => ADAM,
            (Some(model), Some(samples)) => model.learning_rate.base_lr * batch as f32 / samples as f32,
            _ => 0.01,
        };
        let base_lr = if self.is_tuned { TUNED * rate } else { rate };
        let base_lr = (f64::from(base_lr) * 1e9).round() / 1e9; // few digits
        let weight_decay = model.map_or(0.0005, |model| model.weight_decay);
        let method = if is_adam { "type: \"Adam\"\n" } else { "" };
        let tests = match survey.validation.1 {
            0 => String::new(),
            kept => {
                let iterations = kept.div_ceil(test_batch(survey));
                // So many of its last mini-batch.
                let twice = match iterations * test_batch(survey) - kept {
                    0 => String::new(),
                    images => format!(", {images} of them twice"),
                };
                let pass = (2 * images + batch) / (2 * batch);
                format!(
                    "# A test sees all {kept} images that are kept for it{twice}, once in a pass.\ntest_iter: {iterations}\n\
                     test_interval: {pass}\ntest_initialization: false\n"
                )
            }
        };
        format!(
            "# {epochs} passes over {images} images at mini-batch {batch}.\nnet: \"net.prototxt\"\n{tests}{method}base_lr: {base_lr}\n\
             lr_policy: \"poly\"\npower: 1\ndisplay: {display}\naverage_loss: {display}\nmax_iter: {}\nmomentum: 0.9\n\
             weight_decay: {weight_decay}\nsnapshot: {}\nrandom_seed: {seed}\n",
            passes(epochs),
            passes(epochs.div_ceil(5)),
        )
    }
}

/// Samples of a mini-batch of a test: few enough that the last holds few images a second time.
fn test_batch(survey: &Survey) -> usize {
    let images = if survey.validation.1 == 0 { survey.train.1 } else { survey.validation.1 };
    images.div_ceil(images.div_ceil(TEST_BATCH))
}

/// `text` with another value of the first field of this name that stands outside of comments, if there is one.
fn with_value(text: &str, field: &str, value: &str) -> String {
    let is_field = |&(at, _): &(usize, &str)| {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let is_name =
            !line.contains('#') && !line.ends_with(|last: char| last == '_' || last.is_alphanumeric());
        is_name && text[at + field.len()..].trim_start().starts_with(':')
    };
    let Some((at, _)) = text.match_indices(field).find(is_field) else { return text.to_owned() };
    let (before, rest) = text[at..].split_once(':').expect("it stands behind a field");
    let old = rest.trim_start();
    let end = match old.chars().next() {
        Some(quote @ ('"' | '\'')) => old[1..].find(quote).map(|end| end + 2),
        _ => old.find(|next: char| next.is_whitespace() || "#;,}>".contains(next)),
    };
    format!("{}{before}: {value}{}", &text[..at], &old[end.unwrap_or(old.len())..])
}
