//! The same elements otherwise: `Flatten` and `Reshape`, of other extents, and `Convert`, in another format.

use super::{Backward, Declaration, Declared, Forward, Layer, Need, axis_of};
use crate::error::BoxError;
use crate::spec::{FlattenParams, ReshapeParams};
use cudnn_layers::{copy, space_to_depth};
use tensor::{ConvGeometry, Device, Format, TensorType, geometry::elements};

/// How the extents change.
pub(super) enum Reshape {
    /// Axes become one.
    Flatten(FlattenParams),
    /// Axes are replaced.
    Replace(ReshapeParams),
}

fn flattened(params: &FlattenParams, x: &TensorType) -> Result<TensorType, String> {
    let (first, last) = (axis_of(x, params.axis)?, axis_of(x, params.end_axis)?);
    if last < first {
        return Err(format!("axis {first} lies behind end_axis {last}"));
    }
    let mut dims = x.dims()[..first].to_vec();
    dims.push(x.dims()[first..=last].iter().product());
    dims.extend(&x.dims()[last + 1..]);
    Ok(x.with_dims(&dims))
}

fn reshaped(params: &ReshapeParams, x: &TensorType) -> Result<TensorType, String> {
    // As in Caffe, a negative axis counts from one behind the last.
    let rank = x.rank() as i64;
    let first = if params.axis < 0 { i64::from(params.axis) + rank + 1 } else { i64::from(params.axis) };
    let end = if params.num_axes < 0 { rank } else { first + i64::from(params.num_axes) };
    if !(0..=rank).contains(&first) || end > rank {
        return Err(format!("axes {first} to {end} are not all in {x}"));
    }
    let (first, end) = (first as usize, end as usize);
    let mut dims = x.dims()[..first].to_vec();
    for (index, &dim) in params.dims.iter().enumerate() {
        dims.push(match dim {
            0 if first + index < x.rank() => x.dim(first + index),
            0 => return Err(format!("dim 0 copies axis {} of {x}, which there is not", first + index)),
            dim => dim.max(1) as usize,
        });
    }
    dims.extend(&x.dims()[end..]);
    if let Some(inferred) = params.dims.iter().position(|&dim| dim == -1) {
        match elements(&dims) {
            Some(known) if x.count().is_multiple_of(known) => dims[first + inferred] = x.count() / known,
            _ => return Err(format!("the extents {dims:?} do not divide {x}")),
        }
    }
    if elements(&dims) != Some(x.count()) {
        return Err(format!("the extents {dims:?} have another number of elements than {x}"));
    }
    Ok(x.with_dims(&dims))
}

impl Layer for Reshape {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let top = match self {
            Self::Flatten(params) => flattened(params, &bottoms[0]),
            Self::Replace(params) => reshaped(params, &bottoms[0]),
        };
        Ok(Declaration { in_place: Some(Need::Sign), ..Declaration::one(top?) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        if let Some(&x) = io.bottoms.first() {
            copy::copy(device, x, io.tops.remove(0).replaced());
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        if let (false, Some(dx)) = (io.top_diffs.is_empty(), io.bottom_diffs.remove(0)) {
            copy::copy(device, io.top_diff(), dx);
        }
        Ok(())
    }
}

/// y is x in this format, and dx is dy in that of x. Nets get it where a layer reads a blob in another format.
/// What reads images [as blocks of pixels](space_to_depth) comes with it; then there is no gradient.
pub(crate) type Convert = Declared<(Format, Option<ConvGeometry>), Vec<usize>>;

impl Layer for Convert {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        self.extents = bottoms[0].dims().to_vec();
        let (to, blocks) = self.params;
        let Some(g) = blocks else { return Ok(Declaration::one(bottoms[0].in_format(to))) };
        let ConvGeometry { n, c, h, w, .. } = g.in_memory();
        let top = TensorType::new(&[n, c, h, w], to);
        Ok(Declaration { gradients: vec![false], ..Declaration::one(top) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (x, y) = (io.bottoms[0], io.tops.remove(0));
        match &self.params.1 {
            Some(g) => space_to_depth::images_to_blocks(device, g, x, y),
            None => copy::convert(device, &self.extents, x, y.replaced()),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        if let Some(dx) = io.bottom_diffs.remove(0) {
            copy::convert(device, &self.extents, io.top_diff(), dx);
        }
        Ok(())
    }
}
