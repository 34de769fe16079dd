//! What a training says on the way, and at its end.

use super::header::Header;
use crate::console::escaped;
use figures::{BudgetReport, MemoryEstimate, PlanReport, ScheduleReport, Table, six_digits};
use planner::Bytes;
use serde::Serialize;
use std::fmt;
use trainer::snapshot::CopiedWeights;
use trainer::solver::{Confusion, StepReport, TestOutput};

/// The state of a training at one iteration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StepLine {
    #[serde(flatten)]
    pub(crate) step: StepReport,
    /// Samples a second since the last such line.
    pub(crate) images_per_s: f64,
    /// Seconds that the iterations of this run have taken so far.
    pub(crate) seconds: f64,
    /// How often the data have been seen by then, if they are a data set.
    pub(crate) epoch: Option<f64>,
    /// What the net says besides its loss, such as an accuracy.
    pub(crate) outputs: Vec<TestOutput>,
}

impl fmt::Display for StepLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step: StepReport { iteration, smoothed_loss, rate, .. }, images_per_s, outputs, .. } =
            self;
        let (loss, lr) = (six_digits(*smoothed_loss), six_digits(f64::from(*rate)));
        write!(f, "Iteration {iteration}, loss = {loss}, lr = {lr}")?;
        outputs.iter().flat_map(output_lines).try_for_each(|line| write!(f, ", {line}"))?;
        write!(f, " ({images_per_s:.1} images/s)")
    }
}

/// The outputs of one test net at one iteration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TestLines {
    pub(crate) iteration: u64,
    /// As in [`StepLine`].
    pub(crate) seconds: f64,
    pub(crate) net: usize,
    pub(crate) outputs: Vec<TestOutput>,
}

/// A line for each value of `output`, as Caffe prints them.
pub(crate) fn output_lines(output: &TestOutput) -> impl Iterator<Item = String> {
    let TestOutput { name, values, loss_weight } = output;
    let weight = f64::from(*loss_weight);
    values.iter().map(move |&value| match weight {
        0.0 => format!("{name} = {}", six_digits(value)),
        _ => format!(
            "{name} = {} (* {} = {} loss)",
            six_digits(value),
            six_digits(weight),
            six_digits(value * weight)
        ),
    })
}

/// Most classes whose counts fit the page.
const MOST_CLASSES: usize = 16;

/// What each class was taken for: all counts of few classes, of more the share that was recognised, the share that was
/// right of what was taken for it, and the class that it was mostly mistaken for.
pub(crate) fn confusion_table(confusion: &Confusion) -> Table {
    let Confusion { names, counts } = confusion;
    let shown = if counts.len() <= MOST_CLASSES { counts.len() } else { 0 };
    let class = |class: usize| match names.get(class) {
        Some(name) => format!("{class} {}", escaped(name)),
        None => class.to_string(),
    };
    let columns = ["class".to_owned()].into_iter().chain((0..shown).map(|class| format!(">{class}")));
    let rest = [">recall", ">precision", "mostly mistaken for"].map(str::to_owned);
    let mut table = Table::new(columns.chain(rest));
    for (index, row) in counts.iter().enumerate() {
        let counted = row[..shown].iter().map(ToString::to_string);
        let shares = confusion.recall_and_precision(index).map(|share| format!("{:.1} %", 100.0 * share));
        let others = row.iter().enumerate().filter(|&(other, &count)| other != index && count > 0);
        let most = others.max_by_key(|&(_, count)| count);
        let mistaken = most.map_or_else(String::new, |(other, count)| format!("{} ({count})", class(other)));
        table.row([class(index)].into_iter().chain(counted).chain(shares).chain([mistaken]));
    }
    table
}

impl fmt::Display for TestLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iteration {}, Testing net (#{})", self.iteration, self.net)?;
        let mut lines = self.outputs.iter().flat_map(output_lines).enumerate();
        lines.try_for_each(|(index, line)| write!(f, "\n    Test net output #{index}: {line}"))
    }
}

/// How a training ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrainSummary {
    /// Iterations done, those before this run included.
    pub(crate) iterations: u64,
    /// Iterations of the whole training: more, if it was stopped.
    pub(crate) max_iter: usize,
    pub(crate) loss: f64,
    /// Seconds that the iterations of this run have taken, as in [`StepLine`].
    pub(crate) seconds: f64,
    /// Samples a second in this time.
    pub(crate) images_per_s: f64,
    /// Outputs of the last tests that are not losses.
    pub(crate) accuracies: Vec<TestOutput>,
    pub(crate) snapshot: Option<String>,
    /// The most that was ever resident, if the system says.
    pub(crate) peak_resident: Option<Bytes>,
}

impl fmt::Display for TrainSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iterations, max_iter, loss, seconds, images_per_s, .. } = self;
        match *iterations < *max_iter as u64 {
            true => write!(f, "Stopped at iteration {iterations} of {max_iter} after")?,
            false => write!(f, "Trained to iteration {iterations} in")?,
        }
        write!(f, " {seconds:.1} s of iterations")?;
        // One that was complete before has none.
        if !loss.is_nan() {
            write!(f, " ({images_per_s:.1} images/s): loss = {}", six_digits(*loss))?;
        }
        let mut single =
            self.accuracies.iter().filter(|output| output.values.len() == 1).flat_map(output_lines);
        single.try_for_each(|line| write!(f, ", test {line}"))
    }
}

#[derive(Serialize)]
pub(crate) struct TrainReport {
    #[serde(flatten)]
    pub(crate) header: Header,
    /// With `--weights`, what was taken of them.
    pub(crate) weights: Option<CopiedWeights>,
    pub(crate) memory: MemoryEstimate,
    pub(crate) plan: PlanReport,
    pub(crate) budget: Option<BudgetReport>,
    pub(crate) schedule: Option<ScheduleReport>,
    pub(crate) steps: Vec<StepLine>,
    pub(crate) tests: Vec<TestLines>,
    pub(crate) summary: Option<TrainSummary>,
}
