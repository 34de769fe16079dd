//! One kernel looked at closely: algorithms, the cliff, micro-batch sizes, the desirable set, its divisions.

use super::{Study, USUAL, tone};
use crate::{
    draw::{Axis, Data, Drawn, Figure, Form, Panel, Tone, row, steps},
    times,
};
use planner::{Algorithm, BatchSizePolicy, Bytes, Curve, Kernel, Measurement};
use std::{collections::BTreeMap, slice};

/// Height of a panel of a drawing with one.
const TALL: f64 = 240.0;

impl Study {
    /// Time and workspace of every algorithm, undivided.
    pub(super) fn algorithms(&self, kernel: &Kernel) -> Option<Figure> {
        let mut rows = self.table.measurements(&kernel.id, kernel.mini_batch)?.to_vec();
        rows.sort_by(|a, b| a.time_ms.total_cmp(&b.time_ms));
        let mut data = Data::new("algorithm time_ms workspace_bytes max_error deterministic");
        for Measurement { algorithm, time_ms, workspace, max_error, deterministic, .. } in &rows {
            row!(data; algorithm, time_ms, workspace, max_error, deterministic.to_string());
        }
        let (fastest, slowest) = (rows.first()?, rows.last()?);
        let largest = rows.iter().map(|measured| measured.workspace).max()?;
        let caption = format!(
            "What the algorithms for {kernel} take for all {} samples at once: {} is {} faster than {} and wants {}.",
            kernel.mini_batch,
            fastest.algorithm,
            times(slowest.time_ms / fastest.time_ms),
            slowest.algorithm,
            fastest.workspace,
        );
        let bar = |measured: &Measurement, end: f64, text: String, tone: Tone| {
            (measured.algorithm.to_string(), end, text, tone)
        };
        let times = rows.iter().map(|one| bar(one, one.time_ms, format!("{:.2}", one.time_ms), Tone::Orange));
        let bytes =
            rows.iter().map(|one| bar(one, one.workspace.0 as f64, one.workspace.to_string(), Tone::Blue));
        let workspace = Axis::bytes_from_zero("workspace", Bytes(largest.0 / 10 * 13));
        let panels = vec![
            Panel::bars(Axis::from_zero("ms", slowest.time_ms * 1.2), times, 24.0),
            Panel::bars(workspace, bytes, 24.0),
        ];
        Some(self.figure("algorithms", &format!("Algorithms of {kernel}"), caption, panels, data))
    }

    /// Time over the limit: every algorithm undivided, the fastest within the limit, and micro-batches.
    pub fn cliff(&self, kernel: &Kernel) -> Option<Figure> {
        let curve = |policy| Some(self.fronts(slice::from_ref(kernel), policy)?.iter().next()?.1.curve());
        // Not every table has all sizes.
        let divided = curve(BatchSizePolicy::All).or_else(|| curve(BatchSizePolicy::PowerOfTwo))?;
        let undivided = curve(BatchSizePolicy::Undivided)?;
        let (at, [before_ms, after_ms]) = cliff(&undivided)?;
        let range = [Bytes(at.0 / 1024), Bytes(at.0 * 32)];
        let y = Axis::from_zero("ms", before_ms * 1.1);
        let mut marks = vec![
            Drawn::new(Form::Line, steps(&undivided, range), Tone::Orange),
            Drawn::new(Form::Line, steps(&divided, range), Tone::Blue),
        ];
        let mut data = Data::new("algorithm workspace_bytes time_ms");
        for measured in self.table.measurements(&kernel.id, kernel.mini_batch)? {
            row!(data; measured.algorithm, measured.workspace, measured.time_ms);
            let dot = Drawn::new(Form::Dot, [[measured.workspace.0 as f64, measured.time_ms]], Tone::Orange);
            // What is off the drawing is in the data.
            marks.extend((measured.time_ms <= y.range[1]).then(|| dot.named(measured.algorithm.as_str())));
        }
        let slower = times(before_ms / after_ms);
        let middle = [at.0 as f64, (before_ms + after_ms) / 2.0];
        marks.push(Drawn::text(Form::Note, middle, format!("one byte less: {slower}")));
        let caption = format!(
            "Each dot is an algorithm of {kernel} on all {} samples, the line the fastest that fits. With {at} of workspace it \
             takes {after_ms:.2} ms; with one byte less, {before_ms:.2} ms, {slower} as long. Divided into micro-batches it \
             takes {:.2} ms in that.",
            kernel.mini_batch,
            divided.time_ms(Bytes(at.0 - 1))?,
        );
        let key = [(Tone::Orange, "undivided"), (Tone::Blue, "in micro-batches")];
        let panel = Panel::new(Axis::bytes("workspace limit", range), y, marks, TALL).with_key(key);
        Some(self.figure("cliff", &format!("One byte less for {kernel}"), caption, vec![panel], data))
    }

