//! Pooling.

use super::{HeightWidth, params::params, weighted::extent};
use crate::prototxt::{Reader, Result, choices};
use tensor::{PoolGeometry, Rounding};

params! {
    /// `Pooling`: the maximum or the average of each window of each channel.
    PoolingParams(params: layer.pooling_param) ignores [engine] {
        method "pool": PoolingMethod = PoolingMethod::Max; "What is taken of a window"
        window: PoolingWindow { PoolingWindow::read(params)? }; "The windows"
        round_mode: Rounding = Rounding::Ceil;
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

impl PoolingParams {
    /// The windows of images of these extents (N, C, H, W).
    pub(crate) fn geometry(&self, [n, c, h, w]: [usize; 4]) -> PoolGeometry {
        let (window, pad, stride) = match self.window {
            PoolingWindow::Global => ([h, w], [0; 2], [1; 2]),
            PoolingWindow::Sliding { kernel, pad, stride } => {
                ([kernel.h, kernel.w], [pad.h, pad.w], [stride.h, stride.w])
            }
        };
        PoolGeometry { n, c, h, w, window, pad, stride, rounding: self.round_mode }
    }
}

impl PoolingWindow {
    fn read(params: &mut Reader<'_>) -> Result<Self> {
        let kernel = extent(params, "kernel_size", 1)?;
        let pad = extent(params, "pad", 0)?.unwrap_or_default();
        let stride = extent(params, "stride", 1)?.unwrap_or(HeightWidth::square(1));
        if params.get_or("global_pooling", false)? {
            return match (kernel, pad, stride) {
                (None, HeightWidth { h: 0, w: 0 }, HeightWidth { h: 1, w: 1 }) => Ok(Self::Global),
                _ => Err(params.error_at(
                    "global_pooling",
                    "global_pooling leaves no choice of kernel_size, pad or stride",
                )),
            };
        }
        let kernel = kernel.ok_or_else(|| params.missing("kernel_size"))?;
        if pad.h >= kernel.h || pad.w >= kernel.w {
            let name = if params.has("pad") { "pad" } else { "pad_h" };
            let message = "pad must be smaller than kernel_size, or a window could lie outside the image";
            return Err(params.error_at(name, message));
        }
        Ok(Self::Sliding { kernel, pad, stride })
    }
}
