//! All kernels together: plans under any workspace policy, WD's division of a total, and curves.

mod curves;
mod division;
mod hulls;
#[cfg_attr(target_arch = "wasm32", path = "ilp_absent.rs")]
mod ilp;
mod knapsack;
mod plan;
mod wd;

pub use division::Division;
pub use ilp::divide_ilp;
pub use knapsack::divide_exact;
pub use plan::plan;
