//! A strided convolution of few channels as one of stride 1 with many: blocks of stride x stride pixels become
//! channels.
//!
//! With strides (a, b), a filter of R x S taps and D = a b C, in NHWC rounded up to what engines like:
//! `x'[n][i b C + j C + c][h][w] = x[n][c][a h + i - pad][b w + j - pad]` and
//! `w'[k][i b C + j C + c][r][s] = w[k][c][a r + i][b s + j]`, both 0 outside, where i < a and j < b. Then `y` is the
//! convolution of x' and w', without padding, and the gradient of w is a part of that of w'. On a GPU, where engines
//! that transform tiles or frequencies know no strides, and in NHWC tensor cores take channels in packs.

mod cuda;

pub(crate) use cuda::{Deepened, filter_to_depth, gradient_from_depth, image_to_depth};

use tensor::{AxisOrder, ConvGeometry};

/// Most channels of images that this is for.
const FEW: usize = 4;
/// Channels that lie side by side come in packs of so many.
const PACK: usize = 8;

/// The same convolution with blocks of pixels as channels, if it has a stride and few channels.
pub(crate) fn with_depth(g: &ConvGeometry, order: AxisOrder) -> Option<ConvGeometry> {
    let [down, right] = g.stride;
    let applies = g.c <= FEW && down * right > 1 && g.groups == 1 && g.dilation == [1, 1];
    applies.then(|| {
        let (r, s) = (g.r.div_ceil(down), g.s.div_ceil(right));
        let pack = if order == AxisOrder::Nhwc { PACK } else { 1 };
        let depth = (down * right * g.c).next_multiple_of(pack);
        ConvGeometry::new([g.n, depth, g.out_h() + r - 1, g.out_w() + s - 1], g.k, [r, s])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_convolutions_of_nets_become_dense_ones_with_the_same_output() {
        let [nchw, nhwc] = [AxisOrder::Nchw, AxisOrder::Nhwc];
        let resnet = ConvGeometry::new([32, 3, 224, 224], 64, [7, 7]).pad([3, 3]).stride([2, 2]);
        let deep = |channels| Some(ConvGeometry::new([32, channels, 115, 115], 64, [4, 4]));
        assert_eq!([nchw, nhwc].map(|order| with_depth(&resnet, order)), [12, 16].map(deep));
        let alexnet = ConvGeometry::new([256, 3, 224, 224], 64, [11, 11]).pad([2, 2]).stride([4, 4]);
        let deep = ConvGeometry::new([256, 48, 57, 57], 64, [3, 3]);
        assert_eq!(with_depth(&alexnet, nhwc), Some(deep));
        for g in [resnet, alexnet, resnet.stride([2, 1]), alexnet.pad([0, 5]).stride([3, 2])] {
            let deep = with_depth(&g, nchw).unwrap().validate().unwrap();
            assert_eq!([deep.out_h(), deep.out_w()], [g.out_h(), g.out_w()]);
        }
        for other in [resnet.stride([1, 1]), resnet.dilation([2, 1]), ConvGeometry { c: 5, ..resnet }] {
            assert_eq!(with_depth(&other, nhwc), None);
        }
    }
}
