//! The wheel: pip installs it without a network, and what it brings runs programs under the library.

use std::process::{Command, Output};
use std::{env, path::Path};

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("python3");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn pip_installs_the_wheel_and_its_command_runs_programs_under_the_library() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheel");
    let library = env::current_exe().expect("the path of this test").with_file_name("libmicrobatch_cudnn.so");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("wheel.py");
    let packed =
        run(Command::new("python3").arg(script).arg("--library").arg(&library).arg("--out").arg(&folder));
    let wheel = String::from_utf8(packed.stdout).expect("a path in UTF-8");
    let (wheel, site) = (wheel.trim_end(), folder.join("site"));
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade", "--target"];
    run(Command::new("python3").args(install).arg(&site).arg(wheel));

    let program =
        "import os; print(os.environ['LD_PRELOAD'], 'microbatch_cudnn' in open('/proc/self/maps').read())";
    let mut command = Command::new("python3");
    command.args(["-m", "microbatch_cudnn", "python3", "-c", program]).env("PYTHONPATH", &site);
    let said = String::from_utf8(run(command.env_remove("LD_PRELOAD")).stdout).expect("UTF-8");
    let installed = site.join("microbatch_cudnn/libmicrobatch_cudnn.so").canonicalize().expect("the library");
    assert_eq!(said, format!("{} True\n", installed.display()));
    // The command of the wheel is the same function.
    let named =
        run(Command::new(site.join("bin/microbatch-run")).args(["echo", "runs"]).env("PYTHONPATH", &site));
    assert_eq!(named.stdout, b"runs\n");
}
