//! The measurements of one device.

use crate::model::{Algorithm, BatchSizePolicy, Kernel, KernelId, Measurement, Unusable};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where and how a cost table was measured, as free text for the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceHeader {
    /// The device, such as the CPU's or GPU's model name.
    pub name: String,
    /// Version of the library whose algorithms were measured.
    pub library_version: String,
    /// Number of threads, where that matters.
    pub threads: String,
    /// When.
    pub date: String,
    /// The command that made the table.
    pub command: String,
}

/// The measurements of (kernel, micro-batch size, algorithm) on one device. Serialises, in JSON lines too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostTable {
    /// Where the numbers come from.
    pub device: DeviceHeader,
    groups: BTreeMap<KernelId, BTreeMap<u32, Group>>,
}

/// The measurements of one kernel at one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    pub(crate) rows: Vec<Measurement>,
    /// Whether there may be more algorithms: tables of earlier versions do not have all that `all` asks for. A plan
    /// uses what there is; before the next one is measured, the rest is.
    pub(crate) is_partial: bool,
}

impl CostTable {
    /// An empty table of a device.
    pub fn new(device: DeviceHeader) -> Self {
        Self { device, groups: BTreeMap::new() }
    }

    /// The pairs of kernel and size that `policy` needs for `kernels` and the table lacks or has only in part: identical
    /// kernels once, and of each the largest size first.
    pub fn missing<'a>(&self, kernels: &'a [Kernel], policy: BatchSizePolicy) -> Vec<(&'a Kernel, u32)> {
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for kernel in kernels {
            for micro_batch in policy.sizes(kernel.mini_batch).into_iter().rev() {
                let group = self.sizes(&kernel.id).get(&micro_batch);
                let known = group.is_some_and(|group| !group.is_partial);
                if !known && seen.insert((kernel.id, micro_batch)) {
                    missing.push((kernel, micro_batch));
                }
            }
        }
        missing
    }

    /// Stores all measurements of one kernel and size, in place of any it had.
    ///
    /// # Errors
    /// When a measurement is of another size, or has an impossible time, shared time, workspace, error or name.
    pub fn insert(&mut self, id: KernelId, size: u32, rows: Vec<Measurement>) -> Result<(), Unusable> {
        self.store(id, size, Group { rows, is_partial: false })
    }

    /// Stores measurements of some algorithms of one kernel and size, each in place of the one that it had. Unless all
    /// are known from before, there may be more.
    ///
    /// # Errors
    /// As [`insert`](CostTable::insert).
    pub fn insert_some(&mut self, id: KernelId, size: u32, rows: Vec<Measurement>) -> Result<(), Unusable> {
        self.store(id, size, Group { rows, is_partial: true })
    }

    /// Stores what a table or a line of one has: a partial group beside what there is.
    pub(crate) fn store(&mut self, id: KernelId, size: u32, group: Group) -> Result<(), Unusable> {
        group.rows.iter().try_for_each(|row| row.validate(size))?;
        let sizes = self.groups.entry(id).or_default();
        match sizes.get_mut(&size).filter(|_| group.is_partial) {
            Some(Group { rows, .. }) => {
                rows.retain(|row| group.rows.iter().all(|other| other.algorithm != row.algorithm));
                rows.extend(group.rows);
            }
            None => drop(sizes.insert(size, group)),
        }
        Ok(())
    }

    /// Takes over the measurements of `other`, in place of its own of the same kernel and size, or, from a group that
    /// may lack some, of the same algorithm too. The date and the command remain its own.
    ///
    /// # Errors
    /// When `other` was measured on another device, library version or number of threads; the table stays as it is.
    pub fn merge(&mut self, other: Self) -> Result<(), Unusable> {
        let (ours, theirs) = (&self.device, &other.device);
        for (what, ours, theirs) in [
            ("device", &ours.name, &theirs.name),
            ("library version", &ours.library_version, &theirs.library_version),
            ("number of threads", &ours.threads, &theirs.threads),
        ] {
            if ours != theirs {
                let differs = format!("their {what} differs, \"{ours}\" and \"{theirs}\"");
                return Err(Unusable(format!("cannot merge cost tables: {differs}")));
            }
        }
        for (kernel, sizes) in other.groups {
            for (micro_batch, group) in sizes {
                self.store(kernel, micro_batch, group).expect("a table's measurements are valid");
            }
        }
        Ok(())
    }

    /// The measurements of a kernel at one size: `None` if it was not measured there, empty if nothing can run it.
    pub fn measurements(&self, kernel: &KernelId, micro_batch: u32) -> Option<&[Measurement]> {
        self.sizes(kernel).get(&micro_batch).map(|group| group.rows.as_slice())
    }

    /// The measurements of a kernel by algorithm, each by rising size.
    pub(crate) fn series(&self, kernel: &KernelId) -> BTreeMap<&Algorithm, Vec<&Measurement>> {
        let mut series: BTreeMap<&Algorithm, Vec<&Measurement>> = BTreeMap::new();
        for row in self.sizes(kernel).values().flat_map(|group| &group.rows) {
            series.entry(&row.algorithm).or_default().push(row);
        }
        series
    }

    /// All measurements of a kernel by size.
    pub(crate) fn sizes(&self, kernel: &KernelId) -> &BTreeMap<u32, Group> {
        static NONE: BTreeMap<u32, Group> = BTreeMap::new();
        self.groups.get(kernel).unwrap_or(&NONE)
    }

    /// The measured sizes next to `size`, below and above it: 0 and the largest number where there is none.
    pub(crate) fn gap(&self, kernel: &KernelId, size: u32) -> (u32, u32) {
        let sizes = self.sizes(kernel);
        let below = sizes.range(..size).next_back();
        let above = sizes.range(size..).find(|&(&above, _)| above > size);
        (below.map_or(0, |(&below, _)| below), above.map_or(u32::MAX, |(&above, _)| above))
    }

    /// Every measured (kernel, size) with its measurements, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&KernelId, u32, &[Measurement])> {
        self.groups().map(|(kernel, micro_batch, group)| (kernel, micro_batch, group.rows.as_slice()))
    }

    /// The same with what is known of their being complete.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&KernelId, u32, &Group)> {
        self.groups.iter().flat_map(|(kernel, sizes)| {
            sizes.iter().map(move |(&micro_batch, group)| (kernel, micro_batch, group))
        })
    }

    /// The table of these kernels alone, up to their mini-batches.
    pub fn of_kernels(&self, kernels: &[Kernel]) -> Self {
        let wanted = |id: &KernelId, size: u32| {
            kernels.iter().any(|kernel| kernel.id == *id && size <= kernel.mini_batch)
        };
        self.filtered(|id, size, group| wanted(id, size).then(|| group.clone()))
    }

    /// The table as it is shipped: times to four digits, and, unless it is to have `every_algorithm`, without rows that
    /// no plan would use, because another one of the same size is at least as good in everything.
    pub fn thinned(&self, every_algorithm: bool) -> Self {
        self.filtered(|_, _, Group { rows, is_partial }| {
            let mut sorted = rows.clone();
            sorted.sort_by(|a, b| a.time_ms.total_cmp(&b.time_ms).then(a.workspace.cmp(&b.workspace)));
            let mut kept: Vec<Measurement> = Vec::new();
            for row in sorted {
                // Where what a row shares is paid for already, the other must not cost more with all of its own.
                let again_ms = row.time_ms - row.shared_ms;
                let is_better = |one: &Measurement| one.is_as_good_as(&row) && one.time_ms <= again_ms;
                if every_algorithm || !kept.iter().any(is_better) {
                    kept.push(row);
                }
            }
            for row in &mut kept {
                row.time_ms = four_digits(row.time_ms);
                row.shared_ms = row.shared_ms.min(row.time_ms);
            }
            Some(Group { rows: kept, is_partial: *is_partial })
        })
    }

    /// What differs from `before`, an earlier state of this table.
    pub fn changed_since(&self, before: &Self) -> Self {
        self.filtered(|id, size, group| (before.sizes(id).get(&size) != Some(group)).then(|| group.clone()))
    }

    /// A table of the same device with what `keep` makes of each group.
    fn filtered(&self, keep: impl Fn(&KernelId, u32, &Group) -> Option<Group>) -> Self {
        let mut filtered = Self::new(self.device.clone());
        for (id, micro_batch, group) in self.groups() {
            if let Some(group) = keep(id, micro_batch, group) {
                filtered.groups.entry(*id).or_default().insert(micro_batch, group);
            }
        }
        filtered
    }

    /// Number of measured (kernel, size) pairs.
    pub fn len(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number as it was printed")
}
