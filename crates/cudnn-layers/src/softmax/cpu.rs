//! Softmax, its loss and accuracy on the CPU.

use super::labels::{LabelError, LossOptions};
use crate::AxisExtents;
use crate::cpu_loops::{for_each_column_block, inlined, items_per_task, put};
use tensor::{Cpu, Out, View, ViewMut};

/// Columns (inner indices) handled together.
const WIDTH: usize = 64;

/// Width of a block and blocks of a task.
fn blocks(extents: &AxisExtents) -> (usize, usize) {
    (WIDTH, items_per_task(extents.axis * WIDTH.min(extents.inner)))
}

pub(super) fn forward(cpu: &Cpu, extents: &AxisExtents, x: View<'_>, y: ViewMut<'_>) {
    let (x, y) = (x.host::<f32>(), y.into_host());
    inlined!(for_each_column_block(cpu, extents, blocks(extents), y), |outer, columns, mut y| {
        let (mut largest, mut sum) = ([f32::NEG_INFINITY; WIDTH], [0.0; WIDTH]);
        for index in 0..extents.axis {
            let x = &x[extents.plane(outer, index)][columns.clone()];
            largest.iter_mut().zip(x).for_each(|(largest, &x)| *largest = largest.max(x));
        }
        for index in 0..extents.axis {
            let x = &x[extents.plane(outer, index)][columns.clone()];
            let out = y.row(index).iter_mut().zip(&mut sum);
            for (((y, sum), &x), largest) in out.zip(x).zip(largest) {
                *y = (x - largest).exp();
                *sum += *y;
            }
        }
        for index in 0..extents.axis {
            y.row(index).iter_mut().zip(sum).for_each(|(y, sum)| *y /= sum);
        }
    });
}

pub(super) fn backward(cpu: &Cpu, extents: &AxisExtents, y: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let (y, dy, (dx, accumulate)) = (y.host(), dy.host(), dx.into_host());
    inlined!(for_each_column_block(cpu, extents, blocks(extents), dx), |outer, columns, mut dx| {
        let rows = |index| [y, dy].map(|blob: &[f32]| &blob[extents.plane(outer, index)][columns.clone()]);
        let mut dot = [0.0; WIDTH];
        for index in 0..extents.axis {
            let [y, dy] = rows(index);
            dot.iter_mut().zip(y).zip(dy).for_each(|((dot, y), dy)| *dot += y * dy);
        }
        for index in 0..extents.axis {
            let [y, dy] = rows(index);
            for (((dx, &y), &dy), dot) in dx.row(index).iter_mut().zip(y).zip(dy).zip(dot) {
                put(accumulate, dx, y * (dy - dot));
            }
        }
    });
}

/// Tells `each` of every prediction that counts where the element of its first class lies, and its label's class; those
/// of the other classes follow at distances of the inner extent. Counts these predictions.
fn count_predictions(
    extents: &AxisExtents,
    ignore_label: Option<i32>,
    labels: View<'_>,
    mut each: impl FnMut(usize, usize),
) -> Result<usize, LabelError> {
    let mut counted = 0;
    for (prediction, &label) in labels.host::<f32>().iter().enumerate() {
        if ignore_label.is_some_and(|ignored| label.trunc() == ignored as f32) {
            continue;
        }
        let (sample, inner) = (prediction / extents.inner, prediction % extents.inner);
        if !(0.0..extents.axis as f32).contains(&label.trunc()) {
            return Err(LabelError { label, sample, classes: extents.axis });
        }
        each(extents.plane(sample, 0).start + inner, label as usize);
        counted += 1;
    }
    Ok(counted)
}

/// The loss, in double precision: there is one term per prediction.
pub(super) fn loss(
    _: &Cpu,
    extents: &AxisExtents,
    options: &LossOptions,
    [p, labels]: [View<'_>; 2],
    [to, divisor]: [ViewMut<'_>; 2],
) -> Result<(), LabelError> {
    let (p, mut total) = (p.host::<f32>(), 0.0);
    let [own, other] = options.shares(extents.axis);
    let valid = count_predictions(extents, options.ignore_label, labels, |first, class| {
        let log = |class: usize| {
            let p = p[first + class * extents.inner];
            // Not `f32::max`, which would turn a NaN into a finite loss.
            f64::from(if p < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { p }).ln()
        };
        if other > 0.0 {
            total -= f64::from(other) * (0..extents.axis).map(log).sum::<f64>();
        }
        total -= f64::from(own - other) * log(class);
    })?;
    let divided_by = options.normaliser(extents, valid).max(1);
    to.into_host()[0] = (total / divided_by as f64) as f32;
    divisor.into_host()[0] = divided_by as f32;
    Ok(())
}

pub(super) fn loss_backward(
    cpu: &Cpu,
    extents: &AxisExtents,
    options: &LossOptions,
    loss_weight: f32,
    [p, divisor, labels]: [View<'_>; 3],
    dx: Out<'_>,
) {
    let (p, labels, (dx, accumulate)) = (p.host::<f32>(), labels.host::<f32>(), dx.into_host());
    let scale = loss_weight / divisor.host::<f32>()[0];
    let ignored = options.ignore_label.map(|label| label as f32);
    let [own, other] = options.shares(extents.axis);
    inlined!(for_each_column_block(cpu, extents, blocks(extents), dx), |outer, columns, mut dx| {
        let labels = &labels[outer * extents.inner..][columns.clone()];
        for class in 0..extents.axis {
            let p = &p[extents.plane(outer, class)][columns.clone()];
            for ((dx, &p), label) in dx.row(class).iter_mut().zip(p).zip(labels) {
                let label = label.trunc();
                let wanted = if label == class as f32 { own } else { other };
                let gradient = if Some(label) == ignored { 0.0 } else { (p - wanted) * scale };
                put(accumulate, dx, gradient);
            }
        }
    });
}

pub(super) fn accuracy(
    _: &Cpu,
    extents: &AxisExtents,
    (top_k, ignore_label): (usize, Option<i32>),
    [scores, labels]: [View<'_>; 2],
    to: ViewMut<'_>,
    per_class: Option<ViewMut<'_>>,
) -> Result<(), LabelError> {
    let (scores, mut right) = (scores.host::<f32>(), 0);
    let mut of_class = vec![[0; 2]; extents.axis];
    let counted = count_predictions(extents, ignore_label, labels, |first, label| {
        let score = |class: usize| scores[first + class * extents.inner];
        let wanted = score(label);
        let is_before = |&class: &usize| {
            let score = score(class);
            score > wanted || (score == wanted && class > label) || score.is_nan()
        };
        let rank = (0..extents.axis).filter(is_before).count();
        let is_right = usize::from(rank < top_k && !wanted.is_nan());
        right += is_right;
        of_class[label][0] += is_right;
        of_class[label][1] += 1;
    })?;
    let shares = per_class.into_iter().flat_map(ViewMut::into_host::<f32>);
    for (share, [right, counted]) in shares.zip(of_class) {
        *share = right as f32 / counted.max(1) as f32;
    }
    to.into_host()[0] = right as f32 / counted.max(1) as f32;
    Ok(())
}
