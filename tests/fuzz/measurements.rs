//! Cost tables, and the database made of them.

use crate::harness::{Accepted, Random, Verdict, fuzz};
use crate::mutate::{Corpus, extreme, one_in, pick};
use microbatch::files::database::{Database, folder_name};
use microbatch::planner::{
    BatchSizePolicy, Bytes, CostTable, Fronts, Kernel, KernelId, PlanOptions, WorkspacePolicy, coverage, plan,
};
use std::fs;

const TABLES: [&str; 2] = [
    include_str!("../../data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl"),
    include_str!("../../data/profiles/nvidia-h200/resnet18-128-powerOfTwo.jsonl"),
];

/// The header and some sizes of the first kernels of each table.
fn corpus() -> Corpus {
    let beginning = |table: &str| table.lines().take(12).collect::<Vec<_>>().join("\n");
    Corpus::new(TABLES.map(beginning))
}

/// Plans with a table in every way.
fn use_up(table: &CostTable, random: &mut Random) -> Verdict {
    let ids: Vec<KernelId> = table.iter().map(|(id, ..)| *id).collect();
    let mini_batch = *pick(random, &[1, 2, 6, 64]);
    let kernel = |(index, id): (usize, KernelId)| Kernel { name: format!("conv{index}"), id, mini_batch };
    let kernels: Vec<Kernel> = ids.into_iter().take(4).enumerate().map(kernel).collect();
    let limit = Bytes(extreme(random).parse().unwrap_or(1 << 20));
    for workspace_policy in WorkspacePolicy::ALL {
        let batch_size_policy = *pick(random, &BatchSizePolicy::ALL);
        let options = PlanOptions { batch_size_policy, workspace_policy, limit, ..PlanOptions::default() };
        let _ = plan(&kernels, table, &options);
        let _ = coverage(table, &kernels, &options);
        if let Ok(fronts) = Fronts::new(&kernels, table, &options) {
            let _ = (fronts.curve(workspace_policy), fronts.smallest_limit(workspace_policy));
            let _ = fronts.price_ms_per_mib(workspace_policy, limit);
        }
    }
    Ok(Accepted::Used)
}

#[test]
fn tables() {
    let corpus = corpus();
    fuzz(
        "tables",
        2000,
        |random| corpus.text(random),
        |input| {
            let (table, _) = CostTable::from_json_lines_lenient(&input.text())?;
            let again = CostTable::from_json_lines(&table.to_json_lines());
            assert_eq!(again.as_ref(), Ok(&table), "what was kept is a table");
            use_up(&table, &mut input.random)
        },
    );
}

#[test]
fn database() {
    let corpus = corpus();
    let device = CostTable::from_json_lines(TABLES[0]).expect("a recorded table").device;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(folder_name(&device));
    let make = |random: &mut Random| match one_in(random, 8) {
        true => corpus.bytes(random),
        false => corpus.text(random),
    };
    fuzz("database", 1000, make, |input| {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        fs::write(folder.join("1-1.jsonl"), corpus.seed(&mut input.random))?;
        fs::write(folder.join("2-2.jsonl"), input.bytes)?;
        let database = Database::new(root.path());
        let (known, warning) = database.read(&device);
        if let Some(warning) = warning {
            return Err(warning.into());
        }
        use_up(&known, &mut input.random)
    });
}
