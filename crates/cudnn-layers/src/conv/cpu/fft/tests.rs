//! The transforms against another library, and convolutions whose extents lie at the edges of tiles and blocks.

use super::bins::{BIN, MAX, Work};
use super::transform::{fft, real_fft, real_inverse, tangle, untangle};
use crate::conv::tests::check;
use rustfft::{FftPlanner, num_complex::Complex};
use tensor::cpu::{LANES, Lanes, WithLanes, dispatch};
use tensor::{ConvGeometry, testing::random};

/// Sixteen complex signals of `n` points through our transform.
struct Transform {
    n: usize,
    short: bool,
    signals: Work,
}

impl WithLanes<Work> for Transform {
    #[inline(always)]
    fn call<L: Lanes>(mut self, l: L) -> Work {
        let (mut work, mut spectra) = (Work::CLEARED, Work::CLEARED);
        let (from, to) = (self.signals.bins(), spectra.bins());
        // SAFETY: all bins of a `Work` are valid.
        unsafe { fft(l, (self.n, self.short), from, &mut work, to, 0..self.n) };
        spectra
    }
}

/// The first `points` bins random, the others zero.
fn random_signals(points: usize, seed: u64) -> Work {
    let mut signals = Work::CLEARED;
    signals.0[..points * BIN].copy_from_slice(&random(points * BIN, seed));
    signals
}

/// Signal `lane` at point or frequency `index`.
fn value(signals: &Work, index: usize, lane: usize) -> Complex<f64> {
    let bin = &signals.0[index * BIN..][..BIN];
    Complex::new(bin[lane].into(), bin[LANES + lane].into())
}

/// The spectrum by rustfft, in double precision.
fn oracle(signal: impl Iterator<Item = Complex<f64>>) -> Vec<Complex<f64>> {
    let mut buffer: Vec<_> = signal.collect();
    FftPlanner::new().plan_fft_forward(buffer.len()).process(&mut buffer);
    buffer
}

fn assert_near(actual: Complex<f64>, expected: Complex<f64>, what: &str) {
    assert!((actual - expected).norm() < 4e-6, "{what}: {actual} is not {expected}");
}

#[test]
fn complex_transforms_match_another_library() {
    for n in [8, 16, MAX] {
        for short in [false, true] {
            let signals = random_signals(if short { n / 4 } else { n }, n as u64);
            let spectra = dispatch(Transform { n, short, signals });
            for lane in 0..LANES {
                let expected = oracle((0..n).map(|i| value(&signals, i, lane)));
                for (k, &expected) in expected.iter().enumerate() {
                    assert_near(value(&spectra, k, lane), expected, &format!("{n} points, {short}, {k}"));
                }
            }
        }
    }
}

/// Real signals through [`real_fft`] and back.
struct ThereAndBack {
    n: usize,
    values: Work,
}

impl WithLanes<[Work; 2]> for ThereAndBack {
    #[inline(always)]
    fn call<L: Lanes>(mut self, l: L) -> [Work; 2] {
        let (mut work, [mut spectra, mut back]) = ([Work::CLEARED; 2], [Work::CLEARED; 2]);
        // SAFETY: all bins of a `Work` are valid.
        unsafe {
            real_fft(l, self.n, &mut self.values, &mut work, spectra.bins());
            real_inverse(l, self.n, spectra.bins(), &mut work, &mut back);
        }
        [spectra, back]
    }
}

#[test]
fn real_transforms_match_another_library_and_invert() {
    for n in [16, MAX] {
        let values = random_signals(n / 2, 3);
        let [spectra, back] = dispatch(ThereAndBack { n, values });
        for lane in 0..LANES {
            let real = |i: usize| Complex::new(values.0[i * LANES + lane].into(), 0.0);
            let expected = oracle((0..n).map(real));
            let both = Complex::new(expected[0].re, expected[n / 2].re);
            assert_near(value(&spectra, 0, lane), both, "the two real frequencies");
            for (k, &expected) in expected.iter().enumerate().take(n / 2).skip(1) {
                assert_near(value(&spectra, k, lane), expected, &format!("frequency {k} of {n}"));
            }
        }
        for (i, (back, value)) in back.0.iter().zip(&values.0).enumerate().take(n * LANES) {
            assert!((back / n as f32 - value).abs() < 1e-6, "value {i} of {n}");
        }
    }
}

