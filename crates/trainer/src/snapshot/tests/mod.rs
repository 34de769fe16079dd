//! Snapshots: whole or not at all, and never trusted when read.

mod copied;
mod modules;

use super::*;
use crate::planning::{PlanRecord, tests::record};
use safetensors::SafeTensors;
use std::{collections::BTreeMap, fs, path::Path};

const CONV: [usize; 4] = [2, 1, 1, 3];
const WEIGHTS: [f32; 6] = [1.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, 3.5, f32::NAN];
const BIAS: [f32; 2] = [0.1, 0.2];

fn named(name: &str, shape: &[usize], values: &'static [f32]) -> NamedTensor<'static> {
    (name.to_owned(), shape.to_vec(), values.into())
}

fn tensors() -> [NamedTensor<'static>; 3] {
    [named("conv1.0", &CONV, &WEIGHTS), named("conv1.1", &[2], &BIAS), named("empty", &[0, 4], &[])]
}

fn shapes() -> [(&'static str, &'static [usize]); 3] {
    [("conv1.0", &CONV), ("conv1.1", &[2]), ("empty", &[0, 4])]
}

fn metadata() -> BTreeMap<String, String> {
    BTreeMap::from([("net".to_owned(), "\"quoted\"\nname".to_owned())])
}

fn save(path: &Path) -> Vec<u8> {
    save_tensors(path, &tensors(), &metadata()).unwrap();
    fs::read(path).unwrap()
}

fn elements(file: &Tensors, name: &str, shape: &[usize]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(file.bytes(name, shape).unwrap())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn tensors_come_back_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = weights_path(&folder.path().join("lenet"), 500);
    assert!(path.ends_with("lenet_iter_500.safetensors"));
    save(&path);
    let loaded = load_tensors(&path).unwrap();
    loaded.check(shapes()).unwrap();
    assert_eq!(loaded.metadata("net"), Some("\"quoted\"\nname"));
    assert_eq!(loaded.shape("conv1.0"), Some(&CONV[..]));
    for (name, shape, data) in tensors() {
        assert_eq!(bits(&elements(&loaded, &name, &shape)), bits(&data), "{name}");
    }
}

#[test]
fn others_read_what_is_written_here_and_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let bytes = save(&path);
    let theirs = SafeTensors::deserialize(&bytes).unwrap();
    let bias = theirs.tensor("conv1.1").unwrap();
    assert_eq!(
        (bias.shape(), bias.data()),
        (&[2][..], &[BIAS[0].to_le_bytes(), BIAS[1].to_le_bytes()].concat()[..])
    );
    let again = safetensors::serialize(theirs.iter(), None).unwrap();
    fs::write(&path, again).unwrap();
    let loaded = load_tensors(&path).unwrap();
    loaded.check(shapes()).unwrap();
    assert_eq!(loaded.metadata("net"), None);
}

#[test]
fn the_same_net_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(save(&folder.path().join("a")), save(&folder.path().join("b")));
}

#[test]
fn tensors_that_make_no_sense_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    let save =
        |tensors: &[NamedTensor]| save_tensors(&path, tensors, &BTreeMap::new()).unwrap_err().to_string();
    assert_eq!(
        save(&[named("a", &[3], &BIAS)]),
        "tensor a cannot be used: 2 elements do not make the shape [3]"
    );
    assert_eq!(
        save(&[named("a", &[2], &BIAS), named("a", &[2], &BIAS)]),
        "tensor a cannot be used: the name is given twice or reserved"
    );
    assert!(save(&[named("__metadata__", &[2], &BIAS)]).contains("reserved"));
    assert!(!path.exists());
}

#[test]
fn another_net_is_told_by_the_first_tensor_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    save(&path);
    let loaded = load_tensors(&path).unwrap();
    let error = |expected: &[(&str, &[usize])]| {
        let text = loaded.check(expected.iter().copied()).unwrap_err().to_string();
        text.strip_prefix(&format!("{} is of another net: ", path.display()))
            .expect("the file's name")
            .to_owned()
    };
    let conv: (&str, &[usize]) = ("conv1.0", &CONV);
    assert_eq!(error(&[conv, ("conv1.1", &[3])]), "conv1.1 has the shape [2] in it, but [3] in this net");
    assert_eq!(
        error(&[conv, ("ip.0", &[4, 5])]),
        "it has no tensor ip.0, which this net has with the shape [4, 5]"
    );
    assert_eq!(error(&[conv]), "it has a tensor conv1.1 of shape [2], which this net has not");
}

