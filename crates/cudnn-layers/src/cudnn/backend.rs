//! The objects that operation graphs consist of: all are made, set, finished and asked by the same few calls.

use super::{Result, api::call};
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};
use std::{ffi::c_void, mem::MaybeUninit, sync::Arc};
use tensor::cuda::CudaError;

/// What an attribute may have as its value, in the size that cuDNN's type of this name has.
pub(super) trait Value: Copy {
    const TYPE: Type;
}

macro_rules! values {
    ($($value:ty: $attribute_type:ident,)*) => {
        $(impl Value for $value { const TYPE: Type = Type::$attribute_type; })*
    };
}

// Numbers of enums of which a newer cuDNN may have more values than are known here.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct KnobType(pub(super) u32);
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct NumericalNote(pub(super) u32);
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct BehaviorNote(pub(super) u32);

values! {
    i64: CUDNN_TYPE_INT64,
    f32: CUDNN_TYPE_FLOAT,
    *mut c_void: CUDNN_TYPE_VOID_PTR,
    sys::cudnnHandle_t: CUDNN_TYPE_HANDLE,
    sys::cudnnDataType_t: CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t: CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnBackendHeurMode_t: CUDNN_TYPE_HEUR_MODE,
    KnobType: CUDNN_TYPE_KNOB_TYPE,
    NumericalNote: CUDNN_TYPE_NUMERICAL_NOTE,
    BehaviorNote: CUDNN_TYPE_BEHAVIOR_NOTE,
}

/// One of cuDNN's objects, which dies with the value, after all that were made of it.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// For calls of cuDNN during the life of the value.
    pub(super) raw: sys::cudnnBackendDescriptor_t,
    parts: Vec<Arc<Self>>,
}

impl Descriptor {
    /// A new one, with nothing set.
    pub(super) fn new(kind: Kind) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address of a descriptor is written to.
        unsafe { call!(cudnnBackendCreateDescriptor(kind, &mut raw)) }?;
        Ok(Self { raw, parts: Vec::new() })
    }

    /// The same with these values of an attribute.
    pub(super) fn with<T: Value>(self, name: Name, values: &[T]) -> Result<Self> {
        self.set(name, T::TYPE, values).map(|()| self)
    }

    /// The same with other objects as the values of an attribute.
    pub(super) fn with_parts(mut self, name: Name, parts: &[Arc<Self>]) -> Result<Self> {
        let raw: Vec<_> = parts.iter().map(|part| part.raw).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)?;
        self.parts.extend_from_slice(parts);
        Ok(self)
    }

    fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> Result<()> {
        let (count, values) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: `self` is alive and not finished yet; cuDNN copies so many values of this type, or refuses the type.
        unsafe { call!(cudnnBackendSetAttribute(self.raw, name, kind, count, values)) }
    }

    /// The same, checked by cuDNN and from now on constant.
    pub(super) fn finish(self) -> Result<Arc<Self>> {
        // SAFETY: `self` is alive, and so is what it is made of.
        unsafe { call!(cudnnBackendFinalize(self.raw)) }.map(|()| Arc::new(self))
    }

    /// The values of an attribute, `most` at most.
    pub(super) fn get<T: Value>(&self, name: Name, most: usize) -> Result<Vec<T>> {
        let mut values = Vec::with_capacity(most);
        let count = self.read(name, T::TYPE, &mut values.spare_capacity_mut()[..most])?;
        // SAFETY: cuDNN has written as many values as it says, and no more than there is room for.
        unsafe { values.set_len(count) };
        Ok(values)
    }

    /// The value of an attribute that has one.
    pub(super) fn get_one<T: Value>(&self, name: Name) -> Result<T> {
        let value = self.get(name, 1)?.first().copied();
        value.ok_or_else(|| CudaError::new("asking cuDNN about an engine", "an attribute has no value"))
    }

    /// The objects of this kind that are the values of an attribute, `most` at most. They must not outlive `self`.
    pub(super) fn get_parts(&self, name: Name, kind: Kind, most: usize) -> Result<Vec<Self>> {
        const TYPE: Type = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        let mut parts: Vec<Self> = (0..most).map(|_| Self::new(kind)).collect::<Result<_, _>>()?;
        let mut raw: Vec<_> = parts.iter().map(|part| MaybeUninit::new(part.raw)).collect();
        parts.truncate(self.read(name, TYPE, &mut raw)?);
        Ok(parts)
    }

    /// Reads as many values as there is room for, and returns how many.
    fn read<T>(&self, name: Name, kind: Type, room: &mut [MaybeUninit<T>]) -> Result<usize> {
        let (most, values, mut count) = (room.len() as i64, room.as_mut_ptr().cast(), 0);
        // SAFETY: `self` is alive; cuDNN writes at most as many values as it is told, or refuses the type.
        unsafe { call!(cudnnBackendGetAttribute(self.raw, name, kind, most, &mut count, values)) }?;
        // There may be more.
        Ok(usize::try_from(count).unwrap_or(0).min(room.len()))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`; `raw` is used only while `self` lives, and that ends here. Should this fail, there is
        // nothing left to be done.
        let _ = unsafe { call!(cudnnBackendDestroyDescriptor(self.raw)) };
    }
}

// SAFETY: a descriptor is set by the thread that makes it, before anyone else has it, and only read once it is
// finished.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}
