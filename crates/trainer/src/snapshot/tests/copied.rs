//! Weights of other nets and other programs.

use super::*;
use crate::testing::Running;

/// A convolution, batch norm and two fully connected layers, of which `layers` are left in; of 2 channels of 4x4.
pub(super) fn net(layers: &[&str]) -> String {
    let all = [
        ("conv", "Convolution", "convolution_param { num_output: 3 kernel_size: 3 }"),
        ("bare", "Convolution", "convolution_param { num_output: 3 kernel_size: 3 bias_term: false }"),
        ("bn", "BatchNorm", "batch_norm_param { scale_bias: true }"),
        ("norm", "BatchNorm", ""),
        ("scale", "Scale", "scale_param { bias_term: true }"),
        ("relu", "ReLU", ""),
        ("pool", "Pooling", "pooling_param { kernel_size: 2 }"),
        ("drop", "Dropout", ""),
        ("fc", "InnerProduct", "inner_product_param { num_output: 5 }"),
        ("head", "InnerProduct", "inner_product_param { num_output: 5 }"),
    ];
    let mut text = "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label'
      dummy_data_param { shape { dim: 2 dim: 2 dim: 4 dim: 4 } shape { dim: 2 } } }\n"
        .to_owned();
    let mut bottom = "data";
    for layer in layers {
        // As `conv:first`, a layer gets another name.
        let (kind, name) = layer.split_once(':').unwrap_or((layer, layer));
        let (_, kind, fields) = all.iter().find(|(name, ..)| *name == kind).unwrap();
        text +=
            &format!("layer {{ name: '{name}' type: '{kind}' bottom: '{bottom}' top: '{name}' {fields} }}\n");
        bottom = name;
    }
    format!(
        "{text}layer {{ name: 'loss' type: 'SoftmaxWithLoss' bottom: '{bottom}' bottom: 'label' top: 'loss' }}"
    )
}

/// As many values as `shape` has, all different.
pub(super) fn values(shape: &[usize], seed: f32) -> Vec<f32> {
    (0..shape.iter().product::<usize>()).map(|index| seed + index as f32 / 64.0).collect()
}

/// A file of our own with these tensors, each of its own `values`.
fn file(folder: &Path, name: &str, tensors: &[(&str, &[usize], f32)]) -> PathBuf {
    let path = folder.join(name);
    let named = tensors.iter();
    let named =
        named.map(|&(name, shape, seed)| (name.to_owned(), shape.to_vec(), values(shape, seed).into()));
    save_tensors(&path, &named.collect::<Vec<_>>(), &BTreeMap::new()).unwrap();
    path
}

pub(super) fn load(running: &mut Running, files: &[PathBuf]) -> Result<CopiedWeights, String> {
    let weights = Weights::load(files).map_err(|error| error.to_string())?;
    let foretold = weights.copied(running.net()).map_err(|error| error.to_string());
    let copied = running.0.load_weights(&weights).map_err(|error| error.to_string());
    assert_eq!(foretold, copied);
    copied
}

pub(super) fn parameter(running: &Running, name: &str) -> Vec<f32> {
    let index = running.net().graph().params.iter().position(|param| param.name == name).unwrap();
    let param = &running.net().graph().params[index];
    running.0.read_param(param, running.layout().params[index].data).unwrap().into_owned()
}

pub(super) const FILTER: [usize; 4] = [3, 2, 3, 3];

