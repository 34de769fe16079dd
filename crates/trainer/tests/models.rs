//! Every net and solver under `models/`: they load in both phases without a warning, and are what their names say.

use std::path::{Path, PathBuf};
use trainer::spec::{LayerKind, NetSpec, Phase, SolverSpec};

/// With the mini-batch of each in training, and the images of its test.
const MODELS: [(&str, usize, usize); 18] = [
    ("alexnet", 256, 50_000),
    ("alexnet_owt", 256, 50_000),
    ("caffe_alexnet", 256, 50_000),
    ("cifar10_quick", 100, 10_000),
    ("densenet121", 32, 50_000),
    ("densenet40", 256, 10_000),
    ("googlenet", 32, 50_000),
    ("googlenet_torchvision", 32, 50_000),
    ("lenet", 64, 300),
    ("overfeat", 128, 50_000),
    ("resnet101", 32, 50_000),
    ("resnet152", 32, 50_000),
    ("resnet18", 128, 50_000),
    ("resnet18_torchvision", 128, 50_000),
    ("resnet34", 128, 50_000),
    ("resnet50", 32, 50_000),
    ("resnet50_v1_5", 32, 50_000),
    ("vgg16", 64, 50_000),
];

fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(model)
}

fn net(model: &str, phase: Phase) -> NetSpec {
    let net = NetSpec::load(&folder(model).join("net.prototxt")).unwrap();
    assert_eq!(net.warnings, [], "{model}");
    net.for_phase(phase)
}

fn count(net: &NetSpec, type_name: &str) -> usize {
    net.layers.iter().filter(|layer| layer.kind.type_name() == type_name).count()
}

