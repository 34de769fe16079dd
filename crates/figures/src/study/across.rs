//! Several nets beside each other.

use super::{Study, USUAL, gain};
use crate::draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row};
use planner::{BatchSizePolicy, Kernel, Math, PlanOptions};

/// Accuracy classes of algorithms: what the largest error may be, in parts of the largest output.
const CLASSES: [f32; 4] = [1e-6, 1e-5, 5e-4, 5e-3];

/// What accuracy costs: gains over undivided FP32, if only algorithms up to an accuracy class may be used. Studies of one
/// net in several arithmetics are told apart.
pub fn accuracy(studies: &[Study]) -> Option<Figure> {
    let mut data = Data::new("net math max_error time_ms gain");
    let (mut marks, mut most) = ([Vec::new(), Vec::new()], 1.0_f64);
    let mut sentences = Vec::new();
    for study in studies {
        // A net has one colour in all arithmetics.
        let of_net = |other: &Study| other.title == study.title && other.mini_batch() == study.mini_batch();
        let place = studies.iter().position(of_net)?;
        let fp32 = &studies[place];
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
        let label = format!("{} {}", study.title, study.mini_batch());
        let mut points = Vec::new();
        for (place, (class, found)) in std::iter::zip(CLASSES, gains).enumerate() {
            let Some((time_ms, gain)) = found else { continue };
            row!(data; study.title.as_str(), study.math().to_string(), f64::from(class), time_ms, gain);
            most = most.max(gain);
            points.push([place as f64, gain]);
        }
        let (strict, loose) = (points.first()?[1], points.last()?[1]);
        sentences.push(format!("{label} {} {strict:.2}x to {loose:.2}x", study.math()));
        let line = Drawn::new(Form::Line, points, Tone::of(place)).named(label);
        marks[usize::from(study.math() != Math::Fp32)].push(line);
    }
    let first = studies.first()?;
    let classes = CLASSES.map(|class| format!("{class:e}"));
    let names = Axis::names("largest error allowed, in parts of the largest output", classes);
    let x = Axis { range: [-0.2, CLASSES.len() as f64 - 0.8], grid: true, ..names };
    let panel = |(marks, math): (Vec<Drawn>, Math)| {
        let y = Axis::from_zero(&format!("gain of {math} over undivided FP32, both within {USUAL}"), most);
        (!marks.is_empty()).then(|| Panel::new(x.clone(), y, marks, 180.0))
    };
    let panels = marks.into_iter().zip([Math::Fp32, Math::Tf32]).filter_map(panel).collect();
    let caption = format!(
        "Faster algorithms round more. Gain of micro-batches over undivided FP32 kernels, from the strictest class \
         to any: {}.",
        sentences.join(", ")
    );
    let title = format!("What accuracy costs: {}", first.device());
    let figure = first.figure("", [title, caption], panels, data);
    Some(Figure { name: "accuracy".to_owned(), ..figure })
}

/// What optimising takes: to measure, and how large the papers' ILP is, its binary variables and the largest desirable set.
pub fn programme(studies: &[Study]) -> Option<Figure> {
    let mut data = Data::new("net mini_batch policy measuring_s kernels binaries largest_desirable_set");
    let (mut names, mut sentences, mut panels) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    let mut most = [0.0_f64; 2];
    for study in studies {
        for &policy in study.policies() {
            let fronts = study.fronts(&study.kernels, policy)?;
            let sizes: Vec<usize> = fronts.iter().map(|(_, set)| set.iter().count()).collect();
            let (binaries, largest) = (sizes.iter().sum::<usize>(), sizes.iter().copied().max()?);
            let (net, measuring_s) = (study.title.as_str(), study.measuring_s(policy));
            row!(data; net, study.mini_batch(), policy.to_string(), measuring_s, sizes.len(), binaries, largest);
            let place = names.len() as f64;
            names.push(format!("{net} {} {policy}", study.mini_batch()));
            let texts = [format!("{measuring_s:.2}"), format!("{binaries} ({largest})")];
            for (at, (end, text)) in [measuring_s, binaries as f64].into_iter().zip(texts).enumerate() {
                panels[at].push(Drawn::across(place, end, super::tone(policy)));
                panels[at].push(Drawn::text(Form::Note, [end, place], text));
                most[at] = most[at].max(end);
            }
            if policy == study.finest {
                let kernels = sizes.len();
                sentences.push(format!("{net} {measuring_s:.2} s and {binaries} for {kernels} kernels"));
            }
        }
    }
    let first = studies.first()?;
    let height = 19.0 * names.len() as f64;
    let titles = ["seconds to run every algorithm once", "binary variables (largest desirable set)"];
    let panel = |((marks, title), most): ((Vec<Drawn>, &str), f64)| {
        let x = Axis::from_zero(title, most * 1.2);
        Panel::new(x, Axis::names("", names.clone()).reversed(), marks, height)
    };
    let panels = panels.into_iter().zip(titles).zip(most).map(panel).collect();
    let caption = format!(
        "Nearly all of the time to optimise goes into measuring: above, in how many seconds every algorithm runs once at every \
         size, which a profile repeats. Below, binary variables of the 0-1 ILP that divides a total among all kernels, without \
         a limit on any of them. {}. What no division can use was taken out before: a kernel counts with its desirable set alone.",
        sentences.join(", ")
    );
    let title = format!("Time to optimise, and size of the integer programme: {}", first.device());
    let figure = first.figure("", [title, caption], panels, data);
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
