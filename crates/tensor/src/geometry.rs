//! The extents of convolutions and poolings, checked once.

use thiserror::Error;

/// Largest extent, padding, stride or dilation: Caffe's and cuDNN's are integers of 32 bits, too.
const MOST_EXTENT: usize = i32::MAX as usize;

/// Most elements of a blob: far above any memory, and far below what a sum of sizes in bytes could overflow on.
const MOST_ELEMENTS: usize = 1 << 44;

/// Largest extent of an image that is pooled, padding included: the end of a window is then a number of 31 bits.
const MOST_POOLED: usize = 1 << 30;

/// Elements of a blob of these extents, if they are no more than any machine holds.
pub fn elements(extents: &[usize]) -> Option<usize> {
    let count = extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    count.filter(|&count| count <= MOST_ELEMENTS)
}

/// Why a geometry was refused, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct GeometryError(String);

fn refuse<T>(reason: String) -> Result<T, GeometryError> {
    Err(GeometryError(reason))
}

/// Extents with their names, of which none may be zero, and paddings, which may: all of at most [`MOST_EXTENT`].
fn check_extents(extents: &[(&[usize], &str)], pad: [usize; 2]) -> Result<(), GeometryError> {
    if let Some((_, what)) = extents.iter().find(|(values, _)| values.contains(&0)) {
        return refuse(format!("{what} must be at least 1"));
    }
    let mut all = extents.iter().flat_map(|(values, _)| *values).chain(&pad);
    let too_large = all.find(|&&extent| extent > MOST_EXTENT);
    too_large.map_or(Ok(()), |extent| {
        refuse(format!("an extent of {extent} is more than {MOST_EXTENT}, the largest there is"))
    })
}

fn check_window(window: usize, image: usize, pad: usize) -> Result<(), GeometryError> {
    if window > image + 2 * pad {
        return refuse(format!(
            "a window of {window} (dilation included) does not fit an image of {image} with padding {pad} on each side"
        ));
    }
    Ok(())
}

fn check_operands<const N: usize>(operands: [[usize; 4]; N]) -> Result<(), GeometryError> {
    match operands.into_iter().find(|extents| elements(extents).is_none()) {
        Some(large) => refuse(format!("an operand of the extents {large:?} is more than any machine holds")),
        None => Ok(()),
    }
}

/// A two-dimensional convolution of a mini-batch (cross-correlation, as in every deep-learning library).
///
/// Operands: `x` is `n, c, h, w`; the filter `w` is `k, c / groups, r, s`; `y` is `n, k, out_h, out_w`. Pairs are
/// `[vertical, horizontal]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConvGeometry {
    /// Samples.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Output channels.
    pub k: usize,
    /// Filter height.
    pub r: usize,
    /// Filter width.
    pub s: usize,
    /// Zero padding on each side.
    pub pad: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Step between the taps of a window.
    pub dilation: [usize; 2],
    /// Groups: output channels of one group see the input channels of that group only.
    pub groups: usize,
    /// Channels in a pack, if `x` lies as that of [`Self::dense`] in such packs; else 0.
    pub pack: usize,
}

impl ConvGeometry {
    /// A convolution of `x: [n, c, h, w]` with `k` filters of `[r, s]`, stride 1, no padding, no dilation, one group.
    pub fn new([n, c, h, w]: [usize; 4], k: usize, [r, s]: [usize; 2]) -> Self {
        Self { n, c, h, w, k, r, s, pad: [0, 0], stride: [1, 1], dilation: [1, 1], groups: 1, pack: 0 }
    }

    /// The same with padding on each side.
    pub fn pad(self, pad: [usize; 2]) -> Self {
        Self { pad, ..self }
    }

    /// The same with a stride.
    pub fn stride(self, stride: [usize; 2]) -> Self {
        Self { stride, ..self }
    }

    /// The same with a dilation.
    pub fn dilation(self, dilation: [usize; 2]) -> Self {
        Self { dilation, ..self }
    }

    /// The same with groups.
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// The same with `x` as blocks of pixels, in packs of so many channels, or as it is, for 0.
    pub fn in_packs(self, pack: usize) -> Self {
        Self { pack, ..self }
    }

