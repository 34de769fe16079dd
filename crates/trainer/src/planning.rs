//! From a net's kernels to installed configurations: profile, plan, install.

mod record;
#[cfg(test)]
pub(crate) mod tests;

use crate::{error::NetError, net::Net};
use cudnn_layers::conv::{ProfileOptions, profiler};
use planner::{
    BatchSizePolicy, CostTable, Coverage, DeviceHeader, Kernel, Plan, PlanOptions, Profiler, Progress,
};
use std::time::{Duration, Instant};
use tensor::Device;

pub use record::PlanRecord;

/// The measurements of a run's kernels, and how long they took.
pub struct Planning {
    device: Device,
    options: ProfileOptions,
    table: CostTable,
    profiling: Duration,
    planning: Duration,
}

impl Planning {
    /// Nothing measured yet on `device`.
    pub fn new(device: &Device, options: ProfileOptions) -> Self {
        let table = CostTable::new(header(device));
        Self { device: device.clone(), options, table, profiling: Duration::ZERO, planning: Duration::ZERO }
    }

    /// Measures what `policy` needs of the nets' kernels and is not known yet, telling `progress` on the way.
    ///
    /// # Errors
    /// [`NetError::Profile`].
    pub fn profile(
        &mut self,
        nets: &mut [&mut Net],
        policy: BatchSizePolicy,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<(), NetError> {
        let start = Instant::now();
        let kernels: Vec<Kernel> = nets.iter_mut().flat_map(|net| net.kernels()).collect();
        let mut profiler = self.profiler()?;
        let result = self.table.profile(&kernels, policy, profiler.as_mut(), progress);
        self.profiling += start.elapsed();
        result.map_err(|error| NetError::Profile(error.into()))
    }

    /// Measures what a plan of the nets' kernels with `options` needs and is not known yet: under the `adaptive`
    /// policy what is likely to be of use under this limit. Says how much that was, and what more could gain.
    ///
    /// # Errors
    /// [`NetError::Profile`].
    pub fn profile_for(
        &mut self,
        nets: &mut [&mut Net],
        options: &PlanOptions,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Coverage, NetError> {
        let start = Instant::now();
        let kernels: Vec<Kernel> = nets.iter_mut().flat_map(|net| net.kernels()).collect();
        let mut profiler = self.profiler()?;
        let result = self.table.profile_for(&kernels, options, profiler.as_mut(), progress);
        self.profiling += start.elapsed();
        result.map_err(|error| NetError::Profile(error.into()))
    }

    /// Plans the kernels of `net` on what was measured, and installs the plan.
    ///
    /// # Errors
    /// What the planner says of the limit, or [`NetError::Plan`] for sizes that were not measured.
    pub fn install(&mut self, net: &mut Net, options: &PlanOptions) -> Result<Plan, NetError> {
        let start = Instant::now();
        let plan = planner::plan(&net.kernels(), &self.table, options)?;
        self.planning += start.elapsed();
        net.install(&plan)?;
        Ok(plan)
    }

    fn profiler(&self) -> Result<Box<dyn Profiler>, NetError> {
        profiler(&self.device, self.options).map_err(|error| NetError::Profile(error.into()))
    }

    /// What was measured.
    pub fn table(&self) -> &CostTable {
        &self.table
    }

    /// Time spent measuring.
    pub fn profiling(&self) -> Duration {
        self.profiling
    }

    /// Time spent planning.
    pub fn planning(&self) -> Duration {
        self.planning
    }
}

/// What identifies `device` in a [`PlanRecord`].
pub(crate) fn identity(device: &Device) -> DeviceHeader {
    DeviceHeader { command: String::new(), ..header(device) }
}

fn header(device: &Device) -> DeviceHeader {
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    match device {
        Device::Cpu(cpu) => DeviceHeader {
            name: processor_name(),
            library_version: format!("microbatch {}", env!("CARGO_PKG_VERSION")),
            threads: cpu.threads().to_string(),
            command,
            ..DeviceHeader::default()
        },
        Device::Cuda(cuda) => DeviceHeader {
            name: cuda.info().to_string(),
            library_version: cudnn_layers::raw::versions(cuda),
            command,
            ..DeviceHeader::default()
        },
    }
}

/// The processor's model, as the operating system names it.
pub fn processor_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