    /// Speed and workspace of every algorithm over the micro-batch size.
    pub(super) fn micro_batches(&self, kernel: &Kernel) -> Option<Figure> {
        let speed = |measured: &Measurement| 1.0 / measured.time_per_sample_ms();
        let mut series: BTreeMap<&Algorithm, Vec<&Measurement>> = BTreeMap::new();
        let mut data = Data::new("algorithm micro_batch time_ms images_per_ms workspace_bytes");
        let mut recorded = 0;
        for size in 1..=kernel.mini_batch {
            let rows = self.table.measurements(&kernel.id, size).unwrap_or_default();
            recorded += usize::from(!rows.is_empty());
            for measured in rows {
                series.entry(&measured.algorithm).or_default().push(measured);
                let Measurement { algorithm, time_ms, workspace, .. } = measured;
                row!(data; algorithm, size, time_ms, speed(measured), workspace);
            }
        }
        let fastest = |rows: &[&Measurement]| rows.iter().map(|row| speed(row)).fold(0.0, f64::max);
        // Of some algorithms there are but a few sizes that no other beats in everything.
        let mut series: Vec<_> =
            series.into_iter().filter(|(_, rows)| rows.len() >= recorded.min(9)).collect();
        series.sort_by(|a, b| fastest(&b.1).total_cmp(&fastest(&a.1)));
        series.truncate(5);
        let (best, rows) = series.first()?;
        let top = fastest(rows);
        let enough = rows.iter().find(|row| speed(row) > 0.9 * top)?;
        let caption = format!(
            "{kernel}: {best} computes {top:.0} images in a millisecond at best, and at {} samples it is within a tenth of \
             that, with {} of workspace instead of {}.",
            enough.micro_batch,
            enough.workspace,
            rows.last()?.workspace,
        );
        let lines = |value: &dyn Fn(&Measurement) -> f64| -> Vec<Drawn> {
            let line = |(place, (name, rows)): (usize, &(&Algorithm, Vec<&Measurement>))| {
                let points: Vec<_> =
                    rows.iter().map(|row| [f64::from(row.micro_batch), value(row)]).collect();
                Drawn::new(Form::Line, points, Tone::of(place)).named(name.as_str())
            };
            series.iter().enumerate().map(line).collect()
        };
        let largest = series.iter().flat_map(|(_, rows)| rows).map(|row| row.workspace).max()?;
        let sizes = |title| Axis::counts(title, kernel.mini_batch);
        let bytes = Axis::bytes_from_zero("workspace", largest);
        let panels = vec![
            Panel::new(sizes(""), Axis::from_zero("images / ms", top), lines(&speed), 170.0),
            Panel::new(sizes("micro-batch size"), bytes, lines(&|row| row.workspace.0 as f64), 130.0),
        ];
        Some(self.figure(
            "micro-batches",
            &format!("What a micro-batch of {kernel} brings and takes"),
            caption,
            panels,
            data,
        ))
    }

