//! Where conversions stand in a net whose feature maps are not in single precision and NCHW.

use super::{DATA, conv, head, layer};
use crate::layers::{BuildOptions, SyntheticData};
use crate::net::layout::{from_nchw, in_nchw};
use crate::net::{Net, graph::Graph};
use crate::snapshot::modules::{blue_first, modules};
use crate::spec::{NetSpec, NetState};
use std::path::Path;
use tensor::{AxisOrder, Device, Format, TensorType};

/// The layers of a net with their first tops, as the graph has them. Nothing runs.
fn nodes(text: &str, format: Format) -> Vec<(String, String)> {
    let spec = NetSpec::parse(Path::new("net.prototxt"), text).unwrap().for_state(&NetState::default());
    let mut device = Device::cpu();
    device.set_format(format);
    let options = BuildOptions { device, seed: 1, synthetic: None };
    let (graph, layers) = Graph::build(&spec, &options, true).unwrap();
    assert_eq!(graph.nodes.len(), layers.len());
    let top = |top: usize| format!("{} {}", graph.values[top].name, graph.values[top].shape.format());
    graph.nodes.iter().map(|node| (node.spec.name.clone(), top(node.tops[0]))).collect()
}

#[test]
fn conversions_stand_where_formats_change() {
    let pool = "layer { name: 'pool' type: 'Pooling' bottom: 'data' top: 'pool' pooling_param { kernel_size: 2 } }\n";
    let all = "layer { name: 'all' type: 'Pooling' bottom: 'pool' top: 'all' pooling_param { global_pooling: true } }\n";
    let text = [
        DATA,
        pool,
        &layer("ReLU", "relu", "pool", "pool"),
        all,
        &head("pool"),
        &layer("TanH", "t", "all", "t"),
    ];
    let text = text.concat();
    let names = |found: &[(String, String)]| found.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let plain = nodes(&text, Format::F32);
    assert_eq!(names(&plain), ["data", "pool", "relu", "all", "ip", "loss", "t"]);
    assert!(plain.iter().all(|(_, top)| top.ends_with("FP32 in NCHW")));
    let found = nodes(&text, Format::BF16.in_order(AxisOrder::Nhwc));
    let expected = [
        ("data", "data FP32 in NCHW"),
        ("data_pool_convert", "data BF16 in NHWC"),
        ("pool", "pool BF16 in NHWC"),
        ("relu", "pool BF16 in NHWC"),
        // One pixel: both orders are one.
        ("all", "all BF16 in NCHW"),
        // Weights are of the order of the file.
        ("pool_ip_convert", "pool BF16 in NCHW"),
        ("ip", "ip BF16 in NCHW"),
        // Labels are as they were.
        ("loss", "loss FP32 in NCHW"),
        ("t", "t BF16 in NCHW"),
    ];
    assert_eq!(found, expected.map(|(name, top)| (name.to_owned(), top.to_owned())));
}

/// BF16 has no whole number above 256 but every second.
#[test]
fn labels_stay_in_single_precision_on_their_way() {
    let twice = "layer { name: 'both' type: 'Concat' bottom: 'label' bottom: 'l' top: 'both' concat_param { axis: 0 } }\n";
    let column = "layer { name: 'column' type: 'Reshape' bottom: 'label' top: 'l' reshape_param { shape { dim: -1 } } }\n";
    let text = [DATA, column, twice, &layer("Split", "s", "both", "s"), &head("data")].concat();
    for (name, top) in nodes(&text, Format::BF16.in_order(AxisOrder::Nhwc)) {
        let is_of_labels = ["column", "both", "s"].contains(&name.as_str());
        assert!(!is_of_labels || top.ends_with("FP32 in NCHW"), "{name}: {top}");
        assert!(!name.starts_with("label") && !name.starts_with("both_"), "{name}");
    }
}

