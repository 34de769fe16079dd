//! Requests to stop, and whether the running work checks for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A request to stop in good order, which a signal may make at any time. Clones are the same request.
///
/// Only what takes long [listens](Stop::listen), and checks now and then. A signal handler may end the process where
/// nothing listens, and at a later request.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The number of the signal, where a handler puts it; 0 if there was none.
    pub number: Arc<AtomicUsize>,
    /// Whether a signal would not be heard, and should end the process. Once one has come, its handler is to set this.
    pub unheard: Arc<AtomicBool>,
    listeners: Arc<AtomicUsize>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { number: Arc::default(), unheard: Arc::new(AtomicBool::new(true)), listeners: Arc::default() }
    }
}

impl Stop {
    /// Until the guard is dropped, the caller checks [`Stop::is_requested`] now and then.
    pub fn listen(&self) -> Listening {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        self.unheard.fetch_and(self.is_requested(), Ordering::SeqCst);
        Listening(self.clone())
    }

    /// Whether to stop.
    pub fn is_requested(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that asked for it, if one has come.
    pub fn signal(&self) -> Option<usize> {
        Some(self.number.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
    }
}

/// As long as this lives, the request is checked for.
#[derive(Debug)]
pub struct Listening(Stop);

impl Drop for Listening {
    fn drop(&mut self) {
        if self.0.listeners.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.unheard.fetch_or(!self.0.is_requested(), Ordering::SeqCst);
        }
    }
}
