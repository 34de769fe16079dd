//! Tests that several operations share.

mod formats;
mod operands;
