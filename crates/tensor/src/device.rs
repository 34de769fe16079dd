//! The devices a net can run on.

use crate::Cpu;

/// Where a net runs. Operations match on this in one place each, their contract file.
#[derive(Clone, Debug)]
pub enum Device {
    /// The host's processor.
    Cpu(Cpu),
}

impl Device {
    /// The host with all its threads.
    pub fn cpu() -> Self {
        Device::Cpu(Cpu::all_threads())
    }
}
