//! What to do with feature maps that do not all fit: keep, offload or compute again.
//!
//! Every policy takes an [`Outline`](crate::Outline) and the [`Costs`] of its actions, and gives actions for a
//! [`Schedule`](crate::Schedule) with the workspace of each kernel. [`simulate`] says of any schedule how long it
//! takes.

mod accudnn;
mod bound;
mod choose;
mod costs;
mod joint;
mod plan;
mod price;
mod problem;
mod simulate;
mod trial;
mod vdnn;

pub use accudnn::{LayerWork, Speeds, TimedSize, Tuned, accudnn, learning_rate, tune};
pub use choose::MemoryPolicy;
pub use costs::{Costs, PassCosts};
pub use joint::{floor, joint};
pub use plan::{BelowFloor, Fate, MemoryPlan};
pub use simulate::{Timeline, simulate};
pub use vdnn::{Algorithms, Offloading, vdnn, vdnn_dyn};
