//! Memory and threads that the system refuses, and sizes that nothing holds: a sentence, soon.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text};

/// Runs the command with at most so many kB of address space.
#[cfg(target_os = "linux")]
fn run_within(folder: &Folder, kb: usize, arguments: &str) -> std::process::Output {
    run_with(folder, &format!("ulimit -v {kb}"), arguments)
}

/// Runs the command after those of a shell.
#[cfg(target_os = "linux")]
fn run_with(folder: &Folder, before: &str, arguments: &str) -> std::process::Output {
    let command = folder.command(arguments);
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("{before} && exec \"$0\" \"$@\""));
    shell.arg(command.get_program()).args(command.get_args()).current_dir(folder.path(""));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_beyond_the_limit_of_the_process_is_refused() {
    let output =
        run_within(&Folder::new(), 2_000_000, "time --model net.prototxt --batch 300000 --device cpu");
    assert_refused(&output, 1, &["the run needs", "ulimit -v", "a smaller --batch"], "an arena of gigabytes");
}

/// One arena would fit.
#[test]
#[cfg(target_os = "linux")]
fn the_arenas_of_all_ranks_of_a_process_count() {
    let (folder, filled) = (Folder::new(), "top: 'd' dummy_data_param { shape { dim: 512 dim: 524288 } }");
    folder.write("large.prototxt", format!("layer {{ name: 'd' type: 'DummyData' {filled} }}"));
    let time = "time --model large.prototxt --phase TEST --threads 1 --device cpu,cpu";
    let output = run_within(&folder, 1_900_000, time);
    assert_refused(&output, 1, &["the run needs 2 GiB more", "ulimit -v"], "two arenas of a GiB");
}

/// What may be locked here decides nothing about a machine whose measurements were recorded.
#[test]
#[cfg(target_os = "linux")]
fn a_prediction_is_the_same_however_little_memory_there_is_here() {
    let plan = "plan --model resnet50 --batch 256 --device h200 --device-memory 1GiB";
    let [little, much] = [4_000_000, 400_000_000].map(|kb| run_within(&Folder::new(), kb, plan));
    assert_refused(&little, 1, &["the smallest budget with a plan is"], "a budget below the floor");
    assert_eq!(text(&little.stderr), text(&much.stderr));
}

/// The operands fit, but the largest workspace, which is tried, does not.
#[test]
#[cfg(target_os = "linux")]
fn a_workspace_that_the_system_refuses_is_an_error() {
    let plan = "plan --conv n=1,c=1,h=1400,k=1,r=31,pad=15,stride=2 --op backwardData --policy undivided --workspace-limit 3GiB --device cpu --threads 1";
    let output = run_within(&Folder::new(), 1_500_000, plan);
    assert_refused(&output, 1, &["the system does not give this process"], "a workspace of 1.9 GB");
}

#[test]
#[cfg(target_os = "linux")]
fn threads_that_the_system_refuses_are_an_error() {
    let time = "time --model net.prototxt --device cpu --threads 256";
    // So large that what is left where one does not fit is enough for all else.
    let output = run_with(&Folder::new(), "export RUST_MIN_STACK=67108864; ulimit -v 1500000", time);
    assert_refused(&output, 1, &["256 threads cannot be started"], "stacks of 64 MiB each");
}

#[test]
fn a_mini_batch_that_no_machine_holds_is_refused_before_it_is_made() {
    let folder = Folder::new();
    folder.change_net("batch_size: 8", "batch_size: 2147483647");
    for arguments in
        ["time --model net.prototxt --device cpu", "time --model net.prototxt --device cpu --synthetic=1x8x8"]
    {
        assert_refused(&folder.run(arguments), 1, &["the run needs"], arguments);
    }
    folder.change_net("scale: 0.00390625", "resize: 16384");
    let time = "time --model net.prototxt --device cpu";
    assert_refused(
        &folder.run(time),
        1,
        &["'data'", "more than any memory holds"],
        "2^31 images of 2^28 pixels",
    );
    folder.change_net("resize: 16384", "resize: 65536");
    assert_refused(&folder.run(time), 1, &["'data'", "too large", "resized to 65536x65536"], "one image");
    folder.change_net("resize: 65536", "resize: 65537");
    assert_refused(&folder.run(time), 1, &["resize is 65537", "at most 65536"], "a large resize");
}

#[test]
fn strides_far_beyond_the_image_take_no_longer() {
    let folder = Folder::new();
    folder.change_net("kernel_size: 2 stride: 2", "kernel_size: 8 stride: 1073741824 round_mode: FLOOR");
    folder.change_net("kernel_size: 5 pad: 2", "kernel_size: 5 pad: 40 stride: 8");
    folder.succeed("time --model net.prototxt --iterations 1 --device cpu --threads 1");
    for stride in ["65536", "2147483647,pad=2147483647"] {
        let plan = format!(
            "plan --conv n=2,c=3,h=40,k=4,r=3,stride={stride} --policy undivided --device cpu --threads 1"
        );
        let output = folder.run(&plan);
        assert!(output.status.success(), "{plan}: {}", text(&output.stderr));
    }
}

#[test]
#[cfg(unix)]
fn a_table_without_end_is_refused() {
    let output = Folder::new().run("plan --model net.prototxt --device recorded:/dev/zero");
    assert_refused(&output, 1, &["/dev/zero", "larger than 256 MiB"], "a device for a table");
}
