//! The page beside the figures: every number in it is computed.

use super::{LIMITS, NOTABLE, Study, USUAL, claims::gain_at, nets};
use crate::draw::{Data, Figure};
use planner::{BatchSizePolicy, Math, WorkspacePolicy};

/// What is said of nets; whether that is that one time is 1.1 times another at least, or that it is not; and the ratio,
/// of a net and the same in TF32.
type Conclusion = (&'static str, bool, fn(&Study, Option<&Study>) -> Option<f64>);

/// What the papers conclude, what their GPUs did not have, and what sharing makes of WD.
#[rustfmt::skip]
const CONCLUSIONS: [(&str, &[Conclusion]); 3] = [
    ("The conclusions of 2018, today", &[
        ("Within 64 MiB for each kernel micro-batches gain a tenth or more.", true, |study, _| gain_at(study, USUAL)),
        ("Within 8 MiB they gain less than a tenth.", false, |study, _| gain_at(study, LIMITS[0])),
        ("Within 512 MiB they gain less than a tenth.", false, |study, _| gain_at(study, LIMITS[2])),
        ("Powers of two are enough: all sizes gain less than a tenth more.", false, |study, _| {
            let [powers, all] = [BatchSizePolicy::PowerOfTwo, BatchSizePolicy::All].map(|sizes| study.limited(sizes, USUAL));
            Some(powers?.time_ms / all?.time_ms)
        }),
        ("8 MiB for each kernel as one total, divided by an ILP (WD), gain a tenth or more over equal shares.", true, |study, _| over_wd(study, WorkspacePolicy::Wr).map(f64::recip)),
    ]),
    ("What today's hardware changes", &[
        ("Undivided within 64 MiB, TF32 gains less than a tenth over FP32.", false, |study, tf32| Some(undivided_ms(study)? / undivided_ms(tf32?)?)),
        ("Micro-batches gain a tenth or more over undivided TF32.", true, |_, tf32| gain_at(tf32?, USUAL)),
        ("With errors up to 1e-5 alone, FP32 in micro-batches gains a tenth or more over any undivided FP32.", true, |study, _| Some(undivided_ms(study)? / study.as_exact_as(1e-5)?.time_ms)),
    ]),
    ("WD beside one arena", &[
        ("One arena as large as WD's total (8 MiB for each kernel), which all kernels use in turn, gains a tenth or more over WD.", true, |study, _| over_wd(study, WorkspacePolicy::Ws)),
    ]),
];

/// The time of undivided kernels within the usual limit.
pub(super) fn undivided_ms(study: &Study) -> Option<f64> {
    Some(study.limited(BatchSizePolicy::Undivided, USUAL)?.time_ms)
}

/// How many times faster than WD another way is to give the smallest total.
fn over_wd(study: &Study, way: WorkspacePolicy) -> Option<f64> {
    let limit = if way == WorkspacePolicy::Wr { LIMITS[0] } else { study.total(LIMITS[0]) };
    Some(study.divided(LIMITS[0])?.time_ms / study.plan(study.finest, way, limit)?.time_ms)
}

/// A page in Markdown with all `figures`, the table of `claims`, and what holds of the papers' conclusions; made by
/// `command`.
pub fn page(studies: &[Study], figures: &[Figure], claims: &Data, command: &str) -> String {
    let Some(first) = studies.first() else { return String::new() };
    let mut page = format!(
        "# Figures\n\nThe figures of the µ-cuDNN papers, and what they lack, on {}. {}. This page, its numbers and every \
         drawing are made by\n\n    {command}\n\nThe numbers behind each drawing lie beside it, as CSV and as JSON.\n\n",
        first.device(),
        first.source(),
    );
    for (title, conclusions) in CONCLUSIONS {
        let lines: String =
            conclusions.iter().filter_map(|conclusion| verdict(conclusion, studies)).collect();
        if !lines.is_empty() {
            page += &format!("## {title}\n\n{lines}\n");
        }
    }
    page += "## The papers' numbers\n\nTheir GPUs and cuDNN are of 2014 to 2018: a ratio of 1 means that the effect is as \
             large as it was. A cost table has convolutions alone: what the papers say of whole iterations, in Caffe and \
             in TensorFlow, is measured on a GPU by `microbatch time --compare`, and that nets learn as they did, by \
             `microbatch train`.\n\n";
    page += &markdown(claims);
    for Figure { name, title, caption, source, .. } in figures {
        page += &format!("\n## {title}\n\n![{title}]({name}.svg)\n\n{caption} {source}. [CSV]({name}.csv)\n");
    }
    page
}

/// What it says, and of which nets in FP32 that is true, with their ratios; nothing if no net has that.
fn verdict((says, is_gain, ratio): &Conclusion, studies: &[Study]) -> Option<String> {
    let (mut yes, mut no, mut unknown) = (Vec::new(), Vec::new(), "");
    for study in nets(studies, Math::Fp32) {
        let tf32 = nets(studies, Math::Tf32).find(|other| other.label() == study.label());
        let Some(ratio) = ratio(study, tf32) else {
            unknown = " of which it is known";
            continue;
        };
        let holds = if (ratio >= NOTABLE) == *is_gain { &mut yes } else { &mut no };
        holds.push(format!("{} {ratio:.2}x", study.label()));
    }
    let verdict = match (&yes[..], &no[..]) {
        ([], []) => return None,
        (_, []) => format!("True of all{unknown}: {}", yes.join(", ")),
        ([], _) => format!("True of none{unknown}: {}", no.join(", ")),
        _ => format!("True of {}; not of {}", yes.join(", "), no.join(", ")),
    };
    Some(format!("- **{says}** {verdict}.\n"))
}

/// A table in Markdown.
fn markdown(data: &Data) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = line(data.columns.iter().map(|column| column.replace('_', " ")).collect());
    table += &line(vec!["---".to_owned(); data.columns.len()]);
    data.texts().for_each(|row| table += &line(row));
    table
}
