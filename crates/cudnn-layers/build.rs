//! Gives the CPU kernels of this build a name, so that measurements of other kernels are not taken for theirs: a hash
//! of their sources, the compiler and how it optimises.

use std::path::{Path, PathBuf};
use std::{env, fs, process::Command};

/// What the speed of a convolution on the CPU depends on. `tensor` is not beside a package from a registry; there the
/// version of the package says enough.
const SOURCES: [&str; 4] = ["src/conv", "src/cpu_loops.rs", "src/cpu_sums.rs", "../tensor/src"];

fn main() {
    let mut files = Vec::new();
    for source in SOURCES.map(Path::new).into_iter().filter(|source| source.exists()) {
        println!("cargo::rerun-if-changed={}", source.display());
        collect(source, &mut files);
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for file in files {
        hash = fnv1a(hash, file.to_string_lossy().as_bytes());
        hash = fnv1a(hash, &fs::read(&file).unwrap_or_default());
    }
    let rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-V").output();
    hash = fnv1a(hash, &rustc.map(|output| output.stdout).unwrap_or_default());
    for variable in ["TARGET", "OPT_LEVEL", "DEBUG", "CARGO_ENCODED_RUSTFLAGS"] {
        hash = fnv1a(hash, env::var(variable).unwrap_or_default().as_bytes());
    }
    println!("cargo::rustc-env=MICROBATCH_CPU_KERNELS={hash:016x}");
}

/// The files in `path`, however deep.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

/// FNV-1a, 64 bits.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().chain(&[0]).fold(hash, step)
}
