//! Libraries that work on a device: each is started once, when first used.

use super::Stream;
use std::any::{Any, TypeId};
use std::collections::HashMap;

/// A library's handle on one device.
pub trait Library: Send + Sized + 'static {
    /// Why it cannot be started.
    type Error;

    /// Starts it, working in `stream`.
    ///
    /// # Errors
    /// The library is missing, too old, or does not work with this device.
    fn new(stream: &Stream) -> Result<Self, Self::Error>;
}

/// Those started so far.
#[derive(Default)]
pub(super) struct Libraries(HashMap<TypeId, Box<dyn Any + Send>>);

impl Libraries {
    pub(super) fn get<T: Library>(&mut self, stream: &Stream) -> Result<&mut T, T::Error> {
        use std::collections::hash_map::Entry;
        let library = match self.0.entry(TypeId::of::<T>()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Box::new(T::new(stream)?)),
        };
        Ok(library.downcast_mut().expect("entered under its own type"))
    }
}
