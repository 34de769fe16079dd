//! Nets of `models/` for other images.

use super::{Recipe, transform};
use crate::data::Survey;
use crate::spec::{LayerKind, LayerSpec, Mean, Method, NetSpec, SolverSpec};
use std::path::Path;

fn survey(classes: usize) -> Survey {
    Survey {
        root: "/birds".into(),
        names: Vec::new(),
        classes,
        train: (String::new(), 90),
        validation: (String::new(), 60),
        own_folder: None,
        unvalidated: Vec::new(),
        unreadable: Vec::new(),
        mean: [100.0, 110.5, 120.0],
        std: [50.0, 55.0, 60.25],
    }
}

fn recipe(is_tuned: bool) -> Recipe {
    Recipe { name: "birds".to_owned(), side: 64, batch: 16, epochs: 2, is_tuned, is_grey: false, seed: 3 }
}

fn parsed(text: &str) -> NetSpec {
    NetSpec::parse(Path::new("net.prototxt"), text).unwrap()
}

fn model(name: &str) -> (NetSpec, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name);
    let text = std::fs::read_to_string(folder.join("net.prototxt")).unwrap();
    (parsed(&text), text)
}

/// Accents of their own, as of files from a Mac, joined signs, quotes and backslashes.
#[test]
fn any_folder_can_be_named() {
    let name = "Ve\u{301}lo \"\\n\" \u{1f469}\u{200d}\u{1f52c} नुक्ता";
    let survey = Survey { root: Path::new("/").join(name), ..survey(4) };
    let recipe = Recipe { name: "नुक्ता".to_owned(), ..recipe(false) };
    let (template, text) = model("lenet");
    let (net, _) = recipe.net(&survey, &template, &text).unwrap();
    let LayerKind::ImageData(images) = &parsed(&net).layers[0].kind else { panic!("images are read first") };
    assert_eq!((parsed(&net).name, &images.root_folder), ("नुक्ता".to_owned(), &format!("/{name}/")));
    let file = Path::new(name).join("solver.prototxt");
    let solver = SolverSpec::parse(&file, &recipe.solver(&survey, (&template, None))).unwrap();
    assert_eq!(solver.snapshot.prefix, Path::new(name).join("solver"));
}

/// Also one whose name is a part of the word.
#[test]
fn only_the_name_of_a_model_is_another() {
    let (_, text) = model("lenet");
    let text = text.replacen("\"lenet\"", "'a'", 1);
    let template = parsed(&text);
    assert_eq!(template.name, "a");
    let (net, _) = recipe(false).net(&survey(4), &template, &text).unwrap();
    assert_eq!(parsed(&net).name, "birds");
}

#[test]
fn every_head_of_a_model_is_new_and_all_else_is_as_it_was() {
    for (name, heads) in [
        ("resnet18", &["fc_birds"][..]),
        ("resnet50_v1_5", &["fc_birds"]),
        ("alexnet", &["fc8_birds"]),
        ("vgg16", &["fc8_birds"]),
        ("googlenet", &["loss1/classifier_birds", "loss2/classifier_birds", "loss3/classifier_birds"]),
        ("densenet40", &["fc_birds"]),
        ("lenet", &["ip2_birds"]),
    ] {
        let (before, text) = model(name);
        let (net, new) = recipe(false).net(&survey(4), &before, &text).unwrap();
        assert_eq!(new, heads);
        let after = parsed(&net);
        assert_eq!((after.name.as_str(), after.classes()), ("birds", 4));
        assert!(after.warnings.is_empty(), "{:?}", after.warnings);
        for layer in &after.layers[2..] {
            let old = layer.name.strip_suffix("_birds").unwrap_or(&layer.name);
            let old = before.layers.iter().find(|before| before.name == old).expect("a layer of the model");
            let joints =
                |layer: &LayerSpec| (layer.bottoms.clone(), layer.tops.clone(), layer.params.clone());
            assert_eq!(joints(layer), joints(old));
            assert!(layer.kind == old.kind || heads.contains(&layer.name.as_str()), "{}", layer.name);
        }
    }
}

