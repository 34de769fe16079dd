//! `LRN`: local response normalisation.

use super::{Backward, Declaration, Declared, Forward, Layer, images, order_for};
use crate::{error::BoxError, spec::LrnParams};
use cudnn_layers::lrn::{self, Lrn, Region};
use tensor::{Device, Format, TensorType};

/// y = x scale^-β. Backward needs x and the scale, which forward saves.
pub(super) type LrnLayer = Declared<LrnParams, [usize; 4]>;

impl LrnLayer {
    fn lrn(&self) -> Lrn {
        let LrnParams { local_size: size, alpha, beta, k, norm_region: region } = self.params;
        Lrn { region, size, alpha, beta, k }
    }
}

impl Layer for LrnLayer {
    fn reads(&self, _: usize, _: &TensorType, format: Format) -> Format {
        order_for((self.params.norm_region == Region::AcrossChannels).then_some(1), format)
    }

    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        self.extents = images("LRN", x)?;
        if self.params.local_size > lrn::MAX_SIZE {
            return Err(format!("a local_size of {} is above {}", self.params.local_size, lrn::MAX_SIZE));
        }
        Ok(Declaration { needs_bottom: true, saved: lrn::saved(x.count()), ..Declaration::one(x.clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        lrn::forward(device, &self.lrn(), self.extents, io.bottoms[0], io.tops.remove(0), io.saved);
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (x, dy) = (io.bottoms[0], io.top_diff());
        if let Some(dx) = io.bottom_diffs.remove(0) {
            lrn::backward(device, &self.lrn(), self.extents, x, io.saved, dy, dx);
        }
        Ok(())
    }
}
