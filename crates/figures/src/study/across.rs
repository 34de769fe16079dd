//! All figures, and those of several nets beside each other.

use super::{GENEROUS, SOLVED, Study, USUAL, nets, of_sizes, page::undivided_ms, tone, twin};
use crate::draw::{Axis, Bar, Drawn, Figure, Form, Panel, Tone};
use crate::table::{Table, row};
use planner::Math;
use std::collections::BTreeMap;

/// Accuracy classes of algorithms: what the largest error may be, in parts of the largest output.
const CLASSES: [f32; 4] = [1e-6, 1e-5, 5e-4, 5e-3];

/// All figures of a device: of every net and list in FP32, and of nets beside each other.
pub fn figures(studies: &[Study]) -> Vec<Figure> {
    let lists = studies.iter().filter(|study| study.is_list());
    let alone = nets(studies, Math::Fp32).flat_map(Study::figures).chain(lists.filter_map(gains));
    alone.chain(programme(studies)).chain(accuracy(studies)).collect()
}

/// What accuracy costs: gains over undivided FP32, if only algorithms up to an accuracy class may be used.
fn accuracy(studies: &[Study]) -> Option<Figure> {
    let mut data = Table::new("net math max_error time_ms gain".split(' '));
    let mut panels = Vec::new();
    let classes = || (0..).map(f64::from).zip(CLASSES);
    for math in [Math::Fp32, Math::Tf32] {
        let mut marks = Vec::new();
        for (place, fp32) in nets(studies, Math::Fp32).enumerate() {
            // What does not fit undivided has nothing that it gains over.
            let known = twin(studies, math, fp32).zip(undivided_ms(fp32));
            let Some((study, undivided_ms)) = known else { continue };
            let mut points = Vec::new();
            for (place, class) in classes() {
                let Some(time_ms) = study.as_exact_as(class).map(|plan| plan.time_ms) else { continue };
                let gain = undivided_ms / time_ms;
                row!(data; study.title, math.to_string(), class, time_ms, gain);
                points.push([place, gain]);
            }
            marks.push(Drawn::new(Form::Line, points, Tone::of(place)).named(fp32.label()));
        }
        let ticks = classes().map(|(place, class)| (place, format!("{class:e}")));
        let title = "largest error allowed, in parts of the largest output";
        let x = Axis::new(title, [-0.2, CLASSES.len() as f64 - 1.0], ticks);
        let title = format!("gain of {math} over undivided FP32, both within {USUAL}");
        if !marks.is_empty() {
            panels.push(Panel::new(x, |most| Axis::from_zero(&title, most), marks, 180.0));
        }
    }
    let caption = "Faster algorithms round more. Gain of micro-batches over undivided FP32 kernels of any error, if algorithms \
                   up to an error are allowed to micro-batches, from the strictest class to any.".to_owned();
    let first = nets(studies, Math::Fp32).next()?;
    let title = format!("What accuracy costs: {}", first.device());
    Some(Figure { name: "accuracy".to_owned(), caption, data, ..Figure::new(title, first.source(), panels) })
}

/// What optimising takes: to measure, and to solve the papers' ILP, with its binary variables.
fn programme(studies: &[Study]) -> Option<Figure> {
    let columns = "net mini_batch policy measuring_s kernels largest_desirable_set binaries solving_ms";
    let mut data = Table::new(columns.split(' '));
    let (mut seconds, mut binaries) = (Vec::new(), Vec::new());
    for study in nets(studies, Math::Fp32) {
        for &policy in study.policies() {
            let (kernels, fronts) = (&study.kernels, study.fronts(&of_sizes(policy)).ok()?);
            let largest = fronts.iter().map(|(_, set)| set.len()).max()?;
            let ((sum, solving_ms), measuring_s) = (study.ilp(policy)?, study.measuring_s(policy));
            row!(data; study.title, study.mini_batch(), policy, measuring_s, kernels.len(), largest, sum, solving_ms);
            let bar = |length, text| Bar::new(study.label(), length, tone(policy), text);
            seconds.push(bar(measuring_s, format!("{policy} {measuring_s:.2}")));
            let solving = solving_ms.map_or_else(String::new, |ms| format!(", {ms:.1} ms"));
            binaries.push(bar(sum as f64, format!("{policy} {sum}{solving}")));
        }
    }
    let first = nets(studies, Math::Fp32).next()?;
    let panel = |title, bars: &[Bar]| Panel::bars(|most| Axis::from_zero(title, 1.7 * most), bars, 58.0);
    let panels = vec![
        panel("seconds to run every algorithm once", &seconds),
        panel("binary variables of the ILP, and how long it took to solve", &binaries),
    ];
    let caption = format!(
        "Above: in how many seconds every algorithm runs once at every size, which a profile repeats. Below: the 0-1 ILP that \
         divides 16 MiB for each kernel among all of them. What no division can use was taken out before: a kernel counts \
         with its desirable set alone. {}",
        SOLVED.lines().next()?,
    );
    let title = format!("Time to optimise, and size of the integer programme: {}", first.device());
    Some(Figure { name: "programme".to_owned(), caption, data, ..Figure::new(title, first.source(), panels) })
}