#[test]
fn images_are_normalized_by_their_own_numbers_or_as_known_weights_expect() {
    let own = "Values([100.0, 110.5, 120.0]) 1";
    for (model_name, is_tuned, mean, std) in [
        ("resnet18", false, own, "[50.0, 55.0, 60.25]"),
        ("resnet18", true, "Values([104.0, 117.0, 123.0]) 0.00390625", "[]"),
        // Its fillers are for pixels as they are.
        ("cifar10_quick", false, own, "[]"),
        ("cifar10_quick", true, "Values([125.3, 123.0, 113.9]) 1", "[]"),
        ("densenet40", false, own, "[50.0, 55.0, 60.25]"),
        ("densenet40", true, "Values([125.3, 123.0, 113.9]) 0.016", "[]"),
        ("caffe_alexnet", false, own, "[]"),
        ("googlenet", true, "Values([104.0, 117.0, 123.0]) 1", "[]"),
        ("alexnet", true, "Values([103.53, 116.28, 123.675]) 1", "[57.375, 57.12, 58.395]"),
        ("resnet50_v1_5", false, own, "[50.0, 55.0, 60.25]"),
        ("resnet50_v1_5", true, "Values([103.53, 116.28, 123.675]) 1", "[57.375, 57.12, 58.395]"),
        // Its weights know no mean.
        ("lenet", false, own, "[50.0, 55.0, 60.25]"),
        ("lenet", true, "Zero 0.00390625", "[]"),
    ] {
        let (before, text) = model(model_name);
        let net = parsed(&recipe(is_tuned).net(&survey(9), &before, &text).unwrap().0);
        for layer in &net.layers[..2] {
            let LayerKind::ImageData(data) = &layer.kind else { panic!() };
            let transform = &data.transform;
            assert_eq!(format!("{:?} {}", transform.mean, transform.scale), mean, "{model_name}");
            assert_eq!((format!("{:?}", transform.std).as_str(), transform.crop_size), (std, Some(64)));
            // The files of a Data layer have red, green, blue, and so have means and weights that were made for them.
            let of_files = ["cifar10_quick", "densenet40", "lenet"].contains(&model_name);
            assert_eq!(transform.is_rgb, is_tuned && of_files, "{model_name}");
            assert_eq!(data.root_folder, "/birds/");
        }
        let [train, test] = [0, 1].map(|layer| &net.layers[layer].kind);
        assert!(matches!(train, LayerKind::ImageData(data) if data.shuffle && data.batch_size == 16));
        // Two mini-batches of 30 are the 60 images.
        assert!(matches!(test, LayerKind::ImageData(data) if !data.shuffle && data.batch_size == 30));
    }
    assert_eq!(transform(&model("resnet18").0).unwrap().crop_size, Some(224));
}

/// Its weights are tested, asked and exported by a net of phase TEST.
#[test]
fn a_net_that_is_not_validated_tests_what_it_trains_with() {
    let survey = Survey { validation: (String::new(), 0), ..survey(4) };
    let (template, text) = model("resnet18");
    let net = parsed(&recipe(false).net(&survey, &template, &text).unwrap().0);
    for (layer, batch) in [(0, 16), (1, 45)] {
        let LayerKind::ImageData(data) = &net.layers[layer].kind else { panic!() };
        assert_eq!((data.batch_size, data.source.ends_with("train.txt")), (batch, true));
    }
    let solver = recipe(false).solver(&survey, (&template, None));
    assert!(!solver.contains("test_"), "{solver}");
}

