//! Profiling, and cost tables as text.

use crate::synthetic::*;
use planner::*;

/// Notes what it is asked for.
#[derive(Default)]
struct Recorder {
    asked: Vec<(u32, u32)>,
    fails_at: Option<u32>,
    time_ms: f64,
}

impl Profiler for Recorder {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let Request { kernel, micro_batch, .. } = *request;
        if self.fails_at == Some(micro_batch) {
            return Err("the device is lost".into());
        }
        self.asked.push((kernel.shape.k, micro_batch));
        let affine =
            Affine { name: "GEMM", call_ms: self.time_ms, sample_ms: 0.1, call_bytes: 3, sample_bytes: 7 };
        Ok(vec![affine.at(micro_batch)])
    }
}

fn powers() -> PlanOptions {
    options(BatchSizePolicy::PowerOfTwo, WorkspacePolicy::Wr, Bytes(0))
}

fn undivided() -> PlanOptions {
    options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr, Bytes(0))
}

fn recorded() -> CostTable {
    let device = DeviceHeader { name: "a CPU".into(), threads: "2".into(), ..DeviceHeader::default() };
    let mut table = CostTable::new(device);
    let mut recorder = Recorder { time_ms: 1.0 / 3.0, ..Recorder::default() };
    profile(&mut table, &[kernel(8, 6), kernel(9, 4)], &powers(), &mut recorder, |_| ()).unwrap();
    table.insert(kernel(10, 1).id, 1, vec![]).unwrap();
    table
}

#[test]
fn identical_kernels_are_measured_once_and_the_largest_size_first() {
    let kernels = [kernel(8, 6), kernel(9, 4), kernel(8, 6), kernel(8, 4)];
    let mut recorder = Recorder::default();
    let mut table = CostTable::default();
    let mut steps = Vec::new();
    profile(&mut table, &kernels, &powers(), &mut recorder, |progress| {
        steps.push((progress.done, progress.total, progress.next.1));
    })
    .unwrap();
    assert_eq!(recorder.asked, [(8, 6), (8, 4), (8, 2), (8, 1), (9, 4), (9, 2), (9, 1)]);
    assert_eq!(steps.len(), 7);
    assert_eq!((steps[0], steps[6]), ((0, 7, 6), (6, 7, 1)));
}

#[test]
fn what_the_table_has_is_not_measured_again() {
    let mut table = recorded();
    let mut recorder = Recorder::default();
    profile(&mut table, &[kernel(8, 6), kernel(9, 8)], &powers(), &mut recorder, |_| ()).unwrap();
    assert_eq!(recorder.asked, [(9, 8)]);
}

#[test]
fn a_failing_profiler_is_named_with_kernel_and_size() {
    let mut recorder = Recorder { fails_at: Some(2), ..Recorder::default() };
    let mut table = CostTable::default();
    let error = profile(&mut table, &[kernel(8, 4)], &powers(), &mut recorder, |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot profile conv8 Forward (64x27x27, 8 filters 5x5, pad 2) at micro-batch 2: \
         the device is lost"
    );
    assert_eq!(table.len(), 1, "what was measured before stays");

    let mut recorder = Recorder { time_ms: f64::NAN, ..Recorder::default() };
    let error = profile(&mut table, &[kernel(9, 4)], &undivided(), &mut recorder, |_| ()).unwrap_err();
    assert!(error.to_string().ends_with("GEMM has an impossible time of NaN ms"), "{error}");
}

#[test]
fn json_lines_give_the_same_table_back() {
    let table = recorded();
    let text = table.to_json_lines();
    assert_eq!(text.lines().count(), 1 + table.len());
    assert_eq!(CostTable::from_json_lines(&text), Ok(table.clone()));
    assert_eq!(CostTable::from_json_lines(&text.replace('\n', "\r\n\r\n")), Ok(table.clone()));
}

#[test]
fn the_text_is_what_it_was() {
    let mut table = CostTable::default();
    let fft = Affine { name: "FFT", call_ms: 0.5, sample_ms: 0.0, call_bytes: 64, sample_bytes: 0 };
    table.insert(kernel(8, 4).id, 4, vec![fft.at(4)]).unwrap();
    assert_eq!(
        table.to_json_lines(),
        concat!(
            r#"{"cost_table":1,"device":{"name":"","library_version":"","threads":"","date":"","command":""}}"#,
            "\n",
            r#"{"kernel":{"op":"Forward","shape":{"c":64,"h":27,"w":27,"k":8,"r":5,"s":5,"pad":[2,2],"#,
            r#""stride":[1,1],"dilation":[1,1],"groups":1},"dtype":"f32","math":"fp32","layout":"NCHW"},"#,
            r#""micro_batch":4,"measurements":[{"algorithm":"FFT","micro_batch":4,"time_ms":0.5,"#,
            r#""workspace":64,"max_error":0.000001,"deterministic":true}]}"#,
            "\n"
        )
    );
}

