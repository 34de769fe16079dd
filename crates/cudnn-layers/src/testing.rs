//! What this crate's tests share.