#[test]
fn layers_of_one_name_are_copied_and_the_others_keep_their_first_values() {
    let folder = tempfile::tempdir().unwrap();
    let first = file(
        folder.path(),
        "first",
        &[("conv.0", &FILTER, 1.0), ("conv.1", &[3], 2.0), ("fc.0", &[5, 12], 3.0), ("fc.1", &[5], 4.0)],
    );
    let mut running = Running::new(&net(&["conv", "head"]));
    let head = parameter(&running, "head.0");
    let copied = load(&mut running, std::slice::from_ref(&first)).unwrap();
    assert_eq!(copied.initialised, ["head"]);
    let file_of = |file: &PathBuf, copied: &[&str], skipped: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CopiedFile {
            file: file.display().to_string(),
            copied: owned(copied),
            skipped: owned(skipped),
            turned: Vec::new(),
        }
    };
    assert_eq!(copied.files, [file_of(&first, &["conv"], &["fc"])]);
    assert_eq!(bits(&parameter(&running, "conv.0")), bits(&values(&FILTER, 1.0)));
    assert_eq!(bits(&parameter(&running, "conv.1")), bits(&values(&[3], 2.0)));
    assert_eq!(parameter(&running, "head.0"), head);
    let said = copied.to_string();
    let path = first.display();
    assert_eq!(
        said,
        format!(
            "  weights     {path}: copied conv; only in the file: fc\n              only in the net, and \
             initialised: head"
        )
    );

    // Of several files later ones win, and together they may have all there is.
    let second = file(folder.path(), "second", &[("conv.0", &FILTER, 7.0), ("conv.1", &[3], 8.0)]);
    let third = file(folder.path(), "third", &[("head.0", &[5, 12], 9.0), ("head.1", &[5], 10.0)]);
    let copied = load(&mut running, &[first.clone(), second.clone(), third.clone()]).unwrap();
    assert!(copied.initialised.is_empty());
    let expected = [
        file_of(&first, &["conv"], &["fc"]),
        file_of(&second, &["conv"], &[]),
        file_of(&third, &["head"], &[]),
    ];
    assert_eq!(copied.files, expected);
    assert_eq!(parameter(&running, "conv.0"), values(&FILTER, 7.0));
    assert_eq!(parameter(&running, "head.1"), values(&[5], 10.0));
}

#[test]
fn what_has_one_name_and_two_forms_is_refused_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let fits = file(folder.path(), "fits", &[("fc.0", &[5, 12], 3.0), ("fc.1", &[5], 4.0)]);
    let bias: (&str, &[usize], f32) = ("conv.1", &[3], 2.0);
    for (tensors, layers, sentence) in [
        (
            &[("conv.0", &[4, 2, 3, 3][..], 1.0), ("conv.1", &[4], 2.0)][..],
            &["conv", "fc"],
            "is of another net: conv.0 has the shape [4, 2, 3, 3] in it, but [3, 2, 3, 3] in this net; to \
             begin a layer afresh, rename it in the net",
        ),
        (
            &[bias],
            &["conv", "fc"],
            "is of another net: it has no tensor conv.0, which this net has with the shape [3, 2, 3, 3]; to \
             begin a layer afresh, rename it in the net",
        ),
        (
            &[("bare.0", &FILTER, 1.0), ("bare.1", &[3], 1.0)],
            &["bare", "fc"],
            "is of another net: it has a tensor bare.1 of shape [3], which layer bare of this net has not; to \
             begin a layer afresh, rename it in the net",
        ),
        (
            &[("other.0", &FILTER, 1.0), bias],
            &["bare", "fc"],
            "has no weights for any layer of this net, but for conv, other",
        ),
    ] {
        let path = file(folder.path(), "w", tensors);
        let mut running = Running::new(&net(layers));
        let before = parameter(&running, "fc.0");
        let error = load(&mut running, &[fits.clone(), path.clone()]).unwrap_err();
        assert_eq!(error, format!("{} {sentence}", path.display()));
        assert_eq!(parameter(&running, "fc.0"), before);
    }
}

/// Of two files the one that the head comes from knows what its outputs mean.
#[test]
fn classes_are_those_of_the_file_that_the_head_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, tensor: (&str, &[usize]), classes: &[&str]| {
        let path = folder.path().join(name);
        let bias = (tensor.0.replace(".0", ".1"), vec![tensor.1[0]], values(&tensor.1[..1], 1.0).into());
        let tensors = [(tensor.0.to_owned(), tensor.1.to_vec(), values(tensor.1, 1.0).into()), bias];
        let metadata = BTreeMap::from([(CLASSES.to_owned(), serde_json::to_string(classes).unwrap())]);
        save_tensors(&path, &tensors, &metadata).unwrap();
        path
    };
    let five = ["a", "b", "c", "d", "e"];
    let head = file("head", ("fc.0", &[5, 12]), &five);
    let body = file("body", ("conv.0", &FILTER), &["x", "y"]);
    let other = file("other", ("fc.0", &[5, 12]), &["u", "v", "w", "x", "y", "z"]);
    let running = Running::new(&net(&["conv", "fc"]));
    let names = |files: &[&PathBuf]| {
        let files: Vec<PathBuf> = files.iter().map(|&file| file.clone()).collect();
        let weights = Weights::load(&files).unwrap();
        weights.class_names(running.net(), &weights.copied(running.net()).unwrap()).unwrap()
    };
    assert_eq!(names(&[&head, &body]), five);
    assert_eq!(names(&[&body, &head]), five);
    assert_eq!(names(&[&head, &other]), [""; 0], "six names for five outputs");
    assert_eq!(names(&[&body]), [""; 0]);
    let weights = Weights::load(&[body]).unwrap();
    assert!(weights.know("conv") && !weights.know("fc"));
}

