//! What was measured of a device, and how it is written down.

mod cost_table;
mod json;

pub use cost_table::{CostTable, DeviceHeader};
pub use json::CostTableError;