    /// The convolution of stride 1 in which blocks of stride x stride pixels are channels: the same `y` from an `x` and
    /// a filter that are laid out anew, with zeros as padding and up to a multiple of `pack` channels. Only where there
    /// are neither groups nor dilation.
    pub fn dense(&self, pack: usize) -> Self {
        let [down, right] = self.stride;
        let (r, s) = (self.r.div_ceil(down), self.s.div_ceil(right));
        let depth = (down * right * self.c).next_multiple_of(pack);
        Self::new([self.n, depth, self.out_h() + r - 1, self.out_w() + s - 1], self.k, [r, s])
    }

    /// The convolution whose `x` is this one's as it lies in memory.
    pub fn in_memory(&self) -> Self {
        if self.pack > 0 { self.dense(self.pack) } else { *self }
    }

    /// The same convolution of another number of samples: a micro-batch of it.
    pub fn with_batch(self, n: usize) -> Self {
        Self { n, ..self }
    }

    /// Checks that every extent is positive, that groups divide the channels, that the window fits, and that all
    /// operands can be counted. Leaves out the dilation of a single tap, which means nothing: some of cuDNN 9.14's engines
    /// for gradients never end with it, or fail.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(self) -> Result<Self, GeometryError> {
        let Self { n, c, h, w, k, r, s, pad, stride, dilation, groups, .. } = self;
        let extents: [(&[usize], &str); 8] = [
            (&[n], "the mini-batch"),
            (&[c], "the number of input channels"),
            (&[h, w], "the image's height and width"),
            (&[k], "the number of output channels"),
            (&[r, s], "the kernel size"),
            (&stride, "the stride"),
            (&dilation, "the dilation"),
            (&[groups], "the number of groups"),
        ];
        check_extents(&extents, pad)?;
        if !c.is_multiple_of(groups) || !k.is_multiple_of(groups) {
            return refuse(format!("{groups} groups do not divide {c} input and {k} output channels"));
        }
        for (axis, image) in [h, w].into_iter().enumerate() {
            check_window(self.window()[axis], image, pad[axis])?;
        }
        check_operands([[n, c, h, w], [k, c / groups, r, s], [n, k, self.out_h(), self.out_w()]])?;
        let dilation = [0, 1].map(|axis| if [r, s][axis] == 1 { 1 } else { dilation[axis] });
        Ok(Self { dilation, ..self })
    }

    /// Extents of the dilated window.
    pub fn window(&self) -> [usize; 2] {
        [self.dilation[0] * (self.r - 1) + 1, self.dilation[1] * (self.s - 1) + 1]
    }

    /// Output height (rounded down, as in Caffe and cuDNN).
    pub fn out_h(&self) -> usize {
        (self.h + 2 * self.pad[0] - self.window()[0]) / self.stride[0] + 1
    }

    /// Output width (rounded down).
    pub fn out_w(&self) -> usize {
        (self.w + 2 * self.pad[1] - self.window()[1]) / self.stride[1] + 1
    }

    /// Pixels of one output channel.
    pub fn out_pixels(&self) -> usize {
        self.out_h() * self.out_w()
    }

    /// Elements of one sample of `x`.
    pub fn x_sample(&self) -> usize {
        let Self { c, h, w, .. } = self.in_memory();
        c * h * w
    }

    /// Elements of one sample of `y`.
    pub fn y_sample(&self) -> usize {
        self.k * self.out_pixels()
    }

    /// Elements of `x`.
    pub fn x_len(&self) -> usize {
        self.n * self.x_sample()
    }

    /// Elements of `y`.
    pub fn y_len(&self) -> usize {
        self.n * self.y_sample()
    }

    /// Elements of the filter.
    pub fn w_len(&self) -> usize {
        self.k * self.taps()
    }

    /// Multiplications per output value: the length of the reduction of a forward pass.
    pub fn taps(&self) -> usize {
        self.c / self.groups * self.r * self.s
    }

    /// Floating-point operations of a direct convolution, padding included: two for each multiply-add.
    pub fn flops(&self) -> f64 {
        2.0 * self.y_len() as f64 * self.taps() as f64
    }
}

/// How a pooling's output extent is rounded when the windows do not tile the padded image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Caffe's default: the last window may hang over the edge.
    #[default]
    Ceil,
    /// Windows that would hang over are dropped.
    Floor,
}

/// A two-dimensional pooling. Pairs are `[vertical, horizontal]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolGeometry {
    /// Samples.
    pub n: usize,
    /// Channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Window.
    pub window: [usize; 2],
    /// Padding on each side.
    pub pad: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Rounding of the output extents.
    pub rounding: Rounding,
}

