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
            .map(|output| output["values"][0].as_f64().unwrap())
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

#[test]
fn an_output_of_many_values_has_each_of_them() {
    let folder = Folder::new();
    let prob = "layer { name: \"prob\" type: \"Softmax\" bottom: \"ip\" top: \"prob\" include { phase: TEST } }\nlayer {\n  name: \"accuracy\"";
    folder.change_net("layer {\n  name: \"accuracy\"", prob);
    let trained =
        folder.json("train --solver solver.prototxt --snapshot-prefix small --max-iter 2 --threads 1");
    let test = "test --model net.prototxt --weights small_iter_2.safetensors --iterations 2 --threads 1";
    let report = folder.json(test);
    for outputs in [&report["outputs"], &trained["tests"][0]["outputs"]] {
        let prob = outputs.as_array().unwrap().iter().find(|output| output["name"] == "prob").unwrap();
        let values: Vec<f64> =
            prob["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        assert_eq!(values.len(), 8 * 10);
        for sample in values.chunks(10) {
            assert!((sample.iter().sum::<f64>() - 1.0).abs() < 1e-5 && sample[0] < 1.0, "{sample:?}");
        }
    }
    let said = folder.succeed(test);
    assert_eq!(said.lines().filter(|line| line.starts_with("Batch 0, prob = 0.")).count(), 80, "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("prob = 0.")).count(), 80, "{said}");
    let said = folder.succeed("train --solver solver.prototxt --no-snapshot --max-iter 1 --threads 1");
    assert!(said.contains("\n    Test net output #79: prob = 0."), "{said}");
}
