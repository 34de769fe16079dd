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
//! Every row is a run of the command in a process of its own, with a time limit: no row takes another's memory or time, and
//! one that fails says why in its place. Rows are written as they are known. On a GPU they are measured (`time`), with a
//! recorded device they are planned (`plan`). They stand in the order of the papers, and what the time does not suffice for is
//! missing at the end; `vdnn`, `accudnn` or `aims` makes one of the tables. The last says how much slower plans in parts of the
//! memory are, and how much slower any plan is, by its bound. `sweep` plans nets in many parts of their memory, and fails if more
//! memory or another policy is faster than less of it or the joint plan; `planning` says how long planning takes.

use serde_json::Value;
use std::{
    collections::HashMap,
    env,
    error::Error,
    fs::{self, File},
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Set in a process that is to be the `microbatch` command.
const COMMAND: &str = "MICROBATCH_BENCH_COMMAND";
/// A budget in which everything stays.
const EVERYTHING: &str = "130GiB";
/// The memory of the papers' GPUs.
const TITAN_X: &str = "12GiB";

/// The nets of vDNN: a model's name or VGG's depth, its mini-batch, and what the paper says of it.
const VDNN: [(&str, usize, &str); 10] = [
    ("alexnet", 128, "dyn saves 89 % on average"),
    ("overfeat", 128, "dyn saves 91 % on average"),
    ("googlenet", 128, "dyn saves 95 % on average"),
    ("vgg16", 64, ""),
    ("vgg16", 128, "base 15 GB; all:m 4.8 GB, 61 % slower"),
    ("vgg16", 256, "base 28 GB; dyn 18 % slower"),
    ("116", 32, ""),
    ("216", 32, ""),
    ("316", 32, ""),
    ("416", 32, "base 67.1 GB; dyn 4.2 GB, not slower"),
];

/// Policies of the vDNN tables, and the budgets that they have: those that never change what they offload have what they need.
const POLICIES: [(&str, &str); 6] = [
    ("vdnn-all:m", EVERYTHING),
    ("vdnn-all:p", EVERYTHING),
    ("vdnn-conv:m", EVERYTHING),
    ("vdnn-conv:p", EVERYTHING),
    ("vdnn-dyn", TITAN_X),
    ("joint", TITAN_X),
];

/// The nets of AccUDNN: its largest mini-batch and images/s in 12 GB, Caffe's of both, and how many times its mini-batch ours
/// is to train.
const ACCUDNN: [(&str, [usize; 2], [usize; 2], f64); 7] = [
    ("alexnet", [1032, 853], [848, 865], 3.0),
    ("googlenet", [286, 245], [150, 263], 2.0),
    ("vgg16", [192, 50], [80, 51], 1.5),
    ("resnet34", [276, 99], [91, 99], 3.0),
    ("resnet50", [112, 66], [33, 66], 3.0),
    ("resnet101", [74, 34], [20, 29], 3.0),
    ("resnet152", [54, 24], [13, 19], 3.0),
];

/// What a part of the memory is to cost at most: a net, its mini-batch and arithmetic, the part of what keeping everything takes
/// (or bytes, if more than 1), and percents of the time.
const AIMS: [(&str, usize, &str, f64, f64); 6] = [
    ("resnet50", 256, "fp32", 0.5, 4.0),
    ("resnet50", 256, "fp32", 0.33, 10.0),
    ("resnet50", 256, "tf32", 0.5, 8.0),
    ("resnet50", 256, "tf32", 0.33, 15.0),
    ("resnet50", 184, "fp32", 4.99e9, 10.0),
    ("vgg16", 256, "fp32", 0.7, 2.0),
];

/// The nets that are planned in many parts of their memory, with their mini-batches.
const SWEPT: [(&str, usize); 5] =
    [("alexnet", 256), ("googlenet", 128), ("resnet18", 128), ("resnet50", 256), ("vgg16", 256)];

/// The nets whose planning is timed, with their mini-batches, and how many seconds it is to take at most.
const PLANNED: [(&str, usize, f64); 3] = [("resnet50", 256, 3.0), ("resnet152", 32, 20.0), ("416", 32, 60.0)];

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

    fn text(&self, name: &str, default: &str) -> String {
        self.options.get(name).map_or(default, String::as_str).to_owned()
    }

    fn number(&self, name: &str, default: f64) -> Outcome<f64> {
        Ok(self.options.get(name).map_or(Ok(default), |text| text.parse())?)
    }

    /// Whether the time for all rows is over.
    fn is_over(&self) -> Outcome<bool> {
        Ok(self.start.elapsed().as_secs_f64() >= self.number("seconds", 1e6)?)
    }

    /// Whether the device is a recorded one, whose rows are planned.
    fn is_recorded(&self) -> bool {
        let device = self.text("device", "h200");
        device == "h200" || device.starts_with("recorded:")
    }

    fn say(&mut self, line: &str) -> Outcome<()> {
        println!("{line}");
        if let Some(out) = &mut self.out {
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        Ok(())
    }

    /// What the command prints.
    fn command(&self, words: &[String]) -> Outcome<String> {
        let (all, row) = (self.number("seconds", 1e6)?, self.number("row-seconds", 60.0)?);
        let left = (all - self.start.elapsed().as_secs_f64()).max(0.0);
        self.command_watched(words, Duration::from_secs_f64(row.min(left)), |_| ())
    }

    /// The same within `limit`, shown to `watch` as long as it runs.
    fn command_watched(
        &self,
        words: &[String],
        limit: Duration,
        mut watch: impl FnMut(&Child),
    ) -> Outcome<String> {
        let mut command = Command::new(env::current_exe()?);
        command.args(words).env(COMMAND, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (mut stdout, mut stderr) =
            (child.stdout.take().ok_or("no stdout")?, child.stderr.take().ok_or("no stderr")?);
        let read = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let complaint = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Err(format!("not done in {:.0} s", limit.as_secs_f64()).into());
            }
            watch(&child);
            thread::sleep(Duration::from_millis(50));
        };
        let text = read.join().map_err(|_| "its output cannot be read")??;
        let complaint = complaint.join().map_err(|_| "its errors cannot be read")??;
        match status.success() {
            true => Ok(text),
            false => Err(complaint.lines().last().unwrap_or("failed without a word").to_owned().into()),
        }
    }

    /// A model's name; of a depth, the file of that VGG.
    fn net(&self, net: &str) -> Outcome<String> {
        if net.parse::<usize>().is_err() {
            return Ok(net.to_owned());
        }
        let file: PathBuf = self.folder.path().join(format!("vgg{net}.prototxt"));
        if !file.exists() {
            fs::write(&file, self.command(&words(&format!("model vgg --depth {net}")))?)?;
        }
        Ok(file.display().to_string())
    }

    /// Milliseconds of an iteration, the most and the mean of the bytes that it takes on the device, and the milliseconds of an
    /// iteration in any memory and of the fastest that may be in this one.
    fn row(&self, net: &str, batch: usize, policy: &str, budget: &str) -> Outcome<[f64; 5]> {
        let device = self.text("device", "h200");
        let base = format!(
            "--model {} --batch {batch} --device {device} --memory-policy {policy} --device-memory {budget} --math {} --json",
            self.net(net)?,
            self.text("math", "fp32")
        );
        let (report, run) = if self.is_recorded() {
            (self.command(&words(&format!("plan {base}")))?, "")
        } else {
            let database = self.folder.path().display();
            let measured = "--synthetic --iterations 5 --policy adaptive --database";
            (self.command(&words(&format!("time {base} {measured} {database}")))?, "/runs/0")
        };
        let report: Value = serde_json::from_str(&report)?;
        let at = |path: &str| report.pointer(&format!("{run}{path}")).cloned().unwrap_or_default();
        let schedule = at("/schedule");
        let base = (at("/memory/parameters"), at("/memory/arena"));
        let arena = base.1.as_f64().or(schedule["arena"].as_f64()).ok_or("no arena in the report")?;
        let ms = match run {
            "" => schedule["planned_ms"].as_f64(),
            _ => ["/replayed_ms", "/iterations_ms"].into_iter().find_map(|path| median(&at(path))),
        };
        let [unlimited_ms, bound_ms] =
            ["unlimited_ms", "bound_ms"].map(|name| schedule[name].as_f64().unwrap_or_default());
        let mean = mean(&schedule["actions"]).unwrap_or(arena);
        Ok([ms.ok_or("no time in the report")?, arena, mean, unlimited_ms, bound_ms])
    }

    /// The same where everything stays on the device.
    fn base(&mut self, net: &str, batch: usize) -> Outcome<[f64; 2]> {
        let key = (net.to_owned(), batch);
        if !self.bases.contains_key(&key) {
            let row = self.row(net, batch, "joint", EVERYTHING);
            self.bases.insert(key.clone(), row.as_ref().ok().map(|&[ms, most, ..]| [ms, most]));
            row?;
        }
        self.bases[&key].ok_or_else(|| "what it is compared with is not known".into())
    }

    fn vdnn(&mut self) -> Outcome<()> {
        let how = if self.is_recorded() { "planned" } else { "measured" };
        self.say(&format!("vDNN's nets, {how} on {}\n", self.text("device", "h200")))?;
        self.say("| net | mini-batch | policy | ms | slower | GiB at most | less | on average | paper |")?;
        self.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for (net, batch, paper) in VDNN {
            if self.is_over()? {
                return self.say("\nNo time is left for the rest.");
            }
            let name = if net.parse::<usize>().is_ok() { format!("vgg-{net}") } else { net.to_owned() };
            let base = self.base(net, batch);
            let cells = match &base {
                Ok([ms, bytes]) => format!("{ms:.1} | | {:.2} | | |", bytes / GIB),
                Err(error) => format!("{error} | | | | |"),
            };
            self.say(&format!("| {name} | {batch} | keep | {cells} {paper} |"))?;
            let Ok([base_ms, base_bytes]) = base else { continue };
            for (policy, budget) in POLICIES {
                let cells = match self.row(net, batch, policy, budget) {
                    Ok([ms, most, mean, ..]) => {
                        let part = |now: f64, before: f64| 100.0 * (now / before - 1.0);
                        let (slower, less, mean) =
                            (part(ms, base_ms), part(most, base_bytes), part(mean, base_bytes));
                        format!("{ms:.1} | {slower:+.1} % | {:.2} | {less:+.0} % | {mean:+.0} %", most / GIB)
                    }
                    Err(error) => format!("{error} | | | |"),
                };
                self.say(&format!("| {name} | {batch} | {policy} | {cells} | |"))?;
            }
        }
        Ok(())
    }

    fn accudnn(&mut self) -> Outcome<()> {
        self.say(&format!("\nAccUDNN's nets in {TITAN_X}; the paper's GPU is an M40\n"))?;
        self.say("| net | mini-batch | policy | images/s | keeping all | GiB at most | paper: mini-batch, images/s | Caffe |")?;
        self.say("| --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for (net, [batch, speed], [caffe, caffe_speed], times) in ACCUDNN {
            if self.is_over()? {
                return self.say("\nNo time is left for the rest.");
            }
            let ours = (batch as f64 * times) as usize;
            for (policy, size) in [("accudnn", batch), ("joint", batch), ("accudnn", ours), ("joint", ours)] {
                let base = self.base(net, size).map(|[ms, _]| 1e3 * size as f64 / ms);
                let keeping = base.map_or_else(|error| error.to_string(), |speed| format!("{speed:.0}"));
                let cells = match self.row(net, size, policy, TITAN_X) {
                    Ok([ms, most, ..]) => {
                        format!("{:.0} | {keeping} | {:.2}", 1e3 * size as f64 / ms, most / GIB)
                    }
                    Err(error) => format!("{error} | {keeping} |"),
                };
                self.say(&format!(
                    "| {net} | {size} | {policy} | {cells} | {batch}, {speed} | {caffe}, {caffe_speed} |"
                ))?;
            }
        }
        Ok(())
    }

    /// What parts of the memory cost, planned or measured, what they were to cost, and what they cost at least.
    fn aims(&mut self) -> Outcome<()> {
        self.say(&format!(
            "\nParts of the memory that keeping everything takes, on {}\n",
            self.text("device", "h200")
        ))?;
        self.say("| net | mini-batch | arithmetic | GiB | of | ms | slower | aim | at least | |")?;
        self.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for (net, batch, math, part, aim) in AIMS {
            self.options.insert("math".to_owned(), math.to_owned());
            let row = self.row(net, batch, "joint", EVERYTHING).and_then(|[ms, most, ..]| {
                let budget = if part > 1.0 { part } else { part * most };
                Ok((ms, most, budget, self.row(net, batch, "joint", &(budget as u64).to_string())?))
            });
            let cells = match row {
                Ok((base_ms, most, budget, [ms, _, _, unlimited_ms, bound_ms])) => {
                    let [slower, least] =
                        [ms / base_ms, bound_ms / unlimited_ms].map(|times| 100.0 * (times - 1.0));
                    let verdict = match () {
                        () if slower <= aim => "reached",
                        () if least > aim => "out of reach",
                        () => "open",
                    };
                    format!(
                        "{:.2} | {:.2} | {ms:.1} | {slower:+.1} % | {aim:+.0} % | {least:+.1} % | {verdict}",
                        budget / GIB,
                        most / GIB
                    )
                }
                Err(error) => format!("{error} | | | | {aim:+.0} % | |"),
            };
            self.say(&format!("| {net} | {batch} | {math} | {cells} |"))?;
        }
        Ok(())
    }

    /// Plans in equal parts of the memory: more of it is never slower, nor is joint ever slower than another policy.
    fn sweep(&mut self) -> Outcome<()> {
        let (parts, mut faults) = (self.number("parts", 40.0)? as usize, Vec::new());
        self.say("\n| net | mini-batch | arithmetic | GiB | part | ms | slower | gap | fastest other |")?;
        self.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for (math, (net, batch)) in ["fp32", "tf32"].into_iter().flat_map(|math| SWEPT.map(|net| (math, net)))
        {
            self.options.insert("math".to_owned(), math.to_owned());
            let [base_ms, most, ..] = self.row(net, batch, "joint", EVERYTHING)?;
            let mut last_ms = f64::INFINITY;
            for part in 1..=parts {
                let budget = (most * part as f64 / parts as f64) as u64;
                // Below the floor there is no plan.
                let Ok([ms, _, _, _, bound_ms]) = self.row(net, batch, "joint", &budget.to_string()) else {
                    continue;
                };
                let others = POLICIES.map(|(policy, _)| policy).into_iter().chain(["accudnn"]);
                let others = others.filter(|&policy| policy != "joint").filter_map(|policy| {
                    Some((self.row(net, batch, policy, &budget.to_string()).ok()?[0], policy))
                });
                let other = others.min_by(|a, b| a.0.total_cmp(&b.0));
                let least_ms = other.map_or(last_ms, |(ms, _)| ms.min(last_ms));
                if ms > least_ms * (1.0 + 1e-9) {
                    faults.push(format!("{net} {batch} {math} in {budget}: {ms} ms, {least_ms} is known"));
                }
                last_ms = ms;
                self.say(&format!(
                    "| {net} | {batch} | {math} | {:.2} | {:.1} % | {ms:.2} | {:+.2} % | {:.2} % | {} |",
                    budget as f64 / GIB,
                    100.0 * part as f64 / parts as f64,
                    100.0 * (ms / base_ms - 1.0),
                    100.0 * (ms / bound_ms - 1.0),
                    other.map_or_else(String::new, |(ms, policy)| format!("{policy} {ms:.2}")),
                ))?;
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
    }

    /// How long the command plans, tables read and all.
    fn planning(&mut self) -> Outcome<()> {
        self.say("\n| net | mini-batch | arithmetic | part of the memory | s | at most | gap |")?;
        self.say("| --- | --- | --- | --- | --- | --- | --- |")?;
        for (net, batch, aim) in PLANNED {
            let [_, most, ..] = self.row(net, batch, "joint", EVERYTHING)?;
            for part in [0.25, 0.5, 0.75] {
                let start = Instant::now();
                let [ms, _, _, _, bound_ms] =
                    self.row(net, batch, "joint", &((most * part) as u64).to_string())?;
                let (taken, gap) = (start.elapsed().as_secs_f64(), 100.0 * (ms / bound_ms - 1.0));
                let (math, part) = (self.text("math", "fp32"), 100.0 * part);
                self.say(&format!(
                    "| {net} | {batch} | {math} | {part:.0} % | {taken:.1} | {aim:.0} | {gap:.2} % |"
                ))?;
            }
        }
        Ok(())
    }

    /// Trains ResNet-50 twice, keeping everything and in half of that memory: losses alike, memory flat.
    fn soak(&mut self) -> Outcome<()> {
        let (batch, iterations) =
            (self.number("batch", 32.0)? as usize, self.number("iterations", 2000.0)? as usize);
        let (model, device) = (self.text("model", "resnet50"), self.text("device", "cuda:0"));
        // A solver of one's own brings its images.
        let solver = self.text("solver", &model);
        let images = if solver == model { "--synthetic=3x224x224" } else { "" };
        let [_, most, ..] = self.row(&model, batch, "joint", EVERYTHING)?;
        let part = self.number("part", 0.5)?;
        let mut curves = Vec::new();
        for (policy, budget) in
            [("keep", EVERYTHING.to_owned()), ("joint", format!("{}", (most * part) as u64))]
        {
            let train = format!(
                "train --solver {solver} --batch {batch} --max-iter {iterations} --device {device} {images} --no-test \
                 --no-snapshot --policy adaptive --memory-policy {policy} --device-memory {budget} --database {} --json",
                self.folder.path().display()
            );
            let (mut seen, mut last) = (Vec::new(), Instant::now());
            let limit = Duration::from_secs_f64(self.number("seconds", 3600.0)?);
            let report = self.command_watched(&words(&train), limit, |child| {
                if last.elapsed() > Duration::from_secs(1) {
                    seen.extend(used(child));
                    last = Instant::now();
                }
            })?;
            let report: Value = serde_json::from_str(&report)?;
            let steps = report["steps"].as_array().cloned().unwrap_or_default();
            curves.push(steps.iter().filter_map(|step| step["loss"].as_f64()).collect::<Vec<_>>());
            let speed = report["summary"]["images_per_s"].as_f64().unwrap_or_default();
            // The first third loads, records and fills caches.
            let flat = &seen[seen.len() / 3..];
            let most =
                |half: &[[u64; 2]], place: usize| half.iter().map(|used| used[place]).max().unwrap_or(0);
            let halves = flat.split_at(flat.len() / 2);
            let grown = [0, 1].map(|place| [most(halves.0, place), most(halves.1, place)]);
            self.say(&format!(
                "{policy:6} in {budget}: {speed:.0} images/s; MiB in its later thirds, host {:?}, GPU {:?}",
                grown[0], grown[1]
            ))?;
            if grown.iter().any(|[before, after]| *after as f64 > *before as f64 * 1.01 + 16.0) {
                return Err(format!("memory grows under {policy}").into());
            }
        }
        let furthest = curves[0].iter().zip(&curves[1]).map(|(a, b)| (a - b).abs() / a.abs().max(0.1));
        let furthest = furthest.fold(0.0, f64::max);
        self.say(&format!(
            "losses at {} steps: {:?} and {:?}; at most {:.2} % apart",
            curves[0].len(),
            curves[0],
            curves[1],
            100.0 * furthest
        ))?;
        // Kernels have other workspaces, so other algorithms with other rounding.
        let tolerance = self.number("tolerance", 0.1)?;
        match curves[0].len() == curves[1].len() && furthest <= tolerance {
            true => Ok(()),
            false => Err("the losses differ".into()),
        }
    }
}

const GIB: f64 = (1u64 << 30) as f64;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn median(times: &Value) -> Option<f64> {
    let mut times: Vec<f64> = times.as_array()?.iter().filter_map(Value::as_f64).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// The mean of what lies on the device, over the time of computation.
fn mean(actions: &Value) -> Option<f64> {
    let (mut sum, mut whole_ms) = (0.0, 0.0);
    for action in actions.as_array()?.iter().filter(|action| action["stream"] == "Compute") {
        let ms = action["end_ms"].as_f64()? - action["start_ms"].as_f64()?;
        sum += ms * action["alive"].as_f64()?;
        whole_ms += ms;
    }
    (whole_ms > 0.0).then_some(sum / whole_ms)
}

/// MiB of the host and of the GPU that a process has, as Linux and nvidia-smi know it.
fn used(child: &Child) -> Option<[u64; 2]> {
    let statm = fs::read_to_string(format!("/proc/{}/statm", child.id())).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    let query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let output = Command::new("nvidia-smi").args(query).output().ok();
    let gpu =
        output.and_then(|output| String::from_utf8(output.stdout).ok()?.lines().next()?.trim().parse().ok());
    Some([pages * 4 / 1024, gpu.unwrap_or(0)])
}
