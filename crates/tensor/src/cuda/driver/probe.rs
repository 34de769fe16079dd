//! Is there a GPU that can be used, and if not, what is missing?

use super::reason;
use crate::cuda::{Absent, CudaDeviceInfo, CudaDevices, CudaVersion};
use cudarc::driver::{DriverError, result, sys};
use sys::CUdevice_attribute_enum as Attribute;

/// The oldest driver that cuDNN 9 runs on.
const OLDEST_DRIVER: CudaVersion = CudaVersion(12_000);

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
    let cuda = driver_version().map_err(failed)?;
    if cuda < OLDEST_DRIVER {
        let needed = OLDEST_DRIVER;
        return Err(Absent(format!("the NVIDIA driver supports CUDA {cuda}, and CUDA {needed} is needed")));
    }
    let count = usize::try_from(result::device::get_count().map_err(failed)?).unwrap_or(0);
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
    Ok(CudaDevices { cuda, driver: kernel_module_version(), devices })
}

fn describe(ordinal: usize) -> Result<CudaDeviceInfo, DriverError> {
    let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
    // SAFETY: `device` comes from the driver.
    let attribute = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    Ok(CudaDeviceInfo {
        ordinal,
        name: result::device::get_name(device)?,
        compute_capability: [
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ],
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        clock_mhz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)? / 1000,
        memory_clock_mhz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)? / 1000,
        // SAFETY: `device` comes from the driver.
        memory_bytes: unsafe { result::device::total_mem(device) }? as u64,
    })
}

fn driver_version() -> Result<CudaVersion, DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one integer to the address of one.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(CudaVersion(version))
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
    fn probing_finds_a_gpu_or_says_in_one_line_what_is_missing() {
        match probe() {
            Ok(found) => assert!(found.cuda >= OLDEST_DRIVER && !found.devices.is_empty()),
            Err(absent) => {
                let line = absent.to_string();
                assert!(line.contains("NVIDIA") || line.contains("GPU"), "{line}");
                assert!(!line.contains('\n') && line.len() < 160, "{line}");
            }
        }
    }
}
