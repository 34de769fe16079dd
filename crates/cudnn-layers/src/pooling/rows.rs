//! Walking over the windows of a plane on the CPU, many outputs at a time.
//!
//! With a stride of 2, neighbouring outputs read every second pixel. So the pixels of a band of rows are first dealt out
//! into *phases*, by row and column modulo the strides (even rows' even pixels, even rows' odd pixels, ...). Then one tap of
//! the windows of *all* outputs of the band is one contiguous run of one phase, and padding is a matter of what the
//! phases are filled with. Rows of outputs and phases are padded to whole vectors; what is computed in the padding is
//! ignored.

use std::ops::Range;
use tensor::PoolGeometry;

const VECTOR: usize = 16;
/// Outputs of a band, padding included.
pub(super) const OUTPUTS: usize = 2048;
/// Pixels under a band: together with a band's sums, about a first-level cache.
const ROOM: usize = 8192;
/// The longest row of pixels.
const LINE: usize = 2048;

/// Walks over the outputs of planes of one geometry. Holds the band's pixels; made once for many planes.
pub(super) struct Walk {
    g: PoolGeometry,
    /// Elements from one row of outputs to the next.
    pub(super) pitch: usize,
    /// Rows of outputs of a band.
    band_rows: usize,
    padding: f32,
    /// Row and column phase `(i, j)` begins at `(i * stride[1] + j) * phase_len`.
    pixels: [f32; ROOM],
    /// One row of pixels with its padding.
    line: [f32; LINE],
}

/// Rows of outputs that are computed together.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) rows: Range<usize>,
}

impl Walk {
    /// `None` for windows, strides or images too wide to hold one row of outputs. `padding` is what pixels outside
    /// the image read as.
    #[inline(always)]
    pub(super) fn new(g: &PoolGeometry, padding: f32) -> Option<Self> {
        let pitch = (g.out_w() + (g.window[1] - 1) / g.stride[1]).next_multiple_of(VECTOR);
        let pixel_rows = ROOM / (g.stride[0] * g.stride[1] * pitch);
        // One row is spare: runs of a tap begin up to a window's width after the start of a row.
        let band_rows = pixel_rows.saturating_sub((g.window[0] - 1) / g.stride[0] + 1).min(OUTPUTS / pitch);
        let walk = Self { g: *g, pitch, band_rows, padding, pixels: [padding; ROOM], line: [padding; LINE] };
        (band_rows > 0 && pitch * g.stride[1] <= LINE && g.w + g.pad[1] <= LINE).then_some(walk)
    }

    /// The bands of a plane, from the top.
    #[inline(always)]
    pub(super) fn bands(&self) -> impl Iterator<Item = Band> + use<> {
        let (out_h, step) = (self.g.out_h(), self.band_rows);
        (0..out_h).step_by(step).map(move |first| Band { rows: first..(first + step).min(out_h) })
    }

    /// Elements of all taps' runs under `band`.
    #[inline(always)]
    pub(super) fn len(&self, band: &Band) -> usize {
        band.rows.len() * self.pitch
    }

    #[inline(always)]
    fn phase_rows(&self, band: &Band) -> usize {
        band.rows.len() + (self.g.window[0] - 1) / self.g.stride[0]
    }