/// As they lie in a file.
pub(super) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One field of a protobuf message, written by hand.
fn field(number: u64, body: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | 2);
    out.extend(varint(body.len() as u64));
    out.extend(body);
    out
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A blob of today, or of 2014 with four extents.
fn blob(shape: &[usize], is_old: bool, seed: f32) -> Vec<u8> {
    let data = field(5, &bytes(&values(shape, seed)));
    let mut four = [1; 4];
    four[4 - shape.len()..].copy_from_slice(shape);
    let old = (1..).zip(four).flat_map(|(axis, dim)| [varint(axis << 3), varint(dim as u64)].concat());
    let packed: Vec<u8> = shape.iter().flat_map(|&dim| varint(dim as u64)).collect();
    let shape = if is_old { old.collect() } else { field(7, &field(1, &packed)) };
    [shape, data].concat()
}

/// A caffemodel with `conv`, `fc` and a layer without weights, in the notation of 2014 or today's.
fn caffemodel(is_old: bool) -> Vec<u8> {
    let (layers, name, blobs) = if is_old { (2, 4, 6) } else { (100, 1, 7) };
    let layer = |text: &str, shapes: &[(&[usize], f32)]| {
        let blobs = shapes.iter().map(|(shape, seed)| field(blobs, &blob(shape, is_old, *seed)));
        field(layers, &[field(name, text.as_bytes()), blobs.collect::<Vec<_>>().concat()].concat())
    };
    let conv = layer("conv", &[(&FILTER, 1.0), (&[3], 2.0)]);
    let fc = layer("fc", &[(&[5, 12], 3.0), (&[5], 4.0)]);
    [field(1, b"a net of Caffe"), layer("relu", &[]), conv, fc].concat()
}

/// As NVIDIA's branch writes blobs since 0.16: the type of their numbers, and then these as they are.
#[test]
fn caffemodels_of_raw_numbers_are_read_in_each_precision() {
    type Encode = fn(f32) -> Vec<u8>;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.caffemodel");
    let write = |kind: u64, encode: Encode| {
        let data: Vec<u8> = values(&[12], 1.0).into_iter().flat_map(encode).collect();
        let shape = field(7, &field(1, &[4, 3]));
        let blob = [shape, varint(10 << 3), varint(kind), field(12, &data)].concat();
        fs::write(&path, field(100, &[field(1, b"fc"), field(7, &blob)].concat())).unwrap();
    };
    let precise: [Encode; 3] = [
        |value| f64::from(value).to_le_bytes().to_vec(),
        |value| value.to_le_bytes().to_vec(),
        // These values have few digits.
        |value| half::f16::from_f32(value).to_le_bytes().to_vec(),
    ];
    for (kind, encode) in (0..).zip(precise) {
        write(kind, encode);
        let read = elements(&load_weights(&path).unwrap(), "fc.0", &[4, 3]);
        assert_eq!(read, values(&[12], 1.0), "type {kind}");
    }
    // One and a half numbers of eight bytes, and a type that there is not.
    for kind in [0, 3] {
        write(kind, |_| vec![0]);
        let error = load_weights(&path).unwrap_err().to_string();
        assert!(error.ends_with("blob 0 of layer 'fc' is damaged"), "{error}");
    }
}

