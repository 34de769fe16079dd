//! `microbatch run`: another program, under the library that divides its convolutions.

use crate::{Result, args::PreloadArgs};
use std::env::{current_exe, var_os};
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;
use std::{ffi::OsStr, path::PathBuf, process::Command};

/// Becomes the program: what ends it and with what status is its own affair.
pub(super) fn run(args: &PreloadArgs) -> Result<()> {
    let beside = || Some(current_exe().ok()?.with_file_name("libmicrobatch_cudnn.so"));
    let variable = |name| var_os(name).filter(|value| !value.is_empty());
    let library = variable("MICROBATCH_PRELOAD").map(PathBuf::from).or_else(beside).unwrap_or_default();
    let unusable = |why: String| usage!("cannot preload {}: {why}", library.display());
    let advice = "build it with the package microbatch-preload, or name it in MICROBATCH_PRELOAD";
    let path = library.canonicalize().map_err(|error| unusable(format!("{error}; {advice}")))?;
    if path.to_string_lossy().contains([' ', ':']) {
        return Err(unusable("its path must not have spaces or colons".to_owned()));
    }
    let mut preloaded = path.into_os_string();
    variable("LD_PRELOAD").iter().for_each(|others| preloaded.extend([OsStr::new(":"), others]));
    // A dash is standard error.
    let report = args.report.clone().or_else(|| variable("MICROBATCH_REPORT")).unwrap_or("-".into());
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]).env("LD_PRELOAD", preloaded).env("MICROBATCH_REPORT", report);
    command.envs(args.workspace_limit.map(|limit| ("UCUDNN_DEFAULT_WORKSPACE_LIMIT", limit.0.to_string())));
    #[cfg(target_os = "linux")]
    let error = command.exec();
    #[cfg(not(target_os = "linux"))]
    let error = "only Linux preloads libraries";
    Err(usage!("cannot run {}: {error}", args.program[0].display()))
}
