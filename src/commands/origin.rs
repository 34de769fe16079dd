//! Where the measurements of a plan come from: a device of this machine, or a table that was recorded on another.

use super::inputs::{net_kernels, refuse};
use crate::args::{MeasuringArgs, PlanningArgs, RunArgs};
use crate::report::{Header, Subject, shown};
use crate::tables::{is_recorded, read_recorded, words};
use crate::{Console, Error, Result, device::DeviceReport, progress, stop::stop};
use cudnn_layers::conv::{ProfileOptions, format};
use figures::{EstimateReport, ProfilingReport, Recorded};
use planner::{
    Bytes, Estimator, Kernel, Math, Plan, PlanError, PlanOptions, WdSolver, WorkspacePolicy, measured_pairs,
};
use std::path::Path;
use tensor::{Cpu, Device, Format};
use trainer::planning::{Planning, Rates, Records};
use trainer::{Group, NetError, host::lockable, spec::NetSpec};

/// Measurements, or the means to make them.
pub(super) struct Origin {
    /// Where nets are built; nothing of a recorded table's device is here.
    pub(super) device: Device,
    pub(super) planning: Planning,
    /// The arithmetic of products.
    pub(super) math: Math,
    /// The recorded table that stands in a device's place, and what estimates the rest of that device.
    pub(super) recorded: Option<(Recorded, Estimator)>,
    /// What measuring was like, once something was measured.
    pub(super) profiling: Option<ProfilingReport>,
    /// What was estimated.
    pub(super) estimate: Option<EstimateReport>,
}

impl Origin {
    /// The device that `run` names; with its database, if there is one.
    pub(super) fn device(run: &RunArgs, measuring: &MeasuringArgs) -> Result<Self> {
        // What is wrong with the files is known before a device is opened.
        measuring.records()?;
        let device = run.device()?;
        let planning = Planning::new(&device, ProfileOptions::on(&device));
        let planning = planning.with(measuring.records_of(&device)?, stop()?);
        Ok(Self::new(device, planning, run.math))
    }

    /// Of `planning`, and nothing else.
    fn new(device: Device, planning: Planning, math: Math) -> Self {
        Self { device, planning, math, recorded: None, profiling: None, estimate: None }
    }

    /// The device or the recorded device that `run` names.
    pub(super) fn any(run: &RunArgs, planning: &PlanningArgs) -> Result<Self> {
        let measuring = &planning.measuring;
        if !is_recorded(&run.device) {
            return Self::device(run, measuring);
        }
        let options = [
            (run.threads.is_some(), "--threads"),
            (measuring.benchmark_devices.is_some(), "--benchmark-devices"),
            (measuring.database.is_some(), "--database"),
            (measuring.no_database, "--no-database"),
            (measuring.offline, "--offline"),
            (planning.verify, "--verify"),
        ];
        refuse(options, &format!("--device {}", run.device))?;
        let formats = run.formats();
        let (table, file) = read_recorded(&run.device, run.math, &formats)?;
        let recorded = Recorded { file: shown(Path::new(&file)), device: table.device.clone() };
        let mut device = Device::Cpu(Cpu::try_new(None)?);
        device.set_format(formats[0]);
        let recorded = Some((recorded, Estimator::new(&table)));
        Ok(Self { recorded, ..Self::new(device, Planning::recorded(table), run.math) })
    }

    /// The first lines of what `command` reports, with `warnings` and `notes`.
    pub(super) fn header(
        &self,
        command: &'static str,
        subject: Subject,
        [warnings, notes]: [Vec<String>; 2],
    ) -> Header {
        let (device, recorded) = match &self.recorded {
            Some((recorded, _)) => (None, Some(recorded.clone())),
            None => (Some(DeviceReport::new(&self.device)), None),
        };
        Header { command, device, recorded, subject, warnings, notes }
    }

    /// Whether the plan is for a GPU: this machine's, or that of a table.
    pub(super) fn on_gpu(&self) -> bool {
        match self.recorded {
            // Only a CPU's table tells its threads.
            Some(_) => self.planning.table.device.threads.is_empty(),
            None => matches!(self.device, Device::Cuda(_)),
        }
    }

