//! The models' folders, through the command: what the examples do is this with defaults.

use crate::fixtures::Folder;

#[test]
fn a_model_of_the_repository_is_planned_on_synthetic_images() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/cifar10_quick/net.prototxt");
    let report = Folder::new().json(&format!("plan --model {model} --batch 2 --synthetic=3x32x32"));
    assert_eq!(report["net"]["kernels"], report["plan"]["kernels"].as_array().unwrap().len());
    assert!(report["memory"]["arena"].as_u64().unwrap() > 0);
}
