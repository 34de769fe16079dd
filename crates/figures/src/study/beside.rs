//! Two devices beside each other.

use super::{LIMITS, Study, net::ALL_MS, nets, tone};
use crate::{
    draw::{Axis, Bar, Data, Figure, Panel, row},
    times,
};
use planner::{BatchSizePolicy::Undivided, Math};

/// The nets in FP32 that were measured on both devices at the same sizes.
pub(super) fn pairs<'s>(here: &'s [Study], there: &'s [Study]) -> impl Iterator<Item = [&'s Study; 2]> {
    let is_twin = |a: &Study, b: &Study| a.kernels == b.kernels && a.finest == b.finest;
    nets(here, Math::Fp32)
        .filter_map(move |study| Some([study, there.iter().find(|other| is_twin(study, other))?]))
}

/// Time within three limits, undivided and in micro-batches, of all nets that both have; and the cliff of the
/// convolution that is looked at closely.
pub(super) fn beside(here: &[Study], there: &[Study]) -> Option<Figure> {
    let mut data = Data::new("net device limit_bytes undivided_ms time_ms gain");
    let mut panels: Vec<Panel> = pairs(here, there).map(|pair| bars(pair, &mut data)).collect();
    let [first, other] = pairs(here, there).next()?;
    let key = [(tone(Undivided), "undivided"), (tone(first.finest), "in micro-batches")];
    panels[0].key = key.map(|(tone, name)| (tone, name.to_owned())).into();
    for study in pairs(here, there).flatten() {
        let Some(kernel) = study.kernel_of_interest() else { continue };
        for mut panel in study.cliff(kernel).into_iter().flat_map(|figure| figure.panels) {
            (panel.y.title, panel.height) = (format!("{}: ms, {kernel}", study.model()), 190.0);
            panels.push(panel);
        }
    }
    let caption = "The nets that were measured on both, under three limits for each kernel, with what micro-batches gain; and \
                   the cliff of one kernel.".to_owned();
    let ([here, there], source) =
        ([first, other].map(Study::model), [first, other].map(Study::source).join(". "));
    let title = format!("The same nets on {here} and {there}, FP32");
    let name = format!("beside-{}", there.to_lowercase());
    Some(Figure { caption, ..Figure::new(&name, title, source, panels, data) })
}

/// A group for each limit, of bars for each device.
fn bars(pair: [&Study; 2], data: &mut Data) -> Panel {
    let groups = LIMITS.map(|limit| {
        let mut bars = Vec::new();
        for study in pair {
            let plans = [Undivided, study.finest].map(|sizes| study.limited(sizes, limit));
            let [Some(undivided), Some(divided)] = plans else { continue };
            let (before_ms, ms, gain) = (undivided.time_ms, divided.time_ms, divided.gain());
            row!(data; study.label(), study.device(), limit, before_ms, ms, gain);
            bars.push(Bar::new(before_ms, tone(Undivided), format!("{} {before_ms:.1}", study.model())));
            bars.push(Bar::new(ms, tone(study.finest), format!("{ms:.1} ({})", times(gain))));
        }
        (limit.to_string(), bars)
    });
    let title = format!("{}: {ALL_MS}", pair[0].label());
    Panel::bars(|most| Axis::from_zero(&title, 1.3 * most), groups.into(), 76.0)
}
