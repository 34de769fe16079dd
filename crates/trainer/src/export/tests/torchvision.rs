//! torchvision's models: the state dict of each goes in and out bit by bit, and its logits are PyTorch's.

use super::{build, values};
use crate::export::state_dict;
use crate::run::{MiniBatch, NetRun};
use crate::snapshot::{NamedTensor, Weights, save_tensors};
use crate::spec::{LayerKind, NetSpec, Phase, TransformParams};
use crate::testing::{Forced, gpu, numbers, plan_options, root, weights};
use files::fnv1a;
use planner::{BatchSizePolicy, WorkspacePolicy};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs};
use tensor::{Cpu, Device};

/// What torchvision_logits.py has written of a model.
#[derive(Deserialize)]
struct Golden {
    side: usize,
    tensors: usize,
    digest: String,
    largest: f64,
    logits: Vec<Vec<f64>>,
}

fn golden(model: &str) -> Golden {
    #[derive(Deserialize)]
    struct File {
        models: BTreeMap<String, Golden>,
    }
    let mut file: File =
        serde_json::from_str(include_str!("../../../tests/golden/torchvision_logits.json")).unwrap();
    file.models.remove(model).unwrap()
}

/// Two images as files, and the list of them.
fn images(folder: &Path, side: usize) -> PathBuf {
    let pixels: Vec<u8> =
        numbers("images", 2 * 3 * side * side).map(|number| ((number + 1.0) * 128.0) as u8).collect();
    for (index, planes) in pixels.chunks_exact(3 * side * side).enumerate() {
        let pixel = |x: u32, y: u32| {
            let at = y as usize * side + x as usize;
            image::Rgb([0, 1, 2].map(|plane| planes[plane * side * side + at]))
        };
        let file = folder.join(format!("{index}.png"));
        image::RgbImage::from_fn(side as u32, side as u32, pixel).save(file).unwrap();
    }
    let list = folder.join("list.txt");
    fs::write(&list, "0.png 0\n1.png 0\n").unwrap();
    list
}

/// The model up to its logits, reading the images of `list`.
fn spec(model: &str, list: &Path) -> NetSpec {
    let file = root().join("models").join(model).join("net.prototxt");
    let mut spec = NetSpec::load(&file).unwrap().for_phase(Phase::Test);
    spec.layers.retain(|layer| !matches!(layer.kind, LayerKind::SoftmaxWithLoss(_) | LayerKind::Accuracy(_)));
    for layer in &mut spec.layers {
        if let LayerKind::ImageData(images) = &mut layer.kind {
            images.source = list.display().to_string();
            images.root_folder = format!("{}/", list.parent().unwrap().display());
            (images.batch_size, images.shuffle, images.new_size) = (2, false, None);
            images.transform = TransformParams { scale: 1.0 / 255.0, ..TransformParams::default() };
        }
    }
    spec
}

/// A relative distance between logits that the order of sums explains, in nets of up to 120 layers.
const TOLERANCE: f64 = 5e-5;

fn logits_are_those_of_pytorch(model: &str, device: &Device) {
    let golden = golden(model);
    let folder = tempfile::tempdir().unwrap();
    let mut net = build(device, &spec(model, &images(folder.path(), golden.side)));
    let first = values(&net);
    let tensors = state_dict(&net, &first).unwrap();
    let mut lines: Vec<String> =
        tensors.iter().map(|(name, shape, _)| format!("{name} {shape:?}\n")).collect();
    lines.sort();
    let found = (lines.len(), format!("{:016x}", fnv1a(lines.concat().into_bytes())));
    assert_eq!(found, (golden.tensors, golden.digest), "{lines:#?}");

    let made: Vec<NamedTensor> = tensors
        .into_iter()
        .map(|(name, shape, _)| {
            let values = weights(&name, &shape).into();
            (name, shape, values)
        })
        .collect();
    let path = folder.path().join("model.safetensors");
    save_tensors(&path, &made, &BTreeMap::new()).unwrap();
    let weights = Weights::load(&[path]).unwrap();
    let values = weights.values(&net).unwrap();
    assert!(state_dict(&net, &values).unwrap() == made, "what goes in comes out");

    let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
    let plan = Forced::IMPLICIT_GEMM.install(&mut net, &options);
    let mut running = NetRun::lay_out(vec![net], vec![plan], false).unwrap().start(1).unwrap();
    let copied = running.load_weights(&weights).unwrap();
    assert!(copied.files[0].skipped.is_empty() && copied.complete().is_ok(), "{copied:?}");
    assert_eq!(copied.files[0].turned.len(), 1, "images are blue first");
    running.iterate(0, MiniBatch::new(0)).unwrap();
    let net = &running.nets()[0];
    let (output, _) = net.outputs().find(|&(value, _)| net.graph().values[value].name != "label").unwrap();
    let logits = running.values(0, output).unwrap();
    for (image, expected) in golden.logits.iter().enumerate() {
        for (class, expected) in expected.iter().enumerate() {
            let found = logits[image * (logits.len() / 2) + class];
            let distance = (found - expected).abs() / golden.largest;
            assert!(distance < TOLERANCE, "{model}, image {image}, class {class}: {found} and {expected}");
        }
    }
}

macro_rules! models {
    ($($test:ident $cuda:ident: $model:literal,)*) => {$(
        #[test]
        fn $test() {
            logits_are_those_of_pytorch($model, &Device::Cpu(Cpu::new(2)));
        }

        #[test]
        #[ignore = "needs an NVIDIA GPU"]
        fn $cuda() {
            logits_are_those_of_pytorch($model, &gpu());
        }
    )*};
}

models!(
    alexnet cuda_alexnet: "alexnet",
    resnet18 cuda_resnet18: "resnet18_torchvision",
    resnet50_v1_5 cuda_resnet50_v1_5: "resnet50_v1_5",
    googlenet cuda_googlenet: "googlenet_torchvision",
    densenet121 cuda_densenet121: "densenet121",
);