    /// The runs of all taps under a band in row-major order: `(number of the tap, its elements of the pixels)`.
    #[inline(always)]
    fn taps(&self, band: &Band) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (stride, [height, width], pitch) = (self.g.stride, self.g.window, self.pitch);
        let (phase_len, len) = (self.phase_rows(band) * pitch, self.len(band));
        (0..height).flat_map(move |r| {
            (0..width).map(move |s| {
                let phase = r % stride[0] * stride[1] + s % stride[1];
                let start = phase * phase_len + r / stride[0] * pitch + s / stride[1];
                (r * width + s, start..start + len)
            })
        })
    }

    /// Rows of the phases of `band` with the row of the image they hold, if any: `(first element of phase column 0, row)`.
    #[inline(always)]
    fn phase_rows_of_image(&self, band: &Band) -> impl Iterator<Item = (usize, Option<usize>)> + use<> {
        let (g, pitch, rows) = (self.g, self.pitch, self.phase_rows(band));
        let first = band.rows.start * g.stride[0];
        (0..rows * g.stride[0]).map(move |position| {
            let (phase, row) = (position % g.stride[0], position / g.stride[0]);
            let image_row = (first + position).checked_sub(g.pad[0]).filter(|&row| row < g.h);
            ((phase * g.stride[1] * rows + row) * pitch, image_row)
        })
    }

    /// Calls `body(tap, the tap's pixel under each output)` for all taps in row-major order.
    #[inline(always)]
    pub(super) fn for_each_tap(&mut self, plane: &[f32], band: &Band, mut body: impl FnMut(usize, &[f32])) {
        let (stride, pitch, pad, w) = (self.g.stride[1], self.pitch, self.g.pad[1], self.g.w);
        let phase_len = self.phase_rows(band) * pitch;
        for (start, image_row) in self.phase_rows_of_image(band) {
            match image_row {
                Some(row) => self.line[pad..pad + w].copy_from_slice(&plane[row * w..(row + 1) * w]),
                None => self.line[pad..pad + w].fill(self.padding),
            }
            let phases = &mut self.pixels[start..];
            deal(stride, &self.line[..pitch * stride], phases, phase_len, pitch);
        }
        for (tap, run) in self.taps(band) {
            body(tap, &self.pixels[run]);
        }
    }

    /// The reverse for sums: adds to every pixel of the plane the `shares` of all outputs whose window it lies in. Shares
    /// in the padding of rows are zero.
    #[inline(always)]
    pub(super) fn spread(&mut self, shares: &[f32], band: &Band, plane: &mut [f32]) {
        let (stride, pitch, pad, w) = (self.g.stride[1], self.pitch, self.g.pad[1], self.g.w);
        let phase_len = self.phase_rows(band) * pitch;
        self.pixels.fill(0.0);
        for (_, run) in self.taps(band) {
            self.pixels[run].iter_mut().zip(shares).for_each(|(sum, &share)| *sum += share);
        }
        for (start, image_row) in self.phase_rows_of_image(band) {
            if let Some(row) = image_row {
                collect(stride, &self.pixels[start..], phase_len, &mut self.line[..pitch * stride]);
                let row = &mut plane[row * w..(row + 1) * w];
                row.iter_mut().zip(&self.line[pad..]).for_each(|(to, &sum)| *to += sum);
            }
        }
    }
}

/// `phases[j * phase_len + i] = line[i * stride + j]` for `i` below `pitch`.
#[inline(always)]
fn deal(stride: usize, line: &[f32], phases: &mut [f32], phase_len: usize, pitch: usize) {
    match stride {
        1 => phases[..pitch].copy_from_slice(line),
        2 => {
            let (even, odd) = phases.split_at_mut(phase_len);
            let both =
                even[..pitch].as_chunks_mut::<VECTOR>().0.iter_mut().zip(odd.as_chunks_mut::<VECTOR>().0);
            for (line, (even, odd)) in line.as_chunks::<{ 2 * VECTOR }>().0.iter().zip(both) {
                for lane in 0..VECTOR {
                    even[lane] = line[2 * lane];
                    odd[lane] = line[2 * lane + 1];
                }
            }
        }
        _ => {
            for (j, phase) in phases.chunks_mut(phase_len).take(stride).enumerate() {
                phase.iter_mut().zip(line[j..].iter().step_by(stride)).for_each(|(to, &from)| *to = from);
            }
        }
    }
}

/// The reverse of [`deal`].
#[inline(always)]
fn collect(stride: usize, phases: &[f32], phase_len: usize, line: &mut [f32]) {
    match stride {
        1 => line.copy_from_slice(&phases[..line.len()]),
        2 => {
            let (even, odd) = phases.split_at(phase_len);
            let both = even.as_chunks::<VECTOR>().0.iter().zip(odd.as_chunks::<VECTOR>().0);
            for (line, (even, odd)) in line.as_chunks_mut::<{ 2 * VECTOR }>().0.iter_mut().zip(both) {
                for lane in 0..VECTOR {
                    line[2 * lane] = even[lane];
                    line[2 * lane + 1] = odd[lane];
                }
            }
        }
        _ => {
            for (j, phase) in phases.chunks(phase_len).take(stride).enumerate() {
                line[j..].iter_mut().step_by(stride).zip(phase).for_each(|(to, &from)| *to = from);
            }
        }
    }
}

/// Rows of the image under the window of output row `row`, as `(row of the window, row of the image)`.
#[inline(always)]
pub(super) fn image_rows(g: &PoolGeometry, row: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (start, pad, h) = (row * g.stride[0], g.pad[0], g.h);
    (0..g.window[0]).filter(move |r| (pad..h + pad).contains(&(start + r))).map(move |r| (r, start + r - pad))
}
