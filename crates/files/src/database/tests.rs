//! The database on real files: several writers, broken lines.

use super::*;
use planner::{Bytes, ConvOp, ConvShape, Dtype, KernelId, Layout, Math, Measurement};
use proptest::{collection::vec, prelude::*};
use std::{fs::OpenOptions, io::Write, thread};
use tempfile::TempDir;

fn device(name: &str) -> DeviceHeader {
    DeviceHeader { name: name.into(), library_version: "1".into(), ..DeviceHeader::default() }
}

fn id(k: u32) -> KernelId {
    let shape = ConvShape { k, ..ConvShape::default() };
    KernelId { op: ConvOp::Forward, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw }
}

fn table(device: &DeviceHeader, kernels: impl IntoIterator<Item = u32>, time_ms: f64) -> CostTable {
    let mut table = CostTable::new(device.clone());
    for k in kernels {
        let row = Measurement {
            algorithm: "GEMM".into(),
            micro_batch: 4,
            time_ms,
            shared_ms: 0.0,
            workspace: Bytes(64),
            max_error: 1e-6,
            deterministic: true,
        };
        table.insert(id(k), 4, vec![row]).unwrap();
    }
    table
}

fn open() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::new(folder.path().join("deep/er"));
    (folder, database)
}

fn folder_of(database: &Database, device: &DeviceHeader) -> PathBuf {
    database.folder.join(folder_name(device))
}

fn files(database: &Database, device: &DeviceHeader) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder_of(database, device)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_is_added_is_known_to_the_same_device_only_and_later_counts() {
    let (_folder, database) = open();
    let cpu = device("a CPU");
    assert_eq!(database.read(&cpu), (CostTable::new(cpu.clone()), None));
    database.add(&table(&cpu, 1..4, 5.0)).unwrap();
    database.add(&table(&cpu, 3..6, 7.0)).unwrap();
    database.add(&CostTable::new(cpu.clone())).unwrap();
    assert_eq!(files(&database, &cpu).len(), 2, "nothing new is no segment");
    let (known, warning) = database.read(&DeviceHeader { date: "today".into(), ..cpu.clone() });
    assert_eq!((known.len(), warning), (5, None));
    assert_eq!(known.measurements(&id(3), 4).unwrap()[0].time_ms, 7.0);
    for other in [
        device("another CPU"),
        DeviceHeader { library_version: "2".into(), ..cpu.clone() },
        DeviceHeader { threads: "8".into(), ..cpu },
    ] {
        assert!(database.read(&other).0.is_empty(), "{other:?}");
    }
}

#[test]
fn broken_lines_are_skipped_with_one_warning_and_never_lost() {
    let (_folder, database) = open();
    let cpu = device("a CPU");
    database.add(&table(&cpu, 1..4, 5.0)).unwrap();
    database.add(&table(&cpu, 4..6, 5.0)).unwrap();
    let damaged = files(&database, &cpu).remove(0);
    let mut file = OpenOptions::new().append(true).open(&damaged).unwrap();
    file.write_all(b"{\"kernel\": half a li\n\xff\xfe\n").unwrap();
    let contents = fs::read(&damaged).unwrap();
    fs::write(damaged.with_file_name("02-foreign.jsonl"), "no header\n").unwrap();
    let (known, warning) = database.read(&cpu);
    assert_eq!(known.len(), 5);
    let warning = warning.unwrap();
    assert!(warning.contains("in 3 places") && warning.contains("line 5"), "{warning}");
    database.add(&table(&cpu, 6..7, 5.0)).unwrap();
    assert_eq!(fs::read(&damaged).unwrap(), contents, "what cannot be read stays as it is");
}

/// Earlier versions merged segments, and put those with unreadable lines aside.
#[test]
fn what_earlier_versions_put_aside_is_not_read() {
    let (_folder, database) = open();
    let cpu = device("a CPU");
    database.add(&table(&cpu, 1..4, 5.0)).unwrap();
    let merged = files(&database, &cpu).remove(0);
    fs::write(merged.with_extension("jsonl.unreadable"), "half a li").unwrap();
    let (known, warning) = database.read(&cpu);
    assert_eq!((known.len(), warning), (3, None));
}

