//! How what all threads share is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere leaves nothing behind that could not be used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
