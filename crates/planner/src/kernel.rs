//! Kernel identity.
/// The three operations of a convolution layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConvOp {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    BackwardData,
    /// dw from x and dy.
    BackwardFilter,
}
