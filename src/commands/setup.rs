//! What the subcommands that run a net have in common.

use super::{
    budget::{self, Budget},
    origin::Origin,
};
use crate::{
    Console, Error,
    args::{PlanningArgs, RunArgs},
    report::{BudgetReport, Header, NetReport},
};
use planner::{BatchSizePolicy, Bytes, Plan, PlanOptions};
use std::path::Path;
use tensor::Device;
use trainer::{
    Net, NetError, host,
    layers::{BuildOptions, SyntheticData},
    net::{Layout, MemoryReport},
    prototxt::{Warning, collapsed},
    spec::{LayerKind, NetSpec, Phase},
};

/// Defaults that were chosen, one sentence each, for the header.
#[derive(Clone, Debug, Default)]
pub struct Notes(pub Vec<String>);

/// A net that is built and waits for a plan.
pub(super) struct Session {
    /// What was resident before it was built.
    pub(super) at_start: Option<Bytes>,
    pub(super) options: PlanOptions,
    /// The budget of the whole run, if there is one.
    pub(super) device_memory: Option<Bytes>,
    pub(super) origin: Origin,
    pub(super) net: Net,
    pub(super) header: Header,
}

/// Which net, and what is done with it.
pub(super) struct Request<'a> {
    pub(super) command: &'static str,
    pub(super) model: &'a Path,
    pub(super) phase: Phase,
    pub(super) batch: Option<usize>,
    pub(super) planning: &'a PlanningArgs,
    pub(super) device_memory: Option<Bytes>,
    pub(super) run: &'a RunArgs,
    pub(super) seed: u64,
    pub(super) notes: &'a Notes,
}

impl Session {
    /// Reads and builds the net that `request` asks for, and prints the header.
    pub(super) fn open(request: &Request<'_>, console: &mut Console) -> Result<Self, Error> {
        let at_start = host::resident();
        let origin = match request.command {
            "plan" => Origin::any(request.run, request.planning)?,
            _ => Origin::device(request.run, &request.planning.measuring)?,
        };
        let device = origin.device.clone();
        let mut spec = NetSpec::load(request.model)?.for_phase(request.phase);
        if let Some(samples) = request.batch {
            spec.set_mini_batch(samples);
        }
        let scaled_to = scaled_to(origin.on_gpu(), spec.mini_batch().unwrap_or(1));
        let options = request.planning.options_in(request.device_memory, scaled_to)?;
        let limit = request.planning.limit_note(&options, scaled_to);
        let synthetic = match request.command {
            "plan" => Some(stand_in(request.run, &spec)),
            _ => synthetic(request.run, &spec),
        };
        let build = BuildOptions { device: device.clone(), seed: request.seed, synthetic };
        let mut net = Net::new(&spec, &build, request.phase == Phase::Train)?;
        if origin.recorded.is_none() {
            check_memory(&device, &Layout::new(&[&net], true).report, at_start)?;
        }
        let kernels = net.kernels().len();
        let header = Header {
            command: request.command,
            device: origin.report(),
            recorded: origin.recorded.clone(),
            net: NetReport::new(&spec, &net, kernels, synthetic),
            warnings: warn(console, &spec.warnings),
            notes: request.notes.0.iter().cloned().chain(limit).collect(),
        };
        console.text(&header)?;
        Ok(Self { at_start, options, device_memory: request.device_memory, origin, net, header })
    }

    /// Measures what `policy` needs and prints how long that took.
    pub(super) fn profile(&mut self, policy: BatchSizePolicy, console: &mut Console) -> Result<(), Error> {
        let options = PlanOptions { batch_size_policy: policy, ..self.options.clone() };
        let kernels = self.net.kernels();
        let options = match self.device_memory {
            Some(bytes) => Budget::new(bytes, &self.net, &kernels).options(&options),
            None => options,
        };
        self.origin.profile(&kernels, &options, console)
    }

    /// Plans the net under `policy` and installs the plan; with a budget of memory also says what that allows.
    pub(super) fn install(&mut self, policy: BatchSizePolicy) -> Result<(Plan, Option<BudgetReport>), Error> {
        let options = PlanOptions { batch_size_policy: policy, ..self.options.clone() };
        let Some(bytes) = self.device_memory else {
            return Ok((self.origin.install(&mut self.net, &options)?, None));
        };
        let kernels = self.net.kernels();
        let (plan, report) = Budget::new(bytes, &self.net, &kernels).plan(&mut self.origin, &options)?;
        budget::install(&mut self.net, &plan, bytes)?;
        Ok((plan, Some(report)))
    }
}

