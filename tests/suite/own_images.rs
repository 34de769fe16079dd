//! From a folder of images to a trained net: `data render`, `init`, `train`, `test`.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text};
use std::fs;

/// Three convolutions, for images of 24x24.
const NET: &str = "name: 'tiny'
layer { name: 'data' type: 'ImageData' top: 'data' top: 'label'
  transform_param { crop_size: 24 mean_value: 100 scale: 0.01 } image_data_param { source: 'none' batch_size: 32 } }
layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 bias_term: false weight_filler { type: 'msra' } } }
layer { name: 'bn1' type: 'BatchNorm' bottom: 'conv1' top: 'bn1' batch_norm_param { moving_average_fraction: 0.9 scale_bias: true } }
layer { name: 'relu1' type: 'ReLU' bottom: 'bn1' top: 'bn1' }
layer { name: 'pool1' type: 'Pooling' bottom: 'bn1' top: 'pool1' pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: 'conv2' type: 'Convolution' bottom: 'pool1' top: 'conv2'
  convolution_param { num_output: 32 kernel_size: 3 pad: 1 bias_term: false weight_filler { type: 'msra' } } }
layer { name: 'bn2' type: 'BatchNorm' bottom: 'conv2' top: 'bn2' batch_norm_param { moving_average_fraction: 0.9 scale_bias: true } }
layer { name: 'relu2' type: 'ReLU' bottom: 'bn2' top: 'bn2' }
layer { name: 'pool2' type: 'Pooling' bottom: 'bn2' top: 'pool2' pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: 'conv3' type: 'Convolution' bottom: 'pool2' top: 'conv3'
  convolution_param { num_output: 64 kernel_size: 3 pad: 1 bias_term: false weight_filler { type: 'msra' } } }
layer { name: 'bn3' type: 'BatchNorm' bottom: 'conv3' top: 'bn3' batch_norm_param { moving_average_fraction: 0.9 scale_bias: true } }
layer { name: 'relu3' type: 'ReLU' bottom: 'bn3' top: 'bn3' }
layer { name: 'pool3' type: 'Pooling' bottom: 'bn3' top: 'pool3' pooling_param { pool: AVE global_pooling: true } }
layer { name: 'fc' type: 'InnerProduct' bottom: 'pool3' top: 'fc'
  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'fc' bottom: 'label' top: 'accuracy' include { phase: TEST } }";

/// What a linear model is: no layer between the pixels and the classes.
const LINEAR: &str = "name: 'linear'
layer { name: 'data' type: 'ImageData' top: 'data' top: 'label'
  transform_param { crop_size: 24 } image_data_param { source: 'none' batch_size: 32 } }
layer { name: 'fc' type: 'InnerProduct' bottom: 'data' top: 'fc'
  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'fc' bottom: 'label' top: 'accuracy' include { phase: TEST } }";

/// A folder with `pictures`, which are drawn, and both nets.
fn drawn(arguments: &str) -> Folder {
    let folder = Folder::new();
    folder.succeed(&format!("data render --size 28 --out pictures {arguments}"));
    // A comment may have any encoding.
    folder.write("tiny.prototxt", [b"# caf\xe9\n", NET.as_bytes()].concat());
    folder.write("linear.prototxt", LINEAR);
    folder
}

/// The model's own filters begin with numbers of about 1e-4, which are for pixels as they are.
#[test]
fn a_net_without_batch_normalization_learns() {
    let folder = Folder::new();
    let said = folder.succeed("data render --classes 1 --per-class 1 --size 32 --out one");
    assert_eq!(said, "one: 1 image of 32x32 pixels, 1 class\n");
    folder.succeed("data render --classes 2 --per-class 40 --size 32 --out pictures");
    folder.succeed("init quick --data pictures --like cifar10_quick --batch 16 --epochs 27");
    let report = folder
        .json("train --solver quick/solver.prototxt --no-snapshot --no-test --threads 2 --policy undivided");
    let losses: Vec<f64> =
        report["steps"].as_array().unwrap().iter().map(|step| step["loss"].as_f64().unwrap()).collect();
    let last = losses[losses.len() - 10..].iter().sum::<f64>() / 10.0;
    assert!(losses.len() == 122 && last < 0.45, "{last}, where chance is ln 2: {losses:?}");
}

