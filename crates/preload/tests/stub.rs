//! The library before a stub of cuDNN and of the driver, in programs of C: no GPU is needed, and every sum is exact.

use files::database::Database;
use planner::{
    Bytes, ConvOp, ConvShape, CostTable, DeviceHeader, Dtype, KernelId, Layout, Math, Measurement,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, sync::Once};

/// A folder with the stubs and the programs, compiled.
struct Stub(&'static Path);

impl Stub {
    fn new() -> Self {
        static COMPILED: Once = Once::new();
        let stub = Self(Path::new(env!("CARGO_TARGET_TMPDIR")));
        COMPILED.call_once(|| stub.compile_all());
        stub
    }

    fn compile_all(&self) {
        let library = |name: &str, sources: &[&str], needs: &[&str]| {
            let soname = format!("-Wl,-soname,{name}");
            self.compile(name, &[&["-shared", "-fPIC", "-pthread", &soname], sources].concat(), needs);
        };
        library("libcuda.so.1", &["cuda.c"], &[]);
        library("libcudnn.so.9", &["cudnn.c", "graph.c"], &["libcuda.so.1"]);
        library("program.so", &["program.c"], &["libcudnn.so.9", "libcuda.so.1"]);
        library("graphs.so", &["graphs.c"], &["libcudnn.so.9", "libcuda.so.1"]);
        library("libcudnn.so.8", &["cudnn.c", "graph.c"], &["libcuda.so.1"]);
        library("older.so", &["program.c"], &["libcudnn.so.8", "libcuda.so.1"]);
        library("older_graphs.so", &["graphs.c"], &["libcudnn.so.8", "libcuda.so.1"]);
        self.compile("main", &["main.c", "-ldl"], &[]);
        let ours = library_path();
        self.compile("alone", &["alone.c", ours.to_str().expect("a path in UTF-8")], &[]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn compile(&self, output: &str, arguments: &[&str], needs: &[&str]) {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub");
        let mut cc = Command::new("cc");
        cc.current_dir(sources).args(["-O1", "-o"]).arg(self.path(output)).args(arguments);
        cc.args(needs.iter().map(|library| self.path(library)));
        assert!(cc.status().expect("a C compiler").success(), "{cc:?}");
    }

    /// A scenario under the library, with these variables.
    fn preloaded(&self, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.path(program));
        command.args(arguments).current_dir(self.0);
        for name in ["BATCH_SIZE_POLICY", "DEFAULT_WORKSPACE_LIMIT", "TOTAL_WORKSPACE_SIZE"] {
            command.env_remove(format!("UCUDNN_{name}"));
        }
        command.env_remove("CUDNN_CONV_WSCAP_DBG");
        command.env("UCUDNN_DATABASE", "none");
        command.envs(variables.iter().copied());
        command.env("LD_LIBRARY_PATH", self.0).env("LD_PRELOAD", library_path());
        command.output().expect("a program that runs")
    }

    /// A scenario that is passed, and what it says on standard error.
    fn passes(&self, scenario: &str, variables: &[(&str, &str)]) -> String {
        self.program_passes("./program.so", scenario, variables)
    }

    fn program_passes(&self, program: &str, scenario: &str, variables: &[(&str, &str)]) -> String {
        let output = self.preloaded("main", &[program, scenario], variables);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{scenario}: {:?}: {said}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{scenario} done\n"));
        said
    }
}

/// What this package builds lies beside its tests.
fn library_path() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let library = test.with_file_name("libmicrobatch_cudnn.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

const FOUR_MIB: (&str, &str) = ("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "4MiB");

#[test]
fn micro_batches_give_what_the_whole_gives_in_the_workspace_that_was_promised() {
    assert_eq!(Stub::new().passes("divided", &[]), "");
}

#[test]
fn what_is_not_ours_is_passed_through() {
    assert_eq!(Stub::new().passes("foreign", &[]), "");
}

#[test]
fn cudnns_own_answer_stands_where_it_is_as_good() {
    assert_eq!(Stub::new().passes("worth", &[]), "");
}

#[test]
fn the_limit_comes_from_the_cap_or_the_default() {
    let stub = Stub::new();
    stub.passes("limits4", &[FOUR_MIB]);
    stub.passes("limits8", &[FOUR_MIB, ("CUDNN_CONV_WSCAP_DBG", "8")]);
    let said = stub
        .passes("limits4", &[FOUR_MIB, ("UCUDNN_BATCH_SIZE_POLICY", "some"), ("CUDNN_CONV_WSCAP_DBG", "4")]);
    assert_eq!(said.matches("UCUDNN_BATCH_SIZE_POLICY is ignored").count(), 1, "{said}");
    // A total of 0 is none.
    let cap = ("CUDNN_CONV_WSCAP_DBG", "4");
    stub.passes("limits4", &[FOUR_MIB, cap, ("UCUDNN_TOTAL_WORKSPACE_SIZE", "0")]);
    let said = stub.passes("limits4", &[FOUR_MIB, ("UCUDNN_TOTAL_WORKSPACE_SIZE", "1 EB")]);
    assert_eq!(said.matches("UCUDNN_TOTAL_WORKSPACE_SIZE is ignored").count(), 1, "{said}");
}

/// Above every limit.
const TOTAL: [(&str, &str); 3] =
    [FOUR_MIB, ("CUDNN_CONV_WSCAP_DBG", "4"), ("UCUDNN_TOTAL_WORKSPACE_SIZE", "8MiB")];

#[test]
fn a_total_is_divided_anew_whenever_another_convolution_runs() {
    let stub = Stub::new();
    assert_eq!(stub.passes("total", &TOTAL), "");
    assert_eq!(stub.passes("streams", &TOTAL), "");
    graphs_pass("total", &TOTAL);

    let variables = [&TOTAL[..], &[("MICROBATCH_REPORT", "total.json")]].concat();
    stub.passes("total", &variables);
    let text = fs::read_to_string(stub.path("total.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let got: Vec<_> = report.as_array().expect("a list").iter().map(|line| &line["got"]).collect();
    assert_eq!(
        serde_json::json!(got),
        serde_json::json!(["4x2 FFT_TILING", "16x2 FFT_TILING", "8x2 FFT_TILING"])
    );
}

#[test]
fn without_room_for_a_total_convolutions_run_without_workspace() {
    let variables = [&TOTAL[..], &[("STUB_MEMORY", "5242880")]].concat();
    let said = Stub::new().passes("crowded", &variables);
    assert_eq!(said, "microbatch: convolutions run without workspace: the GPU has no room for the total\n");
}

#[test]
fn answers_in_other_arithmetic_than_the_callers_are_compared_with() {
    let stub = Stub::new();
    stub.passes("limits4", &[FOUR_MIB, ("STUB_MATH", "0")]);
    stub.passes("worth", &[("STUB_MATH", "0")]);
}

#[test]
fn every_batch_size_policy_plans() {
    let stub = Stub::new();
    for policy in ["adaptive", "all", "powerOfTwo"] {
        stub.passes("limits4", &[FOUR_MIB, ("UCUDNN_BATCH_SIZE_POLICY", policy)]);
    }
    stub.passes("limits16", &[FOUR_MIB, ("UCUDNN_BATCH_SIZE_POLICY", "undivided")]);
}

#[test]
fn nothing_is_measured_while_the_stream_is_captured_and_plans_run_in_it() {
    assert_eq!(Stub::new().passes("capture", &[FOUR_MIB]), "");
}

#[test]
fn threads_share_one_measuring_and_gpus_do_not() {
    assert_eq!(Stub::new().passes("threads", &[]), "");
}

#[test]
fn slices_begin_where_cudnn_can_load_them() {
    assert_eq!(Stub::new().passes("unaligned", &[]), "");
}

#[test]
fn gradients_of_16_bit_filters_are_not_divided() {
    assert_eq!(Stub::new().passes("sixteen_bits", &[]), "");
}

#[test]
fn fused_convolutions_with_the_virtual_algorithm_are_divided_too() {
    assert_eq!(Stub::new().passes("fused", &[]), "");
}

#[test]
fn without_room_to_measure_all_is_passed_through_with_one_warning() {
    let said = Stub::new().passes("untouched", &[FOUR_MIB, ("STUB_MEMORY", "100")]);
    assert_eq!(said.matches("has no room").count(), 1, "{said}");
}

#[test]
fn an_older_cudnn_is_passed_through_with_one_warning() {
    let said = Stub::new().program_passes("./older.so", "untouched", &[FOUR_MIB]);
    assert_eq!(said, "microbatch: this is not cuDNN 9: all calls are passed through\n");
}

/// A scenario of operation graphs that is passed in silence.
fn graphs_pass(scenario: &str, variables: &[(&str, &str)]) {
    assert_eq!(Stub::new().program_passes("./graphs.so", scenario, variables), "");
}

#[test]
fn plans_of_graphs_run_ours_in_the_workspace_that_they_say() {
    graphs_pass("divided", &[FOUR_MIB]);
    graphs_pass("room", &[("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "7MiB")]);
}

#[test]
fn the_engine_of_a_graph_stands_where_it_is_as_good() {
    graphs_pass("worth", &[]);
}

#[test]
fn an_engine_that_is_faster_today_than_a_plan_stands_whatever_was_measured_on_another_day() {
    let folder = tempfile::tempdir().expect("a folder");
    let [_, named] = database(&folder);
    let variables = [("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "7MiB"), named];
    graphs_pass("room", &variables);
    graphs_pass("slower", &[&variables[..], &[("STUB_PACE", "5")]].concat());
}

#[test]
fn graphs_that_are_more_than_a_convolution_are_passed_through() {
    graphs_pass("foreign", &[FOUR_MIB]);
}

#[test]
fn plans_of_graphs_run_in_captures_and_none_is_measured_there() {
    graphs_pass("capture", &[FOUR_MIB]);
}

#[test]
fn a_plan_of_a_graph_writes_nowhere_if_it_is_not_given_what_it_asked_for() {
    graphs_pass("careless", &[FOUR_MIB]);
}

#[test]
fn graphs_of_several_threads_do_not_meet() {
    graphs_pass("threads", &[FOUR_MIB]);
}

#[test]
fn graphs_are_passed_through_without_room_and_by_an_older_cudnn() {
    let said = Stub::new().program_passes("./graphs.so", "untouched", &[FOUR_MIB, ("STUB_MEMORY", "100")]);
    assert_eq!(said.matches("has no room").count(), 1, "{said}");
    let said = Stub::new().program_passes("./older_graphs.so", "untouched", &[FOUR_MIB]);
    assert_eq!(said, "microbatch: this is not cuDNN 9: all calls are passed through\n");
}

#[test]
fn without_cudnn_calls_say_that_it_is_not_there() {
    let output = Stub::new().preloaded("alone", &[], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1001\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no cuDNN is loaded"));
}

#[test]
fn the_report_says_what_each_convolution_got_and_why() {
    let stub = Stub::new();
    stub.passes("worth", &[("MICROBATCH_REPORT", "report.json")]);
    let text = fs::read_to_string(stub.path("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let [line] = &report.as_array().expect("a list")[..] else { panic!("{text}") };
    let expected = serde_json::json!({
        "convolution": "cuda:0 Forward 16x3x2x2, 3x3x1x1 -> 16x3x2x2 FP32",
        "got": "2x8 FFT_TILING", "got_ms": 1.8, "workspace_bytes": 8 << 20, "limit_bytes": 8 << 20,
        "own": "IMPLICIT_GEMM", "own_ms": 16.0, "calls": 0,
        "why": "16 FFT_TILING would take 1.7000 ms, but 16 MiB",
    });
    assert_eq!(*line, expected);

    let said = stub.passes("forked", &[FOUR_MIB, ("MICROBATCH_REPORT", "-")]);
    assert_eq!(said.matches("16x3x2x2").count(), 2, "one paragraph with x and y: {said}");

    // Of a graph's engines the fastest, in each arithmetic.
    let seven_mib = ("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "7MiB");
    let variables = [seven_mib, ("MICROBATCH_REPORT", "graphs.json")];
    assert_eq!(stub.program_passes("./graphs.so", "capture", &variables), "");
    let text = fs::read_to_string(stub.path("graphs.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let lines = report.as_array().expect("a list").iter();
    let said: Vec<_> =
        lines.map(|line| [&line["convolution"], &line["own"], &line["own_ms"], &line["calls"]]).collect();
    let geometry = "cuda:0 BackwardData 3x3x1x1, 16x3x2x2 -> 16x3x2x2";
    let line = |dtype: &str, ms: f64, calls| {
        serde_json::json!([format!("{geometry} {dtype}"), "an engine", ms, calls])
    };
    assert_eq!(serde_json::json!(said), serde_json::json!([line("FP32", 16.0, 1), line("TF32", 8.0, 0)]));

    stub.passes("divided", &[("MICROBATCH_REPORT", "report.txt")]);
    let text = fs::read_to_string(stub.path("report.txt")).expect("a report");
    let paragraph = "  got: 4x4 FFT_TILING\n  got_ms: 2.0\n  workspace: 4 MiB\n";
    assert_eq!(text.matches(paragraph).count(), 3 * 2 * 3, "{text}");
    assert_eq!(text.matches("  calls: 5\n").count(), 3 * 2 * 3, "{text}");
}

/// A database that is named in the environment.
fn database(folder: &tempfile::TempDir) -> [(&'static str, &str); 2] {
    [FOUR_MIB, ("UCUDNN_DATABASE", folder.path().to_str().expect("a path in UTF-8"))]
}

/// What a database has of the stub's GPU, and of no other.
fn kept(database: &Path) -> CostTable {
    let entries =
        |folder: &Path| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let of_gpu: Vec<PathBuf> = entries(database).collect();
    let [of_gpu] = &of_gpu[..] else { panic!("{of_gpu:?}") };
    let segment = fs::read_to_string(entries(of_gpu).next().expect("a segment")).expect("a segment");
    let device = CostTable::from_json_lines(&segment).expect("a cost table").device;
    let version = "cuDNN 9.19.2 by its legacy API, ";
    assert!(
        device.name == "Stub GPU with 80 GiB" && device.library_version.starts_with(version),
        "{device:?}"
    );
    let (known, warning) = Database::new(database).read(&device);
    assert_eq!(warning, None);
    known
}

/// The stub's convolution in the planner's words.
fn kernel(op: ConvOp) -> KernelId {
    let shape = ConvShape { c: 3, h: 2, w: 2, k: 3, ..ConvShape::default() };
    KernelId { op, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw }
}

#[test]
fn what_one_process_has_measured_the_next_one_knows() {
    let (stub, folder) = (Stub::new(), tempfile::tempdir().expect("a folder"));
    let database = database(&folder);
    assert_eq!(stub.passes("measured", &database), "");
    assert_eq!(stub.passes("known", &database), "");
    // More workspace admits one size more, which alone is measured.
    let [_, named] = database;
    assert_eq!(stub.passes("known below", &[("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "8MiB"), named]), "");
    assert_eq!(stub.passes("known", &database), "");

    let table = kept(folder.path());
    for op in ConvOp::ALL {
        let rows = table.measurements(&kernel(op), 8).expect("what was measured");
        let [slow, fast] = rows else { panic!("{rows:?}") };
        let names = [slow, fast].map(|row| row.algorithm.as_str());
        assert!(matches!(names, ["IMPLICIT_GEMM" | "ALGO_0", "FFT_TILING"]), "{names:?}");
        assert_eq!((slow.workspace, fast.workspace), (Bytes(0), Bytes::mib(8)));
        assert!((slow.time_ms - 8.0).abs() < 1e-4 && (fast.time_ms - 0.9).abs() < 1e-4, "{rows:?}");
        assert_eq!(slow.deterministic, op == ConvOp::Forward);
    }
}

#[test]
fn measurements_of_another_gpu_or_version_or_in_another_workspace_are_not_planned_with() {
    let (stub, folder) = (Stub::new(), tempfile::tempdir().expect("a folder"));
    stub.passes("measured", &database(&folder));
    let table = kept(folder.path());
    let elsewhere = |change: &dyn Fn(&mut DeviceHeader)| {
        let mut table = table.clone();
        change(&mut table.device);
        table
    };
    let mut in_more = CostTable::new(table.device.clone());
    for (id, size, rows) in table.iter() {
        let more = |row: &Measurement| Measurement { workspace: row.workspace + Bytes(1), ..row.clone() };
        in_more.insert(*id, size, rows.iter().map(more).collect()).expect("measurements");
    }
    for other in [
        elsewhere(&|device| device.name += " more"),
        elsewhere(&|device| device.library_version = device.library_version.replace("9.19.2", "9.19.1")),
        elsewhere(&|device| device.library_version += ".1"),
        in_more,
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        Database::new(folder.path()).add(&other).expect("a database");
        assert_eq!(stub.passes("measured", &database(&folder)), "");
    }
}

#[test]
fn convolutions_channels_last_are_kept_too() {
    let (stub, folder) = (Stub::new(), tempfile::tempdir().expect("a folder"));
    stub.passes("measured channels last", &database(&folder));
    stub.passes("known channels last", &database(&folder));
    assert!(kept(folder.path()).iter().all(|(id, ..)| id.layout == Layout::Nhwc));
}

#[test]
fn a_database_that_cannot_be_used_costs_a_warning_and_nothing_else() {
    let (stub, folder) = (Stub::new(), tempfile::tempdir().expect("a folder"));
    let database = database(&folder);
    stub.passes("measured", &database);
    let of_gpu = fs::read_dir(folder.path()).expect("a folder").next().expect("a GPU").expect("a GPU").path();
    for segment in fs::read_dir(&of_gpu).expect("segments") {
        fs::write(segment.expect("a segment").path(), "half a li").expect("a segment");
    }
    // What is measured instead is kept beside it.
    for scenario in ["measured", "known"] {
        let said = stub.passes(scenario, &database);
        assert_eq!(said.matches("microbatch: ").count(), 1, "{said}");
        assert!(said.contains("the measurement database cannot be read in 3 places"), "{said}");
    }
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let named =
        |path: &Path| [FOUR_MIB, ("UCUDNN_DATABASE", path.to_str().expect("UTF-8").to_owned().leak())];
    let said = stub.passes("measured", &named(&file));
    assert_eq!(said.matches("file is a file; it must be a folder").count(), 1, "{said}");
    assert_eq!(said.matches("microbatch: ").count(), 1, "{said}");
    let said = stub.passes("measured", &named(&file.join("below")));
    assert_eq!(said.matches("cannot read").count(), 1, "{said}");
    assert_eq!(said.matches("cannot make").count(), 1, "{said}");
    assert_eq!(said.matches("microbatch: ").count(), 2, "{said}");
}

#[test]
fn measurements_are_in_the_users_cache_unless_there_is_to_be_no_database() {
    let (stub, folder) = (Stub::new(), tempfile::tempdir().expect("a folder"));
    let cache = ("XDG_CACHE_HOME", folder.path().to_str().expect("a path in UTF-8"));
    stub.passes("measured", &[FOUR_MIB, cache]);
    stub.passes("measured", &[FOUR_MIB, cache]);
    assert!(fs::read_dir(folder.path()).expect("a folder").next().is_none());
    stub.passes("measured", &[FOUR_MIB, cache, ("UCUDNN_DATABASE", "")]);
    stub.passes("known", &[FOUR_MIB, cache, ("UCUDNN_DATABASE", "")]);
    kept(&folder.path().join("microbatch/measurements"));
}
