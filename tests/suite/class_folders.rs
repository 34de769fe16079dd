//! Images in a folder for each class, as most people have theirs.

use crate::fixtures::{Folder, png, text};

/// Writes `count` images of 8x8 pixels for each of `classes` into `folder`.
fn images(folder: &Folder, name: &str, classes: &[&str], count: u32) {
    for (label, class) in classes.iter().enumerate() {
        for number in 0..count {
            let pixel = |x, y| [(x * 20 * (label as u32 + 1) + y * 3 + number * 7) as u8];
            folder.write(&format!("{name}/{class}/{number}.png"), png(8, pixel));
        }
    }
}

/// A net on `train` and `test`, which reads `order`.
fn net(folder: &Folder, order: &str) {
    let source = |phase: &str, name: &str| {
        format!(
            "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' include {{ phase: {phase} }}
               transform_param {{ scale: 0.01 }} image_data_param {{ source: '{name}' batch_size: 4 {order} }} }}"
        )
    };
    let rest = "
        layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
          convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
        layer { name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' batch_norm_param { moving_average_fraction: 0.9 } }
        layer { name: 'ip' type: 'InnerProduct' bottom: 'bn' top: 'ip'
          inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
        layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
    folder
        .write("net.prototxt", [source("TRAIN", "train"), source("TEST", "test"), rest.to_owned()].concat());
}

const TRAIN: &str = "train --solver solver.prototxt --no-snapshot --max-iter 1 --threads 1";

#[test]
fn what_was_loaded_is_told_for_training_and_tests() {
    let folder = Folder::new();
    images(&folder, "train", &["cat", "dog", "owl"], 3);
    images(&folder, "test", &["cat", "dog", "owl"], 2);
    net(&folder, "shuffle: true");
    let said = folder.succeed(TRAIN);
    assert!(said.contains("images of train, 3x8x8: 9 images of 3 classes (cat, dog, owl)\n"), "{said}");
    assert!(
        said.contains("  test data   images of test, 3x8x8: 6 images of 3 classes (cat, dog, owl)\n"),
        "{said}"
    );
    let report = folder.json(TRAIN);
    assert_eq!(
        (&report["net"]["data"]["images"], &report["net"]["test_data"][0]["images"]),
        (&9.into(), &6.into())
    );
    assert_eq!(report["net"]["data"]["class_names"], serde_json::json!(["cat", "dog", "owl"]));
    images(&folder, "test", &["bat"], 2);
    folder.change_net("num_output: 3", "num_output: 4");
    let warned = text(&folder.run(&format!("{TRAIN} --no-test")).stderr);
    assert_eq!(warned, "", "what is not tested is not compared");
    let warned = text(&folder.run(TRAIN).stderr);
    assert!(warned.contains("have different classes ('bat' is in one of them only)"), "{warned}");
}

#[test]
fn a_test_of_other_classes_is_warned_of_and_told_how_many_its_last_mini_batch_has() {
    let folder = Folder::new();
    images(&folder, "train", &["cat", "dog", "owl"], 3);
    images(&folder, "test", &["bat", "cat", "dog"], 2);
    net(&folder, "shuffle: true");
    folder.succeed("train --solver solver.prototxt --snapshot-prefix one --no-test --max-iter 1 --threads 1");
    let test = "test --model net.prototxt --weights one_iter_1.safetensors --threads 1 --json";
    let output = folder.run(test);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let warning = report["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("label 0 is 'cat' for the weights and 'bat' in the test data"), "{warning}");
    assert_eq!(text(&output.stderr), format!("warning: {warning}\n"));
    assert_eq!(
        (&report["notes"][0], &report["iterations"]),
        (&"the last mini-batch has 2 samples".into(), &2.into())
    );
    // It may be the only one.
    let output = folder.run(&format!("{test} --batch 8"));
    let whole: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let loss = |report: &serde_json::Value| report["loss"].as_f64().unwrap();
    assert!((loss(&whole) - loss(&report)).abs() < 1e-6 && whole["iterations"] == 1, "{whole} {report}");
}

#[test]
fn a_training_class_by_class_is_warned_of() {
    let folder = Folder::new();
    images(&folder, "train", &["cat", "dog", "owl"], 3);
    images(&folder, "test", &["cat", "dog", "owl"], 3);
    net(&folder, "");
    let warned = text(&folder.run(TRAIN).stderr);
    assert_eq!(warned.lines().count(), 1, "{warned}");
    for part in ["warning: layer 'data' reads its 9 images class by class", "3 classes", "`shuffle: true`"] {
        assert!(warned.contains(part), "{part:?} is missing in {warned}");
    }
    folder.succeed("plan --model net.prototxt --threads 1 --policy undivided");
    // A mini-batch that holds the whole set holds all classes.
    let whole = text(&folder.run(&format!("{TRAIN} --batch 9")).stderr);
    assert_eq!(whole, "");
}

/// The net says what it makes of the images: three channels or one, and which size.
#[test]
fn a_plan_needs_no_images_where_the_net_tells_their_shape() {
    let folder = Folder::new();
    for (order, shape) in
        [("new_height: 8 new_width: 9", "3x8x9"), ("is_color: false new_height: 8 new_width: 9", "1x8x9")]
    {
        net(&folder, order);
        let report = folder.json("plan --model net.prototxt --threads 1 --policy undivided");
        assert_eq!(report["net"]["data"]["shape"], shape);
    }
    let net = text(&folder.read("net.prototxt")).replace("scale: 0.01", "crop_size: 6");
    folder.write("net.prototxt", net.replace("new_height: 8 new_width: 9", ""));
    let report = folder.json("plan --model net.prototxt --threads 1 --policy undivided");
    assert_eq!(report["net"]["data"]["shape"], "1x6x6");
}
