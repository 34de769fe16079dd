//! `microbatch export`.

use super::draw::{check, write};
use super::inputs::{STAND_IN, synthetic, warn};
use crate::args::{ExportArgs, Target, TrainedArgs};
use crate::{Console, Result, models::load_net};
use std::collections::BTreeMap;
use tensor::{Cpu, Device};
use trainer::snapshot::{Weights, save_tensors};
use trainer::{Net, export, layers::BuildOptions, spec::Phase};

/// Writes a net with its weights for another program: a state dict of PyTorch, or ONNX.
pub(super) fn export(args: &ExportArgs) -> Result<()> {
    let TrainedArgs { model, weights, state } = &args.trained;
    check([&args.out], weights.iter().chain([model]))?;
    let spec = load_net(model)?.for_state(&state.of(Phase::Test));
    let mut console = Console::new(false);
    warn(&console, &spec.warnings);
    // Nothing runs, and no data are opened.
    let synthetic = synthetic(args.synthetic.map(Some), &spec)?.or(Some(STAND_IN));
    let options = BuildOptions { device: Device::Cpu(Cpu::new(1)), seed: 0, synthetic };
    let net = Net::new(&spec, &options, false)?;
    let weights = Weights::load(weights)?;
    console.text(weights.copied(&net)?)?;
    let values = weights.values(&net)?;
    match args.to {
        Target::Torchvision => {
            let tensors = export::state_dict(&net, &values)?;
            let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
            save_tensors(&args.out, &tensors, &metadata)?;
        }
        Target::Onnx => write(&args.out, export::onnx(&net, &values)?)?,
    }
    console.text(format!("Wrote {} with {} parameters", args.out.display(), net.learned()))
}