/// The mini-batch that the default limit follows: on a CPU, where it is smaller than the original's limit is meant for.
pub(super) fn scaled_to(on_gpu: bool, mini_batch: usize) -> Option<usize> {
    (!on_gpu).then_some(mini_batch)
}

/// Prints `warnings` on stderr, those alike in one line, and returns all of them for the JSON object.
pub(super) fn warn(console: &Console, warnings: &[Warning]) -> Vec<String> {
    collapsed(warnings).iter().for_each(|warning| console.warn(warning));
    warnings.iter().map(Warning::to_string).collect()
}

/// Refuses a run that needs more memory than is left to this process, or to the GPU, before anything of that size is
/// asked for. Of what `report` counts outside the arena, what was not resident `at_start` and now is, is there already.
pub(super) fn check_memory(
    device: &Device,
    report: &MemoryReport,
    at_start: Option<Bytes>,
) -> Result<(), Error> {
    let there = host::resident().zip(at_start).map(|(now, start)| now.saturating_sub(start));
    let host = report.host.saturating_sub(there.unwrap_or_default());
    let refuse = |needed: Bytes, (place, available)| match needed > available {
        true => Err(Error::Memory { place, needed, available }),
        false => Ok(()),
    };
    let on_host = match device {
        Device::Cpu(_) => report.arena + host,
        Device::Cuda(cuda) => {
            refuse(report.arena, ("the GPU", Bytes(cuda.memory().map_err(NetError::from)?[0])))?;
            host
        }
    };
    host::available_memory().map_or(Ok(()), |left| refuse(on_host, left))
}

/// The synthetic images that `--synthetic` asks for, with labels of `spec`'s classes.
pub(super) fn synthetic(run: &RunArgs, spec: &NetSpec) -> Option<SyntheticData> {
    let shape = run.synthetic?;
    Some(SyntheticData { shape: shape.0, classes: classes(spec), stand_in: false })
}

/// What stands for the data of a net that is not run, and whose data is therefore not opened.
pub(super) fn stand_in(run: &RunArgs, spec: &NetSpec) -> SyntheticData {
    let unopened = SyntheticData { shape: None, classes: classes(spec), stand_in: true };
    synthetic(run, spec).unwrap_or(unopened)
}

/// How many classes the losses of `spec` know: the outputs of the layer that feeds each, the fewest if they differ.
fn classes(spec: &NetSpec) -> usize {
    let is_loss = |kind: &LayerKind| matches!(kind, LayerKind::SoftmaxWithLoss(_) | LayerKind::Accuracy(_));
    let losses = spec.layers.iter().enumerate().filter(|(_, layer)| is_loss(&layer.kind));
    losses.filter_map(|(index, layer)| outputs(spec, index, layer.bottoms.first()?)).min().unwrap_or(1)
}

/// Channels of `blob` as it is before layer `end`, found at the last layer with weights on the way to it.
fn outputs(spec: &NetSpec, end: usize, blob: &str) -> Option<usize> {
    let mut blob = blob;
    for layer in spec.layers[..end].iter().rev().filter(|layer| !layer.tops.is_empty()) {
        if layer.tops.iter().any(|top| top == blob) {
            match &layer.kind {
                LayerKind::InnerProduct(params) => return Some(params.num_output),
                LayerKind::Convolution(params) => return Some(params.num_output),
                _ => blob = layer.bottoms.first()?,
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_layer_before_the_loss() {
        let net = r#"
            layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 2 } }
            layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 7 } }
            layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
            layer { name: "side" type: "InnerProduct" bottom: "ip" top: "side" inner_product_param { num_output: 99 } }
            layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"#;
        let spec = NetSpec::parse(Path::new("net.prototxt"), net).unwrap();
        assert_eq!(classes(&spec), 7);
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        let device = Device::cpu();
        let check = |arena, host, at_start| {
            check_memory(&device, &MemoryReport { arena, host, ..MemoryReport::default() }, at_start)
        };
        assert!(check(Bytes::mib(1), Bytes::mib(1), None).is_ok());
        if cfg!(target_os = "linux") {
            for (arena, host) in [(1 << 40, 0), (0, 1 << 40)] {
                let error = check(Bytes::mib(arena), Bytes::mib(host), None).unwrap_err();
                assert!(error.to_string().starts_with("the run needs"), "{error}");
            }
            let resident = host::resident().unwrap();
            assert!(check(Bytes::ZERO, resident, Some(Bytes::ZERO)).is_ok(), "it is there already");
        }
    }
}
