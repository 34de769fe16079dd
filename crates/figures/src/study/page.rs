//! The page beside the figures: every number in it is computed.

use super::{LIMITS, Study, USUAL, gain};
use crate::draw::{Cell, Data, Figure};
use planner::{BatchSizePolicy, WorkspacePolicy};

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
    page += "## What the papers concluded, and what holds\n\n";
    let conclusions = studies.iter().flat_map(conclusions);
    conclusions.for_each(|sentence| page += &format!("- {sentence}\n"));
    page += "\n## The papers' numbers\n\nTheir GPUs and cuDNN are of 2014 to 2018: a ratio of 1 means that the effect is as \
             large as it was.\n\n";
    page += &markdown(claims);
    for Figure { name, title, caption, source, .. } in figures {
        page += &format!("\n## {title}\n\n![{title}]({name}.svg)\n\n{caption} {source}. [CSV]({name}.csv)\n");
    }
    page
}

/// What holds of the papers' conclusions for one net.
fn conclusions(study: &Study) -> Vec<String> {
    let net = format!("{}, mini-batch {}", study.title, study.mini_batch());
    let at = |policy, limit| study.limited(policy, limit).map(|plan| plan.time_ms);
    let ([undivided, plenty], [best, plenty_best]) = [BatchSizePolicy::Undivided, study.finest]
        .map(|policy| [USUAL, LIMITS[2]].map(|limit| at(policy, limit)))
        .into();
    let mut sentences = Vec::new();
    if let (Some(undivided), Some(best), Some(plenty), Some(plenty_best)) =
        (undivided, best, plenty, plenty_best)
    {
        sentences.push(format!(
            "**{net}, limits.** At {USUAL} micro-batches make the convolutions {} faster ({undivided:.1} ms to {best:.1} ms, {}). \
             At {} what is left is {}.",
            gain(undivided, best),
            study.finest,
            LIMITS[2],
            gain(plenty, plenty_best),
        ));
    }
    let total = study.total(LIMITS[0]);
    let times =
        [(LIMITS[0], WorkspacePolicy::Wr), (total, WorkspacePolicy::Wd), (total, WorkspacePolicy::Ws)];
    let times = times.map(|(limit, policy)| Some(study.plan(study.finest, policy, limit)?.time_ms));
    if let [Some(shared_out), Some(divided), Some(arena)] = times {
        sentences.push(format!(
            "**{net}, dividing a total.** Of {} MiB, WD makes {divided:.1} ms where equal shares make {shared_out:.1} ms ({}). \
             One arena of the same size makes {arena:.1} ms, {} faster than WD: kernels that run one after the other need no \
             workspace of their own.",
            total.as_mib(),
            gain(shared_out, divided),
            gain(divided, arena),
        ));
    }
    sentences
}

/// A table in Markdown.
fn markdown(data: &Data) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = line(data.columns.iter().map(|column| column.replace('_', " ")).collect());
    table += &line(vec!["---".to_owned(); data.columns.len()]);
    for row in &data.rows {
        table += &line(row.iter().map(Cell::to_string).collect());
    }
    table
}
