//! Being asked to stop: Ctrl-C, or a batch system that wants its machine back.

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Whether SIGINT or SIGTERM has come. The first one is for whoever asks here; the second ends the process at once.
pub(crate) struct StopRequest(Arc<AtomicUsize>);

impl StopRequest {
    /// Waits for signals from now on; until now they have ended the process.
    pub(crate) fn listen() -> io::Result<Self> {
        let (signal_number, came) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal still finds the flag down.
            flag::register_conditional_shutdown(signal, exit_code(signal), Arc::clone(&came))?;
            flag::register(signal, Arc::clone(&came))?;
            flag::register_usize(signal, Arc::clone(&signal_number), signal as usize)?;
        }
        Ok(Self(signal_number))
    }

    /// The exit code that tells the shell of the signal, if one has come.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        let signal = self.0.load(Ordering::Relaxed) as i32;
        (signal != 0).then(|| exit_code(signal) as u8)
    }
}

/// What a shell reports of a process that a signal has ended.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}
