//! `test`.

use crate::fixtures::Folder;

#[test]
fn weights_are_tested_as_the_training_tested_them() {
    let folder = Folder::new();
    let trained =
        folder.json("train --solver solver.prototxt --snapshot-prefix small --max-iter 8 --threads 1");
    let test = "test --model net.prototxt --weights small_iter_8.safetensors --iterations 4 --threads 1";
    let report = folder.json(test);
    let value = |outputs: &serde_json::Value, name: &str| {
        let outputs = outputs.as_array().unwrap().iter();
        outputs
            .filter(|output| output["name"] == name)
            .map(|output| output["value"].as_f64().unwrap())
            .next()
            .unwrap()
    };
    // Both saw the first 32 test images with the same weights: those of the first test of this very training differ.
    let text = folder.succeed(test);
    for expected in ["Batch 0, accuracy = ", "Batch 3, loss = ", "\nLoss: ", "\naccuracy = "] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    let loss = value(&report["outputs"], "loss");
    assert!((loss - report["loss"].as_f64().unwrap()).abs() < 1e-12);
    let first = value(&trained["tests"][0]["outputs"], "loss");
    assert!(loss < first, "eight iterations of training have taught something: {loss} and {first}");
}
