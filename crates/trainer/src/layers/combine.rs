//! Layers of several bottoms or tops: `Eltwise`, `Concat`, `Slice`.

use super::{Absorbed, Backward, Declaration, Declared, Forward, Layer, axis_of};
use crate::error::BoxError;
use crate::spec::{ConcatParams, SliceParams};
use cudnn_layers::AxisExtents;
use cudnn_layers::copy::{self, Columns};
use cudnn_layers::eltwise::{self, Combination, MOST_INPUTS};
use tensor::{Accumulate, AxisOrder, Device, TensorType};

/// Element-wise sum (with a factor per bottom), product or maximum. Only the latter two need their bottoms backward.
pub(super) struct Eltwise(pub(super) Combination);

impl Layer for Eltwise {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        if let Some(other) = bottoms.iter().find(|shape| **shape != bottoms[0]) {
            return Err(format!("the bottoms must have one shape, not {} and {other}", bottoms[0]));
        }
        if bottoms.len() > MOST_INPUTS {
            return Err(format!("at most {MOST_INPUTS} bottoms are combined, not {}", bottoms.len()));
        }
        let (read_bottoms, absorbs) = match &mut self.0 {
            Combination::Sum(coefficients) => {
                coefficients.resize(bottoms.len(), 1.0);
                (0, Absorbed::Forward)
            }
            _ => (bottoms.len(), Absorbed::No),
        };
        let (gradients, top) = (vec![true; bottoms.len()], Declaration::one(bottoms[0].clone()));
        Ok(Declaration { gradients, read_bottoms, absorbs, ..top })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        eltwise::forward(device, &self.0, &io.bottoms, io.rectify, io.tops.remove(0));
        Ok(())
    }

    fn backward(&mut self, device: &Device, io: Backward<'_>) -> Result<(), BoxError> {
        let dy = io.top_diff();
        for (index, dx) in io.bottom_diffs.into_iter().enumerate() {
            if let Some(dx) = dx {
                eltwise::backward(device, &self.0, &io.bottoms, index, dy, dx);
            }
        }
        Ok(())
    }
}

/// Blobs side by side along one axis. Backward needs no data.
pub(super) type Concat = Declared<ConcatParams, Vec<Columns>>;

impl Layer for Concat {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let first = &bottoms[0];
        let axis = axis_of(first, self.params.axis)?;
        let fits = |shape: &TensorType| shape.dims() == with_extent(first, axis, shape.dim(axis)).dims();
        if let Some(other) = bottoms.iter().find(|shape| !fits(shape)) {
            return Err(format!("the bottoms may differ along axis {axis} only, unlike {first} and {other}"));
        }
        let extent = bottoms.iter().map(|shape| shape.dim(axis)).sum();
        // A blob of one channel lies like others in either order.
        let format = bottoms.iter().map(TensorType::format).find(|format| format.layout == AxisOrder::Nhwc);
        let top = with_extent(first, axis, extent).in_format(format.unwrap_or(first.format()));
        self.extents = side_by_side(&top, axis, bottoms);
        Ok(Declaration { tops: vec![top], gradients: vec![true; bottoms.len()], ..Declaration::default() })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        for (columns, &x) in self.extents.iter().zip(&io.bottoms) {
            copy::into_columns(device, columns, x, io.tops[0].reborrow().replaced());
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, io: Backward<'_>) -> Result<(), BoxError> {
        let dy = io.top_diff();
        for (columns, dx) in self.extents.iter().zip(io.bottom_diffs) {
            if let Some(dx) = dx {
                copy::from_columns(device, columns, dy, dx);
            }
        }
        Ok(())
    }
}

/// A blob like `blob`, of another extent along `axis`.
fn with_extent(blob: &TensorType, axis: usize, extent: usize) -> TensorType {
    let mut dims = blob.dims().to_vec();
    dims[axis] = extent;
    blob.with_dims(&dims)
}

/// The places of `parts`, in this order, in `whole` along `axis`.
fn side_by_side(whole: &TensorType, axis: usize, parts: &[TensorType]) -> Vec<Columns> {
    let AxisExtents { outer: rows, axis: extent, inner } = AxisExtents::new(whole, axis);
    let (stride, mut offset) = (extent * inner, 0);
    let place = |shape: &TensorType| {
        let width = shape.dim(axis) * inner;
        offset += width;
        Columns { rows, stride, offset: offset - width, width }
    };
    parts.iter().map(place).collect()
}

/// Parts of a blob along one axis, so many as there are tops: the opposite of [`Concat`].
pub(super) type Slice = Declared<(SliceParams, usize), Vec<Columns>>;

/// Where `tops` begin and end along an axis of `extent`, if they do at `points`.
fn bounds(points: &[usize], tops: usize, extent: usize) -> Result<Vec<usize>, String> {
    match points.len() {
        0 if extent.is_multiple_of(tops) => Ok((0..=tops).map(|top| top * (extent / tops)).collect()),
        0 => Err(format!("{tops} tops do not share {extent} evenly; slice_point says where each begins")),
        given if given + 1 != tops => Err(format!("{tops} tops need {} slice_points, not {given}", tops - 1)),
        _ if points[0] == 0 || points.last().is_some_and(|&last| last >= extent) => {
            Err(format!("the slice_points {points:?} are not all inside an axis of {extent}"))
        }
        _ => Ok([&[0], points, &[extent]].concat()),
    }
}

impl Layer for Slice {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let (whole, (SliceParams { axis, points }, tops)) = (&bottoms[0], &self.params);
        let axis = axis_of(whole, *axis)?;
        let bounds = bounds(points, *tops, whole.dim(axis))?;
        let part = |ends: &[usize]| with_extent(whole, axis, ends[1] - ends[0]);
        let tops: Vec<TensorType> = bounds.windows(2).map(part).collect();
        self.extents = side_by_side(whole, axis, &tops);
        Ok(Declaration { tops, gradients: vec![true], ..Declaration::default() })
    }

    fn forward(&mut self, device: &Device, io: Forward<'_>) -> Result<(), BoxError> {
        for (columns, top) in self.extents.iter().zip(io.tops) {
            copy::from_columns(device, columns, io.bottoms[0], top.replaced());
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let Some(mut dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        // Nothing comes from a top that leads to no loss.
        if dx.accumulate == Accumulate::Replace && io.top_diffs.iter().any(Option::is_none) {
            device.zero(dx.to.reborrow());
        }
        for (columns, dy) in self.extents.iter().zip(io.top_diffs) {
            if let Some(dy) = dy {
                copy::into_columns(device, columns, dy, dx.reborrow());
            }
        }
        Ok(())
    }
}
