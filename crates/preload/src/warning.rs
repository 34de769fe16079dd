//! What goes wrong is said once, on standard error; the program goes on.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Prints a sentence unless it was printed before.
pub(crate) fn warn(text: &str) {
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
        eprintln!("microbatch: {text}");
    }
}
