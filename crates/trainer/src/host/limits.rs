//! How much more memory a process may have: what the machine, its control groups and its own limits leave.

use super::field;
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
    let limits = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    let left = |(name, used, place): (&str, &str, &'static str)| {
        let soft = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
        let used = field(&root.join("proc/self/status"), used).unwrap_or_default();
        Some((place, Bytes(soft.parse().ok()?).saturating_sub(used)))
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
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let version =
            [&V1, &V2].into_iter().find(|version| controllers.split(',').any(|c| c == version.controller))?;
        let top = root.join(version.top);
        let own = top.join(group.trim_start_matches('/'));
        let visible = own.ancestors().take_while(|folder| folder.starts_with(&top));
        Some(visible.filter_map(|folder| version.left(folder)).collect::<Vec<Bytes>>())
    };
    memberships.lines().filter_map(of_line).flatten().collect()
}

/// The files of one version of control groups.
struct Files {
    controller: &'static str,
    /// The folder of the topmost group.
    top: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat`: pages of files, which the system takes back before it refuses anything.
    reclaimable: [&'static str; 2],
}

const V1: Files = Files {
    controller: "memory",
    top: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file ", "total_active_file "],
};
const V2: Files = Files {
    controller: "",
    top: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    reclaimable: ["inactive_file ", "active_file "],
};

impl Files {
    /// What the group in `folder` leaves, if it has a limit.
    fn left(&self, folder: &Path) -> Option<Bytes> {
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
        let limit: u64 = number(self.limit)?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let pages = self.reclaimable.iter().filter_map(|name| {
            stat.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok()
        });
        let used = number(self.used).unwrap_or(0).saturating_sub(pages.sum());
        Some(Bytes(limit.saturating_sub(used)))
    }
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
    fn groups_of_version_2_count_with_those_above_them() {
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
    fn groups_of_version_1_count_too() {
        for own in ["/docker/abc", "/elsewhere"] {
            let memberships = format!("5:cpu,cpuacct:/x\n4:memory:{own}\n0::/y\n");
            let files = [
                MACHINE,
                ("proc/self/cgroup", &memberships),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1500\n"),
                ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 250\n"),
            ];
            assert_eq!(available_in(&files), Some(("the control group of this process", 750)), "{own}");
        }
    }
}
