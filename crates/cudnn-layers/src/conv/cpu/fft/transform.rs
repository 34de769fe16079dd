//! Discrete Fourier transforms of 8 to 32 points, of sixteen signals at once: one per lane.
//!
//! Forward only, `X[k] = sum over n of x[n] exp(-2 pi i n k / N)`, and not normalised: exchanging real and imaginary
//! parts before and after makes it the inverse. Each is one radix-4 step followed by transforms that fit the registers.

use super::bins::{Bins, C, MAX, Work};
use std::ops::Range;
use tensor::cpu::Lanes;

/// Complex arithmetic.
trait ComplexLanes: Lanes {
    /// `a + b`.
    #[inline(always)]
    fn plus(self, a: C<Self>, b: C<Self>) -> C<Self> {
        [self.add(a[0], b[0]), self.add(a[1], b[1])]
    }
    /// `a - b`.
    #[inline(always)]
    fn minus(self, a: C<Self>, b: C<Self>) -> C<Self> {
        [self.sub(a[0], b[0]), self.sub(a[1], b[1])]
    }
    /// `a + i b`.
    #[inline(always)]
    fn plus_i(self, a: C<Self>, b: C<Self>) -> C<Self> {
        [self.sub(a[0], b[1]), self.add(a[1], b[0])]
    }
    /// `a - i b`.
    #[inline(always)]
    fn minus_i(self, a: C<Self>, b: C<Self>) -> C<Self> {
        [self.add(a[0], b[1]), self.sub(a[1], b[0])]
    }
    /// `z` times a constant.
    #[inline(always)]
    fn times(self, z: C<Self>, [re, im]: [f32; 2]) -> C<Self> {
        let (re, im) = (self.splat(re), self.splat(im));
        [self.neg_mul_add(z[1], im, self.mul(z[0], re)), self.mul_add(z[1], re, self.mul(z[0], im))]
    }
    /// The complex conjugate.
    #[inline(always)]
    fn conjugate(self, z: C<Self>) -> C<Self> {
        [z[0], self.sub(self.zero(), z[1])]
    }
}

impl<L: Lanes> ComplexLanes for L {}

/// `exp(-2 pi i k / 32)` for every `k`.
static ROTORS: [[f32; 2]; MAX] = {
    let [cos, sin] = [0.980_785_280_403_230_4, 0.195_090_322_016_128_3];
    let (mut rotors, mut z, mut k) = ([[0.0; 2]; MAX], [1.0, 0.0_f64], 0);
    while k < MAX / 4 {
        let [re, im] = [z[0] as f32, z[1] as f32];
        // Quarter turns are exact.
        rotors[k] = [re, im];
        rotors[k + MAX / 4] = [im, -re];
        rotors[k + MAX / 2] = [-re, -im];
        rotors[k + 3 * MAX / 4] = [-im, re];
        z = [z[0] * cos + z[1] * sin, z[1] * cos - z[0] * sin];
        k += 1;
    }
    rotors
};

/// `exp(-2 pi i k / n)` for `n` a divisor of 32.
#[inline(always)]
fn rotor(k: usize, n: usize) -> [f32; 2] {
    ROTORS[k.wrapping_mul(MAX / n) % MAX]
}

#[inline(always)]
fn fft4<L: Lanes>(l: L, [a, b, c, d]: [C<L>; 4]) -> [C<L>; 4] {
    let (even, odd) = (l.plus(a, c), l.plus(b, d));
    let (even_difference, odd_difference) = (l.minus(a, c), l.minus(b, d));
    [
        l.plus(even, odd),
        l.minus_i(even_difference, odd_difference),
        l.minus(even, odd),
        l.plus_i(even_difference, odd_difference),
    ]
}

