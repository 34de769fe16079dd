//! Walking over the windows of a plane on the CPU, many outputs at a time.
//!
//! With a stride of 2, neighbouring outputs read every second pixel. So the pixels of a band of rows are first dealt out
//! into *phases*, by row and column modulo the strides (even rows' even pixels, even rows' odd pixels, ...). Then one tap of
//! the windows of *all* outputs of the band is one contiguous run of one phase, and padding is a matter of what the
//! phases are filled with. Rows of outputs and phases are padded to whole vectors; what is computed in the padding is
//! ignored.

use std::ops::Range;
use tensor::PoolGeometry;
use tensor::cpu::simd::{LANES, Lanes, WithLanes, dispatch};

/// Outputs of a band, padding included.
pub(super) const OUTPUTS: usize = 2048;
/// Pixels under a band: together with a band's sums, about a first-level cache.
const ROOM: usize = 8192;
/// The most taps of a window whose runs are kept in a list.
pub(super) const MOST_TAPS: usize = 255;
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
    /// Row and column phase `(i, j)` begins at `(i * stride[1] + j) * phase_len`. Left and right of the image there is
    /// padding, which nothing overwrites.
    pub(super) pixels: [f32; ROOM],
    phase_len: usize,
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
        let pitch = (g.out_w() + (g.window[1] - 1) / g.stride[1]).next_multiple_of(LANES);
        if g.stride[0] > ROOM || pitch * g.stride[1] > LINE || g.w + g.pad[1] > LINE {
            return None;
        }
        let pixel_rows = ROOM / (g.stride[0] * g.stride[1] * pitch);
        // One row is spare: runs of a tap begin up to a window's width after the start of a row.
        let band_rows = pixel_rows.saturating_sub((g.window[0] - 1) / g.stride[0] + 1).min(OUTPUTS / pitch);
        let phase_len = (band_rows + (g.window[0] - 1) / g.stride[0]) * pitch;
        let walk = Self { g: *g, pitch, band_rows, padding, pixels: [padding; ROOM], phase_len };
        (band_rows > 0).then_some(walk)
    }

    /// Outputs of a row.
    #[inline(always)]
    pub(super) fn out_w(&self) -> usize {
        self.g.out_w()
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
        let (phase_len, len) = (self.phase_len, self.len(band));
        (0..height).flat_map(move |r| {
            let [row_phase, row] = split(r, stride[0]);
            (0..width).map(move |s| {
                let [phase, column] = split(s, stride[1]);
                let start = (row_phase * stride[1] + phase) * phase_len + row * pitch + column;
                (r * width + s, start..start + len)
            })
        })
    }

    /// Rows of the phases of `band` with the row of the image they hold, if any: `(first element of phase column 0, row)`.
    #[inline(always)]
    fn phase_rows_of_image(&self, band: &Band) -> impl Iterator<Item = (usize, Option<usize>)> + use<> {
        let (g, pitch, phase_len) = (self.g, self.pitch, self.phase_len);
        let first = band.rows.start * g.stride[0];
        (0..self.phase_rows(band) * g.stride[0]).map(move |position| {
            let [phase, row] = split(position, g.stride[0]);
            let image_row = (first + position).checked_sub(g.pad[0]).filter(|&row| row < g.h);
            (phase * g.stride[1] * phase_len + row * pitch, image_row)
        })
    }

    /// Deals out the pixels of `plane` under `band`.
    #[inline(always)]
    pub(super) fn fill(&mut self, plane: &[f32], band: &Band) {
        dispatch(Fill { walk: self, plane, band });
    }

    /// Where the run of each tap, in row-major order, begins for the first output of a band; `None` for windows of
    /// more taps than there is room for.
    pub(super) fn starts(&self) -> Option<[usize; MOST_TAPS]> {
        let mut starts = [0; MOST_TAPS];
        let taps = self.g.window[0] * self.g.window[1];
        self.taps(&Band { rows: 0..1 }).zip(&mut starts).for_each(|((_, run), start)| *start = run.start);
        (taps <= MOST_TAPS).then_some(starts)
    }

    /// Calls `body(tap, the tap's pixel under each output)` for all taps in row-major order.
    #[inline(always)]
    pub(super) fn for_each_tap(&mut self, plane: &[f32], band: &Band, mut body: impl FnMut(usize, &[f32])) {
        self.fill(plane, band);
        for (tap, run) in self.taps(band) {
            body(tap, &self.pixels[run]);
        }
    }

    /// The reverse for sums: adds to every pixel of the plane the `shares` of all outputs whose window it lies in. Shares
    /// in the padding of rows are zero.
    #[inline(always)]
    pub(super) fn spread(&mut self, shares: &[f32], band: &Band, plane: &mut [f32]) {
        let (stride, pitch, pad, w) = (self.g.stride[1], self.pitch, self.g.pad[1], self.g.w);
        let mut line = [0.0; LINE];
        self.pixels.fill(0.0);
        for (_, run) in self.taps(band) {
            self.pixels[run].iter_mut().zip(shares).for_each(|(sum, &share)| *sum += share);
        }
        for (start, image_row) in self.phase_rows_of_image(band) {
            if let Some(row) = image_row {
                collect(stride, &self.pixels[start..], self.phase_len, &mut line[..pitch * stride]);
                let row = &mut plane[row * w..(row + 1) * w];
                row.iter_mut().zip(&line[pad..]).for_each(|(to, &sum)| *to += sum);
            }
        }
    }
}

