//! The layers with a filter: convolution and inner product.

use super::{Filler, HeightWidth};
use crate::prototxt::{Error, Reader};

/// `Convolution`: y = x ⋆ w + b, with a filter of shape (`num_output`, C / `group`, `kernel.h`, `kernel.w`).
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionParams {
    /// Output channels, K
    pub num_output: usize,
    /// Filter height and width, at least 1
    pub kernel: HeightWidth,
    /// Zeros added on each side
    pub pad: HeightWidth,
    /// Step between windows, at least 1
    pub stride: HeightWidth,
    /// Distance between filter taps, at least 1
    pub dilation: HeightWidth,
    /// Groups; divides `num_output`
    pub group: usize,
    /// Is there a bias per output channel?
    pub bias_term: bool,
    /// Initial filter
    pub weight_filler: Filler,
    /// Initial bias
    pub bias_filler: Filler,
}

impl ConvolutionParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("convolution_param")?;
        // `engine` chooses between Caffe's implementations; here the plan chooses the algorithm.
        params.ignore(&["engine", "force_nd_im2col"]);
        channel_axis(&mut params)?;
        let num_output = params.positive("num_output")?.ok_or_else(|| params.missing("num_output"))?;
        let group = params.positive("group")?.unwrap_or(1);
        params.check("group", num_output % group == 0, &format!("a divisor of num_output, {num_output}"))?;
        Ok(Self {
            num_output,
            kernel: extent(&mut params, ["kernel_size", "kernel_h", "kernel_w"], 1)?
                .ok_or_else(|| params.missing("kernel_size"))?,
            pad: extent(&mut params, ["pad", "pad_h", "pad_w"], 0)?.unwrap_or(HeightWidth::square(0)),
            stride: extent(&mut params, ["stride", "stride_h", "stride_w"], 1)?
                .unwrap_or(HeightWidth::square(1)),
            dilation: extent(&mut params, ["dilation"; 3], 1)?.unwrap_or(HeightWidth::square(1)),
            group,
            bias_term: params.get_or("bias_term", true)?,
            weight_filler: Filler::read(&mut params, "weight_filler", 0.0)?,
            bias_filler: Filler::read(&mut params, "bias_filler", 0.0)?,
        })
    }
}

/// `InnerProduct`: y = x wᵀ + b over everything behind `axis`, with a filter of shape (`num_output`, inputs).
#[derive(Debug, Clone, PartialEq)]
pub struct InnerProductParams {
    /// Outputs per sample
    pub num_output: usize,
    /// Is there a bias per output?
    pub bias_term: bool,
    /// Initial filter
    pub weight_filler: Filler,
    /// Initial bias
    pub bias_filler: Filler,
    /// First axis that is flattened into the inputs; negative counts from the end
    pub axis: i32,
    /// Is the filter stored as (inputs, `num_output`)?
    pub transpose: bool,
}

impl InnerProductParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("inner_product_param")?;
        Ok(Self {
            num_output: params.positive("num_output")?.ok_or_else(|| params.missing("num_output"))?,
            bias_term: params.get_or("bias_term", true)?,
            weight_filler: Filler::read(&mut params, "weight_filler", 0.0)?,
            bias_filler: Filler::read(&mut params, "bias_filler", 0.0)?,
            axis: params.get_or("axis", 1)?,
            transpose: params.get_or("transpose", false)?,
        })
    }
}

fn channel_axis(params: &mut Reader<'_>) -> Result<(), Error> {
    let axis: i32 = params.get_or("axis", 1)?;
    params.check("axis", matches!(axis, 1 | -3), "1, the channels of an (N, C, H, W) blob")
}

/// A size in two directions, in one of Caffe's two notations: the field `both`, once or as height and width, or the
/// fields `h` and `w`. `None` if none of them is given.
pub(super) fn extent(
    params: &mut Reader<'_>,
    [both, h, w]: [&str; 3],
    least: usize,
) -> Result<Option<HeightWidth>, Error> {
    let sizes = params.list::<usize>(both)?;
    params.check(both, sizes.iter().all(|&size| size >= least), &format!("at least {least}"))?;
    // A size without an _h and _w notation of its own has one name thrice.
    let separate = h != both && (params.has(h) || params.has(w));
    match sizes[..] {
        [] if separate => separate_extent(params, [h, w], least).map(Some),
        [] => Ok(None),
        _ if separate => Err(params.error_at(h, format!("give either {both} or {h} and {w}, not both"))),
        [size] => Ok(Some(HeightWidth::square(size))),
        [h, w] => Ok(Some(HeightWidth { h, w })),
        _ => {
            Err(params.error_at(both, format!("{both} is given {} times; images have two axes", sizes.len())))
        }
    }
}

fn separate_extent(params: &mut Reader<'_>, [h, w]: [&str; 2], least: usize) -> Result<HeightWidth, Error> {
    let mut side = |name: &str, default: Option<usize>| {
        let size = params.get(name)?.or(default).ok_or_else(|| params.missing(name))?;
        params.check(name, size >= least, &format!("at least {least}"))?;
        Ok(size)
    };
    // Only a pad may be given for one direction alone: the other one is then its default, 0.
    let default = (least == 0).then_some(0);
    Ok(HeightWidth { h: side(h, default)?, w: side(w, default)? })
}
