//! The measurements of one device.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{InvalidMeasurement, MergeError, ProfileError};
use crate::json_lines::Record;
use crate::kernel::{Kernel, KernelId};
use crate::measuring::{Measuring, Progress, Wanted};
use crate::micro::Measurement;
use crate::policy::BatchSizePolicy;
use crate::profiler::Profiler;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record", try_from = "Record")]
pub struct CostTable {
    /// Where the numbers come from.
    pub device: DeviceHeader,
    groups: BTreeMap<KernelId, BTreeMap<u32, Group>>,
}

/// The measurements of one kernel at one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    pub(crate) rows: Vec<Measurement>,
    /// Whether there may be more algorithms, which were not measured.
    pub(crate) is_partial: bool,
}

impl Group {
    /// Whether there was a measurement, or something that said that there is nothing to measure.
    fn is_measured(&self) -> bool {
        !self.is_partial || !self.rows.is_empty()
    }
}

impl CostTable {
    /// An empty table of a device.
    pub fn new(device: DeviceHeader) -> CostTable {
        CostTable { device, groups: BTreeMap::new() }
    }

    /// Measures what `policy` needs for `kernels` and the table does not have yet: identical kernels once,
    /// and for each the largest size first, so that a profiler's buffers never grow. Under `adaptive` those
    /// are the sizes it begins with; [`profile_for`](CostTable::profile_for) knows the limit and goes on.
    ///
    /// # Errors
    /// When the profiler fails or returns an impossible measurement. What was measured before stays in the
    /// table.
    pub fn profile(
        &mut self,
        kernels: &[Kernel],
        policy: BatchSizePolicy,
        profiler: &mut dyn Profiler,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<(), ProfileError> {
        let missing = self.missing(kernels, policy);
        let missing: Vec<Wanted<'_>> =
            missing.into_iter().map(|(kernel, micro_batch)| Wanted::all(kernel, micro_batch)).collect();
        let mut measuring = Measuring::new(self, profiler, &mut progress, missing.len());
        measuring.measure(&missing)?;
        measuring.finish();
        Ok(())
    }

    /// What [`profile`](CostTable::profile) would measure, in its order.
    pub fn missing<'a>(&self, kernels: &'a [Kernel], policy: BatchSizePolicy) -> Vec<(&'a Kernel, u32)> {
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for kernel in kernels {
            for micro_batch in policy.sizes(kernel.mini_batch).into_iter().rev() {
                let group = self.sizes(&kernel.id).and_then(|sizes| sizes.get(&micro_batch));
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
    /// When a measurement is about another size, or a time or error is negative or not finite.
    pub fn insert(
        &mut self,
        kernel: KernelId,
        micro_batch: u32,
        measurements: Vec<Measurement>,
    ) -> Result<(), InvalidMeasurement> {
        measurements.iter().try_for_each(|measurement| measurement.validate(micro_batch))?;
        let group = Group { rows: measurements, is_partial: false };
        self.groups.entry(kernel).or_default().insert(micro_batch, group);
        Ok(())
    }

    /// Stores measurements of some algorithms of one kernel and size, each in place of the one that it had. Unless all
    /// are known from before, there may be more.
    ///
    /// # Errors
    /// As [`insert`](CostTable::insert).
    pub fn insert_some(
        &mut self,
        kernel: KernelId,
        micro_batch: u32,
        measurements: Vec<Measurement>,
    ) -> Result<(), InvalidMeasurement> {
        measurements.iter().try_for_each(|measurement| measurement.validate(micro_batch))?;
        let new = || Group { rows: Vec::new(), is_partial: true };
        let Group { rows, .. } =
            self.groups.entry(kernel).or_default().entry(micro_batch).or_insert_with(new);
        rows.retain(|row| measurements.iter().all(|other| other.algorithm != row.algorithm));
        rows.extend(measurements);
        Ok(())
    }

    /// Takes over the measurements of `other`, in place of its own where both have the same kernel and size. The
    /// date and the command remain its own.
    ///
    /// # Errors
    /// When `other` was measured on another device, with another version of the library or another number of
    /// threads; the table stays as it is.
    pub fn merge(&mut self, other: CostTable) -> Result<(), MergeError> {
        let (ours, theirs) = (&self.device, &other.device);
        for (what, ours, theirs) in [
            ("device", &ours.name, &theirs.name),
            ("library version", &ours.library_version, &theirs.library_version),
            ("number of threads", &ours.threads, &theirs.threads),
        ] {
            if ours != theirs {
                return Err(MergeError { what, ours: ours.clone(), theirs: theirs.clone() });
            }
        }
        for (kernel, sizes) in other.groups {
            for (micro_batch, Group { rows, is_partial }) in sizes {
                let stored = match is_partial {
                    true => self.insert_some(kernel, micro_batch, rows),
                    false => self.insert(kernel, micro_batch, rows),
                };
                stored.expect("a table's measurements are valid");
            }
        }
        Ok(())
    }

    /// The measurements of a kernel at one size: `None` if it was not measured there, empty if nothing can
    /// run it, or if nothing that can was worth a measurement.
    pub fn measurements(&self, kernel: &KernelId, micro_batch: u32) -> Option<&[Measurement]> {
        self.sizes(kernel)?.get(&micro_batch).map(|group| group.rows.as_slice())
    }

    /// All measurements of a kernel by size.
    pub(crate) fn sizes(&self, kernel: &KernelId) -> Option<&BTreeMap<u32, Group>> {
        self.groups.get(kernel)
    }

    /// The measured sizes next to `size`, below and above it: 0 and the largest number where there is none.
    pub(crate) fn gap(&self, kernel: &KernelId, size: u32) -> (u32, u32) {
        let sizes = self.sizes(kernel);
        let below = sizes.and_then(|sizes| sizes.range(..size).next_back());
        let above = sizes.and_then(|sizes| sizes.range(size..).find(|&(&above, _)| above > size));
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

    /// What differs from `before`, an earlier state of this table.
    pub fn changed_since(&self, before: &CostTable) -> CostTable {
        let mut changed = CostTable::new(self.device.clone());
        for (id, micro_batch, group) in self.groups() {
            if before.sizes(id).and_then(|sizes| sizes.get(&micro_batch)) != Some(group) {
                changed.groups.entry(*id).or_default().insert(micro_batch, group.clone());
            }
        }
        changed
    }

    /// Number of measured (kernel, size) pairs.
    pub fn len(&self) -> usize {
        self.groups.values().flat_map(BTreeMap::values).filter(|group| group.is_measured()).count()
    }

    /// Whether anything was measured of a kernel at one size.
    pub fn is_measured(&self, kernel: &KernelId, micro_batch: u32) -> bool {
        let group = self.sizes(kernel).and_then(|sizes| sizes.get(&micro_batch));
        group.is_some_and(Group::is_measured)
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}
