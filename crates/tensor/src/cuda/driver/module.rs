//! CUDA kernels: compiled by NVRTC when first launched, for the very device they run on.

use super::{Stream, get_or_make};
use crate::cuda::{CudaError, Result, Source};
use cudarc::driver::{CudaFunction, CudaModule, sys};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use std::{collections::HashMap, sync::Arc};

/// Generic lambdas are the device's, too: by default what has no mark is the host's, even within a CUDA kernel.
const GENERIC_LAMBDAS: &str = "--device-as-default-execution-space";

/// What has been compiled so far: by the source's name a module and, by their names, those of its functions that were
/// looked for.
#[derive(Default)]
pub(super) struct Modules(HashMap<&'static str, (Arc<CudaModule>, HashMap<&'static str, CudaFunction>)>);

impl Modules {
    pub(super) fn function(
        &mut self,
        stream: &Stream,
        source: &'static Source,
        name: &'static str,
    ) -> Result<sys::CUfunction> {
        let make = || Ok((compile(stream, source)?, HashMap::new()));
        let (module, functions) = get_or_make(&mut self.0, source.name, make)?;
        let what = || format!("looking for the CUDA kernel {name} in {}", source.name);
        let load = || module.load_function(name).map_err(CudaError::driver(what()));
        Ok(get_or_make(functions, name, load)?.cu_function())
    }
}

fn compile(stream: &Stream, source: &Source) -> Result<Arc<CudaModule>> {
    let what = || format!("compiling {}", source.name);
    let (major, minor) = stream.0.context().compute_capability().map_err(CudaError::driver(what()))?;
    let options = CompileOptions {
        name: Some(source.name.to_owned()),
        options: vec![format!("--gpu-architecture=compute_{major}{minor}"), GENERIC_LAMBDAS.to_owned()],
        ..CompileOptions::default()
    };
    let ptx = compile_ptx_with_opts(source.text.concat(), options).map_err(|error| {
        let reason = match error {
            CompileError::CompileError { log, .. } => log.to_string_lossy().trim().to_owned(),
            other => format!("{other:?}"),
        };
        CudaError::new(what(), reason)
    })?;
    stream.0.context().load_module(ptx).map_err(CudaError::driver(what()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{Grid, probe};
    use crate::{Arena, Cursor, Format};
    use bytemuck::bytes_of;

    static SOURCE: Source = Source {
        name: "test.cu",
        text: &[r#"
            struct Line { float slope; float offset; };
            extern "C" __global__ void line(float* y, unsigned long long len, Line line, uint4* fault) {
                const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < len) y[i] = line.slope * i + line.offset;
                if (i == 7) *fault = make_uint4(1, i, 2, 3);
            }
        "#],
    };
    static WRONG: Source =
        Source { name: "wrong.cu", text: &["extern \"C\" __global__ void wrong() { nothing; }"] };

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_kernel_gets_its_arguments_and_reports_a_fault() {
        let cuda = probe().unwrap().open(0).unwrap();
        let all = Cursor::default().take(Format::F32, 1000);
        let mut arena = Arena::unset(cuda.stream(), all.len).unwrap();
        let line = [0.5f32, 2.0];
        let [y, fault] = [arena.view_mut(all).address::<f32>(), cuda.fault_address()];
        let args = [bytes_of(&y), bytes_of(&1000u64), bytes_of(&line), bytes_of(&fault)];
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
