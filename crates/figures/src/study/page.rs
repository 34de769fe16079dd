//! The page beside the figures: every number in it is computed.

use super::{LIMITS, NOTABLE, Study, USUAL, claims::gain_at, nets, twin};
use crate::{Table, draw::Figure};
use planner::{BatchSizePolicy, Math, PlannedKernel, WorkspacePolicy};
use std::iter::zip;

/// What is said of nets; whether that is that a ratio is 1.1 or more; and the ratio, of a net and the same in TF32.
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
/// `command`, which left out what a sentence says.
pub fn page(devices: &[Vec<Study>], figures: &[Figure], claims: &Table, said: [&str; 2]) -> String {
    let [command, left_out] = said;
    let [first, others @ ..] = devices else { return String::new() };
    let Some(study) = first.first() else { return String::new() };
    let mut page = format!(
        "# Figures\n\nThe figures of the µ-cuDNN papers, and what they lack, on {}. {}. This page, its numbers and every \
         drawing are made by\n\n    {command}\n\nThe numbers behind each drawing lie beside it, as CSV and as JSON.\n{left_out}\n",
        study.device(),
        study.source(),
    );
    for (title, conclusions) in CONCLUSIONS {
        let lines: String =
            conclusions.iter().filter_map(|conclusion| verdict(conclusion, devices)).collect();
        if !lines.is_empty() {
            page += &format!("## {title}\n\n{lines}\n");
        }
    }
    page.extend(others.iter().filter_map(|other| compared(first, other)));
    page += "## The papers' numbers\n\nTheir GPUs and cuDNN are of 2014 to 2018: a ratio of 1 means that the effect is as \
             large as it was. A cost table has convolutions alone: what the papers say of whole iterations, in Caffe and \
             in TensorFlow, is measured on a GPU by `microbatch time --compare`, and that nets learn as they did, by \
             `microbatch train`.\n\n";
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    page += &line(claims.columns.iter().map(|column| column.replace('_', " ")).collect());
    page += &line(vec!["---".to_owned(); claims.columns.len()]);
    page.extend(claims.texts().map(line));
    for Figure { name, title, caption, source, .. } in figures {
        page += &format!("\n## {title}\n\n![{title}]({name}.svg)\n\n{caption} {source}. [CSV]({name}.csv)\n");
    }
    page
}

/// What it says, and of which nets in FP32 that is true, with the ratios on every device; nothing if no net has one.
fn verdict((said, is_gain, ratio): &Conclusion, devices: &[Vec<Study>]) -> Option<String> {
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for net in nets(&devices[0], Math::Fp32) {
        for (place, device) in devices.iter().enumerate() {
            let study = twin(device, Math::Fp32, net);
            let known = study.and_then(|study| ratio(study, twin(device, Math::Tf32, net)));
            let Some(ratio) = known else { continue };
            let nets = if (ratio >= NOTABLE) == *is_gain { &mut yes } else { &mut no };
            let on = if place > 0 { format!(" on {}", device[0].model()) } else { String::new() };
            nets.push(format!("{}{on} {ratio:.2}x", net.label()));
        }
    }
    let verdict = match [yes.join(", "), no.join(", ")].each_ref().map(String::as_str) {
        ["", ""] => return None,
        [yes, ""] => format!("True wherever it is known: {yes}"),
        ["", no] => format!("True nowhere: {no}"),
        [yes, no] => format!("True of {yes}; not of {no}"),
    };
    Some(format!("- **{said}** {verdict}.\n"))
}

/// What is the same on both devices, and what is not, of nets in FP32 that were measured at the same sizes.
fn compared(here: &[Study], there: &[Study]) -> Option<String> {
    let (mut kernels, mut same, mut times) = (0, 0, Vec::new());
    let algorithm = |planned: &PlannedKernel| Some(planned.undivided.as_ref()?.algorithm.clone());
    for study in nets(here, Math::Fp32) {
        let other = twin(there, Math::Fp32, study).filter(|other| other.finest == study.finest);
        let plans = study.plenty_and_little().zip(other.and_then(Study::plenty_and_little));
        let Some(([a, little], [b, slower])) = plans else { continue };
        let alike = zip(&a.kernels, &b.kernels).filter(|(a, b)| algorithm(a) == algorithm(b));
        (kernels, same) = (kernels + a.kernels.len(), same + alike.count());
        times.push(format!("{:.2} ({})", slower.time_ms / little.time_ms, study.label()));
    }
    let is_coarser =
        |study: &&Study| twin(here, Math::Tf32, study).is_some_and(|all| all.finest != study.finest);
    let coarser: Vec<String> = nets(there, Math::Tf32).filter(is_coarser).map(Study::label).collect();
    let coarser = match coarser.join(", ") {
        nets if nets.is_empty() => nets,
        nets => format!(" In TF32 it has powers of two alone of {nets}."),
    };
    let ([.., plenty], times) = (LIMITS, times.join(", "));
    let [here, there] = [here, there].map(|one| one[0].model());
    let said = format!(
        "## {here} and {there}\n\nOf {kernels} undivided kernels in FP32, {same} have the same fastest algorithm within \
         {plenty} on both. What differs is time: in micro-batches within {USUAL}, {there} takes {times} times as long as \
         {here}.{coarser}\n\n"
    );
    Some(said).filter(|_| kernels > 0)
}
