//! How much memory something needs, before it is allocated.

use crate::ElementType;

/// Offsets in an arena are multiples of so many bytes, as a GPU's allocations are: several cache lines.
pub const ALIGNMENT: usize = 256;

/// How much memory something will need, and at which addresses: what a layer saves, the scratch of a step.
///
/// What is needed together is added up by [`Space::all_of`] and cut out of the view in the same order, by
/// [`View::take`](crate::View::take).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    bytes: usize,
    align: usize,
}

impl Space {
    /// No memory.
    pub const NONE: Self = Self { bytes: 0, align: 1 };

    /// Room for `len` values of type `T`.
    pub const fn of<T>(len: usize) -> Self {
        Self { bytes: len * size_of::<T>(), align: align_of::<T>() }
    }

    /// Room for `len` elements of type `dtype`.
    pub const fn elements(dtype: ElementType, len: usize) -> Self {
        Self { bytes: len * dtype.bytes(), align: dtype.bytes() }
    }

    /// `bytes` that begin where a buffer of the arena may begin: a workspace.
    pub const fn aligned(bytes: usize) -> Self {
        Self { bytes, align: ALIGNMENT }
    }

    /// The bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// All parts side by side, each at the first address that suits it.
    pub fn all_of(parts: impl IntoIterator<Item = Space>) -> Self {
        parts.into_iter().fold(Self::NONE, |all, part| Self {
            bytes: all.bytes.next_multiple_of(part.align) + part.bytes,
            align: all.align.max(part.align),
        })
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, View};

    #[test]
    fn parts_lie_side_by_side_where_they_suit() {
        let parts = [Space::of::<u8>(3), Space::elements(ElementType::F32, 2), Space::aligned(5)];
        assert_eq!(Space::all_of(parts).bytes(), 261);
        assert_eq!(Space::all_of([]), Space::NONE);
    }

    #[test]
    fn parts_are_cut_out_in_the_order_in_which_they_were_added_up() {
        let [mask, floats] = [Space::of::<u8>(3), Space::of::<f32>(2)];
        let memory: Vec<f32> = (0..Space::all_of([mask, floats]).bytes() / 4).map(|i| i as f32).collect();
        let mut rest = View::of(&memory);
        assert_eq!(rest.take(Format::U8, 3).host::<u8>(), [0, 0, 0]);
        assert_eq!(rest.take(Format::F32, 2).host::<f32>(), [1.0, 2.0]);
        assert!(rest.is_empty());
    }
}
