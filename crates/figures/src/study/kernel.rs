//! One kernel looked at closely: the cliff, micro-batch sizes, the desirable set, its divisions.

use super::{POLICIES, Study, USUAL, gain, tone};
use crate::draw::{Axis, Data, Figure, Mark, Panel, Tone, steps};
use planner::{Algorithm, BatchSizePolicy, Bytes, Curve, Kernel, Measurement};
use std::{collections::BTreeMap, slice};

/// Height of a panel of a drawing with one.
const TALL: f64 = 240.0;

impl Study<'_> {
    /// Time over the limit: every algorithm undivided, the fastest within the limit, and micro-batches.
    pub(super) fn cliff(&self, kernel: &Kernel) -> Option<Figure> {
        let [undivided, divided] = [BatchSizePolicy::Undivided, BatchSizePolicy::All]
            .map(|policy| Some(self.fronts(slice::from_ref(kernel), policy)?.iter().next()?.1.curve()));
        let (undivided, divided) = (undivided?, divided?);
        let edge = cliff(&undivided)?;
        let rescued_ms = divided.time_ms(Bytes(edge.at.0 - 1))?;
        let rows = self.table.measurements(&kernel.id, kernel.mini_batch)?;
        let range = [Bytes(edge.at.0 / 4096), Bytes(edge.at.0 * 8)];
        let y = Axis::from_zero("ms", edge.before_ms * 1.1);
        let x_at = edge.at.0 as f64;
        let mut marks = vec![
            Mark::Line { points: steps(&undivided, range), tone: Tone::Orange, label: String::new() },
            Mark::Line { points: steps(&divided, range), tone: Tone::Blue, label: String::new() },
        ];
        let mut data = Data::new(&["algorithm", "workspace_bytes", "time_ms"]);
        for row in rows {
            data.row([row.algorithm.as_str().into(), row.workspace.into(), row.time_ms.into()]);
            if row.time_ms <= y.range[1] {
                let (at, label) = ([row.workspace.0 as f64, row.time_ms], row.algorithm.to_string());
                marks.push(Mark::Dot { at, tone: Tone::Orange, label });
            }
        }
        let note = format!("one byte less: {} slower", gain(edge.before_ms, edge.after_ms));
        let middle = (edge.before_ms + edge.after_ms) / 2.0;
        marks.push(Mark::Note { at: [x_at, middle], tone: Tone::Ink, text: note });
        let left = divided.points().iter().find(|point| point.workspace > range[0])?;
        let on_the_line = [left.workspace.0 as f64 * 2.0, divided.time_ms(Bytes(left.workspace.0 * 2))?];
        marks.push(Mark::Note { at: on_the_line, tone: Tone::Blue, text: "in micro-batches".to_owned() });
        let x = Axis::bytes("workspace limit", range);
        let key = vec![(Tone::Orange, "undivided".to_owned()), (Tone::Blue, "in micro-batches".to_owned())];
        let caption = format!(
            "Each dot is an algorithm of {kernel} on all {} samples, the line the fastest that fits. With {} of workspace it \
             takes {:.2} ms; with one byte less, {:.2} ms, {} as long. In micro-batches {:.2} ms fit into the same.",
            kernel.mini_batch,
            edge.at,
            edge.after_ms,
            edge.before_ms,
            gain(edge.before_ms, edge.after_ms),
            rescued_ms,
        );
        let title = format!("{kernel} of {}", self.subject());
        let panel = Panel { x, y, marks, key, height: TALL };
        Some(Figure { data, ..self.figure("cliff", title, caption, vec![panel]) })
    }

    /// Speed and workspace of every algorithm over the micro-batch size.
    pub(super) fn micro_batches(&self, kernel: &Kernel) -> Option<Figure> {
        let mut series: BTreeMap<&Algorithm, Vec<&Measurement>> = BTreeMap::new();
        let mut data =
            Data::new(&["algorithm", "micro_batch", "time_ms", "images_per_ms", "workspace_bytes"]);
        for size in 1..=kernel.mini_batch {
            for row in self.table.measurements(&kernel.id, size).unwrap_or_default() {
                series.entry(&row.algorithm).or_default().push(row);
                let speed = 1.0 / row.time_per_sample_ms();
                data.row([
                    row.algorithm.as_str().into(),
                    size.into(),
                    row.time_ms.into(),
                    speed.into(),
                    row.workspace.into(),
                ]);
            }
        }
        let fastest =
            |rows: &[&Measurement]| rows.iter().map(|row| 1.0 / row.time_per_sample_ms()).fold(0.0, f64::max);
        let mut series: Vec<_> = series.into_iter().collect();
        series.sort_by(|a, b| fastest(&b.1).total_cmp(&fastest(&a.1)));
        series.truncate(5);
        let (best, rows) = series.first()?;
        let top = fastest(rows);
        // The size from which on the fastest algorithm is within a tenth of its best.
        let enough = rows.iter().find(|row| 1.0 / row.time_per_sample_ms() > 0.9 * top)?;
        let caption = format!(
            "{kernel}: {best} computes {top:.0} images in a millisecond at best, and at {} samples it is within a tenth of \
             that, with {} of workspace instead of {}.",
            enough.micro_batch,
            enough.workspace,
            rows.last()?.workspace,
        );
        let lines = |value: &dyn Fn(&Measurement) -> f64| -> Vec<Mark> {
            let line = |(place, (name, rows)): (usize, &(&Algorithm, Vec<&Measurement>))| Mark::Line {
                points: rows.iter().map(|row| [f64::from(row.micro_batch), value(row)]).collect(),
                tone: Tone::of(place),
                label: name.to_string(),
            };
            series.iter().enumerate().map(line).collect()
        };
        let largest = series.iter().flat_map(|(_, rows)| rows).map(|row| row.workspace).max()?;
        let sizes = || Axis::counts("micro-batch size", kernel.mini_batch);
        let speed = Panel {
            x: Axis { title: String::new(), ..sizes() },
            y: Axis::from_zero("images / ms", top),
            marks: lines(&|row| 1.0 / row.time_per_sample_ms()),
            key: Vec::new(),
            height: 170.0,
        };
        let workspace = Panel {
            x: sizes(),
            y: Axis::bytes_from_zero("workspace", largest),
            marks: lines(&|row| row.workspace.0 as f64),
            key: Vec::new(),
            height: 130.0,
        };
        let title = format!("What a micro-batch of {kernel} brings and takes: {}", self.subject());
        Some(Figure { data, ..self.figure("micro-batch-size", title, caption, vec![speed, workspace]) })
    }

    /// The desirable set, with the division at each of its points.
    pub(super) fn front(&self, kernel: &Kernel) -> Option<Figure> {
        let fronts = self.fronts(slice::from_ref(kernel), BatchSizePolicy::All)?;
        let set = fronts.iter().next()?.1;
        let curve = set.curve();
        let (first, last) = (curve.points().first()?, curve.points().last()?);
        let inside = curve.points().iter().find(|point| point.workspace > Bytes::mib(1))?;
        let range = [Bytes(inside.workspace.0 / 4), Bytes(last.workspace.0 * 2)];
        let mut data = Data::new(&["workspace_bytes", "time_ms", "division"]);
        let line = Mark::Line { points: steps(&curve, range), tone: Tone::Blue, label: String::new() };
        let mut marks = vec![line];
        let mut named_ms = f64::INFINITY;
        for configuration in set.iter() {
            let (workspace, time_ms) = (configuration.workspace(), configuration.time_ms());
            data.row([workspace.into(), time_ms.into(), configuration.to_string().into()]);
            // Names where time has fallen by a seventh since the last name: more would hide the line.
            let names = time_ms < 0.86 * named_ms || configuration == set.iter().last()?;
            let label = if names { configuration.to_string() } else { String::new() };
            named_ms = if names { time_ms } else { named_ms };
            marks.push(Mark::Dot { at: [workspace.0 as f64, time_ms], tone: Tone::Blue, label });
        }
        let size = set.iter().count();
        let caption = format!(
            "All {size} desirable configurations of {kernel}: none is both faster and smaller than another. From {:.2} ms \
             without workspace (or nearly so) to {:.2} ms with {}; a limit chooses the last one to its left.",
            first.time_ms, last.time_ms, last.workspace,
        );
        let y = Axis::from_zero("ms", first.time_ms);
        let x = Axis::bytes("workspace", range);
        let panel = Panel { x, y, marks, key: Vec::new(), height: TALL };
        let title = format!("The desirable set of {kernel}: {}", self.subject());
        Some(Figure { data, ..self.figure("desirable-set", title, caption, vec![panel]) })
    }

    /// The three policies' divisions, as bars of micro-batches.
    pub(super) fn divisions(&self, kernel: &Kernel) -> Option<Figure> {
        let mut data =
            Data::new(&["policy", "micro_batches", "samples", "algorithm", "time_ms", "workspace_bytes"]);
        let (mut marks, mut times) = (Vec::new(), Vec::new());
        for (row, policy) in POLICIES.into_iter().enumerate() {
            let plan = self.limited(policy, USUAL)?;
            let planned = plan.kernels.iter().find(|planned| planned.kernel == *kernel)?;
            let mut start = 0.0;
            for run in planned.configuration.runs() {
                let micro = &run.micro;
                data.row([
                    policy.to_string().into(),
                    run.count.into(),
                    micro.micro_batch.into(),
                    micro.algorithm.as_str().into(),
                    micro.time_ms.into(),
                    micro.workspace.into(),
                ]);
                for _ in 0..run.count {
                    let end = start + micro.time_ms;
                    let y = [row as f64 - 0.3, row as f64 + 0.3];
                    // A hair of paper between two micro-batches.
                    let x = [start, end - 0.004 * times.first().copied().unwrap_or(end)];
                    marks.push(Mark::Bar { x, y, tone: tone(policy), label: micro.micro_batch.to_string() });
                    start = end;
                }
            }
            marks.push(Mark::Note {
                at: [0.0, row as f64 - 0.42],
                tone: Tone::Ink,
                text: format!("{} ({:.2} ms, {})", planned.configuration, start, planned.workspace),
            });
            times.push(start);
        }
        let caption = format!(
            "{kernel} within {USUAL}: undivided {:.2} ms, in micro-batches {:.2} ms ({}) with powers of two and {:.2} ms ({}) \
             with all sizes. Each bar is a micro-batch with its samples.",
            times[0],
            times[1],
            gain(times[0], times[1]),
            times[2],
            gain(times[0], times[2]),
        );
        let panel = Panel {
            x: Axis::from_zero("ms", times[0]),
            y: Axis::names("", POLICIES.map(|policy| policy.to_string())).reversed(),
            marks,
            key: Vec::new(),
            height: 170.0,
        };
        let title = format!("{kernel} within {USUAL}: {}", self.subject());
        Some(Figure { data, ..self.figure("policies-of-a-kernel", title, caption, vec![panel]) })
    }
}

/// Where one byte less costs most.
pub(super) struct Cliff {
    /// The workspace that is just enough.
    pub(super) at: Bytes,
    /// The time with a byte less, and with it.
    pub(super) before_ms: f64,
    pub(super) after_ms: f64,
}

/// The steepest fall of a curve.
pub(super) fn cliff(curve: &Curve) -> Option<Cliff> {
    let falls = curve.points().windows(2).map(|pair| Cliff {
        at: pair[1].workspace,
        before_ms: pair[0].time_ms,
        after_ms: pair[1].time_ms,
    });
    falls.max_by(|a, b| (a.before_ms / a.after_ms).total_cmp(&(b.before_ms / b.after_ms)))
}