/// See [`Walk::fill`].
struct Fill<'a> {
    walk: &'a mut Walk,
    plane: &'a [f32],
    band: &'a Band,
}

impl WithLanes for Fill<'_> {
    type Output = ();
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let Self { walk, plane, band } = self;
        let (stride, pad, w, phase_len) = (walk.g.stride[1], walk.g.pad[1], walk.g.w, walk.phase_len);
        for (start, image_row) in walk.phase_rows_of_image(band) {
            match image_row {
                Some(row) => {
                    let row = &plane[row * w..(row + 1) * w];
                    deal(lanes, stride, row, pad, &mut walk.pixels[start..], phase_len);
                }
                None => {
                    let phases = walk.pixels[start..].chunks_mut(phase_len).take(stride);
                    phases.for_each(|phase| phase[..walk.pitch].fill(walk.padding));
                }
            }
        }
    }
}

/// Remainder and quotient; a division by an unknown number costs more than the pixels of a short row.
#[inline(always)]
fn split(position: usize, stride: usize) -> [usize; 2] {
    match stride {
        1 => [0, position],
        2 => [position & 1, position >> 1],
        _ => [position % stride, position / stride],
    }
}

/// Pixel `c` of the row goes to column `(pad + c) / stride` of phase `(pad + c) % stride`.
#[inline(always)]
fn deal<L: Lanes>(lanes: L, stride: usize, row: &[f32], pad: usize, phases: &mut [f32], phase_len: usize) {
    match stride {
        1 => phases[pad..pad + row.len()].copy_from_slice(row),
        2 => {
            let (first, second) = phases.split_at_mut(phase_len);
            let (even, odd) = if pad.is_multiple_of(2) {
                (&mut first[pad / 2..], &mut second[pad / 2..])
            } else {
                (&mut second[pad / 2..], &mut first[pad / 2 + 1..])
            };
            let (blocks, rest) = row.as_chunks::<{ 2 * LANES }>();
            let (even_blocks, _) = even.as_chunks_mut::<LANES>();
            let (odd_blocks, _) = odd.as_chunks_mut::<LANES>();
            for (block, (even, odd)) in blocks.iter().zip(even_blocks.iter_mut().zip(odd_blocks)) {
                let (halves, _) = block.as_chunks::<LANES>();
                let [evens, odds] = lanes.deal(lanes.load(&halves[0]), lanes.load(&halves[1]));
                lanes.store(even, evens);
                lanes.store(odd, odds);
            }
            for (i, pixels) in (blocks.len() * LANES..).zip(rest.chunks(2)) {
                even[i] = pixels[0];
                odd[i] = pixels.get(1).copied().unwrap_or(odd[i]);
            }
        }
        _ => {
            for (column, &pixel) in (pad..).zip(row) {
                let [phase, column] = split(column, stride);
                phases[phase * phase_len + column] = pixel;
            }
        }
    }
}

/// `line[i * stride + j] = phases[j * phase_len + i]`.
#[inline(always)]
fn collect(stride: usize, phases: &[f32], phase_len: usize, line: &mut [f32]) {
    match stride {
        1 => line.copy_from_slice(&phases[..line.len()]),
        2 => {
            let (even, odd) = phases.split_at(phase_len);
            let both = even.as_chunks::<LANES>().0.iter().zip(odd.as_chunks::<LANES>().0);
            for (line, (even, odd)) in line.as_chunks_mut::<{ 2 * LANES }>().0.iter_mut().zip(both) {
                for lane in 0..LANES {
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

/// Pixels of the image under the window of output `index` along one axis.
#[inline(always)]
pub(super) fn pixels(g: &PoolGeometry, axis: usize, image: usize, index: usize) -> Range<usize> {
    let start = index * g.stride[axis];
    let end = (start + g.window[axis]).saturating_sub(g.pad[axis]).min(image);
    start.saturating_sub(g.pad[axis]).min(end)..end
}
