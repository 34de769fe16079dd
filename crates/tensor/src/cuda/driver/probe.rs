//! Is there a GPU that can be used, and if not, what is missing?

use super::reason;
use crate::cuda::{Absent, CudaDeviceInfo, CudaDevices};
use cudarc::driver::{DriverError, result, sys};
use sys::CUdevice_attribute_enum as Attribute;

/// The newest CUDA of the oldest driver that cuDNN 9 runs on, as drivers count.
const OLDEST_CUDA: i32 = 12_000;

/// Looks for the driver, a GPU and the libraries, in this order. Never panics, and loads nothing that it will not use.
///
/// # Errors
/// The first thing that is missing.
pub fn probe() -> Result<CudaDevices, Absent> {
    // SAFETY: loading a library runs its initialisers; the NVIDIA driver's have no requirements of their loader.
    if !unsafe { sys::is_culib_present() } {
        return Err(Absent(format!("no NVIDIA driver is installed (tried {})", tried("cuda"))));
    }
    let no_device = || Absent("the NVIDIA driver found no GPU".to_owned());
    let failed = |error: DriverError| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => no_device(),
        _ => Absent(format!("the NVIDIA driver cannot be used: {}", reason(error))),
    };
    result::init().map_err(failed)?;
    let newest = newest_cuda().map_err(failed)?;
    let [cuda, needed] = [newest, OLDEST_CUDA].map(written);
    if newest < OLDEST_CUDA {
        return Err(Absent(format!("the NVIDIA driver supports CUDA {cuda}, and CUDA {needed} is needed")));
    }
    let count = result::device::get_count().map_err(failed)?;
    let devices = (0..count).map(describe).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if devices.is_empty() {
        return Err(no_device());
    }
    // SAFETY: as above, for NVIDIA's other libraries.
    let libraries = unsafe {
        [
            ("cuDNN", "cudnn", cudarc::cudnn::sys::is_culib_present()),
            ("cuBLAS", "cublas", cudarc::cublas::sys::is_culib_present()),
            ("NVRTC", "nvrtc", cudarc::nvrtc::sys::is_culib_present()),
        ]
    };
    if let Some((library, file, _)) = libraries.into_iter().find(|(_, _, present)| !present) {
        let tried = tried(file);
        return Err(Absent(format!("there is a GPU, but {library} is not installed (tried {tried})")));
    }
    let driver = kernel_module_version().unwrap_or_else(|| "of unknown version".to_owned());
    Ok(CudaDevices { versions: format!("CUDA {cuda}, driver {driver}"), devices })
}

fn describe(ordinal: i32) -> Result<CudaDeviceInfo, DriverError> {
    let device = result::device::get(ordinal)?;
    // SAFETY: `device` comes from the driver.
    let attribute = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    Ok(CudaDeviceInfo {
        ordinal: ordinal as usize,
        name: result::device::get_name(device)?,
        compute_capability: [
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ],
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs(),
        clock_mhz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)? / 1000,
        memory_clock_mhz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)? / 1000,
        // SAFETY: `device` comes from the driver.
        memory_bytes: unsafe { result::device::total_mem(device) }? as u64,
    })
}

fn newest_cuda() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one integer to the address of one.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

/// A version of CUDA as NVIDIA writes it: drivers count 1000 times the major and 10 times the minor version.
fn written(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's own version, such as 580.159.04, which Linux shows in a file: the first dotted number of its first
/// line.
fn kernel_module_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// The names under which a library was looked for, shortened to fit in a line.
fn tried(library: &str) -> String {
    let names = cudarc::get_lib_name_candidates(library);
    match names.as_slice() {
        [first, rest @ ..] => format!("{first} and {} more names", rest.len()),
        [] => library.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_print_as_nvidia_writes_them() {
        assert_eq!([13_000, 12_080].map(written), ["13.0", "12.8"]);
    }

    #[test]
    fn probing_finds_a_gpu_or_says_in_one_line_what_is_missing() {
        match probe() {
            Ok(found) => assert!(!found.devices.is_empty() && found.versions.starts_with("CUDA 1")),
            Err(absent) => {
                let line = absent.to_string();
                assert!(line.contains("NVIDIA") || line.contains("GPU"), "{line}");
                assert!(!line.contains('\n') && line.len() < 160, "{line}");
            }
        }
    }
}