    /// The desirable set, with the division at its points.
    pub(super) fn front(&self, kernel: &Kernel) -> Option<Figure> {
        let fronts = self.fronts(slice::from_ref(kernel), self.finest)?;
        let set = fronts.iter().next()?.1;
        let curve = set.curve();
        let (first, last) = (curve.points().first()?, curve.points().last()?);
        let inside = curve.points().iter().find(|point| point.workspace > Bytes::mib(1))?;
        let range = [Bytes(inside.workspace.0 / 4), Bytes(last.workspace.0 * 2)];
        let mut data = Data::new("workspace_bytes time_ms division");
        let mut marks = vec![Drawn::new(Form::Line, steps(&curve, range), Tone::Blue)];
        let mut named_ms = f64::INFINITY;
        for configuration in set.iter() {
            let (workspace, time_ms) = (configuration.workspace(), configuration.time_ms());
            row!(data; workspace, time_ms, configuration.to_string());
            let mut dot = Drawn::new(Form::Dot, [[workspace.0 as f64, time_ms]], Tone::Blue);
            // Names where time has fallen by a seventh since the last name: more would hide the line.
            if time_ms < 0.86 * named_ms || workspace == last.workspace {
                (dot, named_ms) = (dot.named(configuration.to_string()), time_ms);
            }
            marks.push(dot);
        }
        let caption = format!(
            "All {} desirable configurations of {kernel}: none is both faster and smaller than another. From {:.2} ms without \
             workspace (or nearly so) to {:.2} ms with {}; a limit chooses the last one to its left.",
            curve.points().len(),
            first.time_ms,
            last.time_ms,
            last.workspace,
        );
        let panel =
            Panel::new(Axis::bytes("workspace", range), Axis::from_zero("ms", first.time_ms), marks, TALL);
        Some(self.figure("front", &format!("The desirable set of {kernel}"), caption, vec![panel], data))
    }

    /// The three policies' divisions, as bars of micro-batches.
    pub(super) fn divisions(&self, kernel: &Kernel) -> Option<Figure> {
        let mut data = Data::new("policy micro_batches samples algorithm time_ms workspace_bytes");
        let (mut marks, mut sums_ms) = (Vec::new(), Vec::new());
        for (place, &policy) in self.policies().iter().enumerate() {
            let (plan, place) = (self.limited(policy, USUAL)?, place as f64);
            let planned = plan.kernels.iter().find(|planned| planned.kernel == *kernel)?;
            let mut start = 0.0;
            for run in planned.configuration.runs() {
                let Measurement { micro_batch, algorithm, time_ms, workspace, .. } = &run.micro;
                row!(data; policy.to_string(), run.count, micro_batch, algorithm, time_ms, workspace);
                for _ in 0..run.count {
                    let end = start + time_ms;
                    // A hair of paper between two micro-batches.
                    let x = [start, end - 0.004 * sums_ms.first().copied().unwrap_or(end)];
                    let bar = Drawn::bar(x, [place - 0.2, place + 0.36], tone(policy));
                    marks.push(bar.named(micro_batch.to_string()));
                    start = end;
                }
            }
            let text = format!("{} ({start:.2} ms, {})", planned.configuration, planned.workspace);
            marks.push(Drawn::text(Form::Note, [0.0, place - 0.35], text));
            sums_ms.push(start);
        }
        let divided = std::iter::zip(self.policies(), &sums_ms).skip(1);
        let divided =
            divided.map(|(policy, &ms)| format!("{policy} {ms:.2} ms ({})", times(sums_ms[0] / ms)));
        let caption = format!(
            "{kernel} within {USUAL}: undivided {:.2} ms, {}. Each bar is a micro-batch with its samples.",
            sums_ms[0],
            divided.collect::<Vec<_>>().join(", "),
        );
        let names = Axis::names("", self.policies().iter().map(|policy| policy.to_string())).reversed();
        let panel = Panel::new(Axis::from_zero("ms", sums_ms[0]), names, marks, 170.0);
        Some(self.figure("division", &format!("{kernel} within {USUAL}"), caption, vec![panel], data))
    }
}

/// Where one byte less costs most: the workspace that is just enough, and the time without and with it.
pub(super) fn cliff(curve: &Curve) -> Option<(Bytes, [f64; 2])> {
    let falls = curve.points().windows(2).map(|pair| (pair[1].workspace, [pair[0].time_ms, pair[1].time_ms]));
    let times = |(_, [before_ms, after_ms]): &(Bytes, [f64; 2])| before_ms / after_ms;
    falls.max_by(|a, b| times(a).total_cmp(&times(b)))
}
