//! `microbatch init`.

use super::draw::{check, write};
use super::inputs::{STAND_IN, warn};
use crate::{Console, Error, Result, args::InitArgs, console::escaped, models::read_template, progress};
use figures::counted;
use std::io;
use std::path::{Path, PathBuf};
use tensor::Device;
use trainer::own_images::{Recipe, transform};
use trainer::spec::{NetSpec, Phase};
use trainer::{Net, data::Survey, layers::BuildOptions, snapshot::Weights};

/// The net, the solver, and the lists of images to train and to validate with.
const FILES: [&str; 4] = ["net.prototxt", "solver.prototxt", Recipe::LISTS[0], Recipe::LISTS[1]];

/// Looks at images and writes a net and a solver for them.
pub(super) fn init(args: &InitArgs) -> Result<()> {
    let (template, text, model) = read_template(&args.like)?;
    let mut console = Console::new(false);
    warn(&console, &template.warnings);
    let not_like = |reason: &str| Error::Refused(format!("--like {}: {reason}", args.like.display()));
    let side = args.size.or(transform(&template).and_then(|transform| transform.crop_size));
    let side = side.ok_or_else(|| not_like("it does not say the size of its images; --size does"))?;
    let file = |name: &str| args.folder.join(name);
    if let Some(file) = FILES.map(file).into_iter().find(|file| file.exists()) {
        return Err(Error::Refused(format!("{} is there already, and is not written over", file.display())));
    }
    check(&[file(FILES[0])], &[])?;
    let weights = Weights::load(args.weights.as_slice())?;
    let survey = look(args)?;
    let mut recipe = Recipe {
        name: name(&args.folder),
        side,
        batch: args.batch.min(survey.train.1),
        epochs: args.epochs,
        is_tuned: args.weights.is_some(),
        is_grey: false,
        seed: args.seed,
    };
    let (first, mut times) = (recipe.name.clone(), 1);
    // What the weights know would not be new.
    while template.heads().any(|head| weights.know(&recipe.head(&head.name))) {
        times += 1;
        recipe.name = format!("{first}_{times}");
    }
    // What does not fit would be refused by the training.
    let fitting = |recipe: &Recipe| -> Result<_> {
        let (net, new) = recipe.net(&survey, &template, &text).map_err(Error::Refused)?;
        let spec = NetSpec::parse(&file(FILES[0]), &net)?.for_phase(Phase::Train);
        let build = BuildOptions { device: Device::cpu(), seed: 0, synthetic: Some(STAND_IN) };
        let built = Net::new(&spec, &build, true)?;
        let copied = weights.copied(&built)?;
        Ok((net, new, built, copied))
    };
    let made = fitting(&recipe).or_else(|error| {
        // The weights may be for grey images.
        recipe.is_grey = recipe.is_tuned;
        fitting(&recipe).map_err(|_| error)
    });
    let (net, new, built, copied) = made.map_err(|error| {
        let (reason, place) = (error.to_string(), file(FILES[0]).display().to_string());
        // The line of a file that is not written tells nobody anything.
        let rest = reason.strip_prefix(&place).and_then(|rest| Some(rest.split_once(": ")?.1));
        not_like(rest.unwrap_or(&reason))
    })?;
    let solver = recipe.solver(&survey, (&template, model.as_ref()));
    let contents = [&net, &solver, &survey.train.0, &survey.validation.0];
    for (name, contents) in FILES.iter().zip(contents).filter(|(_, contents)| !contents.is_empty()) {
        write(&file(name), contents.clone().into_bytes())?;
    }
    let afresh: Vec<_> = copied.initialised.iter().filter(|layer| !new.contains(layer)).collect();
    if let (Some(file), Some(first)) = (copied.files.first(), afresh.first()) {
        let known = file.copied.len();
        console.warn(format!(
            "{} has weights for {known} of the {} layers that are not new: the others begin afresh, {first} among them",
            file.file,
            known + afresh.len()
        ));
    }
    let millions = built.learned() as f64 / 1e6;
    let new = new.join(", ");
    let batch = recipe.batch;
    let net =
        format!("{millions:.2} million parameters, {batch} images of {side}x{side} a mini-batch, new: {new}");
    tell(args, &survey, &net, &mut console)
}

/// Says what was found and written, and what comes next.
fn tell(args: &InitArgs, survey: &Survey, net: &str, console: &mut Console) -> Result<()> {
    let Survey { names, classes, train, validation, own_folder, unvalidated, unreadable, .. } = survey;
    let of_folder = own_folder.iter().map(|folder| format!(" of {}", folder.display())).collect::<String>();
    if !unvalidated.is_empty() {
        console.warn(format!("classes without an image to validate with: {}", unvalidated.join(", ")));
    }
    unreadable.iter().for_each(|reason| console.warn(format!("left out: {reason}")));
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    console.text(escaped(format!(
        "data  {}: {classes} classes{names}, {} to train and {}{of_folder} to validate with, {} left out",
        args.data.display(),
        counted(train.1, "image"),
        validation.1,
        counted(unreadable.len(), "file"),
    )))?;
    let [net_file, solver] = [FILES[0], FILES[1]].map(|name| args.folder.join(name));
    let word = |path: &Path| match path.display().to_string() {
        plain if plain.chars().all(|letter| letter.is_alphanumeric() || "/._-".contains(letter)) => plain,
        other => format!("'{}'", other.replace('\'', "'\\''")),
    };
    console.text(escaped(format!("net   {}: like {}, {net}", net_file.display(), args.like.display())))?;
    let weights = args.weights.iter().map(|file| format!(" --weights {}", word(file))).collect::<String>();
    console.text(format!("next  microbatch train --solver {}{weights}", word(&solver)))
}

/// The name of a task: that of its folder, as far as it can be part of a layer's.
fn name(folder: &Path) -> String {
    let named = |path: io::Result<PathBuf>| Some(path.ok()?.file_name()?.to_string_lossy().into_owned());
    // `..` has a name only where it leads.
    let name =
        named(std::path::absolute(folder)).or_else(|| named(folder.canonicalize())).unwrap_or_default();
    name.replace(|letter: char| !letter.is_alphanumeric(), "_")
}

fn look(args: &InitArgs) -> Result<Survey> {
    let bar = progress::bar(0, "reading");
    Ok(Survey::new(&args.data, (args.validation, args.seed), args.strict, |files| {
        bar.set_length(files as u64);
        bar.inc(1);
    })?)
}
