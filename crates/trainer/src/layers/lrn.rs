//! `LRN`: local response normalisation.

use super::{Backward, Declaration, Forward, Layer, images};
use crate::{error::BoxError, spec::LrnParams};
use cudnn_layers::lrn::{self, Lrn};
use tensor::{Device, TensorType};

/// y = x scale^-β. Backward needs x and the scale, which forward saves.
pub(super) struct LrnLayer {
    lrn: Lrn,
    shape: [usize; 4],
}

impl LrnLayer {
    pub(super) fn new(params: &LrnParams) -> Self {
        let LrnParams { local_size: size, alpha, beta, k, norm_region: region } = *params;
        Self { lrn: Lrn { region, size, alpha, beta, k }, shape: [0; 4] }
    }
}

impl Layer for LrnLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        self.shape = images("LRN", x)?;
        if self.lrn.size > lrn::MAX_SIZE {
            return Err(format!("a local_size of {} is above {}", self.lrn.size, lrn::MAX_SIZE));
        }
        Ok(Declaration { needs_bottom: true, saved: lrn::saved(x.count()), ..Declaration::one(x.clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        lrn::forward(device, &self.lrn, self.shape, io.bottoms[0], io.tops.remove(0), io.saved);
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let dy = io.top_diff();
        if let Some(dx) = io.bottom_diffs.remove(0) {
            lrn::backward(device, &self.lrn, self.shape, io.bottoms[0], io.saved, dy, dx.diff, dx.accumulate);
        }
        Ok(())
    }
}
