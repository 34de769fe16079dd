//! Convolutions as products of matrices on a GPU: what there is to do beside the products.

mod cuda;

pub(crate) use cuda::{col2im, im2col, sum_terms};
