//! `microbatch predict`.

use super::setup::{Recorded, Request, Session};
use super::{inputs::refuse, test::check_end};
use crate::args::{Batch, DEFAULT_SEED, PredictArgs};
use crate::{Console, Error, Result, console::escaped, models::load_net, report::Header, stop::stop};
use serde::Serialize;
use std::path::{Path, PathBuf};
use trainer::data::{ImageRecords, check_images, is_image, sorted_entries};
use trainer::spec::{ImageDataParams, LayerKind, NetSpec, Phase};
use trainer::{NetError, own_images::transform, snapshot::Weights, solver::best_classes};

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    header: Header,
    predictions: Vec<Prediction>,
}

#[derive(Serialize)]
struct Prediction {
    image: String,
    /// The likeliest first.
    classes: Vec<Class>,
}

#[derive(Serialize)]
struct Class {
    class: usize,
    /// What the weights call it, if they know.
    name: Option<String>,
    probability: f64,
}

/// Says of which class images are, by the TEST phase of a net whose data layer's transformation they get. A signal
/// (Ctrl-C) ends it after its mini-batch.
pub(super) fn predict(args: &PredictArgs) -> Result<()> {
    let mut console = Console::new(args.run.json);
    refuse([(args.run.synthetic.is_some(), "--synthetic")], "`predict`, which reads images")?;
    let weights = Weights::load(&args.trained.weights)?;
    let spec = load_net(&args.trained.model)?.for_state(&args.trained.state.of(Phase::Test));
    let refused =
        |reason| Error::Refused(format!("{} cannot predict: {reason}", args.trained.model.display()));
    let (mut spec, scores) = spec.predicting(|source| shape(source, &spec, &weights)).map_err(refused)?;
    let input = spec.layers.iter_mut().map(|layer| &mut layer.kind).find(|kind| kind.reads_data());
    let Some(LayerKind::ImageData(reading)) = input else { unreachable!("what predicts reads images") };
    let images = images(&args.images, reading, &console)?;
    let batch = args.batch.unwrap_or(reading.batch_size).min(images.len());
    reading.images = images.clone();
    let request =
        Request { batch: Some(Batch::Samples(batch)), ..Request::new("predict", &args.planning, &args.run) };
    let (mut session, header) = Session::open(&request, spec, &mut console)?;
    let shape = session.nets[0].keep_blob(&scores)?;
    let dims = shape.dims();
    if dims.first() != Some(&batch) || dims.iter().skip(2).any(|&extent| extent > 1) {
        let reason = format!(
            "'{scores}', a blob of shape {shape}, does not have one score of each class for each image"
        );
        return Err(refused(reason));
    }
    let copied = weights.copied(&session.nets[0])?;
    copied.complete()?;
    let names = weights.class_names(&session.nets[0], &copied)?;
    session.profile(&[], &mut console)?;
    let planned = session.plan(Recorded::default())?;
    let (run, _) = session.lay_out(&planned, &mut console)?;
    let mut running = run.start(DEFAULT_SEED)?;
    running.load_weights(&weights)?;
    let mut predictions = Vec::new();
    let stop = stop()?;
    let _listening = stop.listen();
    let wanted = images.len().div_ceil(batch);
    let (_, done) = running.test(&[(0, wanted)], &stop, |running, (_, number), _| {
        let scores = running.blob(0, &scores)?;
        // The last mini-batch is filled up with images that were there before.
        let of_images = scores.chunks_exact(scores.len() / batch).zip(&images[number * batch..]);
        for (scores, image) in of_images {
            if scores.iter().any(|score| score.is_nan()) {
                let image = image.display();
                return Err(refused(format!(
                    "of {image} the scores are no numbers, as of weights that have diverged"
                )));
            }
            let named = |(class, probability)| Class { class, name: names.get(class).cloned(), probability };
            let classes = best_classes(scores, args.top).into_iter().map(named).collect();
            let prediction = Prediction { image: image.display().to_string(), classes };
            console.text(line(&prediction))?;
            predictions.push(prediction);
        }
        Ok::<(), Error>(())
    })?;
    console.object(&Report { header, predictions })?;
    check_end(done, wanted)
}

/// `photo.jpg: 3 (97.2 %), 5 (1.4 %)`, or with the names of classes.
fn line(Prediction { image, classes }: &Prediction) -> String {
    let class = |Class { class, name, probability }: &Class| {
        let name = name.clone().unwrap_or_else(|| class.to_string());
        format!("{name} ({:.1} %)", 100.0 * probability)
    };
    escaped(format!("{image}: {}", classes.iter().map(class).collect::<Vec<_>>().join(", ")))
}

/// The shape of the images in a data set. Away from that, a filter knows the channels, and what resizes images the size.
fn shape(source: &Path, spec: &NetSpec, weights: &Weights) -> Result<[usize; 3], String> {
    let known = || {
        let first = spec.layers.iter().find(|layer| matches!(layer.kind, LayerKind::Convolution(_)))?;
        let channels = *weights.shape(&format!("{}.0", first.name))?.get(1)?;
        let side = transform(spec)?.resize?;
        Some([channels, side, side])
    };
    let found = ImageRecords::shape_of(source, Phase::Test);
    found.or_else(|error| known().ok_or(format!("only its data say how large its images are: {error}")))
}

/// The images that are named, and those in folders that are and in their class folders, by name. What `reading` cannot
/// read is left out of a folder, and refused if it is named.
fn images(given: &[PathBuf], reading: &ImageDataParams, console: &Console) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    let is_folder = |path: &&PathBuf| path.is_dir();
    let named: Vec<PathBuf> = given.iter().filter(|path| !is_folder(path)).cloned().collect();
    let refused = |error: NetError| Error::Refused(format!("cannot predict {error}"));
    check_images(&named, reading).into_iter().collect::<Result<(), _>>().map_err(refused)?;
    for path in given {
        if !is_folder(&path) {
            images.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in sorted_entries(path)? {
            if entry.is_dir() { inside.extend(sorted_entries(&entry)?) } else { inside.push(entry) }
        }
        let (mut inside, others): (Vec<_>, Vec<_>) = inside.into_iter().partition(|path| is_image(path));
        if !others.is_empty() {
            let (folder, count) = (path.display(), others.len());
            console.warn(format!("left out of {folder}: {count} not named .jpg, .jpeg or .png"));
        }
        let mut checked = check_images(&inside, reading).into_iter();
        let left_out = |error| console.warn(format!("left out: {error}"));
        inside.retain(|_| checked.next().is_some_and(|checked| checked.map_err(left_out).is_ok()));
        if inside.is_empty() {
            let path = path.display();
            return Err(Error::Refused(format!(
                "cannot predict {path}: it holds no JPEG or PNG files that can be read"
            )));
        }
        images.extend(inside);
    }
    Ok(images)
}
