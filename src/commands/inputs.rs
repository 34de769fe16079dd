//! What a net is built from besides its file, and what there is to say of that.

use crate::{
    Console, Error,
    args::{DEFAULT_SEED, RunArgs},
};
use planner::Kernel;
use tensor::{Cpu, Device};
use trainer::{
    Net,
    group::Share,
    layers::{BuildOptions, SyntheticData},
    prototxt::{Warning, collapsed},
    spec::{LayerKind, LayerSpec, NetSpec, Phase},
};

/// The mini-batch that the default limit follows: on a CPU, where it is smaller than the original's limit is meant for.
pub(super) fn scaled_to(on_gpu: bool, mini_batch: usize) -> Option<usize> {
    (!on_gpu).then_some(mini_batch)
}

/// Prints `warnings` on stderr, those alike in one line, and returns all of them for the JSON object.
pub(super) fn warn(console: &Console, warnings: &[Warning]) -> Vec<String> {
    collapsed(warnings).iter().for_each(|warning| console.warn(warning));
    warnings.iter().map(Warning::to_string).collect()
}

/// The synthetic images that `--synthetic` asks for; refused for a net without a data set that they could replace.
pub(super) fn synthetic(run: &RunArgs, spec: &NetSpec) -> Result<Option<SyntheticData>, Error> {
    let Some(shape) = run.synthetic else { return Ok(None) };
    let reads = |layer: &LayerSpec| matches!(layer.kind, LayerKind::Data(_) | LayerKind::ImageData(_));
    if !spec.layers.iter().any(reads) {
        return Err(usage!("--synthetic has no effect: {} reads no data set", spec.file.display()));
    }
    Ok(Some(SyntheticData { shape: shape.0, stand_in: false }))
}

/// What stands for the data of a net that is not run, and whose data is therefore not opened.
pub(super) fn stand_in(run: &RunArgs, spec: &NetSpec) -> Result<SyntheticData, Error> {
    Ok(synthetic(run, spec)?.unwrap_or(SyntheticData { shape: None, stand_in: true }))
}

/// The kernels of a net, which is built on the CPU wherever they are measured, and whose data is not opened.
pub(super) fn net_kernels(run: &RunArgs, spec: &NetSpec, phase: Phase) -> Result<Vec<Kernel>, Error> {
    let (device, images) = (Device::Cpu(Cpu::try_new(None)?), stand_in(run, spec)?);
    let build = BuildOptions { device, seed: DEFAULT_SEED, synthetic: Some(images) };
    Ok(Net::new(spec, &build, phase == Phase::Train)?.kernels())
}

/// What a mini-batch of several ranks is.
pub(super) fn ranks_note(share: Share, net: &Net) -> Option<String> {
    let (ranks, own) = (share.ranks, net.mini_batch());
    (ranks > 1).then(|| {
        format!("{ranks} ranks, each with its own mini-batch of {own}: {} samples in all", ranks * own)
    })
}