/// What is no file, or cannot be read, costs nothing but itself; reading a pipe would take for ever.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_takes_no_other_with_it() {
    use std::os::unix::fs::symlink;
    let (_folder, database) = open();
    let cpu = device("a CPU");
    database.add(&table(&cpu, 1..4, 5.0)).unwrap();
    database.add(&table(&cpu, 4..6, 5.0)).unwrap();
    let of_cpu = folder_of(&database, &cpu);
    fs::create_dir(of_cpu.join("a.jsonl")).unwrap();
    symlink("nowhere", of_cpu.join("b.jsonl")).unwrap();
    symlink("/dev/zero", of_cpu.join("c.jsonl")).unwrap();
    symlink("d.jsonl", of_cpu.join("d.jsonl")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(of_cpu.join("e.jsonl")).status().unwrap().success());
    let (known, warning) = database.read(&cpu);
    assert_eq!(known.len(), 5);
    let warning = warning.unwrap();
    assert!(
        warning.contains("in 5 places") && warning.ends_with("a.jsonl: it is not a regular file"),
        "{warning}"
    );
}

#[test]
fn what_cannot_be_written_is_said_of_the_database() {
    let (_folder, database) = open();
    let cpu = device("a CPU");
    database.try_adding(&cpu).unwrap();
    assert!(files(&database, &cpu).is_empty());
    let of_cpu = folder_of(&database, &cpu);
    fs::remove_dir(&of_cpu).unwrap();
    fs::write(&of_cpu, "").unwrap();
    for error in [database.try_adding(&cpu), database.add(&table(&cpu, [1], 1.0))] {
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("the measurement database cannot make "), "{error}");
    }
    let error = write(&of_cpu.join("x"), "").unwrap_err().to_string();
    assert!(error.starts_with("the measurement database cannot write "), "{error}");
}

#[test]
fn what_dead_writers_left_half_written_is_removed() {
    let (_folder, database) = open();
    let cpu = device("a CPU");
    database.try_adding(&cpu).unwrap();
    let of_cpu = folder_of(&database, &cpu);
    let half = fs::File::create(of_cpu.join(".0179-1.jsonl.4711-0.tmp")).unwrap();
    half.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(100_000)).unwrap();
    drop(half);
    database.add(&table(&cpu, [1], 1.0)).unwrap();
    assert_eq!(files(&database, &cpu).len(), 1);
}

#[test]
fn writers_and_readers_do_not_disturb_each_other() {
    const WRITERS: u32 = 4;
    const EACH: u32 = 20;
    let (_folder, database) = open();
    let cpu = device("a CPU");
    database.add(&table(&cpu, [0], 1.0)).unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (database, cpu) = (&database, &cpu);
            scope.spawn(move || {
                for index in 0..EACH {
                    let own = 1 + writer * EACH + index;
                    database.add(&table(cpu, [own], 1.0)).unwrap();
                    let (known, warning) = database.read(cpu);
                    assert_eq!(warning, None, "nobody sees half a segment");
                    assert!((1 + writer * EACH..=own).all(|k| known.measurements(&id(k), 4).is_some()));
                }
            });
        }
    });
    assert_eq!(database.read(&cpu).0.len(), (1 + WRITERS * EACH) as usize);
}

#[test]
fn a_folder_that_is_a_file_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Database::new(&file).add(&table(&device("a CPU"), [1], 1.0)).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_contents_of_a_segment_make_it_panic_or_get_lost(
        bytes in vec(any::<u8>(), 0..200), at in any::<usize>(), whole in any::<bool>(),
    ) {
        let (_folder, database) = open();
        let cpu = device("a CPU");
        database.add(&table(&cpu, 1..4, 5.0)).unwrap();
        let segment = files(&database, &cpu).remove(0);
        let mut contents = fs::read(&segment).unwrap();
        if whole {
            contents = bytes;
        } else {
            let at = at % contents.len();
            contents.splice(at..(at + bytes.len()).min(contents.len()), bytes);
        }
        fs::write(&segment, &contents).unwrap();
        let _ = database.read(&cpu);
        database.add(&table(&cpu, 7..8, 1.0)).unwrap();
        prop_assert!(database.read(&cpu).0.measurements(&id(7), 4).is_some());
        prop_assert_eq!(fs::read(segment).unwrap(), contents);
    }
}
