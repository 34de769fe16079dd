//! Files on real disks, and on disks that are full: whole or not at all, and nothing left behind.

use super::{atomic::write_through, *};
use std::io::{ErrorKind, Write};

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
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

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    fs::write(&path, "the file before").unwrap();
    let whole: Vec<u8> = (0..300u32).flat_map(u32::to_le_bytes).collect();
    let body = |file: &mut dyn Write| whole.chunks(7).try_for_each(|piece| file.write_all(piece));
    for room in 0..whole.len() {
        let error = write_through(&path, |file| Ok(SmallDisk { file, room }), body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"the file before");
        assert_eq!(names(folder.path()), ["w"], "room {room}");
    }
    write_through(&path, |file| Ok(SmallDisk { file, room: whole.len() }), body).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(names(folder.path()), ["w"]);
}

#[cfg(target_os = "linux")]
#[test]
fn the_systems_own_full_device_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let full = |_| File::options().write(true).open("/dev/full");
    let error = write_through(&folder.path().join("w"), full, |file| file.write_all(&[0; 10])).unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Whoever can write into the folder could put a link under a name that can be guessed.
#[test]
fn temporary_names_cannot_be_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for _ in 0..20 {
        write_atomically(&folder.path().join("w"), |file| {
            let mut hidden = names(folder.path());
            hidden.retain(|name| name.ends_with(".tmp"));
            assert_eq!(hidden.len(), 1);
            let random = hidden[0].strip_suffix(".tmp").unwrap().rsplit_once('-').unwrap().1.to_owned();
            seen.push(u64::from_str_radix(&random, 16).unwrap());
            file.write_all(b"w")
        })
        .unwrap();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
    let closest = seen.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(closest > 1 << 32, "random numbers of 64 bits do not lie side by side: {seen:?}");
}

/// Files as dead processes have left them, and others that only look alike.
#[cfg(target_os = "linux")]
#[test]
fn what_the_dead_left_half_written_is_removed_and_nothing_else() {
    use super::temporary::beside;
    use std::time::{Duration, SystemTime};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let live = beside(&at("w")).unwrap();
    let live_name = names(folder.path()).remove(0);
    let tag = live_name.strip_prefix(".w.").unwrap().split_once('-').unwrap().0.to_owned();
    let two_days_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
    let dead = format!(".w.{tag}-00000000000000ff.tmp");
    let kept = [
        ".w.0badb007-00000000000000ff.tmp", // of another machine, perhaps still alive
        ".w.4711-0.tmp",                    // of an earlier version, which took no locks
        ".other.4711-0.tmp",
        ".w.notes.tmp",
        "w",
    ];
    for name in kept.into_iter().chain([&dead[..], ".w.4712-0.tmp", ".w.0badb007-00000000000000fe.tmp"]) {
        fs::write(at(name), "half of it").unwrap();
    }
    for name in [".w.4712-0.tmp", ".w.0badb007-00000000000000fe.tmp", ".other.4711-0.tmp", ".w.notes.tmp"] {
        File::options().write(true).open(at(name)).unwrap().set_modified(two_days_ago).unwrap();
    }
    std::os::unix::fs::symlink(at("w"), at(".w.12345678-1.tmp")).unwrap();
    remove_abandoned(folder.path(), |target| target == "w");
    let mut expected: Vec<String> = kept.map(str::to_owned).to_vec();
    expected.extend([live_name, ".w.12345678-1.tmp".to_owned()]);
    expected.sort();
    assert_eq!(names(folder.path()), expected);
    fs::rename(&live.path, at("w")).unwrap();
    assert_eq!(fs::read(at("w")).unwrap(), b"");
}

#[test]
fn writing_is_tried_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for name in ["w", "none/w", "none/of/these/w"] {
        try_writing(&folder.path().join(name)).unwrap();
    }
    assert!(try_writing(&folder.path().join("file/w")).is_err());
    assert!(try_writing(Path::new("/proc/none/w")).is_err());
    assert!(try_writing(&folder.path().join("w".repeat(250))).is_err());
    for name in ["", "w/"] {
        let error = try_writing(&folder.path().join(name)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::IsADirectory, "'{name}'");
    }
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn the_folder_of_a_file_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/folder/w");
    write_atomically(&path, |file| file.write_all(b"w")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"w");
}

/// Each of these would take for ever, or until memory is full.
#[cfg(target_os = "linux")]
#[test]
fn links_stay_and_what_is_no_file_is_written_into() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "old").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at("null")).unwrap();
    std::os::unix::fs::symlink("to come", at("early")).unwrap();
    for name in ["link", "null", "early"] {
        try_writing(&at(name)).unwrap();
        write_atomically(&at(name), |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(at(name)).unwrap().is_symlink(), "{name}");
    }
    assert!(["file", "to come"].iter().all(|name| fs::read(at(name)).unwrap() == b"new"));
    assert_eq!(names(folder.path()), ["early", "file", "link", "null", "to come"]);
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", at("zeros")).unwrap();
    for name in ["pipe", "zeros", "."] {
        assert_eq!(read_regular(&at(name)).unwrap_err().to_string(), "it is not a regular file", "{name}");
    }
    fs::write(at("file"), "text").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    assert_eq!(read_regular(&at("link")).unwrap(), b"text");
}

#[cfg(unix)]
#[test]
fn a_name_is_kept_for_one_until_that_one_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".lock");
    // A process that has died leaves its file, but no lock.
    fs::write(&path, "process 1").unwrap();
    let Claimed::Ours(first) = claim(&path) else { panic!("it was free") };
    let Claimed::Taken(holder) = claim(&path) else { panic!("it is kept") };
    assert!(holder.starts_with(&format!("process {}", std::process::id())), "{holder}");
    drop(first);
    assert_eq!(names(folder.path()), [""; 0]);
    assert!(matches!(claim(&path), Claimed::Ours(_)));

    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for target in [&victim, &folder.path().join("new")] {
        std::os::unix::fs::symlink(target, &path).unwrap();
        assert!(matches!(claim(&path), Claimed::Unknown(_)), "a link to {}", target.display());
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(
        (fs::read(&victim).unwrap(), names(folder.path())),
        (b"precious".to_vec(), vec!["victim".to_owned()])
    );
}
