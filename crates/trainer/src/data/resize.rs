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

impl Tap {
    #[inline(always)]
    fn blend(&self, near: i32, far: i32) -> i32 {
        near * (ONE - self.weight) + far * self.weight
    }
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

/// Pixels in the order row, column, channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interleaved<'a> {
    pub(super) pixels: &'a [u8],
    /// Height and width, neither of which is 0.
    pub(super) size: [usize; 2],
    pub(super) channels: usize,
}

/// Memory that resizing needs, reused from image to image.
#[derive(Clone, Debug, Default)]
pub(super) struct Resizer {
    columns: Vec<Tap>,
    /// One row, blended from two rows of the source.
    blended: Vec<i32>,
}

impl Resizer {
    /// Resizes to planar pixels (channel, row, column), appended to `dst`. `order[k]` is the source's channel for channel `k`.
    pub(super) fn resize(
        &mut self,
        src: Interleaved<'_>,
        order: &[usize],
        to: [usize; 2],
        dst: &mut Vec<u8>,
    ) {
        let Interleaved { pixels, size, channels } = src;
        let start = dst.len();
        dst.resize(start + order.len() * to[0] * to[1], 0);
        let (planes, row_bytes) = (&mut dst[start..], size[1] * channels);
        if size == to {
            for (plane, &channel) in planes.chunks_exact_mut(to[0] * to[1]).zip(order) {
                plane
                    .iter_mut()
                    .zip(pixels.chunks_exact(channels))
                    .for_each(|(out, pixel)| *out = pixel[channel]);
            }
            return;
        }
        self.columns.clear();
        self.columns.extend(taps(size[1], to[1]));
        for (y, row) in taps(size[0], to[0]).enumerate() {
            // Rows first: adjacent bytes, so that the compiler vectorises the larger half of the work.
            let [near, far] = [row.near, row.far].map(|row| &pixels[row * row_bytes..][..row_bytes]);
            self.blended.clear();
            self.blended.extend(near.iter().zip(far).map(|(&a, &b)| row.blend(a.into(), b.into())));
            for (k, &channel) in order.iter().enumerate() {
                let out = &mut planes[(k * to[0] + y) * to[1]..][..to[1]];
                for (out, tap) in out.iter_mut().zip(&self.columns) {
                    let [a, b] = [tap.near, tap.far].map(|column| self.blended[column * channels + channel]);
                    *out = ((tap.blend(a, b) + (1 << (2 * FRACTION_BITS - 1))) >> (2 * FRACTION_BITS)) as u8;
                }
            }
        }
    }
}
