//! Fifty iterations have PyTorch's losses: same weights, images and labels, same solver.

use super::{assert_within, losses, planned};
use crate::snapshot::{NamedTensor, Weights, save_tensors};
use crate::testing::{Forced, gpu, numbers, plan_options, root, weights};
use crate::{export::state_dict, spec::SolverSpec};
use planner::{BatchSizePolicy, WorkspacePolicy};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};
use tensor::{Cpu, Device};

/// What pytorch_losses.py has written.
#[derive(Deserialize)]
struct Golden {
    batch: usize,
    images: usize,
    classes: usize,
    /// Outputs of fully connected layers that have 4,096 in the models.
    width: usize,
    cases: Vec<Case>,
}

/// A training.
#[derive(Deserialize)]
struct Case {
    model: String,
    /// Of an image: channels, height, width.
    shape: [usize; 3],
    /// Fields of the solver file.
    solver: String,
    /// How far, relative to those in double precision, PyTorch's own losses have been off so far: in single precision,
    /// and where results are moved as by single precision.
    drifts: Vec<f64>,
    /// In double precision.
    losses: Vec<f64>,
}

/// Sums in another order round otherwise, and training amplifies that, the more once a maximum or a ReLU tips over. Some
/// runs of PyTorch are as many draws of it, with a long tail: those of a model's three solvers are taken together, and
/// so many times the largest drift is allowed. What tells solvers apart are the early iterations, where drifts are below
/// 1e-5.
const DRIFTS: f64 = 4.0;

/// What a loss is rounded by itself.
const LEAST_TOLERANCE: f64 = 2e-6;

/// Images as files, and the list of them with labels.
fn write_images(golden: &Golden, [channels, height, width]: [usize; 3], folder: &Path) {
    let count = golden.images * channels * height * width;
    let noise: Vec<f64> = numbers("images", count).map(|number| (number + 1.0) * 8.0).collect();
    let mut list = String::new();
    for (index, label) in numbers("labels", golden.images).enumerate() {
        let class = ((label + 1.0) / 2.0 * golden.classes as f64).floor();
        // The higher the class, the brighter is the noise.
        let planes = &noise[index * channels * height * width..];
        // A grey image has one plane, and the same value in all three colours.
        let value = |x: u32, y: u32, colour: usize| {
            let at = (colour % channels * height + y as usize) * width + x as usize;
            (planes[at] * (class + 6.0)) as u8
        };
        let pixel = |x, y| image::Rgb([0, 1, 2].map(|colour| value(x, y, colour)));
        let file = folder.join(format!("{index}.png"));
        image::RgbImage::from_fn(width as u32, height as u32, pixel).save(file).unwrap();
        list += &format!("{index}.png {class}\n");
    }
    fs::write(folder.join("list.txt"), list).unwrap();
}

/// The solver of a case, with its model in it, which reads the images of `folder` and has no dropout.
fn solver(golden: &Golden, case: &Case, folder: &Path) -> SolverSpec {
    let model = fs::read_to_string(root().join("models").join(&case.model).join("net.prototxt")).unwrap();
    let conv1 = model.find("name: \"conv1\"").expect("the first layer behind the data");
    let layers = &model[model[..conv1].rfind("layer").unwrap()..];
    let layers = layers
        .replace("dropout_ratio: 0.5", "dropout_ratio: 0")
        .replace("num_output: 4096", &format!("num_output: {}", golden.width))
        .replace("num_output: 1000", &format!("num_output: {}", golden.classes));
    let folder = folder.display();
    let data = format!(
        "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' transform_param {{ scale: 0.00390625 }}
  image_data_param {{ source: '{folder}/list.txt' root_folder: '{folder}/' batch_size: {} is_color: {} }} }}\n",
        golden.batch,
        case.shape[0] == 3
    );
    let text = format!("max_iter: 50 {} net_param {{ name: 'net' {data} {layers} }}", case.solver);
    SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap()
}

fn losses_are_those_of_pytorch(model: &str, device: &Device) {
    let golden: Golden =
        serde_json::from_str(include_str!("../../../tests/golden/pytorch_losses.json")).unwrap();
    let cases: Vec<&Case> = golden.cases.iter().filter(|case| case.model == model).collect();
    let folder = tempfile::tempdir().unwrap();
    write_images(&golden, cases[0].shape, folder.path());
    for case in &cases {
        let mut named: Vec<NamedTensor> = Vec::new();
        let training = planned(solver(&golden, case, folder.path()), device, |net| {
            let params = net.graph().params.iter();
            let any: Vec<_> = params.map(|param| vec![1.0; param.declaration.shape.count()]).collect();
            for (name, shape, _) in state_dict(net, &any).unwrap() {
                let values = weights(&name, &shape).into();
                named.push((name, shape, values));
            }
            let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
            Forced::IMPLICIT_GEMM.install(net, &plan)
        });
        let path = folder.path().join("start.safetensors");
        save_tensors(&path, &named, &BTreeMap::new()).unwrap();
        let mut solver = training.start().unwrap();
        let copied = solver.load_weights(&Weights::load(&[path]).unwrap()).unwrap();
        assert!(copied.files[0].skipped.is_empty() && copied.complete().is_ok(), "{copied:?}");

        let found = losses(&mut solver, case.losses.len());
        let drift = |step: usize| cases.iter().map(|case| case.drifts[step]).fold(0.0, f64::max);
        let tolerance = |step| (DRIFTS * drift(step)).max(LEAST_TOLERANCE);
        assert_within(&found, &case.losses, tolerance, &format!("{model}, {}", case.solver));
    }
    assert_eq!(cases.len(), 3, "SGD, Nesterov and AdamW");
}

macro_rules! models {
    ($($test:ident $cuda:ident: $model:literal,)*) => {$(
        #[test]
        fn $test() {
            losses_are_those_of_pytorch($model, &Device::Cpu(Cpu::new(2)));
        }

        #[test]
        #[ignore = "needs an NVIDIA GPU"]
        fn $cuda() {
            losses_are_those_of_pytorch($model, &gpu());
        }
    )*};
}

models!(
    lenet cuda_lenet: "lenet",
    alexnet cuda_alexnet: "alexnet",
    resnet18 cuda_resnet18: "resnet18_torchvision",
);