/// What a file of PyTorch has for a layer does not depend on the layers that a format adds or joins.
#[test]
fn modules_and_colours_are_those_of_the_file() {
    let data = "layer { name: 'data' type: 'ImageData' top: 'data' top: 'label' image_data_param { source: 'x' } }\n";
    let pool = "layer { name: 'pool' type: 'Pooling' bottom: 'bn' top: 'pool' pooling_param { kernel_size: 3 stride: 2 } }\n";
    let strided = conv("conv", "data").replace("pad: 1", "pad: 1 stride: 2");
    for first in [conv("conv", "data"), strided] {
        let norm = [layer("BatchNorm", "bn", "conv", "bn"), layer("ReLU", "relu", "bn", "bn")].concat();
        let text = [data, &first, &norm, pool, &conv("last", "pool"), &head("last")].concat();
        let spec = NetSpec::parse(Path::new("net.prototxt"), &text).unwrap().for_state(&NetState::default());
        let found = [Format::F32, Format::BF16, Format::BF16.in_order(AxisOrder::Nhwc)].map(|format| {
            let mut device = Device::cpu();
            device.set_format(format);
            let synthetic = Some(SyntheticData { shape: Some([3, 32, 32]), stand_in: true });
            let net = Net::new(&spec, &BuildOptions { device, seed: 1, synthetic }, true).unwrap();
            let graph = net.graph();
            assert_eq!(
                graph.nodes.iter().any(|node| node.spec.pool.is_some()),
                format.layout == AxisOrder::Nhwc
            );
            let places = modules(graph).into_iter().map(|module| module.place);
            let places =
                graph.nodes.iter().zip(places.zip(blue_first(graph).into_iter().map(Result::unwrap)));
            places.filter(|(node, _)| !node.params.is_empty()).map(|(_, place)| place).collect::<Vec<_>>()
        });
        let place = |place: &str, blue| (place.to_owned(), blue);
        let [first, norm] = [place("features.0", true), place("features.1", false)];
        let expected = [first, norm, place("features.4", false), place("classifier.0", false)];
        found.iter().for_each(|found| assert_eq!(found[..], expected));
    }
}

/// Nothing that needs a gradient of its images does, and no layer whose images come from another.
#[test]
fn first_convolutions_with_a_stride_read_blocks_of_pixels() {
    let strided = conv("conv", "data").replace("pad: 1", "pad: 1 stride: 2");
    let nhwc = Format::BF16.in_order(AxisOrder::Nhwc);
    let images = |text: &str, format| {
        let (name, top) = nodes(text, format).swap_remove(1);
        format!("{name}: {top}")
    };
    let net = [DATA, &strided, &head("conv")].concat();
    assert_eq!(images(&net, nhwc), "data_conv_convert: data_conv_convert BF16 in NHWC");
    assert_eq!(images(&net, Format::BF16), "data_conv_convert: data BF16 in NCHW");
    let forced = format!("force_backward: true {net}");
    assert_eq!(images(&forced, nhwc), "data_conv_convert: data BF16 in NHWC");
    let dense = [DATA, &conv("conv", "data"), &head("conv")].concat();
    assert_eq!(images(&dense, nhwc), "data_conv_convert: data BF16 in NHWC");
    let behind = [DATA, &layer("ReLU", "relu", "data", "data"), &strided, &head("conv")].concat();
    assert!(nodes(&behind, nhwc).iter().all(|(name, _)| name != "data_conv_convert"));
}

#[test]
fn outputs_are_read_in_the_order_of_the_file() {
    let blob = |format| TensorType::new(&[2, 3, 1, 2], format);
    let there = vec![0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0];
    let here: Vec<f64> = (0..12).map(f64::from).collect();
    // As the history of a solver, two blobs one after the other.
    for (format, here) in [(Format::BF16.in_order(AxisOrder::Nhwc), here), (Format::BF16, there.clone())] {
        let [mut there, here] = [&there, &here].map(|values| [values.clone(), values.clone()].concat());
        assert_eq!(in_nchw((&there).into(), &blob(format)), here);
        there.fill(0.0);
        there.copy_from_slice(&here);
        from_nchw(&mut there, &blob(format));
        assert_eq!(in_nchw((&there).into(), &blob(format)), here);
    }
}