#[test]
fn every_model_is_listed_here() {
    let mut found: Vec<_> = std::fs::read_dir(folder("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, MODELS.map(|(model, ..)| model));
}

#[test]
fn every_net_has_data_and_loss_in_both_phases_and_accuracy_in_test() {
    for (model, ..) in MODELS {
        for phase in [Phase::Train, Phase::Test] {
            let net = net(model, phase);
            let data = count(&net, "Data") + count(&net, "ImageData");
            let losses = if model == "googlenet" && phase == Phase::Train { 3 } else { 1 };
            assert_eq!((data, count(&net, "SoftmaxWithLoss")), (1, losses), "{model} {phase}");
            assert_eq!(count(&net, "Accuracy") > 0, phase == Phase::Test, "{model} {phase}");
            assert_eq!(net.name, model);
        }
    }
}

/// Each bottom is the top of a layer above it, and each top but the results is somebody's bottom.
#[test]
fn every_net_is_connected() {
    for (model, ..) in MODELS {
        for phase in [Phase::Train, Phase::Test] {
            let net = net(model, phase);
            let mut made: Vec<&String> = Vec::new();
            for layer in &net.layers {
                for bottom in &layer.bottoms {
                    assert!(made.contains(&bottom), "{model} {phase}: {} has no {bottom}", layer.name);
                }
                made.extend(&layer.tops);
            }
            for layer in &net.layers {
                let result = matches!(layer.kind, LayerKind::SoftmaxWithLoss(_) | LayerKind::Accuracy(_));
                let used = |top| net.layers.iter().any(|reader| reader.bottoms.contains(top));
                assert!(
                    result || layer.tops.iter().all(used),
                    "{model} {phase}: nobody reads {}",
                    layer.name
                );
            }
        }
    }
}

#[test]
fn every_solver_names_its_net_and_its_mini_batch() {
    for (model, mini_batch, _) in MODELS {
        let solver = SolverSpec::load(&folder(model).join("solver.prototxt")).unwrap();
        assert_eq!(solver.warnings, [], "{model}");
        let train = solver.train_net.load().unwrap().for_state(&solver.train_state);
        assert_eq!((train.name.as_str(), train.mini_batch()), (model, Some(mini_batch)));
        assert_eq!(solver.tests.len(), 1, "{model}");
    }
}

/// A test sees every test image once.
#[test]
fn tests_cover_the_test_set() {
    for (model, _, images) in MODELS {
        let solver = SolverSpec::load(&folder(model).join("solver.prototxt")).unwrap();
        let mini_batch = net(model, Phase::Test).mini_batch().unwrap();
        assert_eq!(solver.tests[0].iterations * mini_batch, images, "{model}");
    }
}

/// Channels that enter each convolution (by its name), traced through the net.
fn input_channels(net: &NetSpec) -> Vec<usize> {
    let image = if net.name == "lenet" { 1 } else { 3 };
    let mut channels = std::collections::HashMap::from([("data".to_owned(), image)]);
    let mut inputs = Vec::new();
    for layer in net.layers.iter().filter(|layer| !layer.bottoms.is_empty()) {
        let bottom = channels.get(&layer.bottoms[0]).copied().unwrap_or(0);
        let top = match &layer.kind {
            LayerKind::Convolution(params) => {
                inputs.push(bottom);
                params.num_output
            }
            LayerKind::Concat(_) => layer.bottoms.iter().map(|bottom| channels[bottom]).sum(),
            _ => bottom,
        };
        channels.insert(layer.tops[0].clone(), top);
    }
    inputs
}

fn convolution_weights(model: &str) -> usize {
    let net = net(model, Phase::Train);
    let convolutions = net.layers.iter().filter_map(|layer| match &layer.kind {
        LayerKind::Convolution(params) => Some(params),
        _ => None,
    });
    let weights = |(params, c): (&trainer::spec::ConvolutionParams, usize)| {
        params.num_output * (c / params.group) * params.kernel[0] * params.kernel[1]
    };
    convolutions.zip(input_channels(&net)).map(weights).sum()
}

/// The numbers of convolutions, of other layers, and of filter elements, computed from the layer tables of the papers.
#[test]
fn nets_have_the_published_sizes() {
    let cases = [
        ("alexnet", 5, 3, 64 * 363 + 192 * 1600 + 384 * 1728 + 256 * 3456 + 256 * 2304),
        ("alexnet_owt", 5, 3, 64 * 363 + 192 * 1600 + 384 * 1728 + 384 * 3456 + 256 * 3456),
        ("caffe_alexnet", 5, 3, 96 * 363 + 256 * 1200 + 384 * 2304 + 384 * 1728 + 256 * 1728),
        ("cifar10_quick", 3, 2, 32 * 75 + 32 * 800 + 64 * 800),
        // torchvision: 7,978,856 parameters, less the classifier's and two per channel of batch norm.
        ("densenet121", 120, 1, 7_978_856 - 1_025_000 - 2 * 41_824),
        // 16 filters, then 40 for each of 16, 56, ... 456 channels and so on, and 496 and 976 between the blocks.
        ("densenet40", 39, 1, 16 * 27 + 360 * (236 + 716 + 1196) * 12 + 496 * 496 + 976 * 976),
        // 6,998,552 parameters, less the classifier's and a bias for each filter, and the two auxiliary convolutions.
        ("googlenet", 59, 5, 6_998_552 - 1_025_000 - 7_280 + 128 * (512 + 528)),
        // torchvision without auxiliary classifiers: 6,624,904, less the classifier's and two per channel of batch
        // norm.
        ("googlenet_torchvision", 57, 1, 6_624_904 - 1_025_000 - 2 * 7_280),
        ("lenet", 2, 2, 20 * 25 + 50 * 500),
        ("overfeat", 5, 3, 96 * 363 + 256 * 2400 + 512 * 2304 + 1024 * 4608 + 1024 * 9216),
        // torchvision: 11,689,512 parameters of ResNet-18 and so on, less the classifier's and two per channel of batch
        // norm.
        ("resnet18", 20, 1, 11_689_512 - 513_000 - 2 * 4_800),
        ("resnet18_torchvision", 20, 1, 11_689_512 - 513_000 - 2 * 4_800),
        ("resnet34", 36, 1, 21_797_672 - 513_000 - 2 * 8_512),
        ("resnet50", 53, 1, 25_557_032 - 2_049_000 - 2 * 26_560),
        ("resnet50_v1_5", 53, 1, 25_557_032 - 2_049_000 - 2 * 26_560),
        ("resnet101", 104, 1, 44_549_160 - 2_049_000 - 2 * 52_672),
        ("resnet152", 155, 1, 60_192_808 - 2_049_000 - 2 * 75_712),
        // torchvision: 138,357,544 parameters, less the fully connected layers' and a bias for each filter.
        ("vgg16", 13, 3, 138_357_544 - 123_642_856 - 4_224),
    ];
    for (model, convolutions, inner_products, weights) in cases {
        let net = net(model, Phase::Train);
        assert_eq!(count(&net, "Convolution"), convolutions, "{model}");
        assert_eq!(count(&net, "InnerProduct"), inner_products, "{model}");
        assert_eq!(convolution_weights(model), weights, "{model}");
    }
}

#[test]
fn residual_nets_have_one_sum_per_block() {
    let nets = [
        ("resnet18", 8, 20),
        ("resnet18_torchvision", 8, 20),
        ("resnet34", 16, 36),
        ("resnet50", 16, 53),
        ("resnet50_v1_5", 16, 53),
        ("resnet101", 33, 104),
        ("resnet152", 50, 155),
    ];
    for (model, blocks, batch_norms) in nets {
        let net = net(model, Phase::Train);
        assert_eq!((count(&net, "Eltwise"), count(&net, "BatchNorm")), (blocks, batch_norms), "{model}");
    }
}
