//! What convolutions with filters of 1x1 need on a GPU beside products of matrices.

mod cuda;

pub(crate) use cuda::{gather_seen, scatter_seen, sum_terms};
