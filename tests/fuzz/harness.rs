//! Runs a surface on many inputs, and says which of them panic, take too long or take too much memory.
//!
//! Input number i is a function of (seed, i). Before it is used it is written to a file, for surfaces that read files,
//! and so that it survives whatever happens: a fault that ends the process leaves it there.

use crate::counting::{Usage, measured};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, env, error, fmt, fs, io::Write, process, thread};

/// Where inputs and what is done with them come from.
pub(crate) type Random = ChaCha8Rng;

/// Nothing takes more of the processor, whoever else keeps it busy.
const LONGEST: Duration = Duration::from_secs(10);

/// Nor does anything wait longer.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// Memory that need not be foretold: what a reader keeps of an input, buffers of files, a few small blobs.
const FREE_BYTES: u64 = 16 << 20;

/// Places of panics after which a run has seen enough.
const MOST_FAULTS: usize = 20;

/// One input.
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    /// A file of these bytes.
    pub(crate) path: &'a Path,
    /// What else is drawn: the same for the same number of input.
    pub(crate) random: Random,
    /// Bytes of memory that whoever uses it has announced, of which it may take twice as many.
    pub(crate) foretold: u64,
}

impl Input<'_> {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes).into_owned()
    }
}

/// What became of an input that was not refused.
pub(crate) enum Accepted {
    /// It was used.
    Used,
    /// What it asks for is legitimately huge: nothing was run.
    Huge,
}

pub(crate) type Verdict = Result<Accepted, Box<dyn error::Error + Send + Sync>>;

/// Which inputs to run, from the environment.
struct Settings {
    /// For how long; else a number of inputs that a machine for CI has done in some seconds.
    seconds: Option<u64>,
    seed: u64,
    first: u64,
}

impl Settings {
    fn read() -> Self {
        let number = |name: &str| {
            let text = env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no whole number")))
        };
        Self {
            seconds: number("MICROBATCH_FUZZ_SECONDS"),
            seed: number("MICROBATCH_FUZZ_SEED").unwrap_or(1),
            first: number("MICROBATCH_FUZZ_FIRST").unwrap_or(0),
        }
    }
}

/// Makes inputs with `make` and has `take` use them, `inputs` of them unless the environment says otherwise.
///
/// # Panics
/// If there was a fault, or if not both good and bad inputs were among them: then the surface was not tested.
pub(crate) fn fuzz(
    surface: &'static str,
    inputs: u64,
    make: impl Fn(&mut Random) -> Vec<u8>,
    take: impl Fn(&mut Input<'_>) -> Verdict,
) {
    // One at a time: memory and panics are counted for the whole process.
    let _turn = lock(&TURN);
    watch();
    let settings = Settings::read();
    let mut run = Run::new(surface, settings.seed, &take);
    let (start, mut index) = (Instant::now(), settings.first);
    let processor_start = processor_time();
    loop {
        let done = match settings.seconds {
            Some(seconds) => start.elapsed().as_secs() >= seconds,
            None => index - settings.first >= inputs,
        };
        if done || run.faults.len() == MOST_FAULTS {
            break;
        }
        let mut random = stream(settings.seed, index, 0);
        run.input(index, make(&mut random));
        index += 1;
    }
    run.finish(start.elapsed(), processor_time() - processor_start);
}

fn stream(seed: u64, index: u64, purpose: u64) -> Random {
    let mut random = Random::seed_from_u64(seed);
    random.set_stream(2 * index + purpose);
    random
}

/// The inputs of one surface.
struct Run<'a, T> {
    surface: &'static str,
    seed: u64,
    folder: PathBuf,
    take: &'a T,
    refused: u64,
    huge: u64,
    used: u64,
    /// Why the last of the refused was.
    refusal: String,
    /// One for each place.
    faults: BTreeMap<String, String>,
}

/// What is wrong with an input: where, and in words.
struct Fault {
    place: String,
    words: String,
}