#[test]
fn later_lines_correct_earlier_ones() {
    let text = recorded().to_json_lines();
    let line = text.lines().nth(1).unwrap().replace("\"GEMM\"", "\"FFT\"");
    let table = CostTable::from_json_lines(&format!("{text}{line}\n")).unwrap();
    assert_eq!(table.len(), recorded().len());
    assert_eq!(
        table.iter().filter(|(_, _, rows)| rows.iter().any(|r| r.algorithm == "FFT".into())).count(),
        1
    );
}

#[test]
fn some_algorithms_may_be_known_and_more_may_be_to_measure() {
    let affine = |name, call_ms| Affine { name, call_ms, sample_ms: 0.0, call_bytes: 0, sample_bytes: 0 };
    let kernels = [kernel(8, 4)];
    let id = kernels[0].id;
    let mut table = CostTable::default();
    table.insert_some(id, 4, vec![]).unwrap();
    assert_eq!(table.measurements(&id, 4), Some(&[][..]));
    table.insert_some(id, 4, vec![affine("FFT", 1.0).at(4), affine("GEMM", 3.0).at(4)]).unwrap();
    let before = table.clone();
    table.insert_some(id, 4, vec![affine("GEMM", 2.0).at(4)]).unwrap();
    let times = |table: &CostTable| -> Vec<f64> {
        table.measurements(&id, 4).unwrap().iter().map(|row| row.time_ms).collect()
    };
    assert_eq!((times(&table), table.len()), (vec![1.0, 2.0], 1));
    assert_eq!(table.changed_since(&before), table);
    assert!(table.changed_since(&table.clone()).is_empty());

    // There may be more, and a reader of the text knows it.
    let text = table.to_json_lines();
    assert!(text.ends_with("\"partial\":true}\n"), "{text}");
    let mut copy = CostTable::from_json_lines(&text).unwrap();
    assert_eq!(copy, table);
    assert_eq!(copy.missing(&kernels, BatchSizePolicy::Undivided).len(), 1);
    copy.insert(id, 4, vec![affine("GEMM", 5.0).at(4)]).unwrap();
    assert!(copy.missing(&kernels, BatchSizePolicy::Undivided).is_empty());
    // Some of another table come in the place of theirs and leave the others.
    copy.merge(table).unwrap();
    assert_eq!(times(&copy), [1.0, 2.0]);
    assert!(copy.missing(&kernels, BatchSizePolicy::Undivided).is_empty());
}

#[test]
fn a_table_of_an_earlier_version_with_parts_of_a_size_plans_as_it_did_and_is_completed() {
    let kernels = [kernel(8, 3)];
    let affine = |name, call_ms| Affine { name, call_ms, sample_ms: 0.0, call_bytes: 0, sample_bytes: 0 };
    let mut table = CostTable::default();
    for size in [1, 2] {
        table.insert(kernels[0].id, size, vec![affine("FFT", 1.0).at(size)]).unwrap();
    }
    // What `all` had not measured there could not be part of a faster plan.
    table.insert_some(kernels[0].id, 3, vec![]).unwrap();
    let mut table = CostTable::from_json_lines(&table.to_json_lines()).unwrap();
    let all = options(BatchSizePolicy::All, WorkspacePolicy::Wr, Bytes(0));
    assert_eq!(plan(&kernels, &table, &all).unwrap().time_ms, 2.0);
    let mut recorder = Recorder { time_ms: 0.1, ..Recorder::default() };
    profile(&mut table, &kernels, &all, &mut recorder, |_| ()).unwrap();
    assert_eq!(recorder.asked, [(8, 3)]);
    assert!(!table.to_json_lines().contains("partial"));
}

