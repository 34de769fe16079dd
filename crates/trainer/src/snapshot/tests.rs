//! Snapshots: whole or not at all, and never trusted when read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use safetensors::SafeTensors;

use super::atomic::{Sink, write_through};
use super::tensors::{checksum, write_file};
use super::*;
use crate::planning::tests::record;

const CONV: [usize; 4] = [2, 1, 1, 3];
const WEIGHTS: [f32; 6] = [1.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, 3.5, f32::NAN];
const BIAS: [f32; 2] = [0.1, 0.2];

fn tensors() -> [NamedTensor<'static>; 3] {
    [("conv1.0", &CONV, &WEIGHTS), ("conv1.1", &[2], &BIAS), ("empty", &[0, 4], &[])]
}

fn shapes() -> impl Iterator<Item = (&'static str, &'static [usize])> {
    tensors().into_iter().map(|(name, shape, _)| (name, shape))
}

fn metadata() -> BTreeMap<String, String> {
    BTreeMap::from([("net".to_owned(), "\"quoted\"\nname".to_owned())])
}

fn save(path: &Path) -> Vec<u8> {
    save_tensors(path, &tensors(), &metadata()).unwrap();
    fs::read(path).unwrap()
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
        let mut out = vec![7.0; data.len()];
        loaded.copy_to(name, shape, &mut out).unwrap();
        assert_eq!(bits(&out), bits(data), "{name}");
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
    assert_eq!(save(&[("a", &[3], &BIAS)]), "cannot save tensor a: 2 elements do not make the shape [3]");
    assert_eq!(
        save(&[("a", &[2], &BIAS), ("a", &[2], &BIAS)]),
        "cannot save tensor a: the name is given twice or reserved"
    );
    assert!(save(&[("__metadata__", &[2], &BIAS)]).contains("reserved"));
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

/// Flips each bit of the file: the result is an error or, where the bit carries no meaning, still a snapshot; never a
/// panic, and never other numbers.
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
            Ok(loaded) if loaded.check(shapes()).is_ok() => {
                assert!(bit / 8 < data_start, "a flipped bit of the data went unnoticed");
                let mut out = [0.0; 6];
                loaded.copy_to("conv1.0", &CONV, &mut out).unwrap();
                assert_eq!(bits(&out), bits(&WEIGHTS));
            }
            Ok(_) => {} // of another net: the caller is told by `check`
            Err(error) => assert!(matches!(error, SnapshotError::Corrupt { .. }), "{error}"),
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
        error(&tensor("F16", "[2]", "[0,4]"), &[0; 4])
            .contains("tensor t is of type F16, only F32 is supported")
    );
}

/// A disk with room for so many bytes.
struct SmallDisk {
    file: File,
    room: usize,
}

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.room);
        if fits == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.room -= fits;
        self.file.write(&bytes[..fits])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for SmallDisk {
    fn sync(&mut self) -> io::Result<()> {
        // Delayed allocation: some systems notice only here that the disk is full.
        if self.room == 0 { Err(ErrorKind::StorageFull.into()) } else { self.file.sync() }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn a_full_disk_leaves_the_old_snapshot_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let old = b"the snapshot before";
    fs::write(&path, old).unwrap();
    let body = |file: &mut dyn Write| write_file(file, &tensors(), &metadata(), checksum(&tensors()));
    let mut whole = Vec::new();
    body(&mut whole).unwrap();
    for room in 0..=whole.len() {
        let create = |temporary: &Path| Ok(SmallDisk { file: File::create(temporary)?, room });
        let error = write_through(&path, create, body).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write the snapshot ") && error.contains("w.safetensors"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), old);
        assert_eq!(names(folder.path()), ["w.safetensors"], "room {room}");
    }
    let create = |temporary: &Path| Ok(SmallDisk { file: File::create(temporary)?, room: whole.len() + 1 });
    write_through(&path, create, body).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[cfg(target_os = "linux")]
#[test]
fn the_systems_own_full_device_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let create = |temporary: &Path| {
        File::create(temporary)?;
        OpenOptions::new().write(true).open("/dev/full")
    };
    let error = write_through(&path, create, |file| file.write_all(&[0; 10])).unwrap_err().to_string();
    assert!(error.contains("No space left on device"), "{error}");
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn missing_folders_and_folders_in_the_way_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("missing/w.safetensors"), folder.path().join("taken")] {
        fs::create_dir_all(folder.path().join("taken/by-a-folder")).unwrap();
        let error = save_tensors(&path, &tensors(), &metadata()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write the snapshot {}: ", path.display())), "{error}");
    }
    assert_eq!(names(folder.path()), ["taken"]);
    assert!(
        load_tensors(&folder.path().join("none"))
            .unwrap_err()
            .to_string()
            .starts_with("cannot read the snapshot ")
    );
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
    }
}

#[test]
fn a_solver_state_comes_back_and_knows_its_net_solver_and_weights() {
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
    assert_eq!(recorded_plans(&history).unwrap(), Some(record()));

    let weights = load_tensors(&weights).unwrap();
    loaded.check(&path, &saved.parameters, "SGD", &weights).unwrap();
    let error = |parameters: &str, solver: &str, weights: &Tensors| {
        loaded.check(&path, parameters, solver, weights).unwrap_err().to_string()
    };
    assert!(error("0", "SGD", &weights).contains("of the net \"LeNet\", whose parameters differ"));
    assert!(error(&saved.parameters, "Adam", &weights).contains("of a solver of type SGD, not Adam"));
    let other = folder.path().join("other.safetensors");
    save_tensors(&other, &[("conv1.1", &[2], &BIAS)], &metadata()).unwrap();
    let other = load_tensors(&other).unwrap();
    assert!(error(&saved.parameters, "SGD", &other).contains("other.safetensors holds other weights"));
}

#[test]
fn files_that_are_no_solver_state_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    save(&path);
    let error = load_solver_state(&path).unwrap_err().to_string();
    assert!(error.ends_with("it holds tensors, but no solver state"), "{error}");
    let damaged = BTreeMap::from([("solver_state".to_owned(), r#"{"iteration": "many"}"#.to_owned())]);
    save_tensors(&path, &tensors(), &damaged).unwrap();
    assert!(load_solver_state(&path).unwrap_err().to_string().contains("its solver state is damaged"));
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