#[test]
fn nets_that_cannot_be_adapted_are_refused() {
    let refused = |text: &str| recipe(false).net(&survey(3), &parsed(text), text).unwrap_err();
    let relu = "layer { name: 'd' type: 'ReLU' bottom: 'x' top: 'y' }";
    assert_eq!(refused(relu), "it has no layer with weights before a SoftmaxWithLoss");
    let loss = "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'l' }";
    let head = |name: &str| {
        format!(
            "layer {{ {name} type: 'InnerProduct' bottom: 'data' top: 'f' inner_product_param {{ num_output: 7 }} }}"
        )
    };
    let data = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: 's' batch_size: 2 } }";
    let good = [data, &head("name: 'fc'"), loss].join("\n");
    assert!(recipe(false).net(&survey(3), &parsed(&good), &good).is_ok());
    let one_line = [data, &head("name: 'fc'"), loss].join(" ");
    let swapped = head("top: 'fc' name: 'fc'").replace("top: 'f' ", "");
    let top_first = [data, &swapped, &loss.replace("'f'", "'fc'")].join("\n");
    assert!(refused(&one_line).starts_with("it cannot be adapted"), "{}", refused(&one_line));
    // However it is written, and whatever comments say.
    let head =
        "layer { # num_output: 7, name: 'fc'\n  top: 'fc' name:'fc' type: 'InnerProduct' bottom: 'data'
  inner_product_param { num_output:7} }";
    let written = [data, head, &loss.replace("'f'", "'fc'")].join("\n");
    let (net, new) = recipe(false).net(&survey(3), &parsed(&written), &written).unwrap();
    assert_eq!((new, parsed(&net).classes()), (vec!["fc_birds".to_owned()], 3));
    let accuracy = good.replace("SoftmaxWithLoss", "Accuracy");
    assert_eq!(refused(&accuracy), "it has no layer with weights before a SoftmaxWithLoss");
    // Whatever blobs are called, and a layer whose name is a part of another word.
    for (name, top) in [("l", "f"), ("er", "er"), ("fc", "fc")] {
        let text = top_first.replace("'fc'", &format!("'{top}'"));
        let text = text.replace(&format!("name: '{top}'"), &format!("name : '{name}'"));
        let text =
            text.replace("'data' top: 'label'", "'pixels' top: 'classes'").replace("'label'", "'classes'");
        let text = text.replace("bottom: 'data'", "bottom: 'pixels'").replace("name: 'l' ", "name: 'loss' ");
        let (net, new) = recipe(true).net(&survey(3), &parsed(&text), &text).unwrap();
        let layers = parsed(&net).layers;
        assert_eq!((new, &layers[2].tops[0][..]), (vec![format!("{name}_birds")], top));
        assert_eq!(layers[0].tops, ["pixels", "classes"]);
    }
    let mean = "transform_param { mean_file: 'mean' }";
    let grey = top_first.replace("type: 'Data'", &format!("type: 'Data' {mean}"));
    let recipe = Recipe { is_grey: true, ..recipe(true) };
    let (net, _) = recipe.net(&survey(3), &parsed(&grey), &grey).unwrap();
    let LayerKind::ImageData(data) = &parsed(&net).layers[0].kind else { panic!() };
    assert!(
        !data.is_color && matches!(&data.transform.mean, Mean::Values(values) if values.len() == 1),
        "{data:?}"
    );
}

#[test]
fn the_solver_is_the_model_s_at_another_mini_batch() {
    let (template, _) = model("resnet18");
    let text = |is_tuned| recipe(is_tuned).solver(&survey(4), (&template, None));
    let spec = |text: &str| crate::spec::SolverSpec::parse(Path::new("solver.prototxt"), text).unwrap();
    let (own, tuned) = (spec(&text(false)), spec(&text(true)));
    assert_eq!(
        (own.max_iter, own.test_interval, own.tests[0].iterations, own.random_seed),
        (12, 6, 2, Some(3))
    );
    assert_eq!(own.display, own.average_loss, "what is displayed has every loss in it, once");
    assert!(
        (own.learning_rate.base_lr - 0.01).abs() < 1e-6 && (tuned.learning_rate.base_lr - 0.001).abs() < 1e-7
    );
    // 30 passes over 17 images are not 60 mini-batches of 16; all of 59 images are tested.
    let few = Survey { train: (String::new(), 17), validation: (String::new(), 59), ..survey(4) };
    let text = Recipe { epochs: 30, ..recipe(false) }.solver(&few, (&template, None));
    let odd = spec(&text);
    assert_eq!((odd.max_iter, odd.test_interval, odd.tests[0].iterations), (32, 1, 2));
    assert!(
        text.contains("# A test sees all 59 images that are kept for it, 1 of them twice, once in a pass.\n")
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/resnet18/solver.prototxt");
    let model = crate::spec::SolverSpec::load(&folder).unwrap();
    let like = spec(&recipe(false).solver(&survey(4), (&template, Some(&model))));
    assert!((like.learning_rate.base_lr - 0.1 * 16.0 / 128.0).abs() < 1e-6);
    assert_eq!(like.weight_decay, model.weight_decay);
}

/// Measured with AlexNet as Caffe has it, `--size 131`, on 432 images of 4 classes by `data render`: SGD at the model's
/// own rate came to a loss of 1.30 in 19 passes, where chance is 1.39, and Adam to 0.93 in 8.
#[test]
fn nets_without_batch_normalization_learn_by_adam() {
    let solver = |name: &str, is_tuned| {
        let text = recipe(is_tuned).solver(&survey(4), (&model(name).0, None));
        let solver = SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap();
        assert!(solver.warnings.is_empty(), "{:?}", solver.warnings);
        (solver.method, solver.learning_rate.base_lr)
    };
    for name in ["alexnet", "caffe_alexnet", "cifar10_quick", "googlenet", "lenet", "overfeat", "vgg16"] {
        assert_eq!(solver(name, false), (Method::Adam, 0.0002), "{name}");
        assert_eq!(solver(name, true).0, Method::Sgd, "known weights are moved a little: {name}");
    }
    assert_eq!(solver("resnet50", false), (Method::Sgd, 0.01));
}
