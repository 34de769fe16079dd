//! The page beside the figures: every number in it is computed.

use super::{LIMITS, NOTABLE, Study, USUAL, claims::gain_at};
use crate::draw::{Data, Figure};
use planner::{BatchSizePolicy, Math, WorkspacePolicy};

/// A conclusion about how many times faster something becomes, given a net and the same in TF32: that it is by a tenth or
/// more, or that it is by less.
struct Conclusion(&'static str, bool, fn(&Study, Option<&Study>) -> Option<f64>);

/// What the papers conclude.
#[rustfmt::skip]
const PAPERS: [Conclusion; 5] = [
    Conclusion("Within {usual} for each kernel micro-batches gain a tenth or more: the fast algorithms fit only divided.",
        true, |study, _| gain_at(study, USUAL)),
    Conclusion("Within {little} they gain less than a tenth: the fast algorithms do not fit even divided.",
        false, |study, _| gain_at(study, LIMITS[0])),
    Conclusion("Within {plenty} they gain less than a tenth: the fast algorithms fit undivided.",
        false, |study, _| gain_at(study, LIMITS[2])),
    Conclusion("Powers of two are enough: all sizes, which take far longer to measure, gain less than a tenth more.",
        false, |study, _| {
            let all = study.limited(BatchSizePolicy::All, USUAL)?;
            Some(study.limited(BatchSizePolicy::PowerOfTwo, USUAL)?.time_ms / all.time_ms)
        }),
    Conclusion("{little} for each kernel as one total, divided by an ILP (WD), gain a tenth or more over equal shares.",
        true, |study, _| over_wd(study, WorkspacePolicy::Wr).map(f64::recip)),
];

/// What their GPUs did not have.
#[rustfmt::skip]
const TODAY: [Conclusion; 3] = [
    Conclusion("Tensor cores want workspace, too: undivided within {usual}, TF32 gains less than a tenth over FP32.",
        false, |study, tf32| {
            let tf32 = tf32?.limited(BatchSizePolicy::Undivided, USUAL)?;
            Some(study.limited(BatchSizePolicy::Undivided, USUAL)?.time_ms / tf32.time_ms)
        }),
    Conclusion("Micro-batches let them in: they gain a tenth or more over undivided TF32.",
        true, |_, tf32| gain_at(tf32?, USUAL)),
    Conclusion("A gain may be paid for in accuracy: of FP32 algorithms with errors up to 1e-5 alone, a tenth or more is left.",
        true, |study, _| {
            let exact = study.as_exact_as(1e-5)?;
            Some(study.limited(BatchSizePolicy::Undivided, USUAL)?.time_ms / exact.time_ms)
        }),
];

/// What sharing makes of WD.
#[rustfmt::skip]
const ARENA: [Conclusion; 1] = [
    Conclusion("One arena as large as WD's total ({little} for each kernel), which all kernels use in turn, gains a tenth or more \
                over WD: kernels that run one after the other need no workspace of their own.",
        true, |study, _| over_wd(study, WorkspacePolicy::Ws)),
];

/// How many times faster than WD another way is to give the smallest total.
fn over_wd(study: &Study, way: WorkspacePolicy) -> Option<f64> {
    let total = study.total(LIMITS[0]);
    let limit = if way == WorkspacePolicy::Wr { LIMITS[0] } else { total };
    let other = study.plan(study.finest, way, limit)?;
    Some(study.plan(study.finest, WorkspacePolicy::Wd, total)?.time_ms / other.time_ms)
}

/// A page in Markdown with all `figures`, the table of `claims`, and what follows for the papers' conclusions; `command`
/// makes it.
pub fn page(studies: &[Study], figures: &[Figure], claims: &Data, command: &str) -> String {
    let Some(first) = studies.first() else { return String::new() };
    let mut page = format!(
        "# Figures\n\nThe figures of the µ-cuDNN papers, and what they lack, on {}. {}. This page, its numbers and every \
         drawing are made by\n\n    {command}\n\nThe numbers behind each drawing lie beside it, as CSV and as JSON.\n\n",
        first.device(),
        first.source(),
    );
    let judged = |conclusion: &'static Conclusion| (conclusion, conclusion.verdicts(studies));
    let (hold, fail): (Vec<_>, Vec<_>) = PAPERS
        .iter()
        .map(judged)
        .partition(|(_, verdicts)| 2 * verdicts.iter().filter(|verdict| verdict.1).count() > verdicts.len());
    for (title, conclusions) in [
        ("Where the conclusions of 2018 still hold", hold),
        (
            "Where they do not, and what tensor cores and accuracy add",
            fail.into_iter().chain(TODAY.iter().map(judged)).collect(),
        ),
        ("WD beside one arena", ARENA.iter().map(judged).collect()),
    ] {
        let lines: String =
            conclusions.iter().map(|(conclusion, verdicts)| conclusion.line(verdicts)).collect();
        if !lines.is_empty() {
            page += &format!("## {title}\n\n{lines}\n");
        }
    }
    page += "## The papers' numbers\n\nTheir GPUs and cuDNN are of 2014 to 2018: a ratio of 1 means that the effect is as \
             large as it was.\n\n";
    page += &markdown(claims);
    for Figure { name, title, caption, source, .. } in figures {
        page += &format!("\n## {title}\n\n![{title}]({name}.svg)\n\n{caption} {source}. [CSV]({name}.csv)\n");
    }
    page
}

impl Conclusion {
    /// Every net in FP32 with its ratio, and whether the conclusion holds there.
    fn verdicts(&self, studies: &[Study]) -> Vec<(String, bool)> {
        let of_math = |math| studies.iter().filter(move |study| study.math() == math);
        let verdict = |study: &Study| {
            let ratio = (self.2)(study, of_math(Math::Tf32).find(|other| other.label() == study.label()))?;
            Some((format!("{} {ratio:.2}x", study.label()), (ratio >= NOTABLE) == self.1))
        };
        of_math(Math::Fp32).filter_map(verdict).collect()
    }

    /// What it says, and of which nets that is true.
    fn line(&self, verdicts: &[(String, bool)]) -> String {
        let limits = [("{little}", LIMITS[0]), ("{usual}", USUAL), ("{plenty}", LIMITS[2])];
        let says = limits
            .iter()
            .fold(self.0.to_owned(), |says, (name, limit)| says.replace(name, &limit.to_string()));
        let nets = |holds: bool| {
            let nets = verdicts.iter().filter(|verdict| verdict.1 == holds).map(|verdict| verdict.0.as_str());
            nets.collect::<Vec<_>>().join(", ")
        };
        match (nets(true), nets(false)) {
            (yes, no) if yes.is_empty() && no.is_empty() => String::new(),
            (yes, no) if no.is_empty() => format!("- **{says}** True of all: {yes}.\n"),
            (yes, no) if yes.is_empty() => format!("- **{says}** True of none: {no}.\n"),
            (yes, no) => format!("- **{says}** True of {yes}; not of {no}.\n"),
        }
    }
}

/// A table in Markdown.
fn markdown(data: &Data) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = line(data.columns.iter().map(|column| column.replace('_', " ")).collect());
    table += &line(vec!["---".to_owned(); data.columns.len()]);
    data.texts().for_each(|row| table += &line(row));
    table
}
