//! Weights of PyTorch, whose modules have names of their own.

use super::copied::{FILTER, bytes, load, net, parameter, values};
use super::*;
use crate::testing::Running;
use safetensors::{Dtype, tensor::TensorView};

/// A safetensors file as PyTorch writes it: elements of `dtype` with these bytes.
fn foreign(path: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) {
    let view = |(name, dtype, shape, bytes): &(&str, Dtype, &[usize], Vec<u8>)| {
        ((*name).to_owned(), TensorView::new(*dtype, shape.to_vec(), bytes).unwrap().to_owned_parts())
    };
    let parts: Vec<_> = tensors.iter().map(view).collect();
    let views = parts
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

trait Parts {
    fn to_owned_parts(&self) -> (Dtype, Vec<usize>, Vec<u8>);
}

impl Parts for TensorView<'_> {
    fn to_owned_parts(&self) -> (Dtype, Vec<usize>, Vec<u8>) {
        (self.dtype(), self.shape().to_vec(), self.data().to_vec())
    }
}

/// Those of a batch norm, in PyTorch's names, and a convolution named `first` and a classifier `last`.
fn state_dict<'a>(
    first: &'a [String],
    norm: &'a [String],
    last: &'a [String],
) -> Vec<(&'a str, Dtype, &'a [usize], Vec<u8>)> {
    let tensor = |name: &'a String, shape: &'a [usize], seed| {
        (name.as_str(), Dtype::F32, shape, bytes(&values(shape, seed)))
    };
    let counter = (norm[4].as_str(), Dtype::I64, &[][..], 7_i64.to_le_bytes().to_vec());
    vec![
        tensor(&first[0], &FILTER, 1.0),
        tensor(&first[1], &[3], 2.0),
        tensor(&norm[0], &[3], 3.0),
        tensor(&norm[1], &[3], 4.0),
        tensor(&norm[2], &[3], 5.0),
        tensor(&norm[3], &[3], 6.0),
        counter,
        tensor(&last[0], &[5, 12], 7.0),
        tensor(&last[1], &[5], 8.0),
    ]
}

/// The same tensors under the names of a module each, as a net of the same names, by their places in a chain, and as
/// torchvision's first DenseNets were called; of a model that was wrapped; batch norm in one layer, and in two.
#[test]
fn state_dicts_of_pytorch_are_copied_by_module() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let named = |module: &str, fields: &[&str]| -> Vec<String> {
        fields.iter().map(|field| format!("{module}.{field}")).collect()
    };
    let weight = ["weight", "bias"];
    let norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"];
    let cases: [([&str; 3], &[&str]); 7] = [
        (["layer1.0.conv1", "layer1.0.bn1", "fc"], &["conv:layer1.0.conv1", "bn:layer1.0.bn1", "relu", "fc"]),
        (["module.c1", "module.b1", "module.fc"], &["conv:c1", "bn:b1", "relu", "fc"]),
        (
            ["_orig_mod.module.c1", "_orig_mod.module.b1", "_orig_mod.module.fc"],
            &["conv:c1", "bn:b1", "relu", "fc"],
        ),
        (["features.0", "features.1", "classifier.1"], &["conv", "bn", "relu", "drop", "fc"]),
        (["features.0", "features.1", "classifier.0"], &["conv", "norm", "scale", "relu", "pool:p", "fc"]),
        (["conv", "norm", "fc"], &["conv", "norm", "scale", "fc"]),
        (
            ["denselayer1.conv.1", "denselayer1.norm.2", "fc"],
            &["conv:denselayer1.conv1", "bn:denselayer1.norm2", "fc"],
        ),
    ];
    for (modules, layers) in cases {
        let [first, bn, last] =
            [named(modules[0], &weight), named(modules[1], &norm), named(modules[2], &weight)];
        let mut file = state_dict(&first, &bn, &last);
        if layers.contains(&"pool:p") {
            // Behind the pool there are 3 values.
            (file[7].2, file[7].3) = (&[5, 3], bytes(&values(&[5, 3], 7.0)));
        }
        foreign(&path, &file);
        let mut running = Running::new(&net(layers));
        let copied = load(&mut running, std::slice::from_ref(&path)).unwrap();
        assert!(copied.initialised.is_empty() && copied.files[0].skipped.is_empty(), "{copied:?}");
        if modules[2].starts_with("classifier") {
            // In a chain a head for other classes is another layer, whatever it is called.
            let mut running = Running::new(&net(layers).replace("num_output: 5", "num_output: 4"));
            let copied = load(&mut running, std::slice::from_ref(&path)).unwrap();
            assert_eq!(
                (copied.initialised, &copied.files[0].skipped),
                (vec!["fc".to_owned()], &vec![modules[2].to_owned()])
            );
        }
        let name = |kind: &str| {
            let layer = layers.iter().find(|layer| layer.split(':').next() == Some(kind)).unwrap();
            layer.split(':').next_back().unwrap().to_owned()
        };
        let (conv, fc) = (name("conv"), name("fc"));
        let is_one = layers.iter().any(|layer| layer.starts_with("bn"));
        let (statistics, affine) =
            if is_one { (name("bn"), name("bn")) } else { (name("norm"), name("scale")) };
        let [gamma, beta] = if is_one { [3, 4] } else { [0, 1] };
        for (parameter_name, shape, seed) in [
            (format!("{conv}.0"), &FILTER[..], 1.0),
            (format!("{conv}.1"), &[3], 2.0),
            (format!("{affine}.{gamma}"), &[3], 3.0),
            (format!("{affine}.{beta}"), &[3], 4.0),
            (format!("{statistics}.0"), &[3], 5.0),
            (format!("{statistics}.1"), &[3], 6.0),
            (format!("{fc}.1"), &[5], 8.0),
        ] {
            let found = parameter(&running, &parameter_name);
            assert_eq!(bits(&found), bits(&values(shape, seed)), "{parameter_name}");
        }
        assert_eq!(parameter(&running, &format!("{statistics}.2")), [1.0]);
    }
}

