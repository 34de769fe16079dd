//! How much more memory a process may have: what the machine, its control groups and its own limits leave.

use super::{field, text};
use planner::Bytes;
use std::{fs, path::Path};

/// What leaves how much.
type Left = (&'static str, Bytes);

/// The least of everything that the files below `root`, which is `/`, tell.
pub(super) fn available(root: &Path) -> Option<Left> {
    let machine = field(&root.join("proc/meminfo"), "MemAvailable:");
    let machine = machine.map(|left| ("this machine", left));
    let groups = groups(root).into_iter().map(|left| ("the control group of this process", left));
    machine.into_iter().chain(groups).chain(own(root)).min_by_key(|&(_, left)| left)
}

/// The limits of the process itself (`ulimit`), less what it has.
fn own(root: &Path) -> Vec<Left> {
    let left = |(name, used, place): (&str, &str, &'static str)| {
        let limits = text(&root.join("proc/self/limits"), name)?;
        let soft = limits.split_whitespace().next()?.parse().ok()?;
        let used = field(&root.join("proc/self/status"), used).unwrap_or_default();
        Some((place, Bytes(soft).saturating_sub(used)))
    };
    let kinds = [
        ("Max address space", "VmSize:", "the limit of this process's address space (ulimit -v)"),
        ("Max data size", "VmData:", "the limit of this process's data (ulimit -d)"),
    ];
    kinds.into_iter().filter_map(left).collect()
}

/// What each control group leaves that this process is in, from its own to the topmost that is visible. In a container
/// the host's name of its group is not; then the topmost is the container's own.
fn groups(root: &Path) -> Vec<Bytes> {
    let group = text(&root.join("proc/self/cgroup"), "0::").unwrap_or_default();
    let top = root.join("sys/fs/cgroup");
    let own = top.join(group.trim_start_matches('/'));
    own.ancestors().take_while(|folder| folder.starts_with(&top)).filter_map(left_by).collect()
}

/// What the control group in `folder` leaves, if it has a limit. Pages of files are taken back before it refuses.
fn left_by(folder: &Path) -> Option<Bytes> {
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    let limit: u64 = number("memory.max")?;
    let stat = |name: &str| text(&folder.join("memory.stat"), name)?.parse::<u64>().ok();
    let pages = ["inactive_file ", "active_file "].into_iter().filter_map(stat).sum();
    let used = number("memory.current").unwrap_or(0).saturating_sub(pages);
    Some(Bytes(limit.saturating_sub(used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is available by these files.
    fn available_in(files: &[(&str, &str)]) -> Option<(&'static str, u64)> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available(root.path()).map(|(place, left)| (place, left.0))
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n");
    const LIMITS: &str = "Limit  Soft Limit  Hard Limit  Units\nMax data size  unlimited  unlimited  bytes\n";

    #[test]
    fn without_limits_it_is_what_the_machine_has_left() {
        assert_eq!(available_in(&[]), None);
        let unlimited = [MACHINE, ("proc/self/limits", LIMITS)];
        assert_eq!(available_in(&unlimited), Some(("this machine", 4000 << 10)));
    }

    #[test]
    fn the_limits_of_the_process_count_less_what_it_has() {
        let limits = format!("{LIMITS}Max address space  3000000  unlimited  bytes\n");
        let status = ("proc/self/status", "VmSize:\t 1000 kB\nVmRSS:\t 10 kB\n");
        let (place, left) = available_in(&[MACHINE, ("proc/self/limits", &limits), status]).unwrap();
        assert!(place.contains("ulimit -v"), "{place}");
        assert_eq!(left, 3_000_000 - (1000 << 10));
    }

    #[test]
    fn groups_count_with_those_above_them() {
        let mut files = vec![
            MACHINE,
            ("proc/self/cgroup", "0::/job/step\n"),
            ("sys/fs/cgroup/job/step/memory.max", "max\n"),
            ("sys/fs/cgroup/job/memory.max", "1000000\n"),
            ("sys/fs/cgroup/job/memory.current", "700000\n"),
        ];
        let group = "the control group of this process";
        assert_eq!(available_in(&files), Some((group, 300_000)));
        files.push(("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 200000\nactive_file 100000\n"));
        assert_eq!(available_in(&files), Some((group, 600_000)));
        files.push(("sys/fs/cgroup/memory.max", "7\n"));
        files.push(("sys/fs/cgroup/memory.current", "9\n"));
        assert_eq!(available_in(&files), Some((group, 0)));
    }

    /// In a container the groups of the host are named, but only its own is mounted.
    #[test]
    fn the_group_of_a_container_counts() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "4:memory:/x\n0::/elsewhere\n"),
            ("sys/fs/cgroup/memory.max", "2000\n"),
            ("sys/fs/cgroup/memory.current", "1500\n"),
        ];
        assert_eq!(available_in(&files), Some(("the control group of this process", 500)));
    }
}
