//! `microbatch run`: a program runs under the library, and ends as it ends by itself.
#![cfg(target_os = "linux")]

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text};
use std::{os::unix::process::ExitStatusExt, path::Path, process::Command};

/// A folder with a script and with a library that does nothing, and the variable that names it.
fn folder() -> (Folder, String) {
    let folder = Folder::new();
    folder.write("nothing.c", "");
    let compiled = Command::new("cc")
        .current_dir(folder.path(""))
        .args(["-shared", "-o", "nothing.so", "nothing.c"])
        .status();
    assert!(compiled.expect("a C compiler").success());
    folder
        .write("script", "echo $LD_PRELOAD,$UCUDNN_DEFAULT_WORKSPACE_LIMIT,$MICROBATCH_REPORT,$1; exit 3\n");
    let library = folder.path("nothing.so").canonicalize().unwrap().to_str().unwrap().to_owned();
    (folder, library)
}

#[test]
fn the_program_gets_the_library_and_its_limits_and_its_status_is_ours() {
    let (folder, library) = folder();
    let variables = [("MICROBATCH_PRELOAD", "nothing.so"), ("MICROBATCH_REPORT", ""), ("LD_PRELOAD", "")];
    let output = folder.run_with("run -- sh script --limit", &variables);
    assert_eq!(text(&output.stdout), format!("{library},,-,--limit\n"));
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(3)));

    let variables = [("MICROBATCH_PRELOAD", library.as_str()), ("LD_PRELOAD", library.as_str())];
    let output = folder.run_with("run --workspace-limit 2MiB --report a.json sh script", &variables);
    assert_eq!(text(&output.stdout), format!("{library}:{library},2097152,a.json,\n"));
}

#[test]
fn a_signal_that_ends_the_program_ends_the_command() {
    let (folder, library) = folder();
    folder.write("script", "kill -TERM $$; sleep 10\n");
    let output = folder.run_with("run sh script", &[("MICROBATCH_PRELOAD", &library)]);
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn no_library_and_no_program_are_refused() {
    let (folder, library) = folder();
    let output = folder.run_with("run sh script", &[("MICROBATCH_PRELOAD", "none.so")]);
    assert_refused(&output, 2, &["cannot preload none.so", "microbatch-preload"], "no library");
    let output = folder.run_with("run sh script", &[("MICROBATCH_PRELOAD", "")]);
    // Then it is the one beside the command, which somebody may have built there.
    match Path::new(env!("CARGO_BIN_EXE_microbatch")).with_file_name("libmicrobatch_cudnn.so").exists() {
        true => assert!(text(&output.stdout).contains("/libmicrobatch_cudnn.so,")),
        false => assert_refused(&output, 2, &["/libmicrobatch_cudnn.so: No such file"], "an empty variable"),
    }
    folder.write("a b.so", "");
    let output = folder.run_with("run sh script", &[("MICROBATCH_PRELOAD", "a b.so")]);
    assert_refused(&output, 2, &["a b.so", "spaces"], "a library that the loader cannot name");
    let output = folder.run_with("run --workspace-limt 2MiB sh script", &[("MICROBATCH_PRELOAD", &library)]);
    assert!(
        text(&output.stderr).contains("unexpected argument '--workspace-limt'"),
        "an option is no program"
    );
    let output = folder.run_with("run ./no-such-program", &[("MICROBATCH_PRELOAD", &library)]);
    assert_refused(&output, 2, &["cannot run ./no-such-program"], "no program");
}
