//! Layers that work element by element, or only change shapes.

use super::{Filler, params::params};
use crate::prototxt::{Reader, Result};
use cudnn_layers::eltwise::Combination;

params! {
    /// `ReLU`: y = max(x, 0) + s min(x, 0).
    ReluParams(params: layer.relu_param) ignores [engine] {
        negative_slope: f32 = 0.0; "s, the slope below 0"
    }

    /// `ELU`: y = x where x > 0, α (eˣ - 1) elsewhere.
    EluParams(params: layer.elu_param) {
        alpha: f32 = 1.0, alpha >= 0.0 => "from 0"; "α"
    }

    /// `Power`: y = (shift + scale x)^power.
    PowerParams(params: layer.power_param) {
        power: f32 = 1.0; "The exponent"
        scale: f32 = 1.0; "The factor"
        shift: f32 = 0.0; "The summand"
    }

    /// `Sigmoid`: y = 1 / (1 + e⁻ˣ).
    SigmoidParams(params: layer.sigmoid_param) ignores [engine] {}

    /// `TanH`: y = tanh x.
    TanHParams(params: layer.tanh_param) ignores [engine] {}

    /// `PReLU`: y = max(x, 0) + a min(x, 0), with a learned slope a for each channel.
    PReluParams(params: layer.prelu_param) {
        filler: Filler = Filler::constant(0.25); "Initial slopes"
        channel_shared: bool = false; "Do all channels have one slope?"
    }

    /// `Dropout`: in TRAIN each element is 0 with probability `ratio`, else divided by 1 - `ratio`; in TEST y = x.
    DropoutParams(params: layer.dropout_param) ignores [engine] first {
        let scaled: bool = params.get_or("scale_train", true)?;
        params.check("scale_train", scaled, "true: a test leaves its bottom as it is")?;
    } {
        ratio "dropout_ratio": f32 = 0.5, (0.0..1.0).contains(&ratio) => "from 0 to below 1"; "From 0 to below 1"
    }

    /// `Eltwise`: two or more blobs of one shape into one.
    // `stable_prod_grad` chooses between two ways to the same gradient.
    EltwiseParams(params: layer.eltwise_param) ignores [stable_prod_grad] {
        operation: Combination { operation(params, layer.fields("bottom").len())? };
            "How they are combined; the coefficients of a sum are empty if all are 1"
    }

    /// `Concat`: blobs joined along one axis.
    ConcatParams(params: layer.concat_param) {
        axis: i32 { axis_or_dim(params, "concat_dim")? }; "The axis; negative counts from the end"
    }

    /// `Slice`: a blob cut along one axis.
    SliceParams(params: layer.slice_param) {
        axis: i32 { axis_or_dim(params, "slice_dim")? }; "The axis; negative counts from the end"
        points "slice_point": Vec<usize>,
            points.is_sorted_by(|a, b| a < b) => "larger than the one before it";
            "Where each top but the first begins; empty for tops of one size"
    }

    /// `Flatten`: axes `axis` to `end_axis` become one.
    FlattenParams(params: layer.flatten_param) {
        axis: i32 = 1; "First of the axes; negative counts from the end"
        end_axis: i32 = -1; "Last of the axes, included; negative counts from the end"
    }

    /// `Reshape`: `num_axes` axes from `axis` on are replaced with `dims`.
    ReshapeParams(params: layer.reshape_param) {
        dims: Vec<i64> { new_dims(&mut params.message("shape")?)? };
            "New sizes; 0 keeps that of the bottom, one -1 takes what is left"
        axis: i32 = 0; "First axis that is replaced; negative counts from the end"
        num_axes: i32 = -1, num_axes >= -1 => "at least -1"; "How many are; -1 for all from `axis` on"
    }
}

fn operation(params: &mut Reader<'_>, bottoms: usize) -> Result<Combination> {
    let coefficients: Vec<f32> = params.list("coeff")?;
    let given = coefficients.len();
    let operation = match params.word("operation", &["PROD", "SUM", "MAX"])? {
        Some(0) => Combination::Product,
        Some(2) => Combination::Maximum,
        _ => Combination::Sum(coefficients),
    };
    let is_sum = matches!(operation, Combination::Sum(_));
    params.ensure("coeff", is_sum || given == 0, "coeff belongs to the operation SUM only")?;
    params.check_each("coeff", given, "bottoms", bottoms).map(|()| operation)
}

fn axis_or_dim(params: &mut Reader<'_>, old_name: &str) -> Result<i32> {
    let (axis, old): (Option<i32>, Option<i32>) = (params.get("axis")?, params.get(old_name)?);
    let message = format_args!("{old_name} is the old name of axis; give only one of them");
    params.ensure(old_name, axis.and(old).is_none(), message)?;
    Ok(axis.or(old).unwrap_or(1))
}

fn new_dims(shape: &mut Reader<'_>) -> Result<Vec<i64>> {
    let dims: Vec<i64> = shape.list("dim")?;
    shape.check("dim", dims.iter().all(|&dim| dim >= -1), "at least -1")?;
    shape.check("dim", dims.iter().filter(|&&dim| dim == -1).count() <= 1, "-1 only once")?;
    Ok(dims)
}
