//! `microbatch devices`.

use crate::{Console, Error, args::DevicesArgs, device::DeviceReport};
use serde::Serialize;
use tensor::Device;

#[derive(Serialize)]
struct Devices {
    devices: Vec<DeviceReport>,
}

/// Lists the devices that nets can run on, one a line.
///
/// # Errors
/// Only if standard output cannot be written.
pub fn devices(args: DevicesArgs) -> Result<(), Error> {
    let mut console = Console::new(args.json);
    let devices = vec![DeviceReport::new(&Device::cpu())];
    devices.iter().try_for_each(|device| console.text(device))?;
    console.object(&Devices { devices })
}
