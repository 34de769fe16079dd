//! The signals that ask to stop: Ctrl-C, a batch system that wants its machine back, a terminal that closes; and the one
//! of a file that would become larger than it may.

use signal_hook::{consts::*, flag};
use std::sync::{Arc, OnceLock, atomic::Ordering};
use std::thread::{self, sleep};
use std::{io, time::Duration};
use trainer::{NetError, Stop};

static STOP: OnceLock<io::Result<Stop>> = OnceLock::new();

/// The request that SIGINT, SIGTERM and SIGHUP make from the first call on. While nothing listens to it, a signal ends
/// the process as before; otherwise one does that comes a second after the first.
pub(crate) fn stop() -> Result<Stop, NetError> {
    // Once, however many ranks ask at the same time: handlers of another request would end the process.
    let stop = STOP.get_or_init(register).as_ref().cloned();
    stop.map_err(|error| NetError::Refused(format!("cannot wait for signals: {error}")))
}

/// The exit code that tells the shell of the signal, if one has come.
pub(crate) fn exit_code() -> Option<u8> {
    STOP.get()?.as_ref().ok()?.signal().map(|signal| 128 + signal as u8)
}

fn register() -> io::Result<Stop> {
    let stop = Stop::default();
    // `nohup` means that a terminal may close.
    #[cfg(unix)]
    let hangup = (!trainer::host::ignores(SIGHUP)).then_some(SIGHUP);
    #[cfg(not(unix))]
    let hangup = None;
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        flag::register_conditional_default(signal, Arc::clone(&stop.unheard))?;
        flag::register_usize(signal, Arc::clone(&stop.number), signal as usize)?;
    }
    // Then writing it fails with an error, which can be told.
    #[cfg(unix)]
    flag::register(SIGXFSZ, Arc::default())?;
    // `timeout`, and launchers in a terminal, send the first one twice.
    let (second, pause) = (stop.clone(), Duration::from_millis(500));
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !second.is_requested() {
            sleep(pause);
        }
        sleep(pause);
        second.unheard.store(true, Ordering::SeqCst);
    })?;
    Ok(stop)
}
