//! Runs of memory of any device, tagged with what they hold.

use crate::{Element, ElementType, Format};
use std::{marker::PhantomData, ops::Range};

/// A run of bytes with a tag that says what they hold, borrowed as a `B`. Layers pass views on; only an operation looks
/// inside: `host` and `address` panic if the elements are of another type, or in the memory of the other device.
#[derive(Clone, Copy, Debug)]
pub struct TaggedBytes<B> {
    address: Address,
    bytes: usize,
    format: Format,
    borrow: PhantomData<B>,
}

/// A run of memory for reading.
pub type View<'a> = TaggedBytes<&'a [u8]>;

/// A run of memory for writing, and reading.
pub type ViewMut<'a> = TaggedBytes<&'a mut [u8]>;

/// Where memory begins.
#[derive(Clone, Copy, Debug)]
pub enum Address {
    /// In the host's memory.
    Host(*mut u8),
    /// In a GPU's, as its driver counts.
    Device(u64),
}

impl Address {
    /// The address so many bytes further on.
    pub fn offset(self, bytes: usize) -> Self {
        match self {
            Self::Host(pointer) => Self::Host(pointer.wrapping_add(bytes)),
            Self::Device(address) => Self::Device(address + bytes as u64),
        }
    }

    /// Bytes to the next multiple of `size`.
    fn padding(self, size: usize) -> usize {
        let number = match self {
            Self::Host(pointer) => pointer.addr(),
            Self::Device(address) => address as usize,
        };
        number.next_multiple_of(size) - number
    }
}

// SAFETY: the memory is reached as `B` reaches it.
unsafe impl<B: Send> Send for TaggedBytes<B> {}
// SAFETY: as above.
unsafe impl<B: Sync> Sync for TaggedBytes<B> {}

impl<B> TaggedBytes<B> {
    /// `bytes` bytes of memory, which another library may own.
    ///
    /// # Safety
    /// As long as `B` lives the memory is allocated and initialised, and nothing writes it, or, for a [`ViewMut`], uses
    /// it at all; on a GPU, only work that is ordered with ours may. A host's address is not null.
    pub unsafe fn from_raw(address: Address, bytes: usize, format: Format) -> Self {
        Self { address, bytes, format, borrow: PhantomData }
    }

    fn of_elements<T: Element>(elements: *mut T, len: usize) -> Self {
        let (address, bytes) = (Address::Host(elements.cast()), len * size_of::<T>());
        Self { address, bytes, format: T::FORMAT, borrow: PhantomData }
    }

    /// What the elements are.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The number of bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.bytes / self.format.dtype.bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range`, borrowed as the caller may.
    fn part<C>(&self, range: Range<usize>) -> TaggedBytes<C> {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} is not in {}", self.len());
        let size = self.format.dtype.bytes();
        let address = self.address.offset(range.start * size);
        TaggedBytes { address, bytes: range.len() * size, format: self.format, borrow: PhantomData }
    }

    /// Cuts off the first `len` elements of `format`, whatever this view is tagged with: the next part of a
    /// [`Space::all_of`](crate::Space::all_of).
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn take(&mut self, format: Format, len: usize) -> Self {
        let size = format.dtype.bytes();
        let (start, bytes) = (self.address.padding(size), len * size);
        let rest = self.bytes.checked_sub(start + bytes);
        let rest = rest.unwrap_or_else(|| panic!("{len} elements are more than {} bytes hold", self.bytes));
        let address = self.address.offset(start);
        (self.address, self.bytes) = (address.offset(bytes), rest);
        Self { address, bytes, format, borrow: PhantomData }
    }

    /// The same bytes, tagged as `format`.
    pub fn tagged(self, format: Format) -> Self {
        Self { format, ..self }
    }

    fn check<T: Element>(&self) {
        let (address, [held, asked]) = (self.address, [self.format, T::FORMAT].map(|format| format.dtype));
        let fits = held == asked && address.padding(align_of::<T>()) == 0;
        assert!(fits, "{held:?} at {address:?} is not {asked:?}");
    }

    fn pointer<T: Element>(&self) -> *mut T {
        self.check::<T>();
        match self.address {
            Address::Host(pointer) => pointer.cast(),
            Address::Device(_) => panic!("memory of a GPU was handed to the processor"),
        }
    }

    /// Where the elements begin in a GPU's memory.
    pub fn address<T: Element>(&self) -> u64 {
        self.check::<T>();
        self.untyped_address()
    }

    /// Where numbers of the type that the view is tagged with begin in a GPU's memory.
    ///
    /// # Panics
    /// If they are bytes, not aligned, or in the host's memory.
    pub fn numbers(&self) -> u64 {
        let dtype = self.format.dtype;
        let fits = dtype != ElementType::U8 && self.address.padding(dtype.bytes()) == 0;
        assert!(fits, "{dtype:?} at {:?} are no numbers", self.address);
        self.untyped_address()
    }

    /// Where elements of any type begin in a GPU's memory.
    pub(crate) fn untyped_address(&self) -> u64 {
        match self.address {
            Address::Host(_) => panic!("memory of the host was handed to the GPU"),
            Address::Device(address) => address,
        }
    }
}

