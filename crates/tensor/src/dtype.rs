//! Element types.

use serde::{Deserialize, Serialize};

/// The element type of a tensor. Today everything is computed in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dtype {
    /// IEEE 754 binary32.
    #[default]
    F32,
}

impl Dtype {
    /// Bytes per element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
        }
    }
}
