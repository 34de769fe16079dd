//! Layers whose tops are their bottom once more: `Flatten` and `Reshape`, of other extents; `Split`, several times, and
//! `Silence`, not at all; those that nets get by themselves, in another format and as a part of the objective.

use super::{Backward, Declaration, Declared, Forward, Layer, Need, axis_of};
use crate::error::BoxError;
use crate::spec::{FlattenParams, ReshapeParams};
use cudnn_layers::activation::{self, Activation};
use cudnn_layers::{copy, space_to_depth};
use tensor::{Accumulate, ConvGeometry, Device, Format, Space, TensorType, geometry::elements};

/// What the tops are.
#[derive(Clone)]
pub(crate) enum Copies {
    /// The same.
    Unchanged,
    /// Axes become one.
    Flatten(FlattenParams),
    /// Axes are replaced.
    Reshape(ReshapeParams),
    /// So many copies. Seldom needed: a blob may have any number of readers. Without one, blobs are read and that is all.
    Split(usize),
    /// In this format. Nets get it where a layer reads a blob in another. What reads images [as blocks of
    /// pixels](space_to_depth) comes with it; then there is no gradient.
    Convert(Format, Option<ConvGeometry>),
    /// A part of the objective: the sum of all elements, times this weight. What follows reads the top.
    Objective(f32),
}

fn flattened(params: &FlattenParams, x: &TensorType) -> Result<TensorType, String> {
    let (first, last) = (axis_of(x, params.axis)?, axis_of(x, params.end_axis)?);
    if last < first {
        return Err(format!("axis {first} lies behind end_axis {last}"));
    }
    let (axis, num_axes) = (first as i32, (last + 1 - first) as i32);
    reshaped(&ReshapeParams { dims: vec![-1], axis, num_axes }, x)
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

/// The same elements otherwise. Backward needs no data; gradients of several tops add up.
pub(crate) type CopyLayer = Declared<Copies, Vec<usize>>;

impl Layer for CopyLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        self.extents = x.dims().to_vec();
        let top = match &self.params {
            Copies::Unchanged => x.clone(),
            Copies::Flatten(params) => flattened(params, x)?,
            Copies::Reshape(params) => reshaped(params, x)?,
            Copies::Split(tops) => {
                let (tops, gradients) = (vec![x.clone(); *tops], vec![true; bottoms.len()]);
                return Ok(Declaration { tops, gradients, ..Declaration::default() });
            }
            Copies::Convert(to, None) => return Ok(Declaration::one(x.in_format(*to))),
            Copies::Convert(to, Some(g)) => {
                let ConvGeometry { n, c, h, w, .. } = g.in_memory();
                let top = TensorType::new(&[n, c, h, w], *to);
                return Ok(Declaration { gradients: vec![false], ..Declaration::one(top) });
            }
            Copies::Objective(weight) => {
                let (loss_weights, scratch) = (vec![*weight], [Space::NONE, x.space()]);
                return Ok(Declaration { loss_weights, scratch, ..Declaration::one(x.clone()) });
            }
        };
        Ok(Declaration { in_place: Some(Need::Sign), ..Declaration::one(top) })
    }

    fn forward(&mut self, device: &Device, io: Forward<'_>) -> Result<(), BoxError> {
        let Some(&x) = io.bottoms.first() else { return Ok(()) };
        for y in io.tops {
            match &self.params {
                Copies::Convert(_, Some(g)) => space_to_depth::images_to_blocks(device, g, x, y),
                _ => copy::convert(device, &self.extents, x, y.replaced()),
            }
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let Some(mut dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        if let Copies::Objective(shift) = self.params {
            let mut weight = io.scratch.take(dx.to.format(), dx.to.len());
            device.zero(weight.reborrow());
            let constant = Activation::Power { power: 1.0, scale: 1.0, shift };
            activation::forward(device, constant, None, weight.reborrow());
            copy::copy(device, weight.as_view(), dx.reborrow());
            dx.accumulate = Accumulate::Add;
        }
        for dy in io.top_diffs.iter().flatten() {
            copy::convert(device, &self.extents, *dy, dx.reborrow());
            dx.accumulate = Accumulate::Add;
        }
        Ok(())
    }
}
