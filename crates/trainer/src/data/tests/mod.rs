//! Tests of the data module.
