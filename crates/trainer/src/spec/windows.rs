//! Layers with a filter or a window: convolution, inner product and pooling.

use super::{Filler, params::params};
use crate::prototxt::{Reader, Result, choices};
use tensor::{PoolGeometry, Rounding};

params! {
    /// `Convolution`: y = x ⋆ w + b, with a filter of shape (`num_output`, C / `group`, `kernel`). Pairs are height and width.
    // `engine` chooses between Caffe's implementations; here the plan chooses the algorithm.
    ConvolutionParams(params: layer.convolution_param) ignores [engine force_nd_im2col]
        first {
            let axis: i32 = params.get_or("axis", 1)?;
            params.check("axis", matches!(axis, 1 | -3), "1, the channels of an (N, C, H, W) blob")?;
            let relu: bool = params.get_or("relu", false)?;
            params.check("relu", !relu, "false: a layer of type ReLU is one")?;
        } {
        num_output: usize, num_output > 0 => "at least 1"; "Output channels, K"
        kernel: [usize; 2] { extent(params, "kernel_size", 1)?.ok_or_else(|| params.missing("kernel_size"))? };
            "Filter height and width, at least 1"
        pad: [usize; 2] { extent(params, "pad", 0)?.unwrap_or_default() }; "Zeros added on each side"
        stride: [usize; 2] { extent(params, "stride", 1)?.unwrap_or([1; 2]) };
            "Step between windows, at least 1"
        dilation: [usize; 2] { extent(params, "dilation", 1)?.unwrap_or([1; 2]) };
            "Distance between filter taps, at least 1"
        group: usize = 1, group > 0 => "at least 1",
            num_output.is_multiple_of(group) => &format!("a divisor of num_output, {num_output}");
            "Groups; divides `num_output`"
        bias_term: bool = true; "Is there a bias per output channel?"
        weight_filler: Filler = Filler::constant(0.0); "Initial filter"
        bias_filler: Filler = Filler::constant(0.0); "Initial bias"
    }

    /// `InnerProduct`: y = x wᵀ + b over everything behind `axis`, with a filter of shape (`num_output`, inputs).
    InnerProductParams(params: layer.inner_product_param) {
        num_output: usize, num_output > 0 => "at least 1"; "Outputs per sample"
        bias_term: bool = true; "Is there a bias per output?"
        weight_filler: Filler = Filler::constant(0.0); "Initial filter"
        bias_filler: Filler = Filler::constant(0.0); "Initial bias"
        axis: i32 = 1; "First axis that is flattened into the inputs; negative counts from the end"
        transpose: bool = false; "Is the filter stored as (inputs, `num_output`)?"
    }

    /// `Pooling`: the maximum or the average of each window of each channel.
    PoolingParams(params: layer.pooling_param) ignores [engine] {
        method "pool": PoolingMethod = PoolingMethod::Max; "What is taken of a window"
        window: Option<[usize; 2]> { window(params)? }; "Height and width, at least 1; if none, one window is the whole channel"
        pad: [usize; 2] { padding(params, window)? }; "Border added on each side, smaller than the window"
        stride: [usize; 2] { extent(params, "stride", 1)?.unwrap_or([1; 2]) },
            window.is_some() || (pad, stride) == ([0; 2], [1; 2]) => "1, and pad 0, with global_pooling";
            "Step between windows, at least 1"
        round_mode: Rounding { rounding(params)? };
            "How the number of windows is rounded, (H + 2 pad - kernel) / stride + 1"
    }
}

choices! {
    /// What is taken of a window.
    pub enum PoolingMethod {
        Max = "MAX"; "The maximum"
        Average = "AVE"; "The average"
    }
}

choices! {
    Rounding: "CEIL" = Ceil, "FLOOR" = Floor;
}

impl PoolingParams {
    /// The windows of images of these extents (N, C, H, W).
    pub(crate) fn geometry(&self, [n, c, h, w]: [usize; 4]) -> PoolGeometry {
        let &Self { window, pad, stride, round_mode: rounding, .. } = self;
        PoolGeometry { n, c, h, w, window: window.unwrap_or([h, w]), pad, stride, rounding }
    }
}

/// A height and a width of at least `least`, in one of Caffe's two notations: the field `both`, once or as height
/// and width, or two fields for height and width. `None` if none of them is given.
fn extent(params: &mut Reader<'_>, both: &str, least: usize) -> Result<Option<[usize; 2]>> {
    let at_least = format!("at least {least}");
    let sizes: Vec<usize> = params.list(both)?;
    params.check(both, sizes.iter().all(|&size| size >= least), &at_least)?;
    let stem = both.trim_end_matches("_size");
    let [h, w] = ["h", "w"].map(|side| format!("{stem}_{side}"));
    // A dilation has no second notation.
    let separate = both != "dilation" && (params.has(&h) || params.has(&w));
    let mut side = |name: &str| {
        // Only a pad may be given for one direction alone: the other one is then its default, 0.
        let size = if least == 0 { params.get_or(name, 0)? } else { params.require(name)? };
        params.check(name, size >= least, &at_least).map(|()| size)
    };
    match sizes[..] {
        [] if separate => Ok(Some([side(&h)?, side(&w)?])),
        [] => Ok(None),
        _ if separate => Err(params.error_at(&h, format!("give either {both} or {h} and {w}, not both"))),
        [size] => Ok(Some([size; 2])),
        [h, w] => Ok(Some([h, w])),
        _ => {
            Err(params.error_at(both, format!("{both} is given {} times; images have two axes", sizes.len())))
        }
    }
}

fn window(params: &mut Reader<'_>) -> Result<Option<[usize; 2]>> {
    let window = extent(params, "kernel_size", 1)?;
    let is_global = params.get_or("global_pooling", false)?;
    let is_free = window.is_none() || !is_global;
    params.ensure("global_pooling", is_free, "global_pooling leaves no choice of kernel_size")?;
    if window.is_some() || is_global { Ok(window) } else { Err(params.missing("kernel_size")) }
}

/// `round_mode`, or what other branches have in its place.
fn rounding(params: &mut Reader<'_>) -> Result<Rounding> {
    let named: Option<Rounding> = params.get("round_mode")?;
    let is_up: Option<bool> = params.get("ceil_mode")?;
    let switched = is_up.map(|is_up| if is_up { Rounding::Ceil } else { Rounding::Floor });
    let agree = named.is_none() || switched.is_none() || named == switched;
    params.check("ceil_mode", agree, "left out where round_mode says something else")?;
    Ok(named.or(switched).unwrap_or(Rounding::Ceil))
}

fn padding(params: &mut Reader<'_>, window: Option<[usize; 2]>) -> Result<[usize; 2]> {
    let pad = extent(params, "pad", 0)?.unwrap_or_default();
    let is_smaller = window.is_none_or(|window| pad[0] < window[0] && pad[1] < window[1]);
    let name = if params.has("pad") { "pad" } else { "pad_h" };
    let message = "pad must be smaller than kernel_size, or a window could lie outside the image";
    params.ensure(name, is_smaller, message).map(|()| pad)
}