impl<'a, T: Fn(&mut Input<'_>) -> Verdict> Run<'a, T> {
    fn new(surface: &'static str, seed: u64, take: &'a T) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
        fs::create_dir_all(&folder).unwrap();
        Self {
            surface,
            seed,
            folder,
            take,
            refused: 0,
            huge: 0,
            used: 0,
            refusal: String::new(),
            faults: BTreeMap::new(),
        }
    }

    fn input(&mut self, index: u64, bytes: Vec<u8>) {
        match self.attempt(index, &bytes) {
            Ok(Ok(Accepted::Used)) => self.used += 1,
            Ok(Ok(Accepted::Huge)) => self.huge += 1,
            Ok(Err(error)) => {
                self.refused += 1;
                self.refusal = error.to_string();
            }
            Err(fault) => self.keep(index, bytes, fault),
        }
    }

    /// Uses an input once.
    fn attempt(&self, index: u64, bytes: &[u8]) -> Result<Verdict, Fault> {
        let path = self.folder.join(self.surface);
        fs::write(&path, bytes).unwrap();
        let mut input = Input { bytes, path: &path, random: stream(self.seed, index, 1), foretold: 0 };
        let what = format!("input {index} of seed {} for {}", self.seed, self.surface);
        let what = format!("{what}, {}", path.display());
        *lock(&RUNNING) = Some((Instant::now(), processor_time(), what));
        let (verdict, usage) = measured(|| caught(|| (self.take)(&mut input)));
        *lock(&RUNNING) = None;
        let verdict = verdict?;
        check_sentence(&verdict)?;
        check_memory(&verdict, usage, input.foretold)?;
        Ok(verdict)
    }

    /// Keeps the first input for each place of faults, as small as it can be made.
    fn keep(&mut self, index: u64, bytes: Vec<u8>, fault: Fault) {
        if self.faults.contains_key(&fault.place) {
            return;
        }
        let fails = |bytes: &[u8]| self.attempt(index, bytes).is_err_and(|other| other.place == fault.place);
        let small = shrunk(bytes, fails);
        let kept = self.folder.join(format!("{}-{}-{index}", self.surface, self.seed));
        fs::write(&kept, &small).unwrap();
        let Fault { place, words } = fault;
        let words = format!(
            "input {index} of seed {}: {words}\n    in {}, {} bytes: {}",
            self.seed,
            kept.display(),
            small.len(),
            String::from_utf8_lossy(&small[..small.len().min(2000)])
        );
        self.faults.insert(place, words);
    }

    fn finish(self, time: Duration, processor_time: Duration) {
        let _ = fs::remove_file(self.folder.join(self.surface));
        let inputs = self.refused + self.huge + self.used;
        let share = |part: u64| format!("{:.0} %", 100.0 * part as f64 / inputs.max(1) as f64);
        let per_hour = inputs as f64 / processor_time.as_secs_f64().max(0.01) * 3600.0;
        let [refused, huge, used] = [self.refused, self.huge, self.used].map(share);
        println!(
            "{}: {inputs} inputs in {:.1} s, {per_hour:.1e} an hour of a core; {refused} refused, {huge} huge, {used} used",
            self.surface,
            time.as_secs_f64(),
        );
        let faults: Vec<&str> = self.faults.values().map(String::as_str).collect();
        assert!(faults.is_empty(), "{} faults of {}:\n{}", faults.len(), self.surface, faults.join("\n"));
        let untested = inputs >= 200 && (self.refused * 50 < inputs || self.used * 50 < inputs);
        let Self { surface, refusal, .. } = self;
        assert!(!untested, "inputs for {surface} are one-sided: {refused} refused ({refusal}), {used} used");
    }
}

fn check_sentence(verdict: &Verdict) -> Result<(), Fault> {
    match verdict {
        Err(error) if error.to_string().trim().is_empty() => {
            Err(Fault { place: "words".to_owned(), words: "it is refused without a word".to_owned() })
        }
        _ => Ok(()),
    }
}

fn check_memory(verdict: &Verdict, usage: Usage, foretold: u64) -> Result<(), Fault> {
    if usage.peak as u64 <= foretold.saturating_mul(2).saturating_add(FREE_BYTES) {
        return Ok(());
    }
    let end = match verdict {
        Ok(Accepted::Used) => "it is used".to_owned(),
        Ok(Accepted::Huge) => "it asks for much".to_owned(),
        Err(error) => format!("it is refused ({error})"),
    };
    let Usage { peak, largest } = usage;
    let words = format!("{peak} bytes were in use, one of {largest}, where {foretold} were foretold: {end}");
    Err(Fault { place: "memory".to_owned(), words })
}

/// A panic as a fault.
fn caught<R>(work: impl FnOnce() -> R) -> Result<R, Fault> {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let words = text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        *lock(&PANIC) = Some(Fault { words: format!("{words} at {place}"), place });
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(usual);
    let unknown = || Fault { place: "unknown".to_owned(), words: "a panic without a word".to_owned() };
    result.map_err(|_| lock(&PANIC).take().unwrap_or_else(unknown))
}

/// The smallest part of `bytes` found by leaving out pieces, large ones first, that still fails.
fn shrunk(mut bytes: Vec<u8>, fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let start = Instant::now();
    let mut piece = bytes.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < bytes.len() && start.elapsed() < LONGEST {
            let end = (at + piece).min(bytes.len());
            let less = [&bytes[..at], &bytes[end..]].concat();
            if fails(&less) {
                bytes = less;
            } else {
                at = end;
            }
        }
        piece /= 2;
    }
    bytes
}

static TURN: Mutex<()> = Mutex::new(());
static PANIC: Mutex<Option<Fault>> = Mutex::new(None);
/// Since when, by both clocks, what is being used.
static RUNNING: Mutex<Option<(Instant, Duration, String)>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all threads together have had of the processor; where the system does not say that, time as it passes.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in brackets, which may hold anything, times are the 12th and 13th field, in hundredths of a
    // second.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace().skip(11).take(2));
    let ticks = fields.map(|fields| fields.filter_map(|field| field.parse::<u64>().ok()).sum());
    ticks.map_or_else(|| START.elapsed(), |ticks: u64| Duration::from_millis(10 * ticks))
}

/// Ends the process when an input takes too long, as nothing else could.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_millis(200));
                if let Some((start, processor_start, what)) = &*lock(&RUNNING)
                    && (processor_time() - *processor_start > LONGEST || start.elapsed() > LONGEST_WAIT)
                {
                    // Not `eprintln`, whose output the test's harness keeps to itself.
                    let _ =
                        writeln!(std::io::stderr(), "{what}: takes more than {LONGEST:?} of the processor");
                    process::abort();
                }
            }
        });
    });
}

/// An error that is only a sentence.
pub(crate) fn refuse<R>(sentence: impl fmt::Display) -> Result<R, Box<dyn error::Error + Send + Sync>> {
    Err(sentence.to_string().into())
}