#[inline(always)]
fn fft8<L: Lanes>(l: L, x: [C<L>; 8]) -> [C<L>; 8] {
    let e = fft4(l, [x[0], x[2], x[4], x[6]]);
    let o = fft4(l, [x[1], x[3], x[5], x[7]]);
    // The odd half turned by one and three eighths: both are sums and differences of the parts, over the root of 2.
    let root = l.splat(std::f32::consts::FRAC_1_SQRT_2);
    let one = [l.add(o[1][0], o[1][1]), l.sub(o[1][1], o[1][0])];
    let three = [l.sub(o[3][1], o[3][0]), l.add(o[3][0], o[3][1])];
    [
        l.plus(e[0], o[0]),
        [l.mul_add(root, one[0], e[1][0]), l.mul_add(root, one[1], e[1][1])],
        l.minus_i(e[2], o[2]),
        [l.mul_add(root, three[0], e[3][0]), l.neg_mul_add(root, three[1], e[3][1])],
        l.minus(e[0], o[0]),
        [l.neg_mul_add(root, one[0], e[1][0]), l.neg_mul_add(root, one[1], e[1][1])],
        l.plus_i(e[2], o[2]),
        [l.neg_mul_add(root, three[0], e[3][0]), l.mul_add(root, three[1], e[3][1])],
    ]
}

/// The transform of `n` points (8, 16 or 32): bins `..n` of `from` to those of `to` that are in `keep`.
///
/// With `short`, only the first quarter of `from` is not zero, and only it is read.
///
/// # Safety
/// The bins read and stored must be valid for that and lie outside `work`; `to` may be `from`.
#[inline(always)]
pub(super) unsafe fn fft<L: Lanes>(
    l: L,
    (n, short): (usize, bool),
    from: Bins,
    work: &mut Work,
    to: Bins,
    keep: Range<usize>,
) {
    // SAFETY: one of these sizes is meant.
    unsafe {
        match n {
            8 => fft_of::<L, 8, 2>(l, short, from, work.bins(), to, keep),
            16 => fft_of::<L, 16, 4>(l, short, from, work.bins(), to, keep),
            _ => fft_of::<L, 32, 8>(l, short, from, work.bins(), to, keep),
        }
    }
}

/// [`fft`] of `N` points, four times `Q`.
///
/// # Safety
/// As for [`fft`].
#[inline(always)]
unsafe fn fft_of<L: Lanes, const N: usize, const Q: usize>(
    l: L,
    short: bool,
    from: Bins,
    work: Bins,
    to: Bins,
    keep: Range<usize>,
) {
    // SAFETY: indices into `from` and `work` are below N, what is stored to `to` is in `keep`.
    unsafe {
        for i in 0..Q {
            let a = from.load(l, i);
            let turned = if short {
                [a; 4]
            } else {
                fft4(l, [a, from.load(l, i + Q), from.load(l, i + 2 * Q), from.load(l, i + 3 * Q)])
            };
            work.store(l, i, turned[0]);
            work.store(l, i + Q, l.times(turned[1], rotor(i, N)));
            work.store(l, i + 2 * Q, l.times(turned[2], rotor(2 * i, N)));
            work.store(l, i + 3 * Q, l.times(turned[3], rotor(3 * i, N)));
        }
        for k in 0..4 {
            let x = work.from(k * Q);
            let z = small_fft::<L, Q>(l, x);
            for (i, &z) in z.iter().enumerate().take(Q) {
                if keep.contains(&(k + 4 * i)) {
                    to.store(l, k + 4 * i, z);
                }
            }
        }
    }
}

/// The transform of `Q` points (2, 4 or 8) in registers.
///
/// # Safety
/// Bins `..Q` of `x` must be valid for reading.
#[inline(always)]
unsafe fn small_fft<L: Lanes, const Q: usize>(l: L, x: Bins) -> [C<L>; 8] {
    // SAFETY: promised by the caller.
    unsafe {
        let (a, b) = (x.load(l, 0), x.load(l, 1));
        let none = [l.zero(); 2];
        match Q {
            2 => [l.plus(a, b), l.minus(a, b), none, none, none, none, none, none],
            4 => {
                let [p, q, r, s] = fft4(l, [a, b, x.load(l, 2), x.load(l, 3)]);
                [p, q, r, s, none, none, none, none]
            }
            _ => {
                let (c, d, e) = (x.load(l, 2), x.load(l, 3), x.load(l, 4));
                fft8(l, [a, b, c, d, e, x.load(l, 5), x.load(l, 6), x.load(l, 7)])
            }
        }
    }
}

/// For `s = a + conj(b)` and `d = a - conj(b)`: `half * s + turn * d` and the conjugate of `half * s - turn * d`.
///
/// This separates the spectra of the even and odd values of a real signal, and joins them again.
#[inline(always)]
fn separate<L: Lanes>(l: L, a: C<L>, b: C<L>, half: f32, turn: [f32; 2]) -> [C<L>; 2] {
    let (half, sum) = (l.splat(half), [l.add(a[0], b[0]), l.sub(a[1], b[1])]);
    let sum = [l.mul(sum[0], half), l.mul(sum[1], half)];
    let difference = l.times([l.sub(a[0], b[0]), l.add(a[1], b[1])], turn);
    [l.plus(sum, difference), l.conjugate(l.minus(sum, difference))]
}

