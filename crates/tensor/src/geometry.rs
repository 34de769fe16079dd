//! The extents of convolutions and poolings, checked once.

use thiserror::Error;

/// Largest extent, padding, stride or dilation: Caffe's and cuDNN's are integers of 32 bits, too.
pub const MOST_EXTENT: usize = i32::MAX as usize;

/// Most elements of a blob: far above any memory, and far below what a sum of sizes in bytes could overflow on.
pub const MOST_ELEMENTS: usize = 1 << 44;

/// Largest extent of an image that is pooled, padding included: the end of a window is then a number of 31 bits.
const MOST_POOLED: usize = 1 << 30;

/// Elements of a blob of these extents, if they are no more than [`MOST_ELEMENTS`].
pub fn elements(extents: &[usize]) -> Option<usize> {
    let count = extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    count.filter(|&count| count <= MOST_ELEMENTS)
}

/// Why a geometry was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// An extent, stride or dilation of zero.
    #[error("{what} must be at least 1")]
    Zero {
        /// The name of the offending extent.
        what: &'static str,
    },
    /// An extent, padding, stride or dilation of more than [`MOST_EXTENT`].
    #[error("an extent of {extent} is more than {MOST_EXTENT}, the largest there is")]
    Extent {
        /// The offending extent.
        extent: usize,
    },
    /// An operand of more than [`MOST_ELEMENTS`].
    #[error("an operand of the extents {extents:?} is more than any machine holds")]
    Operand {
        /// Its extents.
        extents: [usize; 4],
    },
    /// A pooling window whose taps cannot be numbered, or an image that is too large with its padding.
    #[error("windows of {}x{} in a padded image of {}x{} are larger than pooling can be", window[0], window[1], padded[0], padded[1])]
    PoolExtents {
        /// Extents of the window.
        window: [usize; 2],
        /// Extents of the image and its padding.
        padded: [usize; 2],
    },
    /// `groups` does not divide both channel counts.
    #[error("{groups} groups do not divide {c} input and {k} output channels")]
    Groups {
        /// Groups asked for.
        groups: usize,
        /// Input channels.
        c: usize,
        /// Output channels.
        k: usize,
    },
    /// The window is larger than the padded image.
    #[error(
        "a window of {window} (dilation included) does not fit an image of {image} with padding {pad} on each side"
    )]
    Window {
        /// Extent of the dilated window.
        window: usize,
        /// Extent of the image.
        image: usize,
        /// Padding on each side.
        pad: usize,
    },
    /// Caffe's pooling asks for a padding smaller than the window.
    #[error("pooling needs a padding ({pad}) smaller than its window ({window})")]
    PoolPadding {
        /// Padding on each side.
        pad: usize,
        /// Extent of the window.
        window: usize,
    },
    /// Rounding up leaves a last window over no pixel.
    #[error(
        "the last pooling window would start at pixel {start}, outside an image of {image}, as the stride of {stride} \
         is larger than the window of {window}; round_mode: FLOOR leaves it out"
    )]
    EmptyWindow {
        /// Where it would start.
        start: usize,
        /// Extent of the image.
        image: usize,
        /// Step between windows.
        stride: usize,
        /// Extent of the window.
        window: usize,
    },
}

/// A two-dimensional convolution of a mini-batch (cross-correlation, as in every deep-learning library).
///
/// Operands: `x` is `n, c, h, w`; the filter `w` is `k, c / groups, r, s`; `y` is `n, k, out_h, out_w`. Pairs are
/// `[vertical, horizontal]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}