#[test]
fn every_truncation_is_an_error_with_the_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let bytes = save(&path);
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = load_tensors(&path).unwrap_err().to_string();
        assert!(error.contains("w.safetensors is not a complete snapshot: "), "length {length}: {error}");
    }
    fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
    assert!(load_tensors(&path).is_err());
}

/// Flips each bit of the file: the result is an error or, where nothing but the name of the header's checksum differs,
/// still the same snapshot; never a panic.
#[test]
fn no_flipped_bit_panics_or_changes_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let bytes = save(&path);
    let data_start = bytes.len() - size_of_val(&WEIGHTS) - size_of_val(&BIAS);
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, damaged).unwrap();
        match load_tensors(&path) {
            Ok(loaded) => {
                assert!(bit / 8 < data_start, "a flipped bit of the data went unnoticed");
                loaded.check(shapes()).unwrap();
                assert_eq!(loaded.metadata("net"), Some("\"quoted\"\nname"));
                assert_eq!(bits(&elements(&loaded, "conv1.0", &CONV)), bits(&WEIGHTS));
            }
            Err(error) => assert!(error.to_string().contains(" is not a complete snapshot: "), "{error}"),
        }
    }
}

#[test]
fn malicious_headers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let error = |header: &str, data: &[u8]| {
        let length = (header.len() as u64).to_le_bytes();
        fs::write(&path, [&length[..], header.as_bytes(), data].concat()).unwrap();
        load_tensors(&path).unwrap_err().to_string()
    };
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    for (header, data) in [
        (String::new(), &[][..]),
        ("null".to_owned(), &[]),
        ("{".repeat(10_000), &[]),
        ("[".repeat(100_000), &[]),
        (tensor("F32", "[2]", "[0,4]"), &[0; 4]),
        (tensor("F32", "[1]", "[4,8]"), &[0; 8]),
        (tensor("F32", "[1]", "[4,0]"), &[0; 4]),
        (tensor("F32", "[18446744073709551615,18446744073709551615]", "[0,4]"), &[0; 4]),
        (tensor("U8", "[2305843009213693951]", "[0,2305843009213693951]"), &[0; 4]),
        (tensor("F32", "[-1]", "[0,4]"), &[0; 4]),
    ] {
        let error = error(&header, data);
        assert!(error.contains("is not a complete snapshot"), "{error}");
    }
    assert!(
        error(&tensor("F64", "[1]", "[0,8]"), &[0; 8])
            .contains("tensor t is of type F64; F32, F16 and BF16 are supported")
    );
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn files_for_folders_and_folders_in_the_way_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for path in [folder.path().join("file/w.safetensors"), folder.path().join("taken")] {
        fs::create_dir_all(folder.path().join("taken/by-a-folder")).unwrap();
        let error = save_tensors(&path, &tensors(), &metadata()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
    }
    assert_eq!(names(folder.path()), ["file", "taken"]);
    assert!(load_tensors(&folder.path().join("none")).unwrap_err().to_string().starts_with("cannot read "));
}

fn state(checksum: u32) -> SolverState {
    SolverState {
        iteration: 500,
        net: "LeNet".to_owned(),
        solver_type: "SGD".to_owned(),
        parameters: fingerprint(shapes()),
        weights: "lenet_iter_500.safetensors".to_owned(),
        weights_checksum: checksum,
        random_seed: u64::MAX - 1,
        data_positions: BTreeMap::from([("mnist/TRAIN".to_owned(), 32_000)]),
        counters: BTreeMap::new(),
        settings: BTreeMap::from([("the momentum".to_owned(), "1f".to_owned())]),
    }
}