    /// With `--layout auto` on a GPU, settles in which order feature maps lie: that in which the net's convolutions are
    /// planned to be faster, measured in each, or that of the plan `before`, with which a training resumes, or the only
    /// one that was recorded. Of several ranks the first chooses. Returns a sentence on it.
    pub(super) fn settle_layout(
        &mut self,
        (run, planning): (&RunArgs, &PlanningArgs),
        spec: &NetSpec,
        (group, before): (&Group, Option<&Plan>),
    ) -> Result<Option<String>> {
        let (mut formats, recorded) = (run.formats(), self.recorded.is_some());
        if formats.len() == 1 || !self.on_gpu() {
            // Of a GPU that is here, its own line says it.
            let what = words(self.math, formats[0]);
            let is_said = !recorded || what == words(Math::Fp32, Format::F32);
            return Ok(Some(format!("convolutions in {what}")).filter(|_| !is_said));
        }
        let table = &self.planning.table;
        formats.retain(|&one| !recorded || table.iter().any(|(id, ..)| format(id) == one));
        if let [format] = formats[..] {
            self.device.set_format(format);
            let what = words(self.math, format);
            return Ok(Some(format!("--layout auto: {what}, as nothing was recorded in the other order")));
        }
        let before = before.and_then(|plan| plan.kernels.first()).map(|planned| format(&planned.kernel.id));
        let known =
            formats.iter().position(|format| before.is_some_and(|before| before.layout == format.layout));
        let (chosen, note) = group.from_leader(|| {
            if let Some(chosen) = known {
                return Ok((chosen, format!("--layout auto: {}, as in the snapshot", formats[chosen])));
            }
            let options = planning.options(true, None)?;
            let unestimated = recorded.then(|| Planning::recorded(self.planning.table.clone()));
            let mut times = Vec::new();
            for &format in &formats {
                let kernels = net_kernels(run, spec, format)?;
                self.planning.complete(&kernels, &options, progress::measuring())?;
                times.push(self.plan(&kernels, None, &options)?.time_ms);
            }
            let mut partly = "";
            if let Some(planning) = unestimated {
                partly = if self.planning.measured() > 0 { ", in part by estimates" } else { "" };
                // Those of the order that is not chosen are not of the plan.
                self.planning = planning;
            }
            let chosen = usize::from(times[1] < times[0]);
            let in_order = |at: usize| format!("{:.3} ms in {}", times[at], words(self.math, formats[at]));
            let (faster, slower) = (in_order(chosen), in_order(1 - chosen));
            let note =
                format!("--layout auto: convolutions are planned to take {faster}, and {slower}{partly}");
            Ok::<_, Error>((chosen, note))
        })?;
        self.device.set_format(formats[chosen]);
        Ok(Some(note))
    }

    /// What to estimate with where nothing can be measured. Of the host of a recorded device nothing is known here.
    pub(super) fn rates(&self) -> Rates {
        let rates =
            if self.on_gpu() { Rates::gpu(self.math, self.device.format().dtype) } else { Rates::CPU };
        if self.recorded.is_some() { rates } else { Rates { host: lockable(), ..rates } }
    }

    /// Measures what a plan with `options` needs and is not known, and prints how much that was.
    pub(super) fn profile(
        &mut self,
        kernels: &[Kernel],
        options: &PlanOptions,
        console: &mut Console,
    ) -> Result<()> {
        let result = self.planning.complete(kernels, options, progress::measuring());
        self.planning.warning.take().iter().for_each(|warning| console.warn(warning));
        self.planning.unstored.take().iter().for_each(|error| console.warn(error));
        let measured = self.planning.measured();
        if let Some((Recorded { file, .. }, estimator)) = &self.recorded {
            result.map_err(|error| match error {
                NetError::Profile(reason) => Error::Refused(format!("cannot plan from {file}: {reason}")),
                error => error.into(),
            })?;
            let estimate = || EstimateReport { estimated: measured, error: estimator.error(&kernels[0].id) };
            self.estimate = (measured > 0).then(estimate);
            let recorded = self.planning.table.len() - measured;
            console
                .text(format!("  profiling   none: {recorded} (kernel, micro-batch) pairs are recorded"))?;
            return self.estimate.iter().try_for_each(|estimate| console.text(estimate));
        }
        result?;
        console.text(self.profiling.insert(profiling(&self.planning, kernels, options)))
    }