/// In training the sum is part of the normalisation, so that the scale seems to follow that.
#[test]
fn a_scale_behind_a_sum_is_a_module_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let sum = "layer { name: 'sum' type: 'Eltwise' bottom: 'norm' bottom: 'conv' top: 'sum' }\n";
    let text = net(&["conv", "norm", "scale", "fc"])
        .replace("bottom: 'norm' top: 'scale'", "bottom: 'sum' top: 'scale'");
    let text = text.replace("layer { name: 'scale'", &format!("{sum}layer {{ name: 'scale'"));
    let tensors =
        [("norm.running_mean", 5.0), ("norm.running_var", 6.0), ("scale.weight", 3.0), ("scale.bias", 4.0)];
    let path = folder.path().join("sum.safetensors");
    let file = tensors.map(|(name, seed)| (name, Dtype::F32, &[3][..], bytes(&values(&[3], seed))));
    foreign(&path, &file);
    let mut running = Running::new(&text);
    let copied = load(&mut running, std::slice::from_ref(&path)).unwrap();
    assert_eq!(copied.files[0].skipped, Vec::<String>::new());
    for (parameter_name, seed) in [("norm.0", 5.0), ("norm.1", 6.0), ("scale.0", 3.0), ("scale.1", 4.0)] {
        assert_eq!(parameter(&running, parameter_name), values(&[3], seed), "{parameter_name}");
    }
}

/// Its factors are the second bottom, and its only parameter is the bias.
#[test]
fn a_scale_by_a_blob_has_a_bias_alone() {
    let folder = tempfile::tempdir().unwrap();
    let one = "bottom: 'conv' top: 'scale' scale_param {";
    let both = "bottom: 'conv' bottom: 'conv' top: 'scale' scale_param { axis: 0";
    let mut running = Running::new(&net(&["conv", "scale", "fc"]).replace(one, both));
    let (path, shape) = (folder.path().join("bias.safetensors"), [2, 3, 2, 2]);
    foreign(&path, &[("scale.bias", Dtype::F32, &shape, bytes(&values(&shape, 3.0)))]);
    load(&mut running, std::slice::from_ref(&path)).unwrap();
    assert_eq!(parameter(&running, "scale.0"), values(&shape, 3.0));
}

#[test]
fn numbers_of_half_precision_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.safetensors");
    let halves = |bits: &[u16]| bits.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let f16 = [0x3c00, 0xc000, 0x7bff, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3555, 0x8000, 0x7c00, 0xfc00];
    let expected = [
        1.0,
        -2.0,
        65504.0,
        2.0_f32.powi(-24),
        -(2.0_f32.powi(-24)),
        1023.0 * 2.0_f32.powi(-24),
        2.0_f32.powi(-14),
        1365.0 / 4096.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let bf16 = [0x3f80, 0xc049, 0x7f80, 0x0001];
    let wide = [1.0, -3.140625, f32::INFINITY, f32::from_bits(0x0001_0000)];
    foreign(
        &path,
        &[
            ("a", Dtype::F16, &[11], halves(&f16)),
            ("nan", Dtype::F16, &[1], halves(&[0x7e00])),
            ("b", Dtype::BF16, &[4], halves(&bf16)),
        ],
    );
    let loaded = load_tensors(&path).unwrap();
    let [a, b, nan] = [("a", 11), ("b", 4), ("nan", 1)].map(|(name, len)| elements(&loaded, name, &[len]));
    assert_eq!((bits(&a), bits(&b)), (bits(&expected), bits(&wide)));
    assert!(nan[0].is_nan());
}
