//! Pooling.

use super::{params::params, weighted::extent};
use crate::prototxt::{Reader, Result, choices};
use tensor::{PoolGeometry, Rounding};

params! {
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

fn window(params: &mut Reader<'_>) -> Result<Option<[usize; 2]>> {
    let window = extent(params, "kernel_size", 1)?;
    let is_global = params.get_or("global_pooling", false)?;
    match window.is_some() == is_global {
        false => Ok(window),
        true if is_global => {
            Err(params.error_at("global_pooling", "global_pooling leaves no choice of kernel_size"))
        }
        true => Err(params.missing("kernel_size")),
    }
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
    if window.is_some_and(|window| pad[0] >= window[0] || pad[1] >= window[1]) {
        let name = if params.has("pad") { "pad" } else { "pad_h" };
        let message = "pad must be smaller than kernel_size, or a window could lie outside the image";
        return Err(params.error_at(name, message));
    }
    Ok(pad)
}
