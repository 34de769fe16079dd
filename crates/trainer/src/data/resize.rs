//! Bilinear resizing of bytes, in integers, so that the result is the same on every machine.

/// Fractions of a pixel are multiples of 1 / 2^11: two of them and a byte fit an `i32`.
const FRACTION_BITS: u32 = 11;
const ONE: i32 = 1 << FRACTION_BITS;

/// The two source pixels that a destination pixel lies between, and the weight of the second.
#[derive(Clone, Copy, Debug)]
struct Tap {
    near: usize,
    far: usize,
    weight: i32,
}

/// Taps of one axis. Pixel centres lie at half-integers (OpenCV's convention, hence Caffe's); at the borders the outermost
/// pixel is repeated. Shrinking does not average: like OpenCV's bilinear mode it looks at two pixels per axis only.
fn taps(src: usize, dst: usize) -> impl Iterator<Item = Tap> {
    (0..dst).map(move |i| {
        let centre = (i as f64 + 0.5) * src as f64 / dst as f64 - 0.5;
        let clamped = centre.clamp(0.0, (src - 1) as f64);
        let near = clamped as usize;
        let weight = ((clamped - near as f64) * f64::from(ONE)).round() as i32;
        Tap { near, far: (near + 1).min(src - 1), weight }
    })
}

/// Memory that resizing needs, reused from image to image.
#[derive(Clone, Debug, Default)]
pub(super) struct Resizer {
    columns: Vec<Tap>,
    /// One row, blended from two rows of the source.
    blended: Vec<i32>,
}

impl Resizer {
    /// Resizes interleaved pixels (row, column, channel) to planar ones (channel, row, column), appended to `dst`.
    ///
    /// `order[k]` is the source channel of destination channel `k`. `[height, width]` of either image must not be 0.
    pub(super) fn interleaved(
        &mut self,
        src: &[u8],
        [src_height, src_width]: [usize; 2],
        order: &[usize],
        [dst_height, dst_width]: [usize; 2],
        dst: &mut Vec<u8>,
    ) {
        let channels = order.len();
        let row_bytes = src_width * channels;
        assert_eq!(src.len(), src_height * row_bytes);
        let start = dst.len();
        dst.resize(start + channels * dst_height * dst_width, 0);
        let planes = &mut dst[start..];
        if [src_height, src_width] == [dst_height, dst_width] {
            return deinterleave(src, order, planes);
        }
        self.columns.clear();
        self.columns.extend(taps(src_width, dst_width));
        for (y, row) in taps(src_height, dst_height).enumerate() {
            // Rows first: adjacent bytes, so that the compiler vectorises the larger half of the work.
            self.blend(
                &src[row.near * row_bytes..][..row_bytes],
                &src[row.far * row_bytes..][..row_bytes],
                row.weight,
            );
            for (k, &channel) in order.iter().enumerate() {
                let out = &mut planes[(k * dst_height + y) * dst_width..][..dst_width];
                self.row(channel, channels, out);
            }
        }
    }

    /// Resizes planar pixels to planar ones, appended to `dst`.
    pub(super) fn planar(&mut self, src: &[u8], shape: [usize; 3], to: [usize; 2], dst: &mut Vec<u8>) {
        let [_, height, width] = shape;
        for plane in src.chunks_exact(height * width) {
            self.interleaved(plane, [height, width], &[0], to, dst);
        }
    }

    fn blend(&mut self, upper: &[u8], lower: &[u8], weight: i32) {
        self.blended.resize(upper.len(), 0);
        for ((out, &a), &b) in self.blended.iter_mut().zip(upper).zip(lower) {
            *out = i32::from(a) * (ONE - weight) + i32::from(b) * weight;
        }
    }

    fn row(&self, channel: usize, channels: usize, out: &mut [u8]) {
        for (out, tap) in out.iter_mut().zip(&self.columns) {
            let (a, b) =
                (self.blended[tap.near * channels + channel], self.blended[tap.far * channels + channel]);
            let sum = a * (ONE - tap.weight) + b * tap.weight;
            *out = ((sum + (1 << (2 * FRACTION_BITS - 1))) >> (2 * FRACTION_BITS)) as u8;
        }
    }
}

/// The same pixels, channel by channel.
fn deinterleave(src: &[u8], order: &[usize], planes: &mut [u8]) {
    for (plane, &channel) in planes.chunks_exact_mut(src.len() / order.len()).zip(order) {
        for (out, pixel) in plane.iter_mut().zip(src.chunks_exact(order.len())) {
            *out = pixel[channel];
        }
    }
}