/// The transform of the `n` (16 or 32) real values in `values`, into the `n/2` bins of `to`: frequency `k` into bin
/// `k`, but bin 0 holds the two that are real: frequency 0 as its real and frequency `n/2` as its imaginary part.
///
/// # Safety
/// These bins must be valid for writing.
#[inline(always)]
pub(super) unsafe fn real_fft<L: Lanes>(l: L, n: usize, values: &mut Work, work: &mut [Work; 2], to: Bins) {
    let ([work, z], half) = (work, n / 2);
    // Even values as real and odd ones as imaginary parts make a signal of half the length.
    let z = z.bins();
    // SAFETY: all bins of `z` and `values` are valid; those of `to` the caller promises.
    unsafe {
        fft(l, (half, false), values.bins(), work, z, 0..half);
        let first = z.load(l, 0);
        to.store(l, 0, [l.add(first[0], first[1]), l.sub(first[0], first[1])]);
        for k in 1..half / 2 {
            let [cos, sin] = rotor(k, n);
            let pair = separate(l, z.load(l, k), z.load(l, half - k), 0.5, [0.5 * sin, -0.5 * cos]);
            to.store(l, k, pair[0]);
            to.store(l, half - k, pair[1]);
        }
        to.store(l, half / 2, l.conjugate(z.load(l, half / 2)));
    }
}

/// The inverse of [`real_fft`] times `n`.
///
/// # Safety
/// The `n/2` bins of `from` must be valid for reading.
#[inline(always)]
pub(super) unsafe fn real_inverse<L: Lanes>(
    l: L,
    n: usize,
    from: Bins,
    work: &mut [Work; 2],
    values: &mut Work,
) {
    let ([work, z], half) = (work, n / 2);
    let z = z.bins();
    // SAFETY: all bins of `z` and `values` are valid; those of `from` the caller promises.
    unsafe {
        let first = from.load(l, 0);
        z.store(l, 0, [l.add(first[0], first[1]), l.sub(first[0], first[1])]);
        for k in 1..half / 2 {
            let [cos, sin] = rotor(k, n);
            let pair = separate(l, from.load(l, k), from.load(l, half - k), 1.0, [sin, cos]);
            z.store(l, k, pair[0]);
            z.store(l, half - k, pair[1]);
        }
        let middle = l.conjugate(from.load(l, half / 2));
        z.store(l, half / 2, l.plus(middle, middle));
        fft(l, (half, false), z.swapped(), work, values.bins().swapped(), 0..half);
    }
}

/// Untangles the transform `z` (`n` bins) of `a + i b`, `a` and `b` real: bin `k` becomes frequency `k` of `a` and bin
/// `n - k` that of `b`; bins 0 and `n/2` have those of `a` and of `b`, both real, as real and imaginary parts.
///
/// # Safety
/// The bins must be valid for reading and writing.
#[inline(always)]
pub(super) unsafe fn untangle<L: Lanes>(l: L, n: usize, z: Bins) {
    let half = l.splat(0.5);
    for k in 1..n / 2 {
        // SAFETY: promised by the caller.
        unsafe {
            let (p, q) = (z.load(l, k), z.load(l, n - k));
            z.store(l, k, [l.mul(half, l.add(p[0], q[0])), l.mul(half, l.sub(p[1], q[1]))]);
            z.store(l, n - k, [l.mul(half, l.add(p[1], q[1])), l.mul(half, l.sub(q[0], p[0]))]);
        }
    }
}

/// The inverse of [`untangle`].
///
/// # Safety
/// The bins must be valid for reading and writing.
#[inline(always)]
pub(super) unsafe fn tangle<L: Lanes>(l: L, n: usize, z: Bins) {
    for k in 1..n / 2 {
        // SAFETY: promised by the caller.
        unsafe {
            let (a, b) = (z.load(l, k), z.load(l, n - k));
            z.store(l, k, l.plus_i(a, b));
            z.store(l, n - k, l.conjugate(l.minus_i(a, b)));
        }
    }
}