#[test]
fn caffemodels_of_both_notations_are_copied_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    // What a file is follows from its content.
    let path = folder.path().join("net.safetensors");
    for is_old in [false, true] {
        let whole = caffemodel(is_old);
        fs::write(&path, &whole).unwrap();
        let mut running = Running::new(&net(&["conv", "fc"]));
        let copied = load(&mut running, std::slice::from_ref(&path)).unwrap();
        assert_eq!(copied.files[0].copied, ["conv", "fc"]);
        assert_eq!(copied.files[0].skipped, Vec::<String>::new());
        for (name, shape, seed) in [
            ("conv.0", &FILTER[..], 1.0),
            ("conv.1", &[3], 2.0),
            ("fc.0", &[5, 12], 3.0),
            ("fc.1", &[5], 4.0),
        ] {
            assert_eq!(bits(&parameter(&running, name)), bits(&values(shape, seed)), "{name}, {is_old}");
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            if let Ok(weights) = Weights::load(std::slice::from_ref(&path)) {
                // Cut between two layers, it is a whole file of fewer layers.
                assert!(
                    weights.copied(running.net()).is_ok_and(|copied| copied.files[0].copied == ["conv"])
                        || weights
                            .copied(running.net())
                            .is_err_and(|error| error.to_string().contains("no weights for any"))
                );
            }
        }
    }
    let short =
        [field(100, &[field(1, b"conv"), field(7, &blob(&FILTER, false, 1.0)[..40])].concat())].concat();
    fs::write(&path, short).unwrap();
    let error = load_weights(&path).unwrap_err().to_string();
    assert!(error.ends_with("is not a complete snapshot: blob 0 of layer 'conv' is damaged"), "{error}");
    let wrong = field(7, &[field(7, &field(1, &[5])), field(5, &bytes(&[1.0, 2.0]))].concat());
    fs::write(&path, field(100, &[field(1, b"conv"), wrong].concat())).unwrap();
    let error = load_weights(&path).unwrap_err().to_string();
    assert!(error.ends_with("blob 0 of layer 'conv' has 2 values for the shape [5]"), "{error}");
}

/// A parameter that layers share stands once in a file of ours, and under each layer in one of Caffe.
#[test]
fn shared_parameters_are_found_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let shared = "param { name: 'shared' }";
    let text = net(&["conv:a", "fc"]).replace("name: 'a'", &format!("name: 'a' {shared}"));
    let twin = "layer { name: 'b' type: 'Convolution' bottom: 'data' top: 'b' param { name: 'shared' }
        convolution_param { num_output: 3 kernel_size: 3 } }";
    let text = format!("{text}\n{twin}");
    let bias: [(&str, &[usize], f32); 2] = [("a.1", &[3], 2.0), ("b.1", &[3], 3.0)];
    for filters in [&[("a.0", &FILTER[..], 1.0)][..], &[("a.0", &FILTER, 1.0), ("b.0", &FILTER, 1.0)]] {
        let path = file(folder.path(), "w", &[filters, &bias].concat());
        let mut running = Running::new(&text);
        let copied = load(&mut running, &[path]).unwrap();
        assert_eq!(copied.files[0].copied, ["a", "b"]);
        assert!(copied.files[0].skipped.is_empty());
        assert_eq!(parameter(&running, "a.0"), values(&FILTER, 1.0));
        assert_eq!(parameter(&running, "b.1"), values(&[3], 3.0));
    }
}

#[test]
fn weights_go_through_a_programs_hands() {
    let mut running = Running::new(&net(&["conv:conv1", "fc:fc1"]));
    let mut weights = running.0.weights().unwrap();
    let names: Vec<&str> = weights.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["conv1.0", "conv1.1", "fc1.0", "fc1.1"]);
    assert_eq!(weights[0].2, parameter(&running, "conv1.0"));
    weights[0].2.to_mut()[1] = 7.5;
    let expected = weights[0].2.to_vec();
    let (other, changed) = (weights[2].2.to_vec(), Weights::of(&weights[..2]).unwrap());
    let mut short = weights.swap_remove(0);
    short.1.push(2);
    let Err(error) = Weights::of(&[short]) else { panic!("twice as many elements are missing") };
    assert!(error.to_string().starts_with("tensor conv1.0 cannot be used: "), "{error}");
    let copied = running.0.load_weights(&changed).unwrap();
    assert_eq!(
        (&copied.files[0].copied[..], &copied.initialised[..]),
        (&["conv1".to_owned()][..], &["fc1".to_owned()][..])
    );
    assert_eq!((parameter(&running, "conv1.0"), parameter(&running, "fc1.0")), (expected, other));
}