/// Two real signals transformed as one complex signal: as it is, untangled, and tangled again.
struct Tangled {
    n: usize,
    signals: Work,
}

impl WithLanes<[Work; 3]> for Tangled {
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) -> [Work; 3] {
        let together = Transform { n: self.n, short: false, signals: self.signals }.call(l);
        let mut apart = together;
        // SAFETY: all bins of a `Work` are valid.
        unsafe { untangle(l, self.n, apart.bins()) };
        let mut again = apart;
        // SAFETY: as above.
        unsafe { tangle(l, self.n, again.bins()) };
        [together, apart, again]
    }
}

#[test]
fn two_real_signals_share_a_transform() {
    let lane = 7;
    for n in [16, MAX] {
        let signals = random_signals(n, 5);
        let [together, apart, again] = dispatch(Tangled { n, signals });
        let point = |i: usize| value(&signals, i, lane);
        let a = oracle((0..n).map(|i| Complex::new(point(i).re, 0.0)));
        let b = oracle((0..n).map(|i| Complex::new(point(i).im, 0.0)));
        for bin in 0..n {
            let expected = match bin {
                _ if bin % (n / 2) == 0 => Complex::new(a[bin].re, b[bin].re),
                _ if bin < n / 2 => a[bin],
                _ => b[n - bin],
            };
            assert_near(value(&apart, bin, lane), expected, &format!("bin {bin} of {n}"));
            assert_near(value(&again, bin, lane), value(&together, bin, lane), &format!("bin {bin} tangled"));
        }
    }
}

#[test]
fn convolutions_at_the_edges_of_tiles_and_blocks() {
    let conv = |x, k, filter, pad: [usize; 2]| ConvGeometry::new(x, k, filter).pad(pad);
    let geometries = [
        // One tile holds the image: AlexNet's second convolution with fewer channels, and one pixel more and less.
        conv([2, 5, 27, 27], 18, [5, 5], [2, 2]),
        conv([1, 3, 28, 28], 4, [5, 5], [2, 2]),
        conv([1, 3, 29, 29], 4, [5, 5], [2, 2]),
        // Several tiles, the last of each row and column cut.
        conv([2, 2, 61, 34], 3, [5, 5], [2, 2]),
        conv([1, 17, 13, 40], 16, [3, 3], [1, 1]),
        // Filters that are not square, up to the largest, without and with all padding that makes sense.
        conv([2, 4, 20, 33], 5, [1, 7], [0, 3]),
        conv([2, 4, 33, 20], 5, [7, 1], [3, 0]),
        conv([1, 4, 17, 18], 3, [3, 5], [0, 4]),
        conv([1, 2, 21, 40], 2, [8, 8], [7, 7]),
        conv([1, 2, 40, 21], 3, [9, 16], [0, 15]),
        conv([1, 2, 5, 5], 3, [5, 5], [4, 4]),
        conv([1, 3, 6, 7], 2, [2, 3], [6, 5]),
        // More rows, terms and columns than a block of the product.
        conv([70, 3, 4, 4], 2, [3, 3], [1, 1]),
        conv([9, 70, 6, 5], 66, [3, 2], [1, 0]),
        // Groups.
        conv([2, 36, 9, 9], 40, [5, 5], [2, 2]).groups(2),
        conv([3, 6, 18, 9], 6, [3, 3], [1, 1]).groups(6),
    ];
    for (seed, g) in geometries.iter().enumerate() {
        assert_eq!(check("FFT_TILING", g, seed as u64), 3, "{g:?}");
        let expected = if g.r.max(g.s) <= 8 { 3 } else { 0 };
        assert_eq!(check("FFT_TILING_16", g, seed as u64), expected, "{g:?}");
    }
}

#[test]
fn strides_dilations_and_large_filters_are_declined() {
    let g = ConvGeometry::new([1, 2, 40, 40], 2, [5, 5]);
    for g in [g.stride([2, 1]), g.dilation([1, 2]), ConvGeometry { r: 17, ..g }] {
        assert_eq!(check("FFT_TILING", &g, 0), 0, "{g:?}");
    }
}
