//! From a net's kernels to their plan: measure what is not known, then plan.

mod costs;
mod record;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod verify;

use crate::error::{NetError, Result};
use crate::{host::command_line, stop::Stop};
use cudnn_layers::conv::{CPU_KERNELS, ProfileOptions};
use files::database::{Database, DatabaseError};
use planner::{
    BatchSizePolicy, Bytes, CostTable, Coverage, DeviceHeader, Estimator, Fronts, Kernel, KernelId, Noise,
    Plan, PlanOptions, ProfileError, Profiler, Progress,
};
use source::{Interruptible, Source};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tensor::Device;
use tensor::cpu::{instruction_set, processor_name};

/// Sources of measurements. By default: no database, measuring allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Read before anything is measured, and given what was.
    pub database: Option<Database>,
    /// Whether measuring is forbidden: kernels that are not recorded cannot be planned then.
    pub offline: bool,
    /// GPUs of the device's model that measure in parallel instead of it; if empty, it measures itself.
    pub benchmark_devices: Vec<usize>,
}

pub use costs::{Rates, estimated_costs};
pub use record::{PlanOrigin, PlanRecord, ScheduleRecord};
pub use source::BenchmarkDevices;
pub use verify::{Verified, verify};

/// The measurements of a run's kernels, and how long they took.
pub struct Planning {
    source: Source,
    /// Its sources of measurements.
    pub records: Records,
    /// What is known.
    pub table: CostTable,
    /// Milliseconds of the passes of layers, by all that they depend on.
    layers: HashMap<String, [f64; 3]>,
    /// What went wrong with reading the database, in a sentence, until that is told: plans are made all the same.
    pub warning: Option<String>,
    stop: Stop,
    /// What kept measurements from being stored, if anything did: plans are made of them all the same.
    pub unstored: Option<DatabaseError>,
    /// How many pairs of kernel and size were known before anything was measured.
    known: usize,
    /// What measuring again what the last plan rests on has shown.
    pub noise: Noise,
    /// Time spent measuring.
    pub profiling: Duration,
    /// Time spent planning.
    pub planning: Duration,
}

impl Planning {
    /// Nothing measured yet on `device`, and no database.
    pub fn new(device: &Device, options: ProfileOptions) -> Self {
        Self::of(Source::Device(device.clone(), options), CostTable::new(header(device)))
    }

    /// Nothing measured yet by `profiler`, on the device that `header` describes.
    pub fn with_profiler(header: DeviceHeader, profiler: Box<dyn Profiler>) -> Self {
        Self::of(Source::Profiler(profiler), CostTable::new(header))
    }

    /// All that there is to plan with is `table`: what it does not have is estimated from what it has.
    pub fn recorded(table: CostTable) -> Self {
        Self::of(Source::Profiler(Box::new(Estimator::new(&table))), table)
    }

    fn of(source: Source, table: CostTable) -> Self {
        let known = table.len();
        let (records, layers, warning, stop, unstored, noise, profiling, planning) = Default::default();
        Self { source, records, table, layers, warning, stop, unstored, known, noise, profiling, planning }
    }

    /// Uses `records`, whose database is read, and lets `stop` end measuring; what was measured until then is stored.
    pub fn with(mut self, records: Records, stop: Stop) -> Self {
        if let Some(database) = &records.database {
            let (table, warning) = database.read(&self.table.device);
            self.warning = warning;
            self.table.merge(table).expect("it was read for this device");
            self.known = self.table.len();
        }
        Self { records, stop, ..self }
    }

