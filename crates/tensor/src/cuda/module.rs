//! CUDA kernels and their arguments: compiled by NVRTC when first launched, for the very device they run on.

use super::{CudaError, Stream};
use crate::{View, ViewMut};
use cudarc::{
    driver::{CudaFunction, CudaModule, sys},
    nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts},
};
use std::{collections::HashMap, ffi::c_void, sync::Arc};

/// CUDA C++ text with some `extern "C"` CUDA kernels.
#[derive(Debug)]
pub struct Source {
    /// Its file name, for messages of the compiler. Sources are told apart by it.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

/// How many threads run a CUDA kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block, in x.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// `blocks` blocks of `threads` threads in one dimension.
    pub fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared_bytes: 0 }
    }
}

/// One argument of a CUDA kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A pointer.
    Address(sys::CUdeviceptr),
    /// An `int`.
    I32(i32),
    /// An `unsigned`.
    U32(u32),
    /// An `unsigned long long`.
    U64(u64),
    /// A `float`.
    F32(f32),
    /// A struct by value, its bytes aligned as the struct is.
    Bytes(&'a [u8]),
}

/// A struct by value.
impl<'a, T: bytemuck::Pod> From<&'a T> for Arg<'a> {
    fn from(value: &'a T) -> Self {
        Self::Bytes(bytemuck::bytes_of(value))
    }
}

impl Arg<'_> {
    /// Where the value lies, as the driver wants to know.
    pub(super) fn value(&self) -> *mut c_void {
        let value: *const c_void = match self {
            Self::Address(value) | Self::U64(value) => (&raw const *value).cast(),
            Self::I32(value) => (&raw const *value).cast(),
            Self::U32(value) => (&raw const *value).cast(),
            Self::F32(value) => (&raw const *value).cast(),
            Self::Bytes(bytes) => bytes.as_ptr().cast(),
        };
        value.cast_mut()
    }
}

/// A pointer to `float`s.
impl From<View<'_>> for Arg<'_> {
    fn from(view: View<'_>) -> Self {
        Self::Address(view.address::<f32>())
    }
}

/// A null pointer for `None`.
impl From<Option<View<'_>>> for Arg<'_> {
    fn from(view: Option<View<'_>>) -> Self {
        view.map_or(Self::Address(0), Arg::from)
    }
}

/// A pointer to `float`s.
impl From<&mut ViewMut<'_>> for Arg<'_> {
    fn from(view: &mut ViewMut<'_>) -> Self {
        Self::Address(view.address::<f32>())
    }
}

/// A null pointer for `None`.
impl From<Option<&mut ViewMut<'_>>> for Arg<'_> {
    fn from(view: Option<&mut ViewMut<'_>>) -> Self {
        view.map_or(Self::Address(0), Arg::from)
    }
}

macro_rules! numbers {
    ($($variant:ident($number:ty)),+) => {$(
        impl From<$number> for Arg<'_> {
            fn from(value: $number) -> Self {
                Arg::$variant(value)
            }
        }
    )+};
}

numbers!(I32(i32), U32(u32), U64(u64), F32(f32));

impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        Self::U64(value as u64)
    }
}

/// What has been compiled so far.
#[derive(Default)]
pub(super) struct Modules {
    modules: HashMap<&'static str, Arc<CudaModule>>,
    functions: HashMap<(&'static str, &'static str), CudaFunction>,
}

impl Modules {
    pub(super) fn function(
        &mut self,
        stream: &Stream,
        source: &'static Source,
        name: &'static str,
    ) -> Result<sys::CUfunction, CudaError> {
        if let Some(function) = self.functions.get(&(source.name, name)) {
            return Ok(function.cu_function());
        }
        let failed = CudaError::driver(format!("looking for the CUDA kernel {name} in {}", source.name));
        let function = self.module(stream, source)?.load_function(name).map_err(failed)?;
        let raw = function.cu_function();
        self.functions.insert((source.name, name), function);
        Ok(raw)
    }

    fn module(&mut self, stream: &Stream, source: &'static Source) -> Result<&Arc<CudaModule>, CudaError> {
        if !self.modules.contains_key(source.name) {
            self.modules.insert(source.name, compile(stream, source)?);
        }
        Ok(&self.modules[source.name])
    }
}

fn compile(stream: &Stream, source: &Source) -> Result<Arc<CudaModule>, CudaError> {
    let what = || format!("compiling {}", source.name);
    let (major, minor) = stream.context().compute_capability().map_err(CudaError::driver(what()))?;
    let options = CompileOptions {
        name: Some(source.name.to_owned()),
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        ..CompileOptions::default()
    };
    let ptx = compile_ptx_with_opts(source.text, options).map_err(|error| {
        let reason = match error {
            CompileError::CompileError { log, .. } => log.to_string_lossy().trim().to_owned(),
            other => format!("{other:?}"),
        };
        CudaError::new(what(), reason)
    })?;
    stream.context().load_module(ptx).map_err(CudaError::driver(what()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Cursor, Format, cuda::probe};

    static SOURCE: Source = Source {
        name: "test.cu",
        text: r#"
            struct Line { float slope; float offset; };
            extern "C" __global__ void line(float* y, unsigned long long len, Line line, uint4* fault) {
                const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < len) y[i] = line.slope * i + line.offset;
                if (i == 7) *fault = make_uint4(1, i, 2, 3);
            }
        "#,
    };
    static WRONG: Source =
        Source { name: "wrong.cu", text: "extern \"C\" __global__ void wrong() { nothing; }" };

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_kernel_gets_its_arguments_and_reports_a_fault() {
        let cuda = probe().unwrap().open(0).unwrap();
        let all = Cursor::default().take(Format::F32, 1000);
        let mut arena = Arena::unset(cuda.stream(), all.len).unwrap();
        let line = [0.5f32, 2.0];
        let args = [
            Arg::from(&mut arena.view_mut(all)),
            Arg::from(1000usize),
            Arg::Bytes(bytemuck::bytes_of(&line)),
            Arg::Address(cuda.fault_address()),
        ];
        // SAFETY: the arguments are those of the kernel above, which writes `len` elements and the fault.
        unsafe { cuda.launch(&SOURCE, "line", Grid::line(4, 256), &args) };
        cuda.check().unwrap();
        let values = arena.read::<f32>(all).unwrap();
        assert!(values.iter().enumerate().all(|(i, &value)| value == 0.5 * i as f32 + 2.0));
        assert_eq!(cuda.take_fault(), Some([1, 7, 2, 3]));
        assert_eq!(cuda.take_fault(), None);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn the_compilers_message_is_the_error_and_stays() {
        let cuda = probe().unwrap().open(0).unwrap();
        // SAFETY: nothing is launched.
        unsafe { cuda.launch(&WRONG, "wrong", Grid::line(1, 1), &[]) };
        let message = cuda.check().unwrap_err().to_string();
        assert!(message.contains("wrong.cu") && message.contains("nothing"), "{message}");
        assert!(cuda.check().is_err());
    }
}
