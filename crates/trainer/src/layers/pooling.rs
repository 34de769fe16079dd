//! `Pooling`.

use super::{Backward, Declaration, Forward, Layer};
use crate::{
    error::BoxError,
    spec::{PoolingMethod, PoolingParams, PoolingWindow, RoundMode},
};
use cudnn_layers::pooling;
use tensor::{Device, PoolGeometry, Rounding, Space, TensorType};

/// The maximum or average of each window. Backward needs no blob: the maximum saves its winners.
pub(super) struct Pooling {
    params: PoolingParams,
    geometry: Option<PoolGeometry>,
}

impl Pooling {
    pub(super) fn new(params: PoolingParams) -> Self {
        Self { params, geometry: None }
    }

    fn geometry(&self) -> PoolGeometry {
        self.geometry.expect("a layer is declared before it is used")
    }
}

impl Layer for Pooling {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        if x.rank() != 4 {
            return Err(format!("pooling reads images (N, C, H, W), not a blob of shape {x}"));
        }
        let (window, pad, stride) = match self.params.window {
            PoolingWindow::Global => ([x.h(), x.w()], [0, 0], [1, 1]),
            PoolingWindow::Sliding { kernel, pad, stride } => {
                ([kernel.h, kernel.w], [pad.h, pad.w], [stride.h, stride.w])
            }
        };
        let rounding = match self.params.round_mode {
            RoundMode::Ceil => Rounding::Ceil,
            RoundMode::Floor => Rounding::Floor,
        };
        let geometry = PoolGeometry { n: x.n(), c: x.c(), h: x.h(), w: x.w(), window, pad, stride, rounding };
        let g = geometry.validate().map_err(|error| error.to_string())?;
        self.geometry = Some(g);
        Ok(Declaration {
            tops: vec![x.with_dims(&[g.n, g.c, g.out_h(), g.out_w()])],
            gradients: vec![true],
            saved: match self.params.method {
                PoolingMethod::Max => pooling::mask(&g),
                PoolingMethod::Average => Space::NONE,
            },
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (g, x, y) = (self.geometry(), io.bottoms[0], io.tops.remove(0));
        match self.params.method {
            PoolingMethod::Max => pooling::forward_max(device, &g, x, y, Some(io.saved)),
            PoolingMethod::Average => pooling::forward_average(device, &g, x, y),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (g, dy) = (self.geometry(), io.top_diff());
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        match self.params.method {
            PoolingMethod::Max => pooling::backward_max(device, &g, io.saved, dy, dx.diff, dx.accumulate),
            PoolingMethod::Average => pooling::backward_average(device, &g, dy, dx.diff, dx.accumulate),
        }
        Ok(())
    }
}
