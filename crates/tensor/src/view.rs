//! Runs of `f32` in a device's memory.

use crate::cuda::{DeviceView, DeviceViewMut};
use std::ops::Range;

/// A read-only run of elements in a device's memory.
///
/// Layers pass views on; only a backend's own file looks inside ([`View::host`], [`View::device`]).
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(Elements<'a>);

/// A writable run of elements in a device's memory.
#[derive(Debug)]
pub struct ViewMut<'a>(ElementsMut<'a>);

#[derive(Clone, Copy, Debug)]
enum Elements<'a> {
    Host(&'a [f32]),
    Device(DeviceView<'a>),
}

#[derive(Debug)]
enum ElementsMut<'a> {
    Host(&'a mut [f32]),
    Device(DeviceViewMut<'a>),
}

const NOT_HOST: &str = "memory of a GPU was handed to the processor";
const NOT_DEVICE: &str = "memory of the host was handed to the GPU";

impl<'a> View<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self.0 {
            Elements::Host(elements) => elements.len(),
            Elements::Device(view) => view.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        match self.0 {
            Elements::Host(elements) => View::from(&elements[range]),
            Elements::Device(view) => View::from(view.slice(range)),
        }
    }

    /// The first `mid` elements, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_at(self, mid: usize) -> (View<'a>, View<'a>) {
        (self.slice(0..mid), self.slice(mid..self.len()))
    }

    /// The elements, in host memory.
    ///
    /// # Panics
    /// If they lie in the memory of a GPU.
    pub fn host(&self) -> &'a [f32] {
        match self.0 {
            Elements::Host(elements) => elements,
            Elements::Device(_) => panic!("{NOT_HOST}"),
        }
    }

    /// The elements, in a GPU's memory.
    ///
    /// # Panics
    /// If they lie in host memory.
    pub fn device(&self) -> DeviceView<'a> {
        match self.0 {
            Elements::Host(_) => panic!("{NOT_DEVICE}"),
            Elements::Device(view) => view,
        }
    }
}

impl<'a> ViewMut<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.as_view().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same elements, read-only, for as long as `self` stays borrowed.
    pub fn as_view(&self) -> View<'_> {
        match &self.0 {
            ElementsMut::Host(elements) => View(Elements::Host(elements)),
            ElementsMut::Device(view) => View(Elements::Device(view.as_view())),
        }
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        match &mut self.0 {
            ElementsMut::Host(elements) => ViewMut(ElementsMut::Host(elements)),
            ElementsMut::Device(view) => ViewMut(ElementsMut::Device(view.reborrow())),
        }
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&mut self, range: Range<usize>) -> ViewMut<'_> {
        match &mut self.0 {
            ElementsMut::Host(elements) => ViewMut(ElementsMut::Host(&mut elements[range])),
            ElementsMut::Device(view) => ViewMut(ElementsMut::Device(view.slice(range))),
        }
    }

    /// The first `mid` elements, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_at(self, mid: usize) -> (ViewMut<'a>, ViewMut<'a>) {
        match self.0 {
            ElementsMut::Host(elements) => {
                let (first, second) = elements.split_at_mut(mid);
                (ViewMut(ElementsMut::Host(first)), ViewMut(ElementsMut::Host(second)))
            }
            ElementsMut::Device(view) => {
                let (first, second) = view.split_at(mid);
                (ViewMut(ElementsMut::Device(first)), ViewMut(ElementsMut::Device(second)))
            }
        }
    }

    /// The elements, in host memory.
    ///
    /// # Panics
    /// If they lie in the memory of a GPU.
    pub fn host(&mut self) -> &mut [f32] {
        self.reborrow().into_host()
    }

    /// The elements, in host memory, for as long as the view itself lives.
    ///
    /// # Panics
    /// If they lie in the memory of a GPU.
    pub fn into_host(self) -> &'a mut [f32] {
        match self.0 {
            ElementsMut::Host(elements) => elements,
            ElementsMut::Device(_) => panic!("{NOT_HOST}"),
        }
    }

    /// The elements, in a GPU's memory.
    ///
    /// # Panics
    /// If they lie in host memory.
    pub fn device(&mut self) -> DeviceViewMut<'_> {
        match &mut self.0 {
            ElementsMut::Host(_) => panic!("{NOT_DEVICE}"),
            ElementsMut::Device(view) => view.reborrow(),
        }
    }
}

impl<'a> From<&'a [f32]> for View<'a> {
    fn from(elements: &'a [f32]) -> Self {
        Self(Elements::Host(elements))
    }
}

impl<'a> From<&'a Vec<f32>> for View<'a> {
    fn from(elements: &'a Vec<f32>) -> Self {
        Self(Elements::Host(elements))
    }
}

impl<'a> From<DeviceView<'a>> for View<'a> {
    fn from(view: DeviceView<'a>) -> Self {
        Self(Elements::Device(view))
    }
}

impl<'a> From<&'a mut [f32]> for ViewMut<'a> {
    fn from(elements: &'a mut [f32]) -> Self {
        Self(ElementsMut::Host(elements))
    }
}

impl<'a> From<&'a mut Vec<f32>> for ViewMut<'a> {
    fn from(elements: &'a mut Vec<f32>) -> Self {
        Self(ElementsMut::Host(elements))
    }
}

impl<'a> From<DeviceViewMut<'a>> for ViewMut<'a> {
    fn from(view: DeviceViewMut<'a>) -> Self {
        Self(ElementsMut::Device(view))
    }
}
