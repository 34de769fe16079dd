//! What a net is built from besides its file, and what there is to say of that.

use crate::args::{DEFAULT_SEED, NetArgs, RunArgs, required};
use crate::{Console, Result, models::load_net};
use planner::{Dtype, Kernel, Math};
use tensor::{Cpu, Device, Format};
use trainer::layers::{BuildOptions, SyntheticData};
use trainer::prototxt::{Warning, collapsed};
use trainer::spec::{LayerKind, LayerSpec, NetSpec, Phase};
use trainer::{Net, group::Share};

/// Prints `warnings` on stderr, those alike in one line, and returns all of them for the JSON object.
pub(super) fn warn(console: &Console, warnings: &[Warning]) -> Vec<String> {
    collapsed(warnings).iter().for_each(|warning| console.warn(warning));
    warnings.iter().map(Warning::to_string).collect()
}

/// Refuses the first of `options` that is given, as none of them has an effect on `what`.
pub(super) fn refuse<const N: usize>(options: [(bool, &str); N], what: &str) -> Result<()> {
    match options.into_iter().find(|&(is_given, _)| is_given) {
        Some((_, option)) => Err(usage!("{option} has no effect on {what}")),
        None => Ok(()),
    }
}

/// The net that `args` name, in their phase.
pub(super) fn net_spec(args: &NetArgs) -> Result<NetSpec> {
    Ok(load_net(required(&args.model, "--model")?)?.for_state(&args.state.of(args.phase)))
}

/// The synthetic images that `--synthetic` asks for; refused for a net without a data set that they could replace.
pub(super) fn synthetic(asked: Option<Option<[usize; 3]>>, spec: &NetSpec) -> Result<Option<SyntheticData>> {
    let Some(shape) = asked else { return Ok(None) };
    let reads = |layer: &LayerSpec| matches!(layer.kind, LayerKind::Data(_) | LayerKind::ImageData(_));
    if !spec.layers.iter().any(reads) {
        let (file, phase) = (spec.file.display(), spec.state.phase);
        return Err(usage!(
            "--synthetic has no effect: {file} reads no data set in the phase {phase}, and needs none"
        ));
    }
    Ok(Some(SyntheticData { shape, stand_in: false }))
}

/// What stands for the data of a net that is not run, and whose data is therefore not opened.
pub(super) const STAND_IN: SyntheticData = SyntheticData { shape: None, stand_in: true };

/// The kernels of a net with feature maps of this format, in the arithmetic that is asked for. It is built on the CPU
/// wherever they are measured, and its data is not opened.
pub(super) fn net_kernels(run: &RunArgs, spec: &NetSpec, format: Format) -> Result<Vec<Kernel>> {
    let (mut device, synthetic) = (Device::Cpu(Cpu::try_new(None)?), synthetic(run.synthetic, spec)?);
    device.set_format(format);
    let build = BuildOptions { device, seed: DEFAULT_SEED, synthetic: synthetic.or(Some(STAND_IN)) };
    Ok(in_math(Net::new(spec, &build, spec.state.phase == Phase::Train)?.kernels(), run.math))
}

/// The same kernels with this arithmetic, which is no choice in BF16.
pub(super) fn in_math(mut kernels: Vec<Kernel>, math: Math) -> Vec<Kernel> {
    let choosing = kernels.iter_mut().filter(|kernel| kernel.id.dtype == Dtype::F32);
    choosing.for_each(|kernel| kernel.id.math = math);
    kernels
}

/// What a mini-batch of several ranks is.
pub(super) fn ranks_note(share: Share, net: &Net) -> Option<String> {
    let (ranks, own) = (share.ranks, net.mini_batch());
    (ranks > 1).then(|| {
        format!("{ranks} ranks, each with its own mini-batch of {own}: {} samples in all", ranks * own)
    })
}