impl PoolGeometry {
    /// Checks that extents are positive, the padding is smaller than the window, the window fits, no window is empty,
    /// and that operands and the taps of a window can be counted.
    ///
    /// Where Caffe rounds up without padding, a stride larger than the window can leave it a last window over no pixel
    /// at all. It gives such a window the least `f32` as its maximum and 0 / 0 as its average; here the geometry is
    /// refused.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(self) -> Result<Self, GeometryError> {
        let Self { n, c, h, w, window, pad, stride, .. } = self;
        let extents: [(&[usize], &str); 4] = [
            (&[n, c], "the mini-batch and the number of channels"),
            (&[h, w], "the image's height and width"),
            (&window, "the pooling window"),
            (&stride, "the stride"),
        ];
        check_extents(&extents, pad)?;
        for (axis, image) in [h, w].into_iter().enumerate() {
            let [window, pad, stride] = [window[axis], pad[axis], stride[axis]];
            if pad >= window {
                return refuse(format!("pooling needs a padding ({pad}) smaller than its window ({window})"));
            }
            // Rounded up there is one, as in Caffe, which hangs over the image's end.
            if self.rounding == Rounding::Floor || window >= image + 2 * pad + stride {
                check_window(window, image, pad)?;
            }
            let start = (self.out(axis, image) - 1) * stride;
            if start >= image + pad {
                return refuse(format!(
                    "the last pooling window would start at pixel {start}, outside an image of {image}, as the stride of \
                     {stride} is larger than the window of {window}; round_mode: FLOOR leaves it out"
                ));
            }
        }
        let padded = [h + 2 * pad[0], w + 2 * pad[1]];
        if padded.iter().any(|&extent| extent > MOST_POOLED) || window[0] * window[1] > MOST_EXTENT {
            let ([height, width], [rows, cols]) = (window, padded);
            return refuse(format!(
                "windows of {height}x{width} in a padded image of {rows}x{cols} are larger than pooling can be"
            ));
        }
        check_operands([[n, c, h, w], [n, c, self.out_h(), self.out_w()]])?;
        Ok(self)
    }

    /// Output height.
    pub fn out_h(&self) -> usize {
        self.out(0, self.h)
    }

    /// Output width.
    pub fn out_w(&self) -> usize {
        self.out(1, self.w)
    }

    /// Caffe's rule: round up, then, if there is padding in either direction, drop a last window that would start
    /// beyond the image and its leading padding.
    fn out(&self, axis: usize, image: usize) -> usize {
        let (pad, stride) = (self.pad[axis], self.stride[axis]);
        let span = (image + 2 * pad).saturating_sub(self.window[axis]);
        let out = match self.rounding {
            Rounding::Ceil => span.div_ceil(stride) + 1,
            Rounding::Floor => span / stride + 1,
        };
        let clips = self.pad != [0, 0];
        if clips && (out - 1) * stride >= image + pad { out - 1 } else { out }
    }

    /// Elements of the input.
    pub fn x_len(&self) -> usize {
        self.n * self.c * self.h * self.w
    }

    /// Elements of the output.
    pub fn y_len(&self) -> usize {
        self.n * self.c * self.out_h() * self.out_w()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alexnet_conv1_and_pool1() {
        let conv1 = ConvGeometry::new([256, 3, 227, 227], 96, [11, 11]).stride([4, 4]).validate().unwrap();
        assert_eq!((conv1.out_h(), conv1.out_w(), conv1.taps()), (55, 55, 363));
        let pool1 = pool(55, 3, 0, 2, Rounding::Ceil);
        assert_eq!((pool1.out_h(), pool1.out_w()), (27, 27));
    }

    #[test]
    fn ceil_mode_drops_a_window_that_starts_in_the_trailing_padding() {
        // 4 pixels, window 2, stride 2, padding 1: windows start at -1, 1, 3; a fourth at 5 would see only padding.
        assert_eq!(pool(4, 2, 1, 2, Rounding::Ceil).out_h(), 3);
        assert_eq!(pool(112, 3, 0, 2, Rounding::Ceil).out_h(), 56);
        assert_eq!(pool(112, 3, 0, 2, Rounding::Floor).out_h(), 55);
        // One window that hangs over the image's end, unless it would be none even so.
        assert_eq!(pool(2, 3, 0, 2, Rounding::Ceil).validate().map(|g| g.out_h()), Ok(1));
        for (image, window, rounding) in [(2, 3, Rounding::Floor), (2, 4, Rounding::Ceil)] {
            let refused = pool(image, window, 0, 2, rounding).validate().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("a window of {window}")), "{refused}");
        }
        // Padding in one direction is enough for Caffe to drop such a window in the other.
        let one_way = PoolGeometry { window: [1, 2], pad: [0, 1], ..pool(4, 1, 0, 2, Rounding::Ceil) };
        assert_eq!(one_way.validate().map(|g| (g.out_h(), g.out_w())), Ok((2, 3)));
    }

    #[test]
    fn a_last_window_over_no_pixel_is_refused() {
        // Windows of 1 with a stride of 2 start at 0 and 2; Caffe would have another at 4.
        let empty = |image, window, stride| {
            pool(image, window, 0, stride, Rounding::Ceil).validate().unwrap_err().to_string()
        };
        let refused = empty(4, 1, 2);
        assert!(refused.contains("start at pixel 4, outside an image of 4, as the stride of 2"), "{refused}");
        // Without the rounding, or where the last window begins inside, there is nothing wrong with such a stride.
        assert_eq!(pool(4, 1, 0, 2, Rounding::Floor).validate().unwrap().out_h(), 2);
        assert_eq!(pool(5, 1, 0, 2, Rounding::Ceil).validate().unwrap().out_h(), 3);
        assert!(empty(6, 2, 3).contains("start at pixel 6, outside an image of 6"));
    }

    fn refusal(g: ConvGeometry) -> String {
        g.validate().unwrap_err().to_string()
    }

    #[test]
    fn refuses_what_cannot_be_computed() {
        let conv = ConvGeometry::new([1, 3, 8, 8], 4, [3, 3]);
        assert_eq!(refusal(conv.groups(2)), "2 groups do not divide 3 input and 4 output channels");
        assert_eq!(refusal(conv.stride([0, 1])), "the stride must be at least 1");
        let window =
            "a window of 9 (dilation included) does not fit an image of 8 with padding 0 on each side";
        assert_eq!(refusal(conv.dilation([4, 1])), window);
        let pooled = pool(8, 2, 2, 2, Rounding::Ceil).validate().unwrap_err().to_string();
        assert_eq!(pooled, "pooling needs a padding (2) smaller than its window (2)");
    }

    #[test]
    fn a_single_tap_has_no_dilation() {
        let conv = ConvGeometry::new([1, 3, 8, 8], 4, [1, 3]);
        assert_eq!(conv.dilation([2, 2]).validate(), Ok(conv.dilation([1, 2])));
        assert_eq!(refusal(conv.dilation([0, 1])), "the dilation must be at least 1");
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let most = MOST_EXTENT;
        let conv = ConvGeometry::new([1, 1, 64, 64], 1, [3, 3]);
        let extent = "an extent of 2147483648 is more than 2147483647, the largest there is";
        assert_eq!(refusal(conv.stride([1, most + 1])), extent);
        assert_eq!(refusal(conv.pad([1, most + 1])), extent);
        assert_eq!(refusal(ConvGeometry::new([most + 1, 1, 1, 1], 1, [1, 1])), extent);
        // Padding alone makes y larger than anything; with a stride as large it is small.
        let huge = "is more than any machine holds";
        assert!(refusal(conv.pad([most; 2])).ends_with(huge));
        let far = conv.pad([most; 2]).stride([most; 2]).validate().unwrap();
        assert_eq!((far.out_h(), far.out_w()), (3, 3));
        assert!(refusal(ConvGeometry::new([1, most, 1, 1], most, [1, 1])).ends_with(huge));
        for (window, pad) in [(most, most - 1), (1 << 16, (1 << 16) - 1), (1 << 30, 1 << 29)] {
            let pooled = pool(64, window, pad, 1 << 29, Rounding::Floor).validate().unwrap_err().to_string();
            assert!(pooled.ends_with("are larger than pooling can be"), "{pooled}");
        }
        let many = PoolGeometry { n: most, c: most, ..pool(64, 2, 0, 2, Rounding::Floor) };
        assert!(many.validate().unwrap_err().to_string().ends_with(huge));
    }

    fn pool(image: usize, window: usize, pad: usize, stride: usize, rounding: Rounding) -> PoolGeometry {
        let [window, pad, stride] = [window, pad, stride].map(|extent| [extent; 2]);
        PoolGeometry { n: 1, c: 1, h: image, w: image, window, pad, stride, rounding }
    }
}