#[test]
fn a_solver_state_comes_back_and_knows_its_weights() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("lenet");
    let weights = weights_path(&prefix, 500);
    let saved = state(save_tensors(&weights, &tensors(), &metadata()).unwrap());
    let path = state_path(&prefix, 500);
    assert!(path.ends_with("lenet_iter_500.solverstate.safetensors"));
    save_solver_state(&path, &saved, &record(), &tensors()).unwrap();
    let (loaded, history) = load_solver_state(&path).unwrap();
    assert_eq!(loaded, saved);
    history.check(shapes()).unwrap();
    assert_eq!(PlanRecord::recorded(&history).unwrap(), Some(record()));

    loaded.weights(&path).unwrap().check(shapes()).unwrap();
    save_tensors(&weights, &[named("conv1.1", &[2], &BIAS)], &metadata()).unwrap();
    let error = loaded.weights(&path).unwrap_err().to_string();
    assert!(error.contains("lenet_iter_500.safetensors holds other weights"), "{error}");
}

#[test]
fn a_state_of_an_earlier_version_records_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut earlier = serde_json::to_value(state(7)).unwrap();
    earlier.as_object_mut().unwrap().remove("settings").unwrap();
    let metadata = BTreeMap::from([("solver_state".to_owned(), earlier.to_string())]);
    save_tensors(&path, &tensors(), &metadata).unwrap();
    let (loaded, _) = load_solver_state(&path).unwrap();
    assert_eq!(loaded, SolverState { settings: BTreeMap::new(), ..state(7) });
}

/// Momentum has the names and shapes of the weights.
#[test]
fn weights_and_states_are_not_taken_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("lenet");
    let (weights, path) = (weights_path(&prefix, 500), state_path(&prefix, 500));
    save_tensors(&weights, &tensors(), &metadata()).unwrap();
    let (weights_name, path_name) = (weights.display().to_string(), path.display().to_string());
    let error = load_solver_state(&weights).unwrap_err().to_string();
    let sentence = "holds weights, not a solver state; --weights starts a new training from it";
    assert_eq!(error, format!("{weights_name} {sentence}"));
    save_solver_state(&path, &state(0), &record(), &tensors()).unwrap();
    load_weights(&weights).unwrap();
    let error = load_weights(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{path_name} is a solver state (the momentum of a training), not weights"));
    let damaged = BTreeMap::from([("solver_state".to_owned(), r#"{"iteration": "many"}"#.to_owned())]);
    save_tensors(&path, &tensors(), &damaged).unwrap();
    assert!(load_solver_state(&path).unwrap_err().to_string().contains("its solver state is damaged"));
    assert!(load_weights(&path).unwrap_err().to_string().ends_with("not weights"));
    let far = u64::MAX;
    let positions = BTreeMap::from([("mnist/TRAIN".to_owned(), far)]);
    for state in
        [SolverState { iteration: far, ..state(0) }, SolverState { data_positions: positions, ..state(0) }]
    {
        save_solver_state(&path, &state, &record(), &tensors()).unwrap();
        let error = load_solver_state(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("damaged (no training counts to {far})")), "{error}");
    }
}

#[test]
fn files_of_another_kind_are_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.prototxt");
    for (contents, what) in [
        (&b"name: \"lenet\" layer { }"[..], "it is neither a safetensors file nor a complete caffemodel"),
        (
            b"PK\x03\x04archive/data.pkl and more",
            "it is an archive of PyTorch; save its state dict as safetensors",
        ),
        (b"\x89HDF\r\n\x1a\n and more", "it is an HDF5 file; save the net as .caffemodel or safetensors"),
    ] {
        fs::write(&path, contents).unwrap();
        let error = load_weights(&path).unwrap_err().to_string();
        assert!(error.ends_with(&format!("net.prototxt is not a complete snapshot: {what}")), "{error}");
    }
    let error = load_weights(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("it is not a regular file"), "{error}");
}

#[test]
fn the_place_of_snapshots_is_made_tried_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // What ends with a slash is a folder, and its snapshots are called `_iter_N`.
    let place = SnapshotPlace::open(&at("deep/er/"), 1000).unwrap();
    save_tensors(&weights_path(&at("deep/er/"), 5), &tensors(), &metadata()).unwrap();
    let weights = "_iter_5.safetensors";
    assert_eq!(names(&at("deep/er")), ["._iter_5".replace("_iter_5", ".lock"), weights.to_owned()]);
    // What is there of a snapshot, even if that is half of it.
    place.remove(5).unwrap();
    drop(place);
    assert_eq!(names(&at("deep/er")), [""; 0]);

    fs::write(at("file"), "").unwrap();
    let long =
        at(&"w".repeat(255 - "._iter_99999.solverstate.safetensors.12345678-0123456789abcdef.tmp".len()));
    SnapshotPlace::open(&long, 99_999).unwrap();
    for (prefix, last) in [(at("file/w"), 1), (long, 100_000)] {
        let error = SnapshotPlace::open(&prefix, last).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("no snapshot can be written as {}_iter_", prefix.display())),
            "{error}"
        );
    }
    #[cfg(target_os = "linux")]
    assert!(SnapshotPlace::open(Path::new("/proc/self/w"), 1).is_err(), "a folder that takes no files");
}

