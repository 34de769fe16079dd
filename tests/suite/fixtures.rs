//! Running the command, and the small nets it is run on.

use std::process::{Command, Output};
use std::{fs, path::PathBuf};
use tempfile::TempDir;

/// Two convolutions to which most algorithms apply, on the real digits.
///
/// Around a digit all pixels are 0. Without its bias the first convolution would be 0 there, too, or what an algorithm
/// rounds 0 to, and `relu1` would pass gradients by the sign of that: trainings would differ by the algorithms chosen.
pub(crate) const NET: &str = r#"
name: "small"
layer {
  name: "data" type: "Data" top: "data" top: "label"
  transform_param { scale: 0.00390625 }
  data_param { source: "DIGITS" batch_size: 8 }
}
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } bias_filler { value: 0.1 } }
}
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer {
  name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
  convolution_param { num_output: 16 kernel_size: 5 pad: 2 weight_filler { type: "xavier" } }
}
layer {
  name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 }
}
layer {
  name: "ip" type: "InnerProduct" bottom: "pool2" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer {
  name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy"
  include { phase: TEST }
}
"#;

const SOLVER: &str = r#"
net: "net.prototxt"
test_iter: 4
test_interval: 10
base_lr: 0.05
lr_policy: "inv" gamma: 0.01 power: 0.75
display: 1
max_iter: 12
momentum: 0.9
weight_decay: 0.0005
snapshot: 6
snapshot_prefix: "unused"
random_seed: 7
"#;

/// A PNG of `side` x `side` pixels, grey of one byte each or coloured of three.
pub(crate) fn png<const CHANNELS: usize>(side: u32, pixel: impl Fn(u32, u32) -> [u8; CHANNELS]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(if CHANNELS == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
    let pixels = (0..side * side).flat_map(|at| pixel(at % side, at / side)).collect::<Vec<u8>>();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

/// The repository: where it was built, or, for tests that were copied to another machine (`.ci/gpu-tests`), where they
/// lie.
pub(crate) fn root() -> PathBuf {
    copied().unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")))
}

/// The command.
pub(crate) fn program() -> PathBuf {
    copied().map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_microbatch")), |root| root.join("microbatch"))
}

/// The folder of the digits as nets name it: with the slashes of Unix everywhere.
pub(crate) fn digits_folder() -> String {
    root().join("data/digits").to_str().unwrap().replace('\\', "/")
}

fn copied() -> Option<PathBuf> {
    std::env::var_os("MICROBATCH_ROOT").map(PathBuf::from)
}

/// A folder with `net.prototxt` and `solver.prototxt`, gone when the test is.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("net.prototxt", NET.replace("DIGITS", &digits_folder()));
        folder.write("solver.prototxt", SOLVER);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// The names in the folder `s` of the snapshots, hidden ones too.
    pub(crate) fn snapshots(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("s")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes the solver again with the first of each pair, which it must have, replaced by the second.
    pub(crate) fn change_solver(&self, changes: &[[&str; 2]]) {
        let mut solver = text(&self.read("solver.prototxt"));
        for [from, to] in changes {
            assert!(solver.contains(from), "the solver has no {from}");
            solver = solver.replace(from, to);
        }
        self.write("solver.prototxt", solver);
    }

    /// Writes the net again with `from`, which it must have, replaced by `to`.
    pub(crate) fn change_net(&self, from: &str, to: &str) {
        let net = String::from_utf8(self.read("net.prototxt")).unwrap();
        assert!(net.contains(from), "the net has no {from}");
        self.write("net.prototxt", net.replace(from, to));
    }

    /// Runs the command with `arguments`, separated by spaces, in this folder and without the caller's settings.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.run_with(arguments, &[])
    }

    pub(crate) fn run_with(&self, arguments: &str, environment: &[(&str, &str)]) -> Output {
        let mut output = self.command(arguments).envs(environment.iter().copied()).output().unwrap();
        output.stderr = without_progress(&text(&output.stderr)).into_bytes();
        output
    }

    /// The command, ready to run.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(program());
        for name in [
            "UCUDNN_BATCH_SIZE_POLICY",
            "UCUDNN_DEFAULT_WORKSPACE_LIMIT",
            "UCUDNN_TOTAL_WORKSPACE_SIZE",
            "UCUDNN_BENCHMARK_DEVICES",
        ] {
            command.env_remove(name);
        }
        // Nothing that a test measures belongs into the user's database.
        command.env("UCUDNN_DATABASE", "none");
        // Some workspaces grow with the number of threads: the limits of the tests are for two. Without a GPU, too.
        let chosen = arguments.contains("--threads") || arguments.contains("--device");
        let runs = !chosen && !arguments.starts_with("export") && !arguments.starts_with("init");
        let threads = (runs && arguments.contains("prototxt")).then_some(["--threads", "2"]);
        command.args(arguments.split_whitespace()).args(threads.iter().flatten()).current_dir(&self.0);
        command
    }

    /// Runs the command, which must succeed and complain of nothing; returns stdout.
    pub(crate) fn succeed(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let (stdout, stderr) = (text(&output.stdout), without_progress(&text(&output.stderr)));
        assert!(output.status.success() && stderr.is_empty(), "{arguments}: {stderr}\n{stdout}");
        stdout
    }

    /// As [`Folder::succeed`], with `--json`; returns the object.
    pub(crate) fn json(&self, arguments: &str) -> serde_json::Value {
        let stdout = self.succeed(&format!("{arguments} --json"));
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments}: {error}\n{stdout}"))
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What was complained about, without the lines that a run of more than a few seconds writes on the way.
pub(crate) fn without_progress(stderr: &str) -> String {
    stderr.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// Whether `line` says how far something has come, such as `measuring 20/84 after 5 s: conv2 Forward at 32`.
pub(crate) fn is_progress(line: &str) -> bool {
    let mut words = line.split([' ', '/', ':', '\n']);
    matches!(
        words.next(),
        Some(
            "measuring"
                | "verifying"
                | "training"
                | "testing"
                | "timing"
                | "drawing"
                | "reading"
                | "dividing"
                | "planning"
        )
    ) && (0..2).all(|_| words.next().is_some_and(|word| word.parse::<u64>().is_ok()))
}
