//! The measurements of one device.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidMeasurement, MergeError, ProfileError};
use crate::json_lines::Record;
use crate::kernel::{Kernel, KernelId};
use crate::micro::Measurement;
use crate::noise::join;
use crate::policy::BatchSizePolicy;

/// What a profiler reports when it cannot measure.
pub type ProfilerError = Box<dyn Error + Send + Sync>;

/// Whoever can run convolution kernels on a device and time them.
pub trait Profiler {
    /// Measures every algorithm that can run `kernel` on `micro_batch` samples; those that cannot are left
    /// out, and an empty list says that none can. Workspaces are never limited here: the limit is the plan's
    /// affair, and a table serves every limit.
    ///
    /// # Errors
    /// When the device fails; profiling then stops.
    fn measure(&mut self, kernel: &KernelId, micro_batch: u32) -> Result<Vec<Measurement>, ProfilerError>;
}

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

/// How far profiling has come; given before each measurement and once at the end.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Measurements made.
    pub done: usize,
    /// Measurements to be made in all; under `adaptive` at most, until the end.
    pub total: usize,
    /// What is measured next: the first kernel of its kind and the micro-batch size. `None` at the end.
    pub next: Option<(&'a Kernel, u32)>,
}

/// The measurements of (kernel, micro-batch size, algorithm) on one device. Serialises, in JSON lines too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record", try_from = "Record")]
pub struct CostTable {
    /// Where the numbers come from.
    pub device: DeviceHeader,
    groups: BTreeMap<KernelId, BTreeMap<u32, Vec<Measurement>>>,
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
        let mut measuring = Measuring::new(self, profiler, &mut progress, missing.len());
        for (kernel, micro_batch) in missing {
            measuring.measure(kernel, micro_batch)?;
        }
        measuring.finish();
        Ok(())
    }

    /// What [`profile`](CostTable::profile) would measure, in its order.
    pub fn missing<'a>(&self, kernels: &'a [Kernel], policy: BatchSizePolicy) -> Vec<(&'a Kernel, u32)> {
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for kernel in kernels {
            for micro_batch in policy.sizes(kernel.mini_batch).into_iter().rev() {
                let known = self.measurements(&kernel.id, micro_batch).is_some();
                if !known && seen.insert((kernel.id, micro_batch)) {
                    missing.push((kernel, micro_batch));
                }
            }
        }
        missing
    }

    /// Stores the measurements of one kernel and size, in place of any it had.
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
        self.groups.entry(kernel).or_default().insert(micro_batch, measurements);
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
            self.groups.entry(kernel).or_default().extend(sizes);
        }
        Ok(())
    }

    /// The measurements of a kernel at one size: `None` if it was not measured there, empty if nothing can
    /// run it.
    pub fn measurements(&self, kernel: &KernelId, micro_batch: u32) -> Option<&[Measurement]> {
        self.sizes(kernel)?.get(&micro_batch).map(Vec::as_slice)
    }

    /// All measurements of a kernel by size.
    pub(crate) fn sizes(&self, kernel: &KernelId) -> Option<&BTreeMap<u32, Vec<Measurement>>> {
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
        self.groups.iter().flat_map(|(kernel, sizes)| {
            sizes.iter().map(move |(&micro_batch, rows)| (kernel, micro_batch, rows.as_slice()))
        })
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

/// A profiler at work on a table, with its progress.
pub(crate) struct Measuring<'m> {
    table: &'m mut CostTable,
    profiler: &'m mut dyn Profiler,
    progress: &'m mut dyn FnMut(Progress<'_>),
    done: usize,
    total: usize,
}

impl<'m> Measuring<'m> {
    /// Nothing measured of at most `total`.
    pub(crate) fn new(
        table: &'m mut CostTable,
        profiler: &'m mut dyn Profiler,
        progress: &'m mut dyn FnMut(Progress<'_>),
        total: usize,
    ) -> Measuring<'m> {
        Measuring { table, profiler, progress, done: 0, total }
    }

    /// What was measured so far.
    pub(crate) fn table(&self) -> &CostTable {
        self.table
    }

    /// How many more may be measured.
    pub(crate) fn left(&self) -> usize {
        self.total - self.done
    }

    /// Measures one kernel at one size.
    pub(crate) fn measure(&mut self, kernel: &Kernel, micro_batch: u32) -> Result<(), ProfileError> {
        let Measuring { done, total, .. } = *self;
        (self.progress)(Progress { done, total, next: Some((kernel, micro_batch)) });
        let measured = self.profiler.measure(&kernel.id, micro_batch);
        let stored = measured.and_then(|rows| Ok(self.table.insert(kernel.id, micro_batch, rows)?));
        let (name, id) = (kernel.to_string(), kernel.id);
        stored.map_err(|source| ProfileError { kernel: name, id, micro_batch, source })?;
        self.done += 1;
        Ok(())
    }

    /// Measures one kernel at one size that was measured before, and keeps the shorter times. Returns by which part those
    /// of the fastest algorithm differ.
    pub(crate) fn repeat(&mut self, kernel: &Kernel, micro_batch: u32) -> Result<f64, ProfileError> {
        let rows =
            |table: &CostTable| table.measurements(&kernel.id, micro_batch).unwrap_or_default().to_vec();
        let before = rows(self.table);
        self.measure(kernel, micro_batch)?;
        let (joined, difference) = join(&before, &rows(self.table));
        self.table.insert(kernel.id, micro_batch, joined).expect("both were valid");
        Ok(difference)
    }

    /// Says that nothing more will be measured.
    pub(crate) fn finish(self) {
        (self.progress)(Progress { done: self.done, total: self.done, next: None });
    }
}

/// A recorded table stands in for the device it was measured on.
impl Profiler for CostTable {
    fn measure(&mut self, kernel: &KernelId, micro_batch: u32) -> Result<Vec<Measurement>, ProfilerError> {
        let found = self.measurements(kernel, micro_batch).map(<[Measurement]>::to_vec);
        found.ok_or_else(|| format!("the table of {} does not have it", self.device.name).into())
    }
}
