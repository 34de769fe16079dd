//! A whole net: policies and limits, the price of a MiB, one total shared or divided.

use super::{LIMITS, POLICIES, Study, USUAL, gain, tone};
use crate::draw::{Axis, Data, Figure, Mark, Panel, Tone, steps};
use planner::{BatchSizePolicy, Bytes, ConvOp, Plan, PlannedKernel, WorkspacePolicy};

/// Most layers that have a colour each.
const MOST_LAYERS: usize = 6;

impl Study<'_> {
    /// Every limit under every policy, stacked by layer, or by operation in deep nets.
    pub(super) fn policies(&self) -> Option<Figure> {
        let parts = self.parts();
        let mut data = Data::new(&["limit_bytes", "policy", "part", "time_ms"]);
        let (mut marks, mut ticks, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for (group, limit) in LIMITS.into_iter().enumerate() {
            for (within, policy) in POLICIES.into_iter().enumerate() {
                let bar = group as f64 * 3.6 + within as f64;
                let name = ["un-\ndivided", "power\nOfTwo", "all"][within];
                ticks.push((bar, if within == 1 { format!("{name}\n{limit}") } else { name.to_owned() }));
                let Some(plan) = self.limited(policy, limit) else { continue };
                let mut top = 0.0;
                for (place, part) in parts.iter().enumerate() {
                    let belongs = |planned: &&PlannedKernel| {
                        planned.kernel.name == *part || planned.kernel.id.op.to_string() == *part
                    };
                    let ms: f64 = plan.kernels.iter().filter(belongs).map(PlannedKernel::time_ms).sum();
                    data.row([limit.into(), policy.to_string().into(), part.as_str().into(), ms.into()]);
                    let (x, y) = ([bar - 0.42, bar + 0.42], [top, top + ms]);
                    marks.push(Mark::Bar { x, y, tone: Tone::of(place), label: String::new() });
                    top += ms;
                }
                times.push((limit, policy, plan.time_ms));
            }
        }
        let most = times.iter().map(|time| time.2).fold(0.0, f64::max);
        let mut sentences = Vec::new();
        for limit in LIMITS {
            let at =
                |policy| times.iter().find(|time| time.0 == limit && time.1 == policy).map(|time| time.2);
            let Some(undivided) = at(BatchSizePolicy::Undivided) else { continue };
            for (within, policy) in POLICIES.into_iter().enumerate().skip(1) {
                let (Some(time), group) = (at(policy), LIMITS.iter().position(|l| *l == limit)?) else {
                    continue;
                };
                let place = [group as f64 * 3.6 + within as f64, time];
                marks.push(Mark::Above { at: place, tone: Tone::Ink, text: gain(undivided, time) });
            }
            sentences
                .extend(at(BatchSizePolicy::All).map(|all| format!("{} at {limit}", gain(undivided, all))));
        }
        let x = Axis { ticks, range: [-0.6, 9.8], ..Axis::names("limit of each kernel", [""]) };
        let key = parts.iter().enumerate().map(|(place, name)| (Tone::of(place), name.clone())).collect();
        let y = Axis::from_zero("ms, all convolution kernels of an iteration", most * 1.05);
        let panel = Panel { x, y, marks, key, height: 240.0 };
        let caption = format!(
            "All convolution kernels of {} under three limits and three policies. Micro-batches of all sizes gain {}.",
            self.title,
            sentences.join(", ")
        );
        let figure = self.figure("policies", self.subject(), caption, vec![panel]);
        Some(Figure { data, ..figure })
    }

    /// What bars are stacked of: layers, or operations if there are many layers.
    fn parts(&self) -> Vec<String> {
        match self.convolutions() {
            layers if layers.len() > MOST_LAYERS => ConvOp::ALL.map(|op| op.to_string()).into(),
            layers => layers.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Time over the limit of each kernel, and what a MiB more would save.
    pub(super) fn limits(&self) -> Option<Figure> {
        let range = [Bytes::mib(1), Bytes::mib(8192)];
        let mut data = Data::new(&["policy", "limit_bytes", "time_ms", "price_ms_per_mib"]);
        let (mut times, mut prices, mut most, mut dearest) = (Vec::new(), Vec::new(), 0.0_f64, 0.0_f64);
        for policy in POLICIES {
            let curve = self.fronts(&self.kernels, policy)?.curve(WorkspacePolicy::Wr);
            for point in curve.points() {
                let price = curve.price_ms_per_mib(point.workspace);
                data.row([
                    policy.to_string().into(),
                    point.workspace.into(),
                    point.time_ms.into(),
                    price.into(),
                ]);
            }
            most = most.max(curve.time_ms(range[0].max(curve.points().first()?.workspace))?);
            let (points, label) = (steps(&curve, range), policy.to_string());
            times.push(Mark::Line { points, tone: tone(policy), label: label.clone() });
            let powers = (0..14u32).flat_map(|power| [1u64 << power, 3 << power]).filter(|&mib| mib <= 8192);
            let mut limits: Vec<Bytes> = powers.map(Bytes::mib).collect();
            limits.sort_unstable();
            limits.dedup();
            let per_mib = |limit: &Bytes| [limit.0 as f64, curve.price_ms_per_mib(*limit) * 1e3];
            let points: Vec<[f64; 2]> =
                limits.iter().map(per_mib).filter(|point| point[1].is_finite()).collect();
            dearest = points.iter().map(|point| point[1]).fold(dearest, f64::max);
            prices.push(Mark::Line { points, tone: tone(policy), label });
        }
        let plans = POLICIES.map(|policy| self.limited(policy, USUAL));
        let [undivided, power, all] =
            plans.each_ref().map(|plan| plan.as_ref().map_or(f64::NAN, |p| p.time_ms));
        let same = self.fronts(&self.kernels, BatchSizePolicy::Undivided)?.curve(WorkspacePolicy::Wr);
        let equal = same.points().iter().find(|point| point.time_ms <= all).map(|point| point.workspace);
        let equal = equal.map_or_else(|| "no amount".to_owned(), |bytes| bytes.to_string());
        let caption = format!(
            "All convolution kernels of {}, each with the same limit. At {USUAL}: undivided {undivided:.1} ms, powerOfTwo \
             {power:.1} ms, all sizes {all:.1} ms ({}). Undivided kernels need {equal} each to be as fast. Below: \
             microseconds that each MiB more would save at best.",
            self.title,
            gain(undivided, all),
        );
        let x = || Axis::bytes("limit of each kernel", range);
        let above = Panel {
            x: Axis { title: String::new(), ..x() },
            y: Axis::from_zero("ms, all convolution kernels of an iteration", most),
            marks: times,
            key: Vec::new(),
            height: 220.0,
        };
        let below = Panel {
            x: x(),
            y: Axis::decades("price of a MiB: µs saved at best", [0.1, dearest.max(1.0)]),
            marks: prices,
            key: Vec::new(),
            height: 120.0,
        };
        let title = format!("Time against workspace: {}", self.subject());
        Some(Figure { data, ..self.figure("limit", title, caption, vec![above, below]) })
    }

    /// One total: a share for each kernel (WR), divided (WD), an arena for all (WS).
    pub(super) fn totals(&self) -> Option<Figure> {
        let ways: [(&str, BatchSizePolicy, WorkspacePolicy); 4] = [
            ("WR, undivided", BatchSizePolicy::Undivided, WorkspacePolicy::Wr),
            ("WR", BatchSizePolicy::All, WorkspacePolicy::Wr),
            ("WD", BatchSizePolicy::All, WorkspacePolicy::Wd),
            ("one arena", BatchSizePolicy::All, WorkspacePolicy::Ws),
        ];
        let tones = [Tone::Orange, Tone::Sky, Tone::Blue, Tone::Green];
        let mut data = Data::new(&["total_bytes", "way", "time_ms", "workspace_bytes"]);
        let (mut marks, mut ticks, mut most, mut sentences) = (Vec::new(), Vec::new(), 0.0_f64, Vec::new());
        for (group, each) in self.shares().into_iter().enumerate() {
            let total = self.total(each);
            ticks.push((group as f64 * 4.8 + 1.5, format!("{} MiB", total.as_mib())));
            let mut times = [f64::NAN; 4];
            for (within, (name, sizes, policy)) in ways.into_iter().enumerate() {
                let limit = if policy == WorkspacePolicy::Wr { each } else { total };
                let Some(plan) = self.plan(sizes, policy, limit) else { continue };
                let bar = group as f64 * 4.8 + within as f64;
                let workspace = match policy {
                    WorkspacePolicy::Ws => plan.workspace_total(),
                    _ => plan.workspace_separate(),
                };
                data.row([total.into(), name.into(), plan.time_ms.into(), workspace.into()]);
                let (x, y) = ([bar - 0.44, bar + 0.44], [0.0, plan.time_ms]);
                marks.push(Mark::Bar { x, y, tone: tones[within], label: String::new() });
                let text = format!("{:.1}", plan.time_ms);
                marks.push(Mark::Above { at: [bar, plan.time_ms], tone: Tone::Ink, text });
                most = most.max(plan.time_ms);
                times[within] = plan.time_ms;
            }
            sentences.push(format!(
                "{} MiB: WR {:.1} ms, WD {:.1} ms, one arena {:.1} ms",
                total.as_mib(),
                times[1],
                times[2],
                times[3]
            ));
        }
        let groups = ticks.len() as f64;
        let x = Axis {
            ticks,
            range: [-0.8, groups * 4.8 - 1.0],
            ..Axis::names("workspace of all kernels together", [""])
        };
        let key = std::iter::zip(tones, ways).map(|(tone, way)| (tone, way.0.to_owned())).collect();
        let y = Axis::from_zero("ms, all convolution kernels of an iteration", most * 1.05);
        let panel = Panel { x, y, marks, key, height: 220.0 };
        let caption = format!(
            "The same memory for workspaces, given in three ways: an equal share for each kernel (WR), divided by an ILP \
             (WD), one arena that all use in turn. {}. Kernels that run one after the other lose by not sharing.",
            sentences.join("; ")
        );
        let title = format!("Three ways to give a total: {}", self.subject());
        Some(Figure { data, ..self.figure("totals", title, caption, vec![panel]) })
    }

    /// Each kernel's share of the totals compared: the papers' three for AlexNet, and for deep nets smaller ones.
    fn shares(&self) -> [Bytes; 3] {
        match self.convolutions().len() {
            ..=16 => LIMITS,
            _ => [8, 16, 32].map(Bytes::mib),
        }
    }

    /// How WD divides the smallest total.
    pub(super) fn division(&self) -> Option<Figure> {
        let total = self.total(LIMITS[0]);
        let plan = self.plan(BatchSizePolicy::All, WorkspacePolicy::Wd, total)?;
        let mut data = Data::new(&["kernel", "division", "workspace_bytes", "time_ms"]);
        for planned in &plan.kernels {
            let (name, division) = (planned.kernel.to_string(), planned.configuration.to_string());
            data.row([name.into(), division.into(), planned.workspace.into(), planned.time_ms().into()]);
        }
        let mut largest: Vec<&PlannedKernel> = plan.kernels.iter().collect();
        largest.sort_by_key(|planned| std::cmp::Reverse(planned.workspace));
        largest.truncate(14);
        let used: Bytes = plan.kernels.iter().map(|planned| planned.workspace).sum();
        let part = |bytes: Bytes| 100.0 * bytes.0 as f64 / used.0.max(1) as f64;
        let mut marks = Vec::new();
        for (row, planned) in largest.iter().enumerate() {
            let (bytes, row) = (planned.workspace.0 as f64, row as f64);
            let bar = Mark::Bar {
                x: [0.0, bytes],
                y: [row - 0.36, row + 0.36],
                tone: Tone::Blue,
                label: String::new(),
            };
            let text = format!("{}: {}", planned.workspace, planned.configuration);
            marks.extend([bar, Mark::Note { at: [bytes, row], tone: Tone::Ink, text }]);
        }
        let (first, second) = two_layers(&plan)?;
        let caption = format!(
            "WD gives {} of {total} to {} kernels; {} and {} have {:.1} % of it. All kernels take {:.1} ms.",
            used,
            plan.kernels.len(),
            first.0,
            second.0,
            part(first.1 + second.1),
            plan.time_ms,
        );
        let names = largest.iter().map(|planned| planned.kernel.to_string());
        let panel = Panel {
            x: Axis::bytes_from_zero("workspace", largest.first()?.workspace),
            y: Axis::names("", names).reversed(),
            marks,
            key: Vec::new(),
            height: 22.0 * largest.len() as f64,
        };
        let title = format!("How WD divides {} MiB: {}", total.as_mib(), self.subject());
        let figure = self.figure("division", title, caption, vec![panel]);
        Some(Figure { data, width: Figure::PAGE, ..figure })
    }
}

/// The two layers with most workspace in all their kernels together.
pub(super) fn two_layers(plan: &Plan) -> Option<((String, Bytes), (String, Bytes))> {
    let mut layers: Vec<(String, Bytes)> = Vec::new();
    for planned in &plan.kernels {
        match layers.iter_mut().find(|(name, _)| *name == planned.kernel.name) {
            Some((_, bytes)) => *bytes += planned.workspace,
            None => layers.push((planned.kernel.name.clone(), planned.workspace)),
        }
    }
    layers.sort_by_key(|layer| std::cmp::Reverse(layer.1));
    let mut layers = layers.into_iter();
    Some((layers.next()?, layers.next()?))
}
