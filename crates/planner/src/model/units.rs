//! Sizes in bytes, as people write them.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};
use std::{fmt, iter::Sum, str::FromStr};
use thiserror::Error;

/// Segments of the arena start at multiples of this many bytes: enough for every vector unit, and what CUDA's own
/// allocator guarantees, so that a kernel sees the alignment it was measured with.
pub const ARENA_ALIGNMENT: u64 = 256;

/// A number of bytes. 64 bits on every target, as a plan for a large GPU may be made on a 32-bit one (wasm).
///
/// Prints in its natural binary unit, reads binary (`KiB`, `MiB`, `GiB`, `TiB`, or `K`, `Ki` and so on, as GNU's tools
/// have it) and decimal (`KB`, `MB`, `GB`, `TB`) units in any case, with a fraction if wanted; a plain number is bytes.
/// Serialises as that number.
///
/// ```
/// use planner::Bytes;
/// assert_eq!("1.5GiB".parse(), Ok(Bytes(1_610_612_736)));
/// assert_eq!(Bytes(51_275_366).to_string(), "48.9 MiB");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const BINARY_UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest size: no limit at all.
    pub const MAX: Self = Self(u64::MAX);

    /// `count` times 2^20 bytes, or [`Bytes::MAX`] if that is less.
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// The size in MiB, for arithmetic and plots.
    pub fn as_mib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 20)
    }

    /// Difference that stops at zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// What so much takes in an arena: a multiple of [`ARENA_ALIGNMENT`], or [`Bytes::MAX`] if there is none.
    #[inline]
    pub fn aligned(self) -> Self {
        self.0.checked_next_multiple_of(ARENA_ALIGNMENT).map_or(Self::MAX, Self)
    }

    /// The natural unit, followed by the number of bytes where that is rounded: what a reader may type back.
    pub fn exact(self) -> String {
        let rounded = self.to_string();
        match rounded.parse::<Self>() {
            Ok(parsed) if parsed == self => rounded,
            _ => format!("{rounded} ({} bytes)", self.0),
        }
    }
}

impl Add for Bytes {
    type Output = Self;

    /// Stops at [`Bytes::MAX`], which fits no limit but none at all.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0 as f64, 0);
        // In tenths, so that 1023.97 KiB prints as 1 MiB and not as 1024 KiB.
        while (value * 10.0).round() >= 10240.0 && unit + 1 < BINARY_UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let tenths = (value * 10.0).round();
        let decimals = usize::from(tenths % 10.0 != 0.0);
        f.pad(&format!("{:.decimals$} {}", tenths / 10.0, BINARY_UNITS[unit]))
    }
}

impl FromStr for Bytes {
    type Err = Unusable;

    fn from_str(text: &str) -> Result<Self, Unusable> {
        let no_size = |reason: &str| Unusable(format!("\"{text}\" is not a size: {reason}"));
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(Unusable("a size is missing: write bytes or a unit, such as 64MiB".into()));
        }
        if trimmed.starts_with('-') {
            return Err(no_size("it is negative"));
        }
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
        let units = "use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB";
        let no_unit = || no_size(&format!("\"{unit}\" is no unit ({units})"));
        scale(number, multiplier(unit).ok_or_else(no_unit)?).map_err(no_size)
    }
}

/// Bytes in one `unit`, of which none means bytes.
fn multiplier(unit: &str) -> Option<u64> {
    let power = |letter| Some(1 + b"kmgt".iter().position(|&known| known == letter)? as u32);
    match *unit.to_ascii_lowercase().as_bytes() {
        [] | [b'b'] => Some(1),
        [letter] | [letter, b'i'] | [letter, b'i', b'b'] => Some(1024_u64.pow(power(letter)?)),
        [letter, b'b'] => Some(1000_u64.pow(power(letter)?)),
        _ => None,
    }
}

/// `number` (digits, perhaps a point and more digits) times `multiplier` in whole bytes, rounded down; or what is wrong
/// with it. In integers: a float would lose bytes above 2^53.
fn scale(number: &str, multiplier: u64) -> Result<Bytes, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err("it must begin with a number, such as 64MiB or 1.5GiB");
    }
    if multiplier == 1 && number.contains('.') {
        return Err("bytes have no fractions (is a unit missing?)");
    }
    // Eighteen decimals resolve a byte of the largest unit with room to spare; further ones change nothing.
    let digits = &fraction[..fraction.len().min(18)];
    let decimals: u128 = digits.parse().expect("at most eighteen digits");
    let part = decimals * u128::from(multiplier) / 10u128.pow(digits.len() as u32);
    let total = whole.parse().ok().and_then(|whole: u128| whole.checked_mul(multiplier.into()));
    let total = total.and_then(|total| u64::try_from(total.checked_add(part)?).ok());
    total.map(Bytes).ok_or("it is larger than 2^64 - 1 bytes")
}

/// A text that is no size or policy, a measurement that is impossible, or a cost table of another device: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unusable(pub(crate) String);
