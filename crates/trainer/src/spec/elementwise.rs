//! Layers without parameters of their own: element by element, or only a change of shape.

use crate::prototxt::{Error, Reader};

/// `ReLU`: y = max(x, 0) + s min(x, 0).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReluParams {
    /// s, the slope below 0
    pub negative_slope: f32,
}

impl ReluParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("relu_param")?;
        params.ignore(&["engine"]);
        Ok(Self { negative_slope: params.get_or("negative_slope", 0.0)? })
    }
}

/// `Dropout`: in TRAIN each element is 0 with probability `ratio` and divided by 1 - `ratio` otherwise; in TEST y = x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DropoutParams {
    /// From 0 to below 1
    pub ratio: f32,
}

impl DropoutParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("dropout_param")?;
        params.ignore(&["engine"]);
        let ratio = params.get_or("dropout_ratio", 0.5)?;
        params.check("dropout_ratio", (0.0..1.0).contains(&ratio), "from 0 to below 1")?;
        Ok(Self { ratio })
    }
}

/// `Eltwise`: two or more blobs of one shape into one.
#[derive(Debug, Clone, PartialEq)]
pub struct EltwiseParams {
    /// How they are combined
    pub operation: EltwiseOperation,
}

/// How [`EltwiseParams`] combines its bottoms.
#[derive(Debug, Clone, PartialEq)]
pub enum EltwiseOperation {
    /// The product
    Product,
    /// The sum
    Sum {
        /// A factor for each bottom; empty if all are 1
        coefficients: Vec<f32>,
    },
    /// The maximum
    Max,
}

impl EltwiseParams {
    pub(super) fn read(layer: &mut Reader<'_>, bottoms: usize) -> Result<Self, Error> {
        let mut params = layer.message("eltwise_param")?;
        // It chooses between two ways to the same gradient.
        params.ignore(&["stable_prod_grad"]);
        let coefficients: Vec<f32> = params.list("coeff")?;
        let sum = EltwiseOperation::Sum { coefficients: Vec::new() };
        let names = [("PROD", &EltwiseOperation::Product), ("SUM", &sum), ("MAX", &EltwiseOperation::Max)];
        let operation = params.choice("operation", &names)?.unwrap_or(&sum).clone();
        if coefficients.is_empty() {
            return Ok(Self { operation });
        }
        if operation != sum {
            return Err(params.error_at("coeff", "coeff belongs to the operation SUM only"));
        }
        if coefficients.len() != bottoms {
            let message = format!("coeff is given {} times for {bottoms} bottoms", coefficients.len());
            return Err(params.error_at("coeff", message));
        }
        Ok(Self { operation: EltwiseOperation::Sum { coefficients } })
    }
}

/// `Concat`: blobs joined along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcatParams {
    /// The axis; negative counts from the end
    pub axis: i32,
}

impl ConcatParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("concat_param")?;
        if params.has("axis") && params.has("concat_dim") {
            return Err(
                params.error_at("concat_dim", "concat_dim is the old name of axis; give only one of them")
            );
        }
        let old: Option<i32> = params.get("concat_dim")?;
        Ok(Self { axis: params.get("axis")?.or(old).unwrap_or(1) })
    }
}

/// `Flatten`: axes `axis` to `end_axis` become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlattenParams {
    /// First of the axes; negative counts from the end
    pub axis: i32,
    /// Last of the axes, included; negative counts from the end
    pub end_axis: i32,
}

impl FlattenParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("flatten_param")?;
        Ok(Self { axis: params.get_or("axis", 1)?, end_axis: params.get_or("end_axis", -1)? })
    }
}

/// `Reshape`: `num_axes` axes from `axis` on are replaced with `dims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReshapeParams {
    /// New sizes; 0 keeps that of the bottom, one -1 takes what is left
    pub dims: Vec<i64>,
    /// First axis that is replaced; negative counts from the end
    pub axis: i32,
    /// How many are; -1 for all from `axis` on
    pub num_axes: i32,
}

impl ReshapeParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("reshape_param")?;
        let mut shape = params.message("shape")?;
        let dims: Vec<i64> = shape.list("dim")?;
        shape.check("dim", dims.iter().all(|&dim| dim >= -1), "at least -1")?;
        let inferred = dims.iter().filter(|&&dim| dim == -1).count();
        shape.check("dim", inferred <= 1, "-1 only once")?;
        let num_axes = params.get_or("num_axes", -1)?;
        params.check("num_axes", num_axes >= -1, "at least -1")?;
        Ok(Self { dims, axis: params.get_or("axis", 0)?, num_axes })
    }
}
