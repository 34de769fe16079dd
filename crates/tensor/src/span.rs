//! Places in an arena.

use crate::{ALIGNMENT, Format, TensorType};
use std::ops::Range;

/// Where a tensor lies in an arena, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte; a multiple of [`ALIGNMENT`] for planned buffers.
    pub offset: usize,
    /// Number of bytes.
    pub len: usize,
    /// What the elements are.
    pub format: Format,
}

impl Span {
    /// `len` bytes.
    pub fn bytes(offset: usize, len: usize) -> Self {
        Self { offset, len, format: Format::U8 }
    }

    /// The same place as that of another tensor.
    pub fn tagged(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// The elements `range`.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let size = self.format.dtype.bytes();
        Self { offset: self.offset + range.start * size, len: range.len() * size, ..*self }
    }

    /// One past the last byte.
    pub fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Whether the two share a byte.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.len > 0 && other.len > 0 && self.offset < other.end() && other.offset < self.end()
    }
}

/// Lays tensors side by side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    end: usize,
}

impl Cursor {
    /// Bytes up to the end of the last tensor: where the next may begin.
    pub fn end(&self) -> usize {
        self.end
    }

    /// The next `len` elements of `format`.
    pub fn take(&mut self, format: Format, len: usize) -> Span {
        let span = Span { offset: self.end, len: len * format.dtype.bytes(), format };
        self.end = span.end().next_multiple_of(ALIGNMENT);
        span
    }

    /// The next tensor, of this type.
    pub fn place(&mut self, tensor: &TensorType) -> Span {
        self.take(tensor.format(), tensor.count())
    }
}
