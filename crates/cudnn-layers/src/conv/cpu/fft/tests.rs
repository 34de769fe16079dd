//! The transforms against another library, and convolutions whose extents lie at the edges of tiles and blocks.

use super::{
    super::super::tests::check,
    FFT_TILING, FFT_TILING_16,
    complex::{CLEARED, ComplexLanes, MAX, Row, Work, fft, real_fft, real_inverse, tangle, untangle},
};
use rustfft::{FftPlanner, num_complex::Complex};
use tensor::{
    ConvGeometry,
    cpu::simd::{LANES, Lanes, WithLanes, dispatch},
    testing::random,
};

/// Sixteen complex signals of `n` points through our transform.
struct Transform {
    n: usize,
    short: bool,
    signals: Work,
}

impl WithLanes for Transform {
    type Output = Work;
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) -> Work {
        let (mut work, mut spectra) = (CLEARED, CLEARED);
        let input = |i: usize| l.load_bin(&self.signals.0[i]);
        fft(l, self.n, self.short, &mut work, input, |k, z| l.store_bin(&mut spectra.0[k], z));
        spectra
    }
}

/// The first `points` of `n` random complex values in every lane, the others zero.
fn random_signals(points: usize, seed: u64) -> Work {
    let values = random(2 * LANES * MAX, seed);
    Work(std::array::from_fn(|i| {
        std::array::from_fn(|part| {
            std::array::from_fn(|lane| if i < points { values[(i * 2 + part) * LANES + lane] } else { 0.0 })
        })
    }))
}

/// The spectrum of lane `lane` by rustfft, in double precision.
fn oracle(signals: &Work, n: usize, lane: usize) -> Vec<Complex<f64>> {
    let value = |i: usize| Complex::new(signals.0[i][0][lane].into(), signals.0[i][1][lane].into());
    let mut buffer: Vec<_> = (0..n).map(value).collect();
    FftPlanner::new().plan_fft_forward(n).process(&mut buffer);
    buffer
}

fn assert_near(actual: [f32; 2], expected: Complex<f64>, what: &str) {
    let distance = (Complex::new(f64::from(actual[0]), f64::from(actual[1])) - expected).norm();
    assert!(distance < 4e-6, "{what}: {actual:?} is not {expected}");
}

#[test]
fn complex_transforms_match_another_library() {
    for n in [8, 16, 32] {
        for short in [false, true] {
            let signals = random_signals(if short { n / 4 } else { n }, n as u64);
            let spectra = dispatch(Transform { n, short, signals });
            for lane in 0..LANES {
                for (k, expected) in oracle(&signals, n, lane).into_iter().enumerate() {
                    let actual = spectra.0[k].map(|part| part[lane]);
                    assert_near(actual, expected, &format!("{n} points, short {short}, frequency {k}"));
                }
            }
        }
    }
}

/// Real signals through [`real_fft`] and back.
struct ThereAndBack {
    n: usize,
    row: Row,
}

impl WithLanes for ThereAndBack {
    type Output = (Work, [[f32; LANES]; MAX]);
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) -> Self::Output {
        let (mut work, mut spectra) = ([CLEARED; 2], CLEARED);
        let mut back = [[0.0; LANES]; MAX];
        real_fft(l, self.n, &mut work, &self.row, |k, z| l.store_bin(&mut spectra.0[k], z));
        let input = |k: usize| l.load_bin(&spectra.0[k]);
        real_inverse(l, self.n, &mut work, input, |i, [even, odd]| {
            back[2 * i] = l.to_array(even);
            back[2 * i + 1] = l.to_array(odd);
        });
        (spectra, back)
    }
}

#[test]
fn real_transforms_match_another_library_and_invert() {
    for n in [16, 32] {
        let mut signals = random_signals(n, 3);
        signals.0.iter_mut().for_each(|bin| bin[1] = [0.0; LANES]);
        let row = Row(signals.0.map(|bin| bin[0]));
        let (spectra, back) = dispatch(ThereAndBack { n, row });
        for lane in 0..LANES {
            let expected = oracle(&signals, n, lane);
            let packed = Complex::new(expected[0].re, expected[n / 2].re);
            assert_near(spectra.0[0].map(|part| part[lane]), packed, "the two real frequencies");
            for k in 1..n / 2 {
                assert_near(spectra.0[k].map(|part| part[lane]), expected[k], &format!("frequency {k}"));
            }
            for i in 0..n {
                assert!((back[i][lane] / n as f32 - row.0[i][lane]).abs() < 1e-6, "value {i} of {n}");
            }
        }
    }
}

/// Two real signals, transformed as one complex signal.
struct Packed {
    n: usize,
    signals: Work,
}

impl WithLanes for Packed {
    type Output = [Work; 3];
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) -> [Work; 3] {
        let together = Transform { n: self.n, short: false, signals: self.signals }.call(l);
        let mut apart = together;
        untangle(l, self.n, &mut apart);
        let mut again = apart;
        tangle(l, self.n, &mut again);
        [together, apart, again]
    }
}

#[test]
fn two_real_signals_share_a_transform() {
    for n in [16, 32] {
        let signals = random_signals(n, 5);
        let [together, apart, again] = dispatch(Packed { n, signals });
        let real_part = |part: usize| {
            let mut real = CLEARED;
            real.0.iter_mut().zip(&signals.0).for_each(|(to, from)| to[0] = from[part]);
            oracle(&real, n, 7)
        };
        let (a, b) = (real_part(0), real_part(1));
        for slot in 0..n {
            let expected = match slot {
                0 => Complex::new(a[0].re, b[0].re),
                _ if slot == n / 2 => Complex::new(a[slot].re, b[slot].re),
                _ if slot < n / 2 => a[slot],
                _ => b[n - slot],
            };
            assert_near(apart.0[slot].map(|part| part[7]), expected, &format!("slot {slot} of {n}"));
            let joined = Complex::new(f64::from(together.0[slot][0][7]), f64::from(together.0[slot][1][7]));
            assert_near(again.0[slot].map(|part| part[7]), joined, &format!("slot {slot} joined"));
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
        assert_eq!(check(&FFT_TILING, g, seed as u64), 3, "{g:?}");
        let expected = if g.r.max(g.s) <= 8 { 3 } else { 0 };
        assert_eq!(check(&FFT_TILING_16, g, seed as u64), expected, "{g:?}");
    }
}

#[test]
fn strides_dilations_and_large_filters_are_declined() {
    let g = ConvGeometry::new([1, 2, 40, 40], 2, [5, 5]);
    for g in [g.stride([2, 1]), g.dilation([1, 2]), ConvGeometry { r: 17, ..g }] {
        assert_eq!(check(&FFT_TILING, &g, 0), 0, "{g:?}");
    }
}
