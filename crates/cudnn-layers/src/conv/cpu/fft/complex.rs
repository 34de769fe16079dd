//! Discrete Fourier transforms of 8 to 32 points, of sixteen signals at once: one per lane.
//!
//! Forward only, `X[k] = sum over n of x[n] exp(-2 pi i n k / N)`: exchanging real and imaginary parts before and after
//! makes it the inverse (not normalised). All are one radix-4 step followed by a transform that fits the registers.

use tensor::cpu::simd::{LANES, Lanes};

/// One complex value of sixteen signals as it lies in memory: real parts, imaginary parts.
pub(super) type Bin = [[f32; LANES]; 2];

/// Floats of a [`Bin`].
pub(super) const BIN: usize = 2 * LANES;

/// The largest transform.
pub(super) const MAX: usize = 32;

/// Scratch of a transform, whose caller provides it so that it is not cleared every time. Aligned, as an array of floats
/// would not be: vectors across two cache lines cost twice.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Work(pub(super) [Bin; MAX]);

/// A [`Work`] of zeros.
pub(super) const CLEARED: Work = Work([[[0.0; LANES]; 2]; MAX]);

/// Real values of sixteen signals.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Row(pub(super) [[f32; LANES]; MAX]);

impl Row {
    /// Zeros.
    pub(super) const CLEARED: Self = Self([[0.0; LANES]; MAX]);
}

/// A complex value of sixteen signals in registers: real parts, imaginary parts.
pub(super) type C<L> = [<L as Lanes>::V; 2];

