//! One kernel looked at closely: algorithms, the cliff, micro-batch sizes, the desirable set, its divisions.

use super::{Study, USUAL, of_sizes, tone};
use crate::draw::{Axis, Bar, Drawn, Figure, Form, Panel, Tone};
use crate::table::{Table, row};
use crate::times;
use planner::{Algorithm, BatchSizePolicy, Bytes, Curve, Kernel, Measurement, PlanOptions};
use std::{collections::BTreeMap, fmt::Display};

/// Height of a panel of a drawing with one.
const TALL: f64 = 300.0;

impl Study {
    /// Time and workspace of every algorithm, undivided.
    pub(super) fn algorithms(&self, kernel: &Kernel) -> Option<Figure> {
        let mut rows = self.table.measurements(&kernel.id, kernel.mini_batch)?.to_vec();
        rows.sort_by(|a, b| a.time_ms.total_cmp(&b.time_ms));
        let mut data = Table::new("algorithm time_ms workspace_bytes max_error deterministic".split(' '));
        let (mut times_ms, mut bytes) = (Vec::new(), Vec::new());
        for Measurement { algorithm, time_ms, workspace, max_error, deterministic, .. } in &rows {
            row!(data; algorithm, time_ms, workspace, max_error, deterministic.to_string());
            times_ms.push(Bar::new(algorithm.as_str(), *time_ms, Tone::Orange, format!("{time_ms:.2}")));
            bytes.push(Bar::new(algorithm.as_str(), workspace.0 as f64, Tone::Blue, workspace));
        }
        let (Measurement { algorithm, workspace, .. }, slowest) = (rows.first()?, rows.last()?);
        let (samples, ratio) = (kernel.mini_batch, times(slowest.time_ms / rows[0].time_ms));
        let caption = format!(
            "What the algorithms for {kernel} take for all {samples} samples at once: {algorithm} is {ratio} faster than {} and \
             wants {workspace}.",
            slowest.algorithm,
        );
        let panels = vec![
            Panel::bars(|most| Axis::from_zero("ms", 1.2 * most), &times_ms, 24.0),
            Panel::bars(|most| Axis::bytes_from_zero("workspace", 1.3 * most), &bytes, 24.0),
        ];
        Some(self.figure("algorithms", &format!("Algorithms of {kernel}"), caption, panels, data))
    }

    /// Time over the limit, by what `options` admit: every algorithm undivided, the fastest within the limit, and
    /// micro-batches.
    pub fn cliff(&self, kernel: &Kernel, options: &PlanOptions) -> Option<Figure> {
        let undivided = PlanOptions { batch_size_policy: BatchSizePolicy::Undivided, ..options.clone() };
        let undivided = self.desirable(kernel, &undivided)?.curve();
        let is_divided = options.batch_size_policy != BatchSizePolicy::Undivided;
        let divided = if is_divided { Some(self.desirable(kernel, options)?.curve()) } else { None };
        let (at, [before_ms, after_ms]) = cliff(&undivided)?;
        let range = [Bytes(at.0 / 128), Bytes(at.0 * 32)];
        let y = Axis::from_zero("ms", before_ms * 1.1);
        let key = [(Tone::Orange, "undivided"), (Tone::Blue, "in micro-batches")];
        let steps = |curve: &Curve, (tone, _)| Drawn::steps(curve, range, tone);
        let mut marks = vec![steps(&undivided, key[0])];
        marks.extend(divided.iter().map(|curve| steps(curve, key[1])));
        let mut data = Table::new("algorithm workspace_bytes time_ms".split(' '));
        let mut rows = self.table.measurements(&kernel.id, kernel.mini_batch)?.to_vec();
        rows.retain(|row| options.admits(row));
        rows.iter().for_each(|row| row!(data; row.algorithm, row.workspace, row.time_ms));
        let all = rows.len();
        // What is off the drawing is in the data.
        rows.retain(|row| row.time_ms <= y.range[1]);
        let slower = all - rows.len();
        let left_out =
            if slower > 0 { format!(" Slower algorithms, not drawn: {slower}.") } else { String::new() };
        rows.sort_by(|a, b| a.time_ms.total_cmp(&b.time_ms));
        let drawn_at = |row: &Measurement| row.workspace.max(range[0]).0 as f64;
        // Dots that nearly coincide share the room of a name.
        let coincide = |a: &Measurement, b: &Measurement| {
            let [a_at, b_at] = [a, b].map(drawn_at);
            a_at.max(b_at) < 1.5 * a_at.min(b_at) && b.time_ms - a.time_ms < 0.02 * before_ms
        };
        for rows in rows.chunk_by(coincide) {
            let names = rows.iter().map(|row| placed(&row.algorithm, row.workspace, range[0]));
            let dots = rows.iter().map(|row| [drawn_at(row), row.time_ms]);
            marks.push(Drawn::new(Form::Dot, dots, Tone::Orange).named(names.collect::<Vec<_>>().join(", ")));
        }
        let (slower, samples) = (times(before_ms / after_ms), kernel.mini_batch);
        let in_less = divided
            .and_then(|curve| curve.time_ms(Bytes(at.0 - 1)))
            .map_or(String::new(), |ms| format!(" Divided into micro-batches it takes {ms:.2} ms in that."));
        let middle = [at.0 as f64, (before_ms + after_ms) / 2.0];
        marks.push(Drawn::new(Form::Note, [middle], Tone::Ink).named(format!("one byte less: {slower}")));
        let caption = format!(
            "Each dot is an algorithm of {kernel} on all {samples} samples, the line the fastest that fits. With {at} of \
             workspace it takes {after_ms:.2} ms; with one byte less, {before_ms:.2} ms, {slower} as long.{in_less} What \
             needs no workspace stands at the left edge.{left_out}"
        );
        let key = key.into_iter().take(1 + usize::from(is_divided));
        let panel = Panel::new(Axis::bytes("workspace limit", range), |_| y, marks, TALL).with_key(key);
        Some(self.figure("cliff", &format!("One byte less for {kernel}"), caption, vec![panel], data))
    }