#[test]
fn two_trainings_with_one_prefix_notice_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("lenet");
    let place = SnapshotPlace::open(&prefix, 10).unwrap();
    let error = SnapshotPlace::open(&prefix, 10).unwrap_err().to_string();
    let start = format!("another training (process {}", std::process::id());
    assert!(error.starts_with(&start) && error.contains("lenet_iter_N"), "{error}");
    SnapshotPlace::open(&folder.path().join("lenet2"), 10).unwrap();
    drop(place);
    SnapshotPlace::open(&prefix, 10).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn snapshots_that_are_there_are_said_and_what_the_dead_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("lenet");
    let write = |name: &str| fs::write(folder.path().join(name), "").unwrap();
    for name in
        ["lenet_iter_5.safetensors", "lenet_iter_5.solverstate.safetensors", "lenet_iter_20.safetensors"]
    {
        write(name);
    }
    for name in ["lenet_iter_x.safetensors", "lenet2_iter_90.safetensors", "lenet_iter_30.txt"] {
        write(name);
    }
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100_000);
    for name in [".lenet_iter_7.safetensors.4711-0.tmp", ".lenet2_iter_7.safetensors.4711-0.tmp"] {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    let place = SnapshotPlace::open(&prefix, 10).unwrap();
    let left: Vec<String> = names(folder.path()).into_iter().filter(|name| name.ends_with(".tmp")).collect();
    assert_eq!(left, [".lenet2_iter_7.safetensors.4711-0.tmp"]);
    let notes = |first| place.notes(first);
    let prefix = prefix.display();
    let sentence = "there from an earlier training; snapshots of the same iterations will replace theirs";
    assert_eq!(notes(0), [format!("{prefix}_iter_5 to 20 are {sentence}")]);
    assert_eq!(notes(5), [format!("{prefix}_iter_20 is {sentence}")]);
    assert_eq!(notes(20), [""; 0]);
    // Those of a prefix that is no text, too.
    #[cfg(unix)]
    {
        let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
        let odd = folder.path().join::<&std::ffi::OsStr>(odd);
        fs::write(weights_path(&odd, 5), "").unwrap();
        assert_eq!(SnapshotPlace::open(&odd, 10).unwrap().notes(0).len(), 1);
    }
}

#[test]
fn fingerprints_differ_with_names_shapes_and_borders() {
    let print = |tensors: &[(&str, &[usize])]| fingerprint(tensors.iter().copied());
    let base = print(&[("a", &[1, 2]), ("b", &[3])]);
    assert_eq!(base.len(), 16);
    for other in [
        print(&[("a", &[2, 1]), ("b", &[3])]),
        print(&[("a", &[12]), ("b", &[3])]),
        print(&[("b", &[3]), ("a", &[1, 2])]),
        print(&[("a", &[1, 2]), ("c", &[3])]),
        print(&[("a", &[1, 2])]),
    ] {
        assert_ne!(base, other);
    }
}