/// The accuracy at the end of a training.
fn accuracy(folder: &Folder, solver: &str) -> f64 {
    let report =
        folder.json(&format!("train --solver {solver} --no-snapshot --threads 2 --policy undivided"));
    report["summary"]["accuracies"][0]["values"][0].as_f64().unwrap()
}

#[test]
fn a_convolutional_net_learns_what_is_drawn_and_a_linear_model_does_not() {
    let folder = drawn("--classes 4 --per-class 300");
    for (net, rate) in [("tiny", "base_lr: 0.1"), ("linear", "base_lr: 0.001")] {
        folder.succeed(&format!(
            "init {net} --data pictures --like {net}.prototxt --epochs 12 --validation 0.2"
        ));
        let change = |file: &str, beginning: &str, line: &str| {
            let text = text(&folder.read(&format!("{net}/{file}")));
            let lines = text.lines().map(|old| if old.starts_with(beginning) { line } else { old });
            folder.write(&format!("{net}/{file}"), lines.collect::<Vec<_>>().join("\n"));
        };
        change("solver.prototxt", "base_lr", rate);
        change("net.prototxt", "    min_area", "    min_area: 0.7 mirror: true crop_size: 24");
    }
    let (net, linear) =
        (accuracy(&folder, "tiny/solver.prototxt"), accuracy(&folder, "linear/solver.prototxt"));
    assert!(net > 0.75 && linear < 0.4, "{net} and {linear}, by chance 0.25");
}