#[test]
fn a_shipped_table_has_four_digits_and_no_row_that_loses_in_everything() {
    let row = |name: &str, time_ms, workspace, max_error| Measurement {
        algorithm: name.into(),
        micro_batch: 2,
        time_ms,
        shared_ms: 0.0,
        workspace: Bytes(workspace),
        max_error,
        deterministic: true,
    };
    let id = kernel(8, 2).id;
    let mut table = CostTable::default();
    let rows = vec![
        row("SLOW_AND_HUNGRY", 3.0, 100, 1e-6),
        row("FAST", 1.234_56, 100, 1e-6),
        row("SLOW_AND_EXACT", 2.0, 100, 1e-7),
        row("FRUGAL", 4.0, 0, 1e-6),
        Measurement { shared_ms: 2.499_99, ..row("FAST_WHEN_REPEATED", 2.5, 100, 1e-6) },
    ];
    table.insert(id, 2, rows).unwrap();
    assert_eq!(
        table.thinned(true).measurements(&id, 2).unwrap().len(),
        table.measurements(&id, 2).unwrap().len()
    );
    let thinned = table.thinned(false);
    let rows = thinned.measurements(&id, 2).unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.algorithm.as_str()).collect();
    assert_eq!(names, ["FAST", "SLOW_AND_EXACT", "FAST_WHEN_REPEATED", "FRUGAL"]);
    assert_eq!(rows[0].time_ms, 1.235);
    // What a row shares may be paid for by another size: the other's own would come on top.
    let sharing = |name, time_ms| Measurement { shared_ms: time_ms / 2.0, ..row(name, time_ms, 100, 1e-6) };
    table.insert(id, 2, vec![sharing("ONE", 9.0), sharing("OTHER", 10.0), sharing("SLOW", 20.0)]).unwrap();
    assert_eq!(table.thinned(false).measurements(&id, 2).unwrap().len(), 2);
    table.insert(id, 2, rows.to_vec()).unwrap();
    assert_eq!(table.of_kernels(&[kernel(8, 2)]), table);
    assert!(table.of_kernels(&[kernel(8, 1)]).is_empty() && table.of_kernels(&[kernel(9, 2)]).is_empty());
}

fn error(text: &str) -> String {
    CostTable::from_json_lines(text).unwrap_err().to_string()
}

#[test]
fn corrupt_lines_are_named_by_number() {
    let text = recorded().to_json_lines();
    assert_eq!(error(""), "cost table, line 1: the header is missing");
    assert_eq!(error("\n \n"), "cost table, line 1: the header is missing");
    assert!(error("hello").starts_with("cost table, line 1: expected value"));
    assert!(
        error(text.lines().nth(1).unwrap()).starts_with("cost table, line 1: missing field `cost_table`")
    );
    let newer = text.replacen("\"cost_table\":1", "\"cost_table\":2", 1);
    assert_eq!(error(&newer), "cost table, line 1: format 2 is unknown, this version reads 1");
    let twice = format!("{text}{}", text.lines().next().unwrap());
    assert!(error(&twice).starts_with("cost table, line 10: missing field `kernel`"), "{}", error(&twice));

    let truncated = &text[..text.len() - 40];
    let lines = truncated.lines().count();
    assert!(error(truncated).starts_with(&format!("cost table, line {lines}: EOF while parsing")));

    let line = |from: &str, to: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert!(lines[3].contains(from), "{} lacks {from}", lines[3]);
        lines[3] = lines[3].replace(from, to);
        error(&lines.join("\n"))
    };
    assert!(
        line("\"Forward\"", "\"Sideways\"").starts_with("cost table, line 4: unknown variant `Sideways`")
    );
    assert!(
        line("\"time_ms\":", "\"time_ms\":-")
            .ends_with("GEMM has an impossible time of -0.7333333333333334 ms")
    );
    assert!(line("\"time_ms\":", "\"time_ms\":1000000000").contains(" has an impossible time of "));
    assert!(
        line("\"algorithm\":\"GEMM\"", "\"algorithm\":\"GEMM\\u001b[2J\"")
            .ends_with("GEMM\\u{1b}[2J has a name that is no text")
    );
    assert!(
        line("\"time_ms\":0", "\"time_ms\":null,\"x\":0")
            .starts_with("cost table, line 4: invalid type: null")
    );
    assert_eq!(
        line("\"algorithm\":\"GEMM\",\"micro_batch\":4", "\"algorithm\":\"GEMM\",\"micro_batch\":0"),
        "cost table, line 4: GEMM was measured without a sample"
    );
    assert_eq!(
        line("\"algorithm\":\"GEMM\",\"micro_batch\":4", "\"algorithm\":\"GEMM\",\"micro_batch\":3"),
        "cost table, line 4: GEMM was measured at micro-batch 3 in a group for micro-batch 4"
    );
    assert!(
        line("\"workspace\":", "\"workspace\":99999999999999999")
            .contains(" has an impossible workspace of ")
    );
    assert!(
        line("\"max_error\":", "\"max_error\":-").contains("line 4: GEMM has an impossible maximum error")
    );
}
