//! The papers' tables, and what parts of the memory cost.

use super::{Bench, EVERYTHING, Outcome};
use std::time::Instant;

const GIB: f64 = (1u64 << 30) as f64;

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

/// Policies of the vDNN tables, and the budgets that they have: those that never change what they offload have what
/// they need.
const POLICIES: [(&str, &str); 6] = [
    ("vdnn-all:m", EVERYTHING),
    ("vdnn-all:p", EVERYTHING),
    ("vdnn-conv:m", EVERYTHING),
    ("vdnn-conv:p", EVERYTHING),
    ("vdnn-dyn", TITAN_X),
    ("joint", TITAN_X),
];

/// The nets of AccUDNN: its largest mini-batch and images/s in 12 GB, Caffe's of both, and how many times its
/// mini-batch ours is to train.
const ACCUDNN: [(&str, [usize; 2], [usize; 2], f64); 7] = [
    ("alexnet", [1032, 853], [848, 865], 3.0),
    ("googlenet", [286, 245], [150, 263], 2.0),
    ("vgg16", [192, 50], [80, 51], 1.5),
    ("resnet34", [276, 99], [91, 99], 3.0),
    ("resnet50", [112, 66], [33, 66], 3.0),
    ("resnet101", [74, 34], [20, 29], 3.0),
    ("resnet152", [54, 24], [13, 19], 3.0),
];

/// What a part of the memory is to cost at most: a net, its mini-batch and arithmetic, the part of what keeping
/// everything takes (or bytes, if more than 1), and percents of the time.
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

impl Bench {
    pub(super) fn vdnn(&mut self) -> Outcome<()> {
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

    pub(super) fn accudnn(&mut self) -> Outcome<()> {
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
    pub(super) fn aims(&mut self) -> Outcome<()> {
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
    pub(super) fn sweep(&mut self) -> Outcome<()> {
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
    pub(super) fn planning(&mut self) -> Outcome<()> {
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
}