/// Complex arithmetic.
pub(super) trait ComplexLanes: Lanes {
    /// The value in memory.
    #[inline(always)]
    fn load_bin(self, from: &Bin) -> C<Self> {
        [self.load(&from[0]), self.load(&from[1])]
    }
    /// Puts `z` into memory.
    #[inline(always)]
    fn store_bin(self, to: &mut Bin, z: C<Self>) {
        self.store(&mut to[0], z[0]);
        self.store(&mut to[1], z[1]);
    }
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

/// `cos(pi k / 16)` of the first quadrant.
const COSINES: [f64; 9] = [
    1.0,
    0.980_785_280_403_230_4,
    0.923_879_532_511_286_7,
    0.831_469_612_302_545_2,
    std::f64::consts::FRAC_1_SQRT_2,
    0.555_570_233_019_602_2,
    0.382_683_432_365_089_8,
    0.195_090_322_016_128_3,
    0.0,
];

/// `cos(2 pi k / 32)`.
const fn cosine(k: usize) -> f32 {
    (match k % MAX {
        k @ 0..=8 => COSINES[k],
        k @ 9..=16 => -COSINES[16 - k],
        k @ 17..=24 => -COSINES[k - 16],
        k => COSINES[MAX - k],
    }) as f32
}

/// `exp(-2 pi i k / 32)` for every `k`.
static ROTORS: [[f32; 2]; MAX] = {
    let mut rotors = [[0.0; 2]; MAX];
    let mut k = 0;
    while k < MAX {
        // -sin(a) = cos(a + a quarter turn)
        rotors[k] = [cosine(k), cosine(k + MAX / 4)];
        k += 1;
    }
    rotors
};

/// `exp(-2 pi i k / n)` for `n` a divisor of 32.
#[inline(always)]
fn rotor(k: usize, n: usize) -> [f32; 2] {
    ROTORS[k * (MAX / n) % MAX]
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

/// The transform of `n` points (8, 16 or 32): values come from `input(index)` and go to `output(frequency, value)`.
///
/// With `short`, only the first quarter of the input is not zero, and only it is asked for.
#[inline(always)]
pub(super) fn fft<L: Lanes>(
    l: L,
    n: usize,
    short: bool,
    Work(work): &mut Work,
    input: impl Fn(usize) -> C<L>,
    mut output: impl FnMut(usize, C<L>),
) {
    let quarter = n / 4;
    for i in 0..quarter {
        let turned = if short {
            [input(i); 4]
        } else {
            fft4(l, [input(i), input(i + quarter), input(i + 2 * quarter), input(i + 3 * quarter)])
        };
        l.store_bin(&mut work[i], turned[0]);
        for k in 1..4 {
            l.store_bin(&mut work[k * quarter + i], l.times(turned[k], rotor(i * k, n)));
        }
    }
    for k in 0..4 {
        let at = &work[k * quarter..][..quarter];
        match quarter {
            2 => {
                let (a, b) = (l.load_bin(&at[0]), l.load_bin(&at[1]));
                output(k, l.plus(a, b));
                output(k + 4, l.minus(a, b));
            }
            4 => {
                let x = [l.load_bin(&at[0]), l.load_bin(&at[1]), l.load_bin(&at[2]), l.load_bin(&at[3])];
                let z = fft4(l, x);
                for (i, z) in z.into_iter().enumerate() {
                    output(k + 4 * i, z);
                }
            }
            _ => {
                let mut x = [[l.zero(); 2]; 8];
                for i in 0..8 {
                    x[i] = l.load_bin(&at[i]);
                }
                let z = fft8(l, x);
                for (i, z) in z.into_iter().enumerate() {
                    output(k + 4 * i, z);
                }
            }
        }
    }
}

/// For `s = a + conj(b)` and `d = a - conj(b)`: `half * s + turn * d` and the conjugate of `half * s - turn * d`.
///
/// This separates the spectra of the even and odd values of a real signal, and joins them again.
#[inline(always)]
fn separate<L: Lanes>(l: L, a: C<L>, b: C<L>, half: f32, turn: [f32; 2]) -> [C<L>; 2] {
    let sum = [l.add(a[0], b[0]), l.sub(a[1], b[1])];
    let sum = if half == 1.0 { sum } else { [l.mul(sum[0], l.splat(half)), l.mul(sum[1], l.splat(half))] };
    let difference = l.times([l.sub(a[0], b[0]), l.add(a[1], b[1])], turn);
    let second = l.minus(sum, difference);
    [l.plus(sum, difference), l.conjugate(second)]
}

/// The transform of `n` (16 or 32) real values `row[..n]`, frequencies 0 to `n/2`. Slot 0 holds the two that are real:
/// frequency 0 as its real and frequency `n/2` as its imaginary part.
#[inline(always)]
pub(super) fn real_fft<L: Lanes>(
    l: L,
    n: usize,
    work: &mut [Work; 2],
    Row(row): &Row,
    mut output: impl FnMut(usize, C<L>),
) {
    let ([work, z], half) = (work, n / 2);
    let input = inlined(
        #[inline(always)]
        |i: usize| [l.load(&row[2 * i]), l.load(&row[2 * i + 1])],
    );
    fft(
        l,
        half,
        false,
        work,
        input,
        #[inline(always)]
        |k, value| l.store_bin(&mut z.0[k], value),
    );
    let first = l.load_bin(&z.0[0]);
    output(0, [l.add(first[0], first[1]), l.sub(first[0], first[1])]);
    for k in 1..half / 2 {
        let [cos, sin] = rotor(k, n);
        let pair = separate(l, l.load_bin(&z.0[k]), l.load_bin(&z.0[half - k]), 0.5, [0.5 * sin, -0.5 * cos]);
        output(k, pair[0]);
        output(half - k, pair[1]);
    }
    output(half / 2, l.conjugate(l.load_bin(&z.0[half / 2])));
}

/// The inverse of [`real_fft`] times `n`: `output(i, [value 2 i, value 2 i + 1])`.
#[inline(always)]
pub(super) fn real_inverse<L: Lanes>(
    l: L,
    n: usize,
    work: &mut [Work; 2],
    input: impl Fn(usize) -> C<L>,
    mut output: impl FnMut(usize, C<L>),
) {
    let ([work, z], half) = (work, n / 2);
    let first = input(0);
    l.store_bin(&mut z.0[0], [l.add(first[0], first[1]), l.sub(first[0], first[1])]);
    for k in 1..half / 2 {
        let [cos, sin] = rotor(k, n);
        let pair = separate(l, input(k), input(half - k), 1.0, [sin, cos]);
        l.store_bin(&mut z.0[k], pair[0]);
        l.store_bin(&mut z.0[half - k], pair[1]);
    }
    let middle = l.conjugate(input(half / 2));
    l.store_bin(&mut z.0[half / 2], l.plus(middle, middle));
    let input = inlined(
        #[inline(always)]
        |k: usize| swap(l.load_bin(&z.0[k])),
    );
    fft(
        l,
        half,
        false,
        work,
        input,
        #[inline(always)]
        |i, value| output(i, swap(value)),
    );
}

/// Real and imaginary parts exchanged: on both sides of a transform, this inverts it.
#[inline(always)]
pub(super) fn swap<V>([re, im]: [V; 2]) -> [V; 2] {
    [im, re]
}

/// Untangles the transform `z[..n]` of `a + i b`, `a` and `b` real: slot `k` becomes frequency `k` of `a`, slot `n - k`
/// that of `b`; slots 0 and `n/2` hold those of `a` and of `b`, both real, as real and imaginary part.
#[inline(always)]
pub(super) fn untangle<L: Lanes>(l: L, n: usize, z: &mut Work) {
    let half = l.splat(0.5);
    for k in 1..n / 2 {
        let (p, q) = (l.load_bin(&z.0[k]), l.load_bin(&z.0[n - k]));
        let a = [l.mul(half, l.add(p[0], q[0])), l.mul(half, l.sub(p[1], q[1]))];
        let b = [l.mul(half, l.add(p[1], q[1])), l.mul(half, l.sub(q[0], p[0]))];
        l.store_bin(&mut z.0[k], a);
        l.store_bin(&mut z.0[n - k], b);
    }
}

/// The inverse of [`untangle`].
#[inline(always)]
pub(super) fn tangle<L: Lanes>(l: L, n: usize, z: &mut Work) {
    for k in 1..n / 2 {
        let (a, b) = (l.load_bin(&z.0[k]), l.load_bin(&z.0[n - k]));
        l.store_bin(&mut z.0[k], l.plus_i(a, b));
        l.store_bin(&mut z.0[n - k], l.conjugate(l.minus_i(a, b)));
    }
}

/// A closure as it is: only arguments of a call may be marked `#[inline(always)]`, without which a closure is compiled on
/// its own, without the instruction set.
#[inline(always)]
pub(super) fn inlined<F>(closure: F) -> F {
    closure
}
