//! The papers' tables, and what parts of the memory cost.

use super::{Bench, EVERYTHING, Outcome};

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
}
