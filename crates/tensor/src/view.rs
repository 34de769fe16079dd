//! Runs of `f32` in a device's memory.

use std::ops::Range;

/// A read-only run of elements in a device's memory.
///
/// Layers pass views on; only a backend's own file looks inside ([`View::host`]).
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    elements: &'a [f32],
}

/// A writable run of elements in a device's memory.
#[derive(Debug)]
pub struct ViewMut<'a> {
    elements: &'a mut [f32],
}

impl<'a> View<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The elements `range` of this view.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        View { elements: &self.elements[range] }
    }

    /// The elements, in host memory.
    pub fn host(&self) -> &'a [f32] {
        self.elements
    }
}

impl<'a> ViewMut<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The same elements, read-only, for as long as `self` stays borrowed.
    pub fn as_view(&self) -> View<'_> {
        View { elements: self.elements }
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { elements: self.elements }
    }

    /// The elements `range` of this view.
    pub fn slice(&mut self, range: Range<usize>) -> ViewMut<'_> {
        ViewMut { elements: &mut self.elements[range] }
    }

    /// The elements, in host memory.
    pub fn host(&mut self) -> &mut [f32] {
        self.elements
    }

    /// The elements, in host memory, for as long as the view itself lives.
    pub fn into_host(self) -> &'a mut [f32] {
        self.elements
    }
}

impl<'a> From<&'a [f32]> for View<'a> {
    fn from(elements: &'a [f32]) -> Self {
        Self { elements }
    }
}

impl<'a> From<&'a Vec<f32>> for View<'a> {
    fn from(elements: &'a Vec<f32>) -> Self {
        Self { elements }
    }
}

impl<'a> From<&'a mut [f32]> for ViewMut<'a> {
    fn from(elements: &'a mut [f32]) -> Self {
        Self { elements }
    }
}

impl<'a> From<&'a mut Vec<f32>> for ViewMut<'a> {
    fn from(elements: &'a mut Vec<f32>) -> Self {
        Self { elements }
    }
}
