//! The memory of an iteration of a net, as plain data: what is done in which order, with what, and where that lies.
//!
//! ```text
//! Outline ──► Schedule (actions, residences, waits) ──► ArenaLayout (an offset for each residence)
//!                                                  └──► Room (what is left to each kernel)
//! ```
//!
//! An [`Outline`] says of a net what its memory depends on. A [`Schedule`] is a list of [`Action`]s; from it follows
//! when each [`Buffer`] must lie where: its [`Residence`]s, several if it is offloaded to the host or computed again.
//! The crate is pure: no device, threads, clocks or files.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// Tests inside of the crate and beside it share their nets.
#[cfg(test)]
extern crate self as memory;

mod action;
mod layout;
mod outline;
mod placement;
pub mod policy;
mod room;
mod schedule;

pub use action::{Action, Buffer, Place, Residence, StreamKind};
pub use layout::{ArenaLayout, MemoryReport, NetMemory, NetPlaces};
pub use outline::{LayerMemory, Outline, OutlineNode, OutlineParam, OutlineValue};
pub use room::Room;
pub use schedule::{Schedule, ScheduleError};