impl<'a> View<'a> {
    /// These elements, in host memory.
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        Self::of_elements(elements.as_ptr().cast_mut(), elements.len())
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        self.part(range)
    }

    /// The elements, in host memory.
    pub fn host<T: Element>(&self) -> &'a [T] {
        // SAFETY: the memory is borrowed for `'a`, holds so many whole elements at an aligned address, and any bytes
        // are an element.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len()) }
    }
}

impl<'a> ViewMut<'a> {
    /// These elements, in host memory.
    pub fn of<T: Element>(elements: &'a mut [T]) -> Self {
        Self::of_elements(elements.as_mut_ptr(), elements.len())
    }

    /// The same elements, read-only, for as long as `self` stays borrowed.
    pub fn as_view(&self) -> View<'_> {
        self.part(0..self.len())
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        self.part(0..self.len())
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&mut self, range: Range<usize>) -> ViewMut<'_> {
        self.part(range)
    }

    /// The elements, in host memory.
    pub fn host<T: Element>(&mut self) -> &mut [T] {
        self.reborrow().into_host()
    }

    /// The elements, in host memory, for as long as the view itself lives.
    pub fn into_host<T: Element>(self) -> &'a mut [T] {
        // SAFETY: the memory is ours alone for `'a`, holds so many whole elements at an aligned address, and any bytes
        // are an element.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_memory_is_read_and_written_as_what_it_is() {
        let mut theirs = vec![1.0f32, 2.0, 3.0];
        let address = Address::Host(theirs.as_mut_ptr().cast());
        // SAFETY: the vector has so many bytes, and nothing else uses it as long as the view is used.
        let mut view = unsafe { ViewMut::from_raw(address, 12, Format::F32) };
        view.slice(1..3).host::<f32>()[0] = 5.0;
        assert_eq!((view.len(), view.as_view().host::<f32>()), (3, &[1.0, 5.0, 3.0][..]));
        // SAFETY: nothing looks at the address.
        let device = unsafe { View::from_raw(Address::Device(1 << 40), 12, Format::F32) };
        assert_eq!(device.slice(2..3).address::<f32>(), (1 << 40) + 8);
    }

    #[test]
    #[should_panic(expected = "U8 at")]
    fn bytes_are_not_read_as_floats() {
        View::of(&[0u8; 8]).host::<f32>();
    }

    #[test]
    #[should_panic(expected = "handed to the processor")]
    fn memory_of_a_gpu_is_not_read_by_the_processor() {
        // SAFETY: nothing looks at the address.
        unsafe { View::from_raw(Address::Device(256), 8, Format::U8) }.host::<u8>();
    }
}
