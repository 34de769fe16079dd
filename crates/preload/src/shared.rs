//! What all threads of the process share: locks, and warnings.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere leaves nothing behind that could not be used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a sentence on standard error unless it was printed before; the program goes on.
pub(crate) fn warn(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if lock(&SAID).insert(text.to_owned()) {
        eprintln!("microbatch: {text}");
    }
}