impl ConvGeometry {
    /// A convolution of `x: [n, c, h, w]` with `k` filters of `[r, s]`, stride 1, no padding, no dilation, one group.
    pub fn new(x: [usize; 4], k: usize, filter: [usize; 2]) -> Self {
        let [n, c, h, w] = x;
        let [r, s] = filter;
        Self { n, c, h, w, k, r, s, pad: [0, 0], stride: [1, 1], dilation: [1, 1], groups: 1 }
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

    /// The same convolution of another number of samples: a micro-batch of it.
    pub fn with_batch(self, n: usize) -> Self {
        Self { n, ..self }
    }

    /// Checks that every extent is positive, that groups divide the channels, that the window fits, and that all operands
    /// can be counted.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(self) -> Result<Self, GeometryError> {
        let extents = [
            (self.n, "the mini-batch"),
            (self.c, "the number of input channels"),
            (self.h.min(self.w), "the image's height and width"),
            (self.k, "the number of output channels"),
            (self.r.min(self.s), "the kernel size"),
            (self.stride[0].min(self.stride[1]), "the stride"),
            (self.dilation[0].min(self.dilation[1]), "the dilation"),
            (self.groups, "the number of groups"),
        ];
        if let Some(&(_, what)) = extents.iter().find(|(extent, _)| *extent == 0) {
            return Err(GeometryError::Zero { what });
        }
        let [pad, stride, dilation] = [self.pad, self.stride, self.dilation];
        let sides = [self.h, self.w, self.r, self.s].into_iter().chain(pad).chain(stride).chain(dilation);
        check_extents([self.n, self.c, self.k].into_iter().chain(sides))?;
        if !self.c.is_multiple_of(self.groups) || !self.k.is_multiple_of(self.groups) {
            return Err(GeometryError::Groups { groups: self.groups, c: self.c, k: self.k });
        }
        for (image, window, pad) in
            [(self.h, self.window()[0], self.pad[0]), (self.w, self.window()[1], self.pad[1])]
        {
            if window > image + 2 * pad {
                return Err(GeometryError::Window { window, image, pad });
            }
        }
        let Self { n, c, h, w, k, r, s, groups, .. } = self;
        check_operands([[n, c, h, w], [k, c / groups, r, s], [n, k, self.out_h(), self.out_w()]])?;
        Ok(self)
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
        self.c * self.h * self.w
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

fn check_extents(mut extents: impl Iterator<Item = usize>) -> Result<(), GeometryError> {
    let extent = extents.find(|&extent| extent > MOST_EXTENT);
    extent.map_or(Ok(()), |extent| Err(GeometryError::Extent { extent }))
}

fn check_operands<const N: usize>(operands: [[usize; 4]; N]) -> Result<(), GeometryError> {
    let large = operands.into_iter().find(|extents| elements(extents).is_none());
    large.map_or(Ok(()), |extents| Err(GeometryError::Operand { extents }))
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Checks that extents are positive, the padding is smaller than the window, the window fits, no window is empty, and
    /// that operands and the taps of a window can be counted.
    ///
    /// Where Caffe rounds up without padding, a stride larger than the window can leave it a last window over no pixel
    /// at all. It gives such a window the least `f32` as its maximum and 0 / 0 as its average; here the geometry is
    /// refused.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(self) -> Result<Self, GeometryError> {
        let extents = [
            (self.n.min(self.c), "the mini-batch and the number of channels"),
            (self.h.min(self.w), "the image's height and width"),
            (self.window[0].min(self.window[1]), "the pooling window"),
            (self.stride[0].min(self.stride[1]), "the stride"),
        ];
        if let Some(&(_, what)) = extents.iter().find(|(extent, _)| *extent == 0) {
            return Err(GeometryError::Zero { what });
        }
        let sides = [[self.n, self.c], [self.h, self.w], self.window, self.pad, self.stride];
        check_extents(sides.into_iter().flatten())?;
        for (axis, image) in [self.h, self.w].into_iter().enumerate() {
            let (window, pad) = (self.window[axis], self.pad[axis]);
            if pad >= window {
                return Err(GeometryError::PoolPadding { pad, window });
            }
            if window > image + 2 * pad {
                return Err(GeometryError::Window { window, image, pad });
            }
            let stride = self.stride[axis];
            let start = (self.out(axis, image) - 1) * stride;
            if start >= image + pad {
                return Err(GeometryError::EmptyWindow { start, image, stride, window });
            }
        }
        let padded = [self.h + 2 * self.pad[0], self.w + 2 * self.pad[1]];
        if padded.iter().any(|&extent| extent > MOST_POOLED) || self.window[0] * self.window[1] > MOST_EXTENT
        {
            return Err(GeometryError::PoolExtents { window: self.window, padded });
        }
        let Self { n, c, h, w, .. } = self;
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

    /// Caffe's rule: round up, then, if there is padding in either direction, drop a last window that would start beyond
    /// the image and its leading padding.
    fn out(&self, axis: usize, image: usize) -> usize {
        let (pad, stride) = (self.pad[axis], self.stride[axis]);
        let span = image + 2 * pad - self.window[axis];
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
        // Padding in one direction is enough for Caffe to drop such a window in the other.
        let one_way = PoolGeometry { window: [1, 2], pad: [0, 1], ..pool(4, 1, 0, 2, Rounding::Ceil) };
        assert_eq!(one_way.validate().map(|g| (g.out_h(), g.out_w())), Ok((2, 3)));
    }

    #[test]
    fn a_last_window_over_no_pixel_is_refused() {
        // Windows of 1 with a stride of 2 start at 0 and 2; Caffe would have another at 4.
        let empty = pool(4, 1, 0, 2, Rounding::Ceil).validate().unwrap_err();
        assert_eq!(empty, GeometryError::EmptyWindow { start: 4, image: 4, stride: 2, window: 1 });
        assert!(empty.to_string().contains("start at pixel 4, outside an image of 4"), "{empty}");
        // Without the rounding, or where the last window begins inside, there is nothing wrong with such a stride.
        assert_eq!(pool(4, 1, 0, 2, Rounding::Floor).validate().unwrap().out_h(), 2);
        assert_eq!(pool(5, 1, 0, 2, Rounding::Ceil).validate().unwrap().out_h(), 3);
        assert_eq!(
            pool(6, 2, 0, 3, Rounding::Ceil).validate(),
            Err(GeometryError::EmptyWindow { start: 6, image: 6, stride: 3, window: 2 })
        );
    }

    #[test]
    fn refuses_what_cannot_be_computed() {
        let conv = ConvGeometry::new([1, 3, 8, 8], 4, [3, 3]);
        assert_eq!(conv.groups(2).validate(), Err(GeometryError::Groups { groups: 2, c: 3, k: 4 }));
        assert_eq!(conv.stride([0, 1]).validate(), Err(GeometryError::Zero { what: "the stride" }));
        assert_eq!(
            conv.dilation([4, 1]).validate(),
            Err(GeometryError::Window { window: 9, image: 8, pad: 0 })
        );
        assert!(matches!(
            pool(8, 2, 2, 2, Rounding::Ceil).validate(),
            Err(GeometryError::PoolPadding { .. })
        ));
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let most = MOST_EXTENT;
        let conv = ConvGeometry::new([1, 1, 64, 64], 1, [3, 3]);
        let extent = GeometryError::Extent { extent: most + 1 };
        assert_eq!(conv.stride([1, most + 1]).validate(), Err(extent.clone()));
        assert_eq!(ConvGeometry::new([most + 1, 1, 1, 1], 1, [1, 1]).validate(), Err(extent));
        // Padding alone makes y larger than anything; with a stride as large it is small.
        assert!(matches!(conv.pad([most; 2]).validate(), Err(GeometryError::Operand { .. })));
        let far = conv.pad([most; 2]).stride([most; 2]).validate().unwrap();
        assert_eq!((far.out_h(), far.out_w()), (3, 3));
        let filter = ConvGeometry::new([1, most, 1, 1], most, [1, 1]);
        assert!(matches!(filter.validate(), Err(GeometryError::Operand { .. })));
        for (window, pad) in [(most, most - 1), (1 << 16, (1 << 16) - 1), (1 << 30, 1 << 29)] {
            let pooled = pool(64, window, pad, 1 << 29, Rounding::Floor);
            assert!(matches!(pooled.validate(), Err(GeometryError::PoolExtents { .. })), "{pooled:?}");
        }
        let many = PoolGeometry { n: most, c: most, ..pool(64, 2, 0, 2, Rounding::Floor) };
        assert!(matches!(many.validate(), Err(GeometryError::Operand { .. })));
    }

    fn pool(image: usize, window: usize, pad: usize, stride: usize, rounding: Rounding) -> PoolGeometry {
        PoolGeometry {
            n: 1,
            c: 1,
            h: image,
            w: image,
            window: [window; 2],
            pad: [pad; 2],
            stride: [stride; 2],
            rounding,
        }
    }
}
