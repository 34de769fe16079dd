//! Several nets beside each other.

use super::{Study, USUAL, gain};
use crate::draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row};
use planner::{BatchSizePolicy, Kernel, PlanOptions};

/// Accuracy classes of algorithms: what the largest error may be, in parts of the largest output.
const CLASSES: [f32; 4] = [1e-6, 1e-5, 5e-4, 5e-3];

/// What accuracy costs: gains over undivided FP32, if only algorithms up to an accuracy class may be used. Studies of one
/// net in several arithmetics are told apart.
pub fn accuracy(studies: &[Study]) -> Option<Figure> {
    let mut data = Data::new("net math max_error time_ms gain");
    let (mut marks, mut most) = (Vec::new(), 1.0_f64);
    let mut sentences = Vec::new();
    for (place, study) in studies.iter().enumerate() {
        let fp32 = studies
            .iter()
            .find(|other| other.title == study.title && other.mini_batch() == study.mini_batch())?;
        let undivided_ms = fp32.limited(BatchSizePolicy::Undivided, USUAL)?.time_ms;
        let gains = CLASSES.map(|class| {
            let options = PlanOptions {
                batch_size_policy: study.finest,
                limit: USUAL,
                max_error: Some(class),
                ..PlanOptions::default()
            };
            let planned = planner::plan(&study.kernels, &study.table, &options).ok();
            planned.map(|plan| (plan.time_ms, undivided_ms / plan.time_ms))
        });
        let label = format!("{} {}", study.title, study.math());
        let mut points = Vec::new();
        for (place, (class, found)) in std::iter::zip(CLASSES, gains).enumerate() {
            let Some((time_ms, gain)) = found else { continue };
            row!(data; study.title.as_str(), study.math().to_string(), f64::from(class), time_ms, gain);
            most = most.max(gain);
            points.push([place as f64, gain]);
        }
        let (strict, loose) = (points.first()?[1], points.last()?[1]);
        sentences.push(format!("{label} {strict:.2}x to {loose:.2}x"));
        marks.push(Drawn::new(Form::Line, points, Tone::of(place)).named(label));
    }
    let first = studies.first()?;
    let classes = CLASSES.map(|class| format!("{class:e}"));
    let names = Axis::names("largest error allowed, in parts of the largest output", classes);
    let x = Axis { range: [-0.2, CLASSES.len() as f64 - 0.8], grid: true, ..names };
    let y = Axis::from_zero(&format!("gain over undivided FP32, both within {USUAL}"), most);
    let panel = Panel::new(x, y, marks, 240.0);
    let caption = format!(
        "Faster algorithms round more. Gain of micro-batches over undivided FP32 kernels, from the strictest class \
         to any: {}.",
        sentences.join(", ")
    );
    let title = format!("What accuracy costs: {}", first.device());
    let figure = first.figure("", [title, caption], vec![panel], data);
    Some(Figure { name: "accuracy".to_owned(), ..figure })
}

/// How large the papers' ILP is: its binary variables, and the largest desirable set.
pub fn programme(studies: &[Study]) -> Option<Figure> {
    let mut data = Data::new("net policy kernels binaries largest_desirable_set");
    let (mut marks, mut names, mut most, mut sentences) = (Vec::new(), Vec::new(), 1, Vec::new());
    for study in studies {
        for &policy in study.policies() {
            let fronts = study.fronts(&study.kernels, policy)?;
            let sizes: Vec<usize> = fronts.iter().map(|(_, set)| set.iter().count()).collect();
            let (binaries, largest) = (sizes.iter().sum::<usize>(), sizes.iter().copied().max()?);
            let (place, end) = (names.len() as f64, binaries as f64);
            row!(data; study.title.as_str(), policy.to_string(), sizes.len(), binaries, largest);
            names.push(format!("{} {policy}", study.title));
            marks.push(Drawn::across(place, end, super::tone(policy)));
            marks.push(Drawn::text(Form::Note, [end, place], format!("{binaries} ({largest})")));
            most = most.max(binaries);
            if policy == study.finest {
                sentences.push(format!("{} {binaries} for {} kernels", study.title, sizes.len()));
            }
        }
    }
    let first = studies.first()?;
    let height = 23.0 * names.len() as f64;
    let x = Axis::from_zero("binary variables (largest desirable set)", most as f64 * 1.2);
    let panel = Panel::new(x, Axis::names("", names).reversed(), marks, height);
    let caption = format!(
        "Binary variables of the 0-1 ILP that divides a total among all kernels, without a limit on any of them: {}. What no \
         division can use was taken out before: a kernel counts with its desirable set alone.",
        sentences.join(", ")
    );
    let title = format!("Size of the integer programme: {}", first.device());
    let figure = first.figure("", [title, caption], vec![panel], data);
    Some(Figure { name: "programme".to_owned(), ..figure })
}

/// What every kernel gains, of all that were recorded, from the one that gains most.
pub fn gains(study: &Study, kernels: &[Kernel], limits: &[planner::Bytes]) -> Option<Figure> {
    let mut data = Data::new("kernel mini_batch limit_bytes undivided_ms time_ms gain");
    let (mut marks, mut most, mut sentences) = (Vec::new(), 1.0_f64, Vec::new());
    for (place, &limit) in limits.iter().enumerate() {
        let mut all = Vec::new();
        for kernel in kernels {
            let options = PlanOptions {
                batch_size_policy: BatchSizePolicy::PowerOfTwo,
                limit,
                ..PlanOptions::default()
            };
            let Ok(plan) = planner::plan(std::slice::from_ref(kernel), &study.table, &options) else {
                continue;
            };
            let (Some(undivided_ms), time_ms) = (plan.undivided_time_ms, plan.time_ms) else { continue };
            let ratio = undivided_ms / time_ms;
            let name = format!("{} {}", kernel.id.op, kernel.id.shape);
            row!(data; name, kernel.mini_batch, limit, undivided_ms, time_ms, ratio);
            all.push((ratio, kernel, undivided_ms, time_ms));
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        most = most.max(all.first()?.0);
        let points: Vec<_> = all.iter().zip(1..).map(|(kernel, rank)| [f64::from(rank), kernel.0]).collect();
        marks.push(Drawn::new(Form::Line, points, Tone::of(place)).named(limit.to_string()));
        let (_, kernel, undivided_ms, time_ms) = all.first()?;
        let above = all.iter().filter(|kernel| kernel.0 > 1.1).count();
        sentences.push(format!(
            "within {limit} {above} of {} gain a tenth or more, at most {} ({} of {})",
            all.len(),
            gain(*undivided_ms, *time_ms),
            kernel.id.op,
            kernel.id.shape,
        ));
    }
    let x = Axis::counts("kernels, from the one that gains most", kernels.len() as u32);
    let panel = Panel::new(x, Axis::from_zero("gain over undivided", most), marks, 220.0);
    let caption = format!(
        "Of all {} kernels that were recorded, in micro-batches of powers of two: {}.",
        kernels.len(),
        sentences.join("; ")
    );
    let title = format!("Which kernels gain: {}, {}", study.device(), study.math());
    let figure = study.figure("", [title, caption], vec![panel], data);
    Some(Figure { name: "kernels".to_owned(), ..figure })
}
