//! `microbatch devices`.

use crate::{Console, Result, device::DeviceReport, tables::SHIPPED};
use tensor::{Cpu, Device, cuda::probe};
use trainer::NetError;

/// Lists the devices that nets can run on, and says what is missing if no GPU is among them.
pub(super) fn devices(json: bool) -> Result<()> {
    let mut console = Console::new(json);
    let mut devices = Vec::new();
    if let Ok(gpus) = probe() {
        for gpu in &gpus.devices {
            let gpu = gpus.open(gpu.ordinal).map_err(NetError::from)?;
            devices.push(DeviceReport::new(&Device::Cuda(gpu)));
        }
    }
    devices.push(DeviceReport::new(&Device::Cpu(Cpu::try_new(None)?)));
    devices.iter().try_for_each(|device| console.text(device))?;
    let recorded: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    console.text(format!("recorded, for `plan` and `figures`: {}", recorded.join(", ")))?;
    console.object(&serde_json::json!({ "devices": devices, "recorded": recorded }))
}
