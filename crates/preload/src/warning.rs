//! What goes wrong is said once, on standard error; the program goes on.

use crate::mutex::lock;
use std::{collections::BTreeSet, sync::Mutex};

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Prints a sentence unless it was printed before.
pub(crate) fn warn(text: &str) {
    if lock(&SAID).insert(text.to_owned()) {
        eprintln!("microbatch: {text}");
    }
}
