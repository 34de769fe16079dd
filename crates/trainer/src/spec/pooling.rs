//! Pooling.

use super::HeightWidth;
use super::weighted::extent;
use crate::prototxt::{Error, Reader};

/// `Pooling`: the maximum or the average of each window of each channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolingParams {
    /// What is taken of a window
    pub method: PoolingMethod,
    /// The windows
    pub window: PoolingWindow,
    /// How the number of windows is rounded
    pub round_mode: RoundMode,
}

/// What is taken of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolingMethod {
    /// The maximum
    Max,
    /// The average
    Average,
}

/// The windows of a pooling layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolingWindow {
    /// One window: the whole channel
    Global,
    /// Windows of one size
    Sliding {
        /// Window height and width, at least 1
        kernel: HeightWidth,
        /// Border added on each side, smaller than `kernel`
        pad: HeightWidth,
        /// Step between windows, at least 1
        stride: HeightWidth,
    },
}

/// Rounding of the number of windows, (H + 2 pad - kernel) / stride + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RoundMode {
    /// Up, as Caffe does: a last window may stick out of the image
    #[default]
    Ceil,
    /// Down
    Floor,
}

impl PoolingParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("pooling_param")?;
        params.ignore(&["engine"]);
        let methods = [("MAX", PoolingMethod::Max), ("AVE", PoolingMethod::Average)];
        let rounding = [("CEIL", RoundMode::Ceil), ("FLOOR", RoundMode::Floor)];
        Ok(Self {
            method: params.choice("pool", &methods)?.unwrap_or(PoolingMethod::Max),
            window: PoolingWindow::read(&mut params)?,
            round_mode: params.choice("round_mode", &rounding)?.unwrap_or_default(),
        })
    }
}

impl PoolingWindow {
    fn read(params: &mut Reader<'_>) -> Result<Self, Error> {
        let kernel = extent(params, ["kernel_size", "kernel_h", "kernel_w"], 1)?;
        let pad = extent(params, ["pad", "pad_h", "pad_w"], 0)?.unwrap_or(HeightWidth::square(0));
        let stride = extent(params, ["stride", "stride_h", "stride_w"], 1)?.unwrap_or(HeightWidth::square(1));
        match (params.get_or("global_pooling", false)?, kernel) {
            (true, None) if pad == HeightWidth::square(0) && stride == HeightWidth::square(1) => {
                Ok(Self::Global)
            }
            (true, _) => Err(params
                .error_at("global_pooling", "global_pooling leaves no choice of kernel_size, pad or stride")),
            (false, None) => Err(params.missing("kernel_size")),
            (false, Some(kernel)) if pad.h >= kernel.h || pad.w >= kernel.w => {
                let name = if params.has("pad") { "pad" } else { "pad_h" };
                Err(params.error_at(
                    name,
                    "pad must be smaller than kernel_size, or a window could lie outside the image",
                ))
            }
            (false, Some(kernel)) => Ok(Self::Sliding { kernel, pad, stride }),
        }
    }
}