#[test]
fn own_images_are_looked_at_split_and_trained_on_and_their_classes_stay_known() {
    let folder = drawn("--classes 3 --per-class 20");
    folder.write("pictures/disc-plain/notes.txt", "no image");
    let init = "init shapes --data pictures --like tiny.prototxt --batch 8 --epochs 1";
    let refused = folder.run(&format!("{init} --strict"));
    assert!(!refused.status.success() && text(&refused.stderr).contains("notes.txt"));
    assert!(!folder.path("shapes").exists());
    let output = folder.run(init);
    let (said, warned) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{warned}");
    assert_eq!(
        warned,
        "warning: left out: pictures/disc-plain/notes.txt: the file is neither JPEG nor PNG\n"
    );
    for part in [
        "3 classes (disc-plain, square-stripes, triangle-fine), 54 images to train and 6 to validate with, 1 file left out",
        "new: fc_shapes",
        "next  microbatch train --solver shapes/solver.prototxt",
    ] {
        assert!(said.contains(part), "{part:?} is missing in {said}");
    }
    // Before any image is looked at.
    folder.write("file", "");
    let refused = folder.run("init file/new --data nowhere --like lenet");
    assert_refused(
        &refused,
        1,
        &["cannot write file/new/net.prototxt: Not a directory"],
        "a file is no folder",
    );
    let again = text(&folder.run(init).stderr);
    assert!(again.contains("shapes/net.prototxt is there already"), "{again}");
    let train = "train --solver shapes/solver.prototxt --threads 1 --policy undivided";
    let said = folder.succeed(train);
    assert!(said.contains("54 images of 3 classes (disc-plain, square-stripes, triangle-fine)"), "{said}");
    let weights = "shapes/solver_iter_7.safetensors";
    let header = String::from_utf8_lossy(&folder.read(weights)).into_owned();
    assert!(
        header.contains(r#"[\"disc-plain\",\"square-stripes\",\"triangle-fine\"]"#),
        "{}",
        &header[..400]
    );
    let test = format!("test --model shapes/net.prototxt --weights {weights} --threads 1 --policy undivided");
    let said = folder.succeed(&format!("{test} --confusion"));
    for line in ["  class             0  1  2  recall", "\n  1 square-stripes ", "\n  2 triangle-fine "] {
        assert!(said.contains(line), "{line:?} is missing in {said}");
    }
    let report = folder.json(&format!("{test} --confusion"));
    assert_eq!(
        report["confusion"]["names"],
        serde_json::json!(["disc-plain", "square-stripes", "triangle-fine"])
    );
    let predict =
        format!("predict pictures/disc-plain --model shapes/net.prototxt --weights {weights} --threads 1");
    fs::remove_file(folder.path("pictures/disc-plain/notes.txt")).unwrap();
    let said = folder.succeed(&format!("{predict} --policy undivided --top 3"));
    let first = said.lines().find(|line| line.contains("00000.png")).unwrap();
    assert!(
        ["disc-plain (", "square-stripes (", "triangle-fine ("].iter().all(|class| first.contains(class)),
        "{first}"
    );
    // The folder of class folders that it was trained on, and names that would break the line.
    folder.write("pictures/disc-plain/.hidden.png", "no image");
    folder.write("pictures/triangle-fine/a\nb.png", folder.read("pictures/triangle-fine/00000.png"));
    let images = folder.succeed(&predict.replace("/disc-plain", "")).matches("\npictures/").count();
    let files = |class: &str| fs::read_dir(folder.path(&format!("pictures/{class}"))).unwrap().count();
    let all: usize = ["disc-plain", "square-stripes", "triangle-fine"].map(files).iter().sum();
    assert_eq!(images, all - 1, "not the hidden file");
    let said = folder.succeed(&predict.replace("/disc-plain", "/triangle-fine"));
    assert!(said.contains("\npictures/triangle-fine/a\\nb.png: "), "{said}");
    fs::remove_file(folder.path("pictures/disc-plain/.hidden.png")).unwrap();
    fs::remove_file(folder.path("pictures/triangle-fine/a\nb.png")).unwrap();
    // An image that goes bad later stops a training.
    folder.write("pictures/disc-plain/00000.png", "no image");
    folder.write("pictures/disc-plain/00001.png", "no image");
    let said = text(&folder.run(&format!("{train} --no-snapshot")).stderr);
    assert!(said.contains("disc-plain/0000") && said.contains("neither JPEG nor PNG"), "{said}");
}

#[test]
fn weights_of_another_training_bring_their_normalization_and_a_lower_rate() {
    let folder = drawn("--classes 2 --per-class 4");
    let init = "init tuned --data pictures --like tiny.prototxt --validation 0 --weights";
    folder.write("none.safetensors", "no weights");
    for missing in ["some.safetensors", "none.safetensors"] {
        let refused = folder.run(&format!("{init} {missing}"));
        assert!(!refused.status.success() && text(&refused.stderr).contains(missing), "{missing}");
        assert!(!folder.path("tuned").exists());
    }
    folder.succeed("init first --data pictures --like tiny.prototxt --batch 8 --epochs 1 --validation 0");
    folder.succeed("train --solver first/solver.prototxt --threads 1 --policy undivided");
    folder.succeed(&format!("{init} first/solver_iter_1.safetensors"));
    let again =
        "init second/first --data pictures --like tiny.prototxt --weights first/solver_iter_1.safetensors";
    let said = folder.succeed(again);
    assert!(said.contains("new: fc_first_2\n"), "the weights have another fc_first: {said}");
    folder.write("longer.prototxt", NET.replace("'conv2'", "'conv4'").replace("'bn3'", "'bn4'"));
    let longer = again.replace("second/first", "longer").replace("tiny.", "longer.");
    let warned = text(&folder.run(&longer).stderr);
    let sentence = "warning: first/solver_iter_1.safetensors has weights for 4 of the 6 layers that are not new: the others \
                    begin afresh, conv4 among them\n";
    assert!(warned.contains(sentence), "{warned}");
    let net = text(&folder.read("tuned/net.prototxt"));
    assert!(net.contains("mean_value: 100.000\n") && net.contains("scale: 0.01\n"), "{net}");
    let rate =
        |name: &str| text(&folder.read(&format!("{name}/solver.prototxt"))).contains("base_lr: 0.001\n");
    assert!(net.contains("phase: TEST }\n  transform") && !folder.path("tuned/val.txt").exists());
    let first = "--weights first/solver_iter_1.safetensors --model first/net.prototxt";
    folder.succeed(&format!("predict pictures/disc-plain {first} --threads 1 --policy undivided"));
    folder.succeed(&format!("test {first} --threads 1 --policy undivided"));
    folder.succeed(&format!("export {first} --to onnx --out first/net.onnx"));
    fs::create_dir_all(folder.path("own/lists")).unwrap();
    folder.succeed("init own/lists/.. --data pictures --like tiny.prototxt --size 20");
    let net = text(&folder.read("own/net.prototxt"));
    assert!(
        net.contains("name: \"own\"") && net.contains("std_value") && net.contains("crop_size: 20"),
        "{net}"
    );
    assert!(rate("tuned") && !rate("own"));
    folder.write("sizeless.prototxt", NET.replace("crop_size: 24", ""));
    for (like, reason) in [
        ("lenet --size 2", "--like lenet"),
        ("sizeless.prototxt", "it does not say the size of its images; --size does"),
        ("nothing", "there is neither a file nor a model named nothing; the models are alexnet"),
    ] {
        let said = text(&folder.run(&format!("init no --data pictures --like {like}")).stderr);
        assert!(said.contains(reason) && !folder.path("no").exists(), "{said}");
    }
}

/// Names of any bytes, spaces and files that are cut short are as common as photos are.
#[cfg(unix)]
#[test]
fn folders_of_any_names_are_predicted_without_what_cannot_be_read() {
    use crate::fixtures::without_progress;
    use std::os::unix::ffi::OsStrExt;
    let folder = drawn("--classes 2 --per-class 4");
    let mut init = folder.command("init");
    let init = init.args([
        "my pets",
        "--data",
        "pictures",
        "--like",
        "tiny.prototxt",
        "--batch",
        "4",
        "--epochs",
        "1",
    ]);
    let said = text(&init.output().unwrap().stdout);
    assert!(said.contains("next  microbatch train --solver 'my pets/solver.prototxt'\n"), "{said}");
    let mut train = folder.command("train --threads 1 --policy undivided --solver");
    assert!(train.arg("my pets/solver.prototxt").output().unwrap().status.success());
    fs::create_dir(folder.path("photos")).unwrap();
    let image = folder.read("pictures/disc-plain/00000.png");
    let odd = std::ffi::OsStr::from_bytes(b"photos/caf\xe9 1.png");
    fs::write(folder.path("").join(odd), &image).unwrap();
    folder.write("photos/a b.png", &image);
    folder.write("photos/none.jpg", "no image");
    let mut damaged = image.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0x55);
    folder.write("photos/damaged.png", damaged);
    let predict = |images: &[&std::ffi::OsStr]| {
        let mut predict = folder.command("predict --threads 1 --policy undivided --model");
        predict.args(["my pets/net.prototxt", "--weights", "my pets/solver_iter_2.safetensors"]);
        predict.args(images).output().unwrap()
    };
    let output = predict(&["photos".as_ref()]);
    let (said, warned) = (text(&output.stdout), without_progress(&text(&output.stderr)));
    let (damaged, rest) = warned.split_once('\n').unwrap();
    assert!(
        damaged.starts_with("warning: left out: photos/damaged.png: cannot decode the image"),
        "{warned}"
    );
    assert_eq!(rest, "warning: left out: photos/none.jpg: the file is neither JPEG nor PNG\n");
    assert!(said.contains("\n  data        2 images, 3x24x24\n"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("photos/")).count(), 2, "{said}");
    assert!(predict(&[odd]).status.success());
    let refused = predict(&["photos/none.jpg".as_ref()]);
    assert_eq!(
        text(&refused.stderr),
        "error: cannot predict photos/none.jpg: the file is neither JPEG nor PNG\n"
    );
}

/// Photos are read without colours where the weights know none.
#[test]
fn weights_for_grey_images_are_tuned_on_grey_ones() {
    let folder = drawn("--classes 2 --per-class 4");
    folder.json("train --solver solver.prototxt --snapshot-prefix grey --max-iter 1 --no-test --threads 1");
    folder.succeed("init own --data pictures --like net.prototxt --size 8 --weights grey_iter_1.safetensors");
    let net = text(&folder.read("own/net.prototxt"));
    assert!(net.contains("is_color: false") && !net.contains("is_rgb"), "{net}");
}

#[test]
fn models_are_known_by_name_anywhere() {
    let folder = Folder::new();
    let planned = folder.json("plan --model alexnet --device h200 --policy powerOfTwo");
    assert_eq!(planned["net"]["name"], "alexnet");
    let said = text(&folder.run("train --solver lenet --threads 1").stderr);
    assert!(said.contains("data/digits"), "its data are not here: {said}");
}
