//! GPUs that others use too: no memory left, and two trainings at once. A program of its own, as no other test can run
//! on the GPU meanwhile.

#[allow(dead_code, reason = "the suite uses the rest")]
#[path = "suite/fixtures.rs"]
mod fixtures;

mod cuda {
    use crate::fixtures::{Folder, text};
    use std::process::{Output, Stdio};
    use std::sync::{Mutex, PoisonError};
    use tensor::{Arena, Device, cuda::probe};

    /// One test at a time.
    static TURN: Mutex<()> = Mutex::new(());

    const MIB: u64 = 1 << 20;

    /// Takes the first GPU's memory but for `left` bytes, for as long as the result lives.
    fn take_all_but(left: u64) -> Arena {
        let device = Device::Cuda(probe().unwrap().open(0).unwrap());
        let Device::Cuda(cuda) = &device else { unreachable!("opened above") };
        let free = cuda.memory().unwrap()[0];
        Arena::on(&device, free.saturating_sub(left) as usize).unwrap()
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn memory_that_another_process_has_taken_is_a_sentence() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new();
        // Enough for contexts and code, not for the net: a million samples of two convolutions take some 16 GiB.
        let taken = take_all_but(4096 * MIB);
        let train = "train --solver solver.prototxt --snapshot-prefix s/net --device cuda --batch 1000000";
        assert_is_a_sentence(&folder.run(train));
        drop(taken);
        // Not even enough for a context.
        let _taken = take_all_but(64 * MIB);
        assert_is_a_sentence(
            &folder.run("train --solver solver.prototxt --snapshot-prefix s/net --device cuda"),
        );
    }

    fn assert_is_a_sentence(output: &Output) {
        let stderr = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.lines().count() == 1 && stderr.contains("GPU"),
            "{stderr}"
        );
        // For the reader of the test's output.
        println!("{stderr}");
    }

    /// Both resume one training under its plan, at the same time: neither disturbs the other.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn two_trainings_at_once_end_in_the_same_weights() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new();
        let train = "train --solver solver.prototxt --no-test --device cuda --deterministic";
        folder.succeed(&format!("{train} --max-iter 6 --snapshot-prefix begun"));
        let resume = |prefix: &str| {
            let snapshot = "begun_iter_6.solverstate.safetensors";
            let mut command = folder
                .command(&format!("{train} --max-iter 300 --snapshot {snapshot} --snapshot-prefix {prefix}"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [resume("one"), resume("two")].map(|child| child.wait_with_output().unwrap());
        let alone = resume("alone").wait_with_output().unwrap();
        let ended = |output: &Output| output.status.success();
        assert!(both.iter().chain([&alone]).all(ended), "{}", text(&both[0].stderr) + &text(&both[1].stderr));
        let weights = |prefix: &str| folder.read(&format!("{prefix}_iter_300.safetensors"));
        assert!(weights("one") == weights("alone") && weights("two") == weights("alone"));
    }
}
