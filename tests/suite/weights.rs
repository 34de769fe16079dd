//! `--weights` and `export`.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text};
use serde_json::Value;
use std::collections::BTreeMap;

const TRAIN: &str = "train --solver solver.prototxt --no-test --threads 1";

/// The bytes of every tensor in a safetensors file.
fn tensors(file: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let (length, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
    let offset = |info: &Value, end: usize| info["data_offsets"][end].as_u64().unwrap() as usize;
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    tensors.map(|(name, info)| (name, data[offset(&info, 0)..offset(&info, 1)].to_vec())).collect()
}

/// A net with another head, whose first layer is frozen, begins where the first training ended.
#[test]
fn fine_tuning_begins_with_the_layers_of_the_same_names() {
    let folder = Folder::new();
    folder.json(&format!("{TRAIN} --snapshot-prefix first --max-iter 3"));
    folder.change_net("name: \"ip\"", "name: \"ip_new\"");
    folder.change_net("top: \"conv1\"\n", "top: \"conv1\" param { lr_mult: 0 } param { lr_mult: 0 }\n");
    let tune = format!("{TRAIN} --weights first_iter_3.safetensors --snapshot-prefix second --max-iter 1");
    let said = folder.succeed(&tune);
    let lines = "\n  weights     first_iter_3.safetensors: copied conv1, conv2; only in the file: ip\n              only in the \
                 net, and initialised: ip_new\n";
    assert!(said.contains(lines), "{said}");
    let report = folder.json(&tune);
    let weights = &report["weights"];
    assert_eq!(weights["files"][0]["copied"], serde_json::json!(["conv1", "conv2"]));
    assert_eq!(weights["initialised"], serde_json::json!(["ip_new"]));
    let [first, second] =
        ["first_iter_3", "second_iter_1"].map(|name| tensors(&folder.read(&format!("{name}.safetensors"))));
    for name in ["conv1.0", "conv1.1"] {
        assert_eq!(first[name], second[name], "{name} is frozen");
    }
    assert_ne!(first["conv2.0"], second["conv2.0"], "one step moves it");
    // A step of rate 0 shows where everything began; a solver can name the weights, too.
    let solver = text(&folder.read("solver.prototxt")).replace("base_lr: 0.05", "base_lr: 0");
    folder.write("solver.prototxt", solver + "\nweights: 'first_iter_3.safetensors'\n");
    let output = folder.run(&tune.replace("--weights first_iter_3.safetensors", ""));
    let warning = "warning: base_lr is 0: at that rate nothing is trained\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), warning));
    let still = tensors(&folder.read("second_iter_1.safetensors"));
    for name in ["conv1.0", "conv1.1", "conv2.0", "conv2.1"] {
        assert_eq!(first[name], still[name], "{name} is copied");
    }
    assert_ne!(first["ip.0"], still["ip_new.0"]);

    let test = "test --model net.prototxt --iterations 1 --threads 1 --weights first_iter_3.safetensors";
    let output = folder.run(test);
    assert_refused(&output, 1, &["first_iter_3.safetensors", "has none for ip_new"], "a test without a head");
    // Of several files later ones win; together they have all layers.
    let report = folder.json(&format!("{test},second_iter_1.safetensors"));
    assert_eq!(report["weights"]["files"][1]["copied"], serde_json::json!(["conv1", "conv2", "ip_new"]));
}

#[test]
fn a_net_goes_to_pytorch_and_comes_back_bit_by_bit() {
    let folder = Folder::new();
    folder.json(&format!("{TRAIN} --snapshot-prefix first --max-iter 2"));
    let export = "export --model net.prototxt --weights first_iter_2.safetensors";
    let said = folder.succeed(&format!("{export} --to torchvision --out model.safetensors"));
    assert!(said.contains("copied conv1, conv2, ip\nWrote model.safetensors with "), "{said}");
    for input in ["first_iter_2.safetensors", "net.prototxt"] {
        let output = folder.run(&format!("{export} --to onnx --out ./{input}"));
        assert_refused(&output, 1, &[input, "it is read, and not written over"], "an input is kept");
    }
    let names: Vec<String> = tensors(&folder.read("model.safetensors")).into_keys().collect();
    let expected = ["classifier.0", "features.0", "features.2"];
    let expected: Vec<String> =
        expected.iter().flat_map(|name| [format!("{name}.bias"), format!("{name}.weight")]).collect();
    assert_eq!(names, expected);
    let test = "test --model net.prototxt --iterations 2 --threads 1 --database measured --json --weights";
    let [ours, theirs] = ["first_iter_2.safetensors", "model.safetensors"].map(|file| {
        let report: Value = serde_json::from_str(&folder.succeed(&format!("{test} {file}"))).unwrap();
        report["outputs"].clone()
    });
    assert_eq!(ours, theirs);
    folder.succeed(&format!("{export} --to onnx --out net.onnx"));
    assert!(folder.read("net.onnx").windows(4).any(|word| word == b"Gemm"));
    for to in ["onnx", "torchvision"] {
        let refused = folder.run(&format!("{export} --to {to} --out net.onnx/net"));
        assert_refused(&refused, 1, &["error: cannot write net.onnx/net: "], "a file is no folder");
    }
}

/// The same line may be started again and again.
#[test]
fn weights_are_where_a_training_begins_but_not_where_it_resumes() {
    let folder = Folder::new();
    let solver = "--solver solver.prototxt --no-test --policy undivided --database measured";
    folder.succeed(&format!("train {solver} --snapshot-prefix first --max-iter 2"));
    let train =
        format!("train {solver} --snapshot-prefix s/small --resume --weights first_iter_2.safetensors");
    let said = folder.succeed(&format!("{train} --max-iter 3"));
    assert!(said.contains("weights     first_iter_2.safetensors: copied conv1"), "{said}");
    let said = folder.succeed(&format!("{train} --max-iter 5"));
    assert!(!said.contains("copied") && said.contains("\nIteration 3, loss = "), "{said}");
    assert!(!said.contains("\nIteration 2, loss = "), "{said}");
}

#[test]
fn a_training_of_frozen_layers_alone_is_warned_of() {
    let folder = Folder::new();
    for layer in ["conv1", "conv2", "ip"] {
        let top = format!("top: \"{layer}\"\n");
        folder.change_net(&top, &top.replace('\n', " param { lr_mult: 0 } param { lr_mult: 0 }\n"));
    }
    let output = folder.run(&format!("{TRAIN} --no-snapshot --max-iter 1"));
    let warning = "warning: every parameter of the net has lr_mult 0: nothing is trained\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), warning));
}