    /// Plans `kernels`, each within a limit of its own if there are some; an error says what the user can do about it.
    pub(super) fn plan(
        &mut self,
        kernels: &[Kernel],
        limits: Option<&[Bytes]>,
        options: &PlanOptions,
    ) -> Result<Plan> {
        let is_slow = options.workspace_policy == WorkspacePolicy::Wd && options.wd_solver == WdSolver::Ilp;
        let solver = "the ILP solver is at work; --wd-solver exact takes less";
        let _bar = is_slow.then(|| progress::one_step("dividing", solver));
        self.planning.plan(kernels, limits, options).map_err(|error| self.explain(error))
    }

    /// An error with what this origin has to do with it.
    pub(super) fn explain(&self, error: NetError) -> Error {
        let offline = "--offline measures nothing: run without it, or run `microbatch profile` first";
        match error {
            NetError::Plan(PlanError::NotMeasured(_)) if self.planning.records.offline => {
                Error::Refused(format!("{error}, and {offline}"))
            }
            error => error.into(),
        }
    }
}

/// What measuring `kernels` with `options` was like.
pub(super) fn profiling(planning: &Planning, kernels: &[Kernel], options: &PlanOptions) -> ProfilingReport {
    let (policy, measured) = (options.batch_size_policy, planning.measured());
    let (usable, _) = measured_pairs(&planning.table, kernels, policy);
    let Records { database, benchmark_devices, .. } = &planning.records;
    ProfilingReport {
        measured,
        known: usable.saturating_sub(measured),
        seconds: planning.profiling.as_secs_f64(),
        database: database.as_ref().map(|database| database.folder().display().to_string()),
        devices: benchmark_devices.len().max(1),
        policy,
        coverage: planning.coverage(kernels, options),
        noise: planning.noise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use crate::{example::Example, tables::read_table};
    use clap::Parser;

    /// A CPU's mini-batch is no default for what a GPU's table predicts.
    #[test]
    fn only_a_cpu_gets_the_small_mini_batch() {
        let example = Example { name: "resnet18", mini_batch: 16, train_iterations: 1 };
        let chosen = |options: &[&str]| {
            let command = Command::parse_from(["microbatch", "plan", "--device"].iter().chain(options));
            let Command::Plan(mut args) = command else { unreachable!("plan was asked for") };
            example.defaults(&mut args.net.model, &mut args.run);
            let origin = Origin::any(&args.run, &args.planning).unwrap();
            assert_eq!(args.run.chosen(true, origin.on_gpu()), (None, Vec::new()));
            let (mini_batch, notes) = args.run.chosen(false, origin.on_gpu());
            (mini_batch, notes.len())
        };
        assert_eq!(chosen(&["cpu", "--no-database"]), (Some(16), 1));
        let tables = concat!(env!("CARGO_MANIFEST_DIR"), "/data/profiles/nvidia-h200/resnet18-128-");
        for table in ["all-fp32.jsonl.gz", "powerOfTwo.jsonl"] {
            assert_eq!(chosen(&[&format!("recorded:{tables}{table}")]), (None, 0), "{table}");
        }
        let mut of_cpu = read_table(Path::new(&format!("{tables}powerOfTwo.jsonl"))).unwrap();
        of_cpu.device.threads = "2".to_owned();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), of_cpu.to_json_lines()).unwrap();
        assert_eq!(chosen(&[&format!("recorded:{}", file.path().display())]), (Some(16), 1));
    }
}