    /// Speed and workspace of every algorithm over the micro-batch size.
    pub(super) fn micro_batches(&self, kernel: &Kernel) -> Option<Figure> {
        let speed = |measured: &Measurement| 1.0 / measured.time_per_sample_ms();
        let mut data = Table::new("algorithm micro_batch time_ms images_per_ms workspace_bytes".split(' '));
        let mut series: BTreeMap<&Algorithm, Vec<&Measurement>> = BTreeMap::new();
        let recorded = (1..=kernel.mini_batch).filter_map(|size| self.table.measurements(&kernel.id, size));
        for measured in recorded.flatten() {
            let Measurement { algorithm, micro_batch, time_ms, workspace, .. } = measured;
            row!(data; algorithm, micro_batch, time_ms, speed(measured), workspace);
            series.entry(algorithm).or_default().push(measured);
        }
        let fastest = |rows: &[&Measurement]| rows.iter().map(|row| speed(row)).fold(0.0, f64::max);
        // Of some algorithms there are but a few sizes that no other beats in everything.
        let most = series.values().map(Vec::len).max()?;
        series.retain(|_, rows| rows.len() >= most.min(9));
        let mut series = Vec::from_iter(series);
        series.sort_by(|a, b| fastest(&b.1).total_cmp(&fastest(&a.1)));
        series.truncate(5);
        let (best, rows) = series.first()?;
        let top = fastest(rows);
        let Measurement { micro_batch, workspace, .. } = rows.iter().find(|row| speed(row) > 0.9 * top)?;
        let all = rows.last()?.workspace;
        let caption = format!(
            "{kernel}: {best} computes {top:.0} images in a millisecond at best, and at {micro_batch} samples it is within a \
             tenth of that, with {workspace} of workspace instead of {all}."
        );
        let lines = |value: &dyn Fn(&Measurement) -> f64| -> Vec<Drawn> {
            let line = |(place, (name, rows)): (usize, &(&Algorithm, Vec<&Measurement>))| {
                let points = rows.iter().map(|row| [f64::from(row.micro_batch), value(row)]);
                Drawn::new(Form::Line, points, Tone::of(place)).named(name.as_str())
            };
            series.iter().enumerate().map(line).collect()
        };
        let sizes = |title| Axis::counts(title, kernel.mini_batch);
        let bytes = |most| Axis::bytes_from_zero("workspace", most);
        let panels = vec![
            Panel::new(sizes(""), |top| Axis::from_zero("images / ms", top), lines(&speed), 170.0),
            Panel::new(sizes("micro-batch size"), bytes, lines(&|row| row.workspace.0 as f64), 130.0),
        ];
        let what = format!("What a micro-batch of {kernel} brings and takes");
        Some(self.figure("micro-batches", &what, caption, panels, data))
    }