    /// Measures what a plan of `kernels` with `options` needs: under `adaptive` what is likely of use under this limit.
    ///
    /// # Errors
    /// [`NetError::Profile`], [`NetError::Stopped`].
    pub fn complete(
        &mut self,
        kernels: &[Kernel],
        options: &PlanOptions,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<()> {
        let before = self.table.clone();
        // What is from earlier runs may have been measured in quieter times, and is not paid for again.
        let is_new = |id: &KernelId, size: u32| before.measurements(id, size).is_none();
        let mut noise = Noise::default();
        self.measure(|table, profiler| {
            planner::profile(table, kernels, options, profiler, &mut progress)?;
            if *table != before {
                noise = planner::repeat(table, kernels, options, profiler, is_new, &mut progress)?;
            }
            Ok(())
        })?;
        self.noise = noise;
        Ok(())
    }

    /// Under `adaptive`: how much of what there is was measured, and what more could gain.
    pub fn coverage(&self, kernels: &[Kernel], options: &PlanOptions) -> Option<Coverage> {
        let is_partial = options.batch_size_policy == BatchSizePolicy::Adaptive;
        is_partial.then(|| planner::coverage(&self.table, kernels, options))
    }

    /// Measures what `policy` needs of `kernels` and is not known yet, telling `progress` on the way.
    ///
    /// # Errors
    /// [`NetError::Profile`], [`NetError::Stopped`].
    pub fn profile_sizes(
        &mut self,
        kernels: &[Kernel],
        policy: BatchSizePolicy,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<()> {
        let options = PlanOptions { batch_size_policy: policy, ..PlanOptions::default() };
        self.measure(|table, profiler| planner::profile(table, kernels, &options, profiler, progress))
    }

    /// Plans `kernels` on what was measured; each within a limit of its own, if there are `limits` (see
    /// [`Fronts::plan_within`](planner::Fronts::plan_within)).
    ///
    /// # Errors
    /// What the planner says of the limit, or of sizes that were not measured.
    pub fn plan(
        &mut self,
        kernels: &[Kernel],
        limits: Option<&[Bytes]>,
        options: &PlanOptions,
    ) -> Result<Plan> {
        let start = Instant::now();
        let plan = match limits {
            Some(limits) => Fronts::new(kernels, &self.table, options)?.plan_within(limits, options)?,
            None => planner::plan(kernels, &self.table, options)?,
        };
        self.planning += start.elapsed();
        Ok(plan)
    }

    /// How many (kernel, size) pairs were measured, not read.
    pub fn measured(&self) -> usize {
        self.table.len() - self.known
    }

    /// Lets `work` measure what is still missing, and records that, whether or not all went well.
    fn measure(
        &mut self,
        work: impl FnOnce(&mut CostTable, &mut dyn Profiler) -> Result<(), ProfileError>,
    ) -> Result<()> {
        let start = Instant::now();
        if self.records.offline {
            return Ok(());
        }
        let (before, table, stop) = (self.table.clone(), &mut self.table, &self.stop);
        let listening = stop.listen();
        let measured = self.source.with_profiler(&self.records.benchmark_devices, |profiler| {
            work(table, &mut Interruptible { profiler, stop })
        });
        self.profiling += start.elapsed();
        if let Some(database) = &self.records.database {
            let added = database.add(&self.table.changed_since(&before));
            self.unstored = added.err().or(self.unstored.take());
        }
        drop(listening);
        if self.stop.is_requested() {
            let kept = self.records.database.is_some() && self.unstored.is_none();
            return Err(NetError::Stopped { kept });
        }
        measured.map_err(|error| NetError::Profile(error.into()))
    }
}

/// What identifies `device` in a [`PlanRecord`].
pub fn identity(device: &Device) -> DeviceHeader {
    let header = header(device);
    let library_version = match device {
        // Rounding depends on the kernels' code, but a training should survive a rebuild.
        Device::Cpu(_) => format!("microbatch {}", env!("CARGO_PKG_VERSION")),
        Device::Cuda(_) => header.library_version,
    };
    DeviceHeader { command: String::new(), library_version, ..header }
}

/// Everything about `device` that measurements depend on.
pub fn header(device: &Device) -> DeviceHeader {
    let command = command_line().join(" ");
    let version = env!("CARGO_PKG_VERSION");
    let (name, library_version, threads) = match device {
        Device::Cpu(cpu) => {
            let kernels = format!("microbatch {version}, {}, kernels {CPU_KERNELS}", instruction_set());
            (processor_name(), kernels, cpu.threads().to_string())
        }
        Device::Cuda(cuda) => (cuda.info().to_string(), cudnn_layers::cudnn::versions(cuda), String::new()),
    };
    DeviceHeader { name, library_version, threads, command, ..DeviceHeader::default() }
}
