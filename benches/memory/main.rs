//! Memory: the tables of the vDNN and AccUDNN papers, and a soak.
//!
//! ```text
//! cargo bench --bench memory -- tables --device cuda:0 --out tables.md --seconds 450 --row-seconds 60
//! cargo bench --bench memory -- tables --device h200 --out tables.md
//! cargo bench --bench memory -- aims --device h200
//! cargo bench --bench memory -- sweep --device h200 --parts 40
//! cargo bench --bench memory -- planning --device h200
//! cargo bench --bench memory -- soak --device cuda:0 --batch 32 --iterations 2000
//! ```
//!
//! Every row is a run of the command in a process of its own, with a time limit: no row takes another's memory or time,
//! and one that fails says why in its place. Rows are written as they are known. On a GPU they are measured (`time`),
//! with a recorded device they are planned (`plan`). They stand in the order of the papers, and what the time does not
//! suffice for is missing at the end; `vdnn`, `accudnn` or `aims` makes one of the tables. The last says how much
//! slower plans in parts of the memory are, and how much slower any plan is, by its bound. `sweep` plans nets in many
//! parts of their memory, and fails if more memory or another policy is faster than less of it or the joint plan;
//! `planning` says how long planning takes.

mod rows;
mod soak;
mod tables;

use std::{collections::HashMap, env, error::Error, fs::File, process::ExitCode, time::Instant};

/// Set in a process that is to be the `microbatch` command.
const COMMAND: &str = "MICROBATCH_BENCH_COMMAND";
/// A budget in which everything stays.
const EVERYTHING: &str = "130GiB";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    if env::var_os(COMMAND).is_some() {
        return microbatch::main();
    }
    match Bench::new().and_then(|mut bench| bench.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Bench {
    options: HashMap<String, String>,
    /// Where measurements and nets lie, shared by all rows.
    folder: tempfile::TempDir,
    out: Option<File>,
    start: Instant,
    /// `None` if the row took too long or failed, so that what rests on it is not tried.
    bases: HashMap<(String, usize), Option<[f64; 2]>>,
}

impl Bench {
    fn new() -> Outcome<Self> {
        // Cargo adds `--bench`.
        let mut words = env::args().skip(1).filter(|word| word != "--bench");
        let what = words.next().ok_or("say tables, vdnn, accudnn, aims, sweep, planning or soak")?;
        let mut options = HashMap::from([("what".to_owned(), what)]);
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} wants a value"))?;
            options.insert(name.trim_start_matches('-').to_owned(), value);
        }
        let out = options.get("out").map(File::create).transpose()?;
        let folder = tempfile::tempdir()?;
        Ok(Self { options, folder, out, start: Instant::now(), bases: HashMap::new() })
    }

    fn run(&mut self) -> Outcome<()> {
        match self.text("what", "").as_str() {
            "tables" => self.vdnn().and_then(|()| self.accudnn()).and_then(|()| self.aims()),
            "aims" => self.aims(),
            "sweep" => self.sweep(),
            "planning" => self.planning(),
            "vdnn" => self.vdnn(),
            "accudnn" => self.accudnn(),
            "soak" => self.soak(),
            what => Err(format!("{what} is not tables, vdnn, accudnn, aims, sweep, planning or soak").into()),
        }
    }
}
