//! A strided convolution of few channels as the [dense](ConvGeometry::dense) one: blocks of stride x stride pixels
//! become channels.
//!
//! With strides (a, b), a filter of R x S taps and D = a b C, in NHWC rounded up to what engines like:
//! `x'[n][i b C + j C + c][h][w] = x[n][c][a h + i - pad][b w + j - pad]` and
//! `w'[k][i b C + j C + c][r][s] = w[k][c][a r + i][b s + j]`, both 0 outside, where i < a and j < b. Then `y` is the
//! convolution of x' and w', without padding, and the gradient of w is a part of that of w'. On a GPU: in NCHW as an
//! algorithm, since engines that transform tiles or frequencies know no strides; in NHWC, where tensor cores take
//! channels in packs, as the way in which a net's first layers get their images, once for both passes.

#[cfg_attr(not(feature = "cuda"), expect(dead_code))]
mod cuda;

#[cfg(feature = "cuda")]
pub(crate) use cuda::{Deepened, filter_to_depth, gradient_from_depth, image_to_depth};

use tensor::{ConvGeometry, Device, Format, View, ViewMut};

/// Most channels of images that this is for, and most rows and columns of a block.
const FEW: usize = 4;

/// The convolution that reads images of these elements as blocks of pixels in packs of 16 bytes, if it has a stride, but
/// a short one, and few channels.
pub fn blocks(g: &ConvGeometry, format: Format) -> Option<ConvGeometry> {
    let [down, right] = g.stride;
    let applies =
        down.max(right).max(g.c) <= FEW && down * right > 1 && g.groups == 1 && g.dilation == [1, 1];
    applies.then(|| g.in_packs(16 / format.dtype.bytes()))
}

/// Makes x' for a convolution [in packs](ConvGeometry::in_packs) of x, which is in single precision and NCHW.
///
/// # Panics
/// On the CPU, whose nets know one order, and for a convolution that [`blocks`] would not have made.
pub fn images_to_blocks(device: &Device, g: &ConvGeometry, x: View<'_>, to: ViewMut<'_>) {
    let Device::Cuda(cuda) = device else { panic!("the processor knows one order") };
    let [down, right] = g.stride;
    assert!(g.pack > 0 && down.max(right).max(g.c) <= FEW, "{g:?} is not read as blocks");
    cuda::images_to_blocks(cuda, g, x, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_convolutions_of_nets_become_dense_ones_with_the_same_output() {
        let resnet = ConvGeometry::new([32, 3, 224, 224], 64, [7, 7]).pad([3, 3]).stride([2, 2]);
        let deep = |channels| ConvGeometry::new([32, channels, 115, 115], 64, [4, 4]);
        assert_eq!(
            [0, 1, 4, 8].map(|pack| resnet.in_packs(pack).in_memory()),
            [resnet, deep(12), deep(12), deep(16)]
        );
        let alexnet = ConvGeometry::new([256, 3, 224, 224], 64, [11, 11]).pad([2, 2]).stride([4, 4]);
        let deep = ConvGeometry::new([256, 48, 57, 57], 64, [3, 3]);
        assert_eq!(alexnet.in_packs(8).in_memory(), deep);
        assert_eq!(alexnet.in_packs(8).x_len(), deep.x_len());
        for g in [resnet, alexnet, resnet.stride([2, 1]), alexnet.pad([0, 5]).stride([3, 2])] {
            assert_eq!(blocks(&g, Format::BF16), Some(g.in_packs(8)));
            assert_eq!(blocks(&g, Format::F32), Some(g.in_packs(4)));
            let deep = g.dense(1).validate().unwrap();
            assert_eq!([deep.out_h(), deep.out_w()], [g.out_h(), g.out_w()]);
        }
        for other in [resnet.stride([1, 1]), resnet.dilation([2, 1]), ConvGeometry { c: 5, ..resnet }] {
            assert_eq!(blocks(&other, Format::BF16), None);
        }
    }
}