    /// The desirable set, with the division at its points.
    pub(super) fn front(&self, kernel: &Kernel) -> Option<Figure> {
        let set = self.desirable(kernel, &of_sizes(self.finest))?;
        let curve = set.curve();
        let last = curve.points().last()?;
        let inside = curve.points().iter().find(|point| point.workspace > Bytes::mib(1))?;
        let range = [Bytes(inside.workspace.0 / 4), Bytes(last.workspace.0 * 2)];
        let mut data = Table::new("workspace_bytes time_ms division".split(' '));
        let mut marks = vec![Drawn::steps(&curve, range, Tone::Blue)];
        let mut named_ms = f64::INFINITY;
        for configuration in set.iter() {
            let (workspace, time_ms) = (configuration.workspace(), configuration.time_ms());
            row!(data; workspace, time_ms, configuration.to_string());
            let mut dot = Drawn::new(Form::Dot, [[workspace.0 as f64, time_ms]], Tone::Blue);
            // Names where time has fallen by a seventh since the last name: more would hide the line.
            if time_ms < 0.86 * named_ms || workspace == last.workspace {
                let name = placed(configuration, workspace, range[0]);
                (dot, named_ms) = (dot.named(name), time_ms);
            }
            marks.push(dot);
        }
        let points = set.len();
        let caption = format!(
            "All {points} desirable configurations of {kernel}: none is both faster and smaller than another. A limit chooses \
             the last one to its left. What needs no workspace stands at the left edge."
        );
        let (x, y) = (Axis::bytes("workspace", range), |top| Axis::from_zero("ms", top));
        let panel = Panel::new(x, y, marks, TALL);
        Some(self.figure("front", &format!("The desirable set of {kernel}"), caption, vec![panel], data))
    }

    /// The three policies' divisions, as bars of micro-batches.
    pub(super) fn divisions(&self, kernel: &Kernel) -> Option<Figure> {
        let mut data =
            Table::new("policy micro_batches samples algorithm time_ms workspace_bytes".split(' '));
        let mut bars = Vec::new();
        for &policy in self.policies() {
            let plan = self.limited(policy, USUAL)?;
            let planned = plan.kernels.iter().find(|planned| planned.kernel == *kernel)?;
            let mut parts = Vec::new();
            for run in planned.configuration.runs() {
                let Measurement { micro_batch, algorithm, time_ms, workspace, .. } = &run.micro;
                row!(data; policy, run.count, micro_batch, algorithm, time_ms, workspace);
                parts.extend((0..run.count).map(|_| (*time_ms, tone(policy), micro_batch.to_string())));
            }
            let (ms, gain) = (planned.time_ms(), times(planned.gain()));
            let head = format!("{} ({ms:.2} ms, {gain}, {})", planned.configuration, planned.workspace);
            bars.extend([Bar::of_parts(policy, [], head), Bar::of_parts(policy, parts, "")]);
        }
        let caption = format!(
            "{kernel} under three policies within {USUAL}, its time and gain over one undivided call: each bar is a \
             micro-batch with its samples."
        );
        let panel = Panel::bars(|most| Axis::from_zero("ms", most), &bars, 56.0);
        Some(self.figure("division", &format!("{kernel} within {USUAL}"), caption, vec![panel], data))
    }
}

/// The name of a dot, with its workspace where that is less than the `first` of the axis, at which it is drawn.
fn placed(name: &impl Display, workspace: Bytes, first: Bytes) -> String {
    if workspace < first { format!("{name}: {workspace}") } else { name.to_string() }
}

/// Where one byte less costs most: the workspace that is just enough, and the time without and with it.
pub(super) fn cliff(curve: &Curve) -> Option<(Bytes, [f64; 2])> {
    let falls = curve.points().windows(2).map(|pair| (pair[1].workspace, [pair[0].time_ms, pair[1].time_ms]));
    let times = |(_, [before_ms, after_ms]): &(Bytes, [f64; 2])| before_ms / after_ms;
    falls.max_by(|a, b| times(a).total_cmp(&times(b)))
}