/// What the kernels of a list of convolutions gain, from the one that gains most, a panel for each size of filters.
fn gains(list: &Study) -> Option<Figure> {
    let mut data = Table::new("kernel filter mini_batch limit_bytes undivided_ms time_ms gain".split(' '));
    let mut panels: BTreeMap<[u32; 2], Vec<Drawn>> = BTreeMap::new();
    for (place, &limit) in GENEROUS.iter().enumerate() {
        for (filter, gains) in list.gains(limit)? {
            let [r, s] = filter;
            for (ratio, planned) in &gains {
                let (shape, undivided) = (planned.kernel.id.shape, planned.undivided.as_ref());
                let name = format!("{} {shape}", planned.kernel.id.op);
                let undivided_ms = undivided.map(|micro| micro.time_ms);
                row!(data; name, format!("{r}x{s}"), list.mini_batch(), limit, undivided_ms, planned.time_ms(), ratio);
            }
            let points = (1..).zip(&gains).map(|(rank, gain)| [f64::from(rank), gain.0]);
            let line = Drawn::new(Form::Line, points, Tone::of(place)).named(limit);
            panels.entry(filter).or_default().push(line);
        }
    }
    let panel = |([r, s], marks): ([u32; 2], Vec<Drawn>)| {
        let kernels = marks.iter().map(|mark| mark.points.len()).max().unwrap_or(1);
        let x = format!("kernels with {r}x{s} filters, from the one that gains most");
        let y = |most| Axis::from_zero("gain over undivided", most);
        Panel::new(Axis::counts(&x, kernels as u32), y, marks, 160.0)
    };
    let panels = panels.into_iter().map(panel).collect();
    let (limits, kernels) = (GENEROUS.map(|limit| limit.to_string()).join(", "), list.kernels.len());
    let caption = format!(
        "What micro-batches gain within {limits} for each of {kernels} kernels, those of each size of filters in order of it."
    );
    Some(list.figure("kernels", "Which kernels gain", caption, panels, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::{Outline, OutlineNode};
    use planner::{
        BatchSizePolicy, Bytes, ConvOp, ConvShape, CostTable, Dtype, Kernel, KernelId, Layout, Measurement,
    };
    use std::sync::Arc;

    /// A net of one kernel, whose one algorithm takes so many MiB for each of four samples.
    fn study(title: &str, mib: u64) -> Study {
        let shape = ConvShape { c: 1, h: 8, w: 8, k: 1, r: 3, s: 3, ..ConvShape::default() };
        let (op, dtype, math, layout) = (ConvOp::Forward, Dtype::F32, Math::Fp32, Layout::Nchw);
        let id = KernelId { op, shape, dtype, math, layout };
        let mut table = CostTable::default();
        for micro_batch in [1, 2, 4] {
            let row = Measurement {
                algorithm: "FFT".into(),
                micro_batch,
                time_ms: f64::from(micro_batch),
                shared_ms: 0.0,
                workspace: Bytes::mib(mib * u64::from(micro_batch)),
                max_error: 1e-6,
                deterministic: true,
            };
            table.insert(id, micro_batch, vec![row]).unwrap();
        }
        Study {
            title: title.to_owned(),
            kernels: vec![Kernel { name: "conv".to_owned(), id, mini_batch: 4 }],
            table: Arc::new(table),
            finest: BatchSizePolicy::PowerOfTwo,
            outline: Outline { nodes: vec![OutlineNode::default()], ..Outline::default() },
            ..Study::default()
        }
    }

    #[test]
    fn a_net_that_does_not_fit_undivided_leaves_the_others_their_figure() {
        let figure = accuracy(&[study("large", 32), study("small", 1)]).unwrap();
        assert!(!figure.data.rows.is_empty() && figure.data.rows.iter().all(|row| row[0] == "small"));
        assert!(figure.svg().contains("small 4"));
    }
}
