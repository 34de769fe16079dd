//! Plans of recorded tables stay as they are: `recorded.txt` has their times and what they consist of. After a change
//! that is meant to change plans, `RECORD_PLANS=1 cargo test -p planner recorded` writes it anew.

use crate::synthetic::Recorded;
use flate2::read::GzDecoder;
use planner::*;
use std::{fmt::Write, fs, io::Read, path::Path};

/// The tables of `data/profiles`, by name.
pub(crate) fn recorded_tables() -> Vec<(String, CostTable)> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/profiles/nvidia-h200"));
    let mut tables = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        match name.rsplit('.').next() {
            Some("jsonl") => text = fs::read_to_string(&path).unwrap(),
            Some("gz") => {
                GzDecoder::new(fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
            }
            _ => continue,
        }
        let table = CostTable::from_json_lines(&text).unwrap();
        tables.push((name.split('.').next().unwrap().to_owned(), table));
    }
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    tables
}

/// The kernels of a table in one arithmetic, at the largest size that it has.
pub(crate) fn recorded_kernels(table: &CostTable, math: Math) -> Vec<Kernel> {
    let mini_batch = table.iter().map(|(_, size, _)| size).max().unwrap();
    let mut ids: Vec<KernelId> = table.iter().map(|(id, ..)| *id).filter(|id| id.math == math).collect();
    ids.dedup();
    let kernels = ids.into_iter().enumerate();
    kernels.map(|(index, id)| Kernel { name: format!("conv{index}"), id, mini_batch }).collect()
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a plan consists of, in a line.
fn line(planned: Result<Plan, PlanError>) -> String {
    match planned {
        Ok(plan) => {
            let kernels = plan.kernels.iter().map(|planned| {
                let undivided = planned.undivided.as_ref().map(|micro| micro.algorithm.to_string());
                format!(
                    "{}|{undivided:?}|{}|{}",
                    planned.configuration, planned.available, planned.explanation
                )
            });
            let bound_ms = plan.division.map_or(0.0, |division| division.lower_bound_ms);
            let undivided_ms = plan.undivided_time_ms.unwrap_or(f64::INFINITY);
            let all: Vec<String> = kernels.collect();
            format!("{:.9} {undivided_ms:.9} {bound_ms:.9} {:016x}", plan.time_ms, digest(&all.join("\n")))
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn plans_of_recorded_tables_are_what_they_were() {
    let mut found = String::new();
    for (name, table) in recorded_tables() {
        for math in [Math::Fp32, Math::Tf32] {
            let kernels = recorded_kernels(&table, math);
            if kernels.is_empty() {
                continue;
            }
            let policies = BatchSizePolicy::ALL.into_iter();
            for sizes in policies.filter(|&sizes| sizes != BatchSizePolicy::All || name.contains("all")) {
                for policy in WorkspacePolicy::ALL {
                    for mib in [0, 1, 8, 64, 512, 1 << 20] {
                        let mib =
                            if policy == WorkspacePolicy::Wd { mib * kernels.len() as u64 / 4 } else { mib };
                        let options = PlanOptions {
                            batch_size_policy: sizes,
                            workspace_policy: policy,
                            limit: Bytes::mib(mib),
                            max_error: (mib % 3 == 1).then_some(1e-5),
                            ..PlanOptions::default()
                        };
                        let planned = line(plan(&kernels, &table, &options));
                        writeln!(found, "{name} {math} {sizes} {policy} {mib} MiB: {planned}").unwrap();
                    }
                }
            }
        }
    }
    compare("plans", &found);
}

#[test]
fn what_adaptive_measures_of_recorded_tables_is_what_it_was() {
    let mut found = String::new();
    for (name, table) in recorded_tables().into_iter().filter(|(name, _)| name.contains("all")) {
        for math in [Math::Fp32, Math::Tf32] {
            let kernels = recorded_kernels(&table, math);
            if kernels.is_empty() {
                continue;
            }
            for (workspace_policy, mib) in
                [(WorkspacePolicy::Wr, 64), (WorkspacePolicy::Wd, 16 * kernels.len() as u64)]
            {
                let batch_size_policy = BatchSizePolicy::Adaptive;
                let limit = Bytes::mib(mib);
                let options =
                    PlanOptions { batch_size_policy, workspace_policy, limit, ..PlanOptions::default() };
                let mut measured = CostTable::default();
                profile(&mut measured, &kernels, &options, &mut Recorded(table.clone()), |_| ()).unwrap();
                let coverage = coverage(&measured, &kernels, &options);
                let Coverage { measured, all, lower_bound_ms, .. } = coverage;
                let bound_ms = lower_bound_ms.unwrap();
                let time_ms = coverage.time_ms.unwrap();
                writeln!(
                    found,
                    "{name} {math} {workspace_policy} {mib} MiB: {measured} of {all}, {time_ms:.9} ms, {bound_ms:.9}"
                )
                .unwrap();
            }
        }
    }
    compare("adaptive", &found);
}

/// Compares with `NAME.txt`, or writes that.
fn compare(name: &str, found: &str) {
    let file = format!("{}/tests/suite/recorded/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("RECORD_PLANS").is_some() {
        fs::write(&file, found).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap();
    for (found, expected) in std::iter::zip(found.lines(), expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}
