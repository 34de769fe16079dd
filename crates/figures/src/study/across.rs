//! Several nets beside each other.

use super::{GENEROUS, NOTABLE, Study, USUAL, tone};
use crate::draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row};
use planner::{BatchSizePolicy, Math, Plan};
use std::collections::BTreeMap;

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
        let label = study.label();
        let place = studies.iter().position(|other| other.label() == label)?;
        let undivided_ms = studies[place].limited(BatchSizePolicy::Undivided, USUAL)?.time_ms;
        let mut points = Vec::new();
        for (place, class) in CLASSES.into_iter().enumerate() {
            let Some(Plan { time_ms, .. }) = study.as_exact_as(class) else { continue };
            let gain = undivided_ms / time_ms;
            row!(data; study.title, study.math().to_string(), class, time_ms, gain);
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
    let figure = first.figure("", "", caption, panels, data);
    Some(Figure { name: "accuracy".to_owned(), title, ..figure })
}

/// What optimising takes: to measure, and how large the papers' ILP is, its binary variables and the largest desirable set.
pub fn programme(studies: &[Study]) -> Option<Figure> {
    let mut data = Data::new("net mini_batch policy measuring_s kernels binaries largest_desirable_set");
    let (mut sentences, mut seconds, mut binaries) = (Vec::new(), Vec::new(), Vec::new());
    for study in studies {
        for &policy in study.policies() {
            let sizes = study.set_sizes(policy)?;
            let (sum, largest) = (sizes.iter().sum::<usize>(), *sizes.iter().max()?);
            let (net, measuring_s) = (study.label(), study.measuring_s(policy));
            row!(data; study.title, study.mini_batch(), policy.to_string(), measuring_s, sizes.len(), sum, largest);
            let name = format!("{net} {policy}");
            seconds.push((name.clone(), measuring_s, format!("{measuring_s:.2}"), tone(policy)));
            binaries.push((name, sum as f64, format!("{sum} ({largest})"), tone(policy)));
            if policy == study.finest {
                let kernels = sizes.len();
                sentences.push(format!("{net} {measuring_s:.2} s and {sum} for {kernels} kernels"));
            }
        }
    }
    let first = studies.first()?;
    let panel = |title: &str, bars: Vec<(String, f64, String, Tone)>| {
        let most = bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        Panel::bars(Axis::from_zero(title, most * 1.2), bars.into_iter(), 19.0)
    };
    let panels = vec![
        panel("seconds to run every algorithm once", seconds),
        panel("binary variables (largest desirable set)", binaries),
    ];
    let caption = format!(
        "Nearly all of the time to optimise goes into measuring: above, in how many seconds every algorithm runs once at every \
         size, which a profile repeats. Below, binary variables of the 0-1 ILP that divides a total among all kernels, without \
         a limit on any of them. {}. What no division can use was taken out before: a kernel counts with its desirable set alone.",
        sentences.join(", ")
    );
    let title = format!("Time to optimise, and size of the integer programme: {}", first.device());
    let figure = first.figure("", "", caption, panels, data);
    Some(Figure { name: "programme".to_owned(), title, ..figure })
}

/// What the kernels of a list of convolutions gain, from the one that gains most, a panel for each size of filters.
pub fn gains(list: &Study) -> Option<Figure> {
    let mut data = Data::new("kernel filter mini_batch limit_bytes undivided_ms time_ms gain");
    let mut panels: BTreeMap<[u32; 2], Vec<Drawn>> = BTreeMap::new();
    let (mut most, mut sentences) = (1.0_f64, Vec::new());
    for (place, &limit) in GENEROUS.iter().enumerate() {
        for (filter, gains) in list.gains(limit)? {
            let [r, s] = filter;
            for (ratio, planned) in &gains {
                let (shape, undivided) = (planned.kernel.id.shape, planned.undivided.as_ref());
                let name = format!("{} {shape}", planned.kernel.id.op);
                let undivided_ms = undivided.map(|micro| micro.time_ms);
                row!(data; name, format!("{r}x{s}"), list.mini_batch(), limit, undivided_ms, planned.time_ms(), ratio);
            }
            let points: Vec<_> = (1..).zip(&gains).map(|(rank, gain)| [f64::from(rank), gain.0]).collect();
            let line = Drawn::new(Form::Line, points, Tone::of(place)).named(limit.to_string());
            panels.entry(filter).or_default().push(line);
            let (best, fastest) = gains.first()?;
            let above = gains.iter().filter(|gain| gain.0 >= NOTABLE).count();
            most = most.max(*best);
            sentences.push(format!(
                "of {} with {r}x{s} filters within {limit} {above} gain a tenth or more, at most {best:.2}x ({} of {})",
                gains.len(),
                fastest.kernel.id.op,
                fastest.kernel.id.shape,
            ));
        }
    }
    let panel = |([r, s], marks): ([u32; 2], Vec<Drawn>)| {
        let kernels = marks.iter().map(|mark| mark.points.len()).max().unwrap_or(1);
        let x = Axis::counts(
            &format!("kernels with {r}x{s} filters, from the one that gains most"),
            kernels as u32,
        );
        Panel::new(x, Axis::from_zero("gain over undivided", most), marks, 160.0)
    };
    let panels = panels.into_iter().map(panel).collect();
    let caption = format!(
        "{} kernels at mini-batch {}: {}.",
        list.kernels.len(),
        list.mini_batch(),
        sentences.join("; ")
    );
    Some(list.figure("kernels", "Which kernels gain", caption, panels, data))
}
