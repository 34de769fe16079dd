//! What elements are, and in which order they lie.

use std::fmt;

/// The type of elements.
///
/// The planner, which knows no tensors, has a type of its own for what is a part of a kernel's name in tables and
/// plans; `cudnn_layers::conv` translates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32: everything is computed in it.
    #[default]
    F32,
    /// Its upper half, in which a GPU may keep feature maps.
    Bf16,
    /// Bytes that only the operation which wrote them can read: masks, saved state, scratch.
    U8,
}

impl ElementType {
    /// Bytes of an element, and what its address is a multiple of.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// The order of an image's elements in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AxisOrder {
    /// Sample by sample, channel by channel, row by row.
    #[default]
    Nchw,
    /// Sample by sample, row by row, pixel by pixel, all channels of a pixel side by side. Filters likewise: K, R, S,
    /// C. Of a blob of any rank, axis 1 comes last.
    Nhwc,
}

/// What a run of memory holds: the tag of every view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Format {
    /// The elements' type.
    pub dtype: ElementType,
    /// Their order.
    pub layout: AxisOrder,
}

impl Format {
    /// Single precision, NCHW.
    pub const F32: Self = Self { dtype: ElementType::F32, layout: AxisOrder::Nchw };
    /// BF16, NCHW.
    pub const BF16: Self = Self { dtype: ElementType::Bf16, layout: AxisOrder::Nchw };
    /// Bytes.
    pub const U8: Self = Self { dtype: ElementType::U8, layout: AxisOrder::Nchw };

    /// The same elements in this order.
    pub const fn in_order(self, layout: AxisOrder) -> Self {
        Self { layout, ..self }
    }
}

/// As `BF16 in NHWC`, for people.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = match self.dtype {
            ElementType::F32 => "FP32",
            ElementType::Bf16 => "BF16",
            ElementType::U8 => "bytes",
        };
        let layout = match self.layout {
            AxisOrder::Nchw => "NCHW",
            AxisOrder::Nhwc => "NHWC",
        };
        write!(f, "{dtype} in {layout}")
    }
}

/// A number of BF16 on the host: the sign, exponent and first 7 digits of an `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(transparent)]
pub struct Bf16(u16);

/// Rounds to the nearest, of two equally near ones to the even; a NaN stays one.
impl From<f32> for Bf16 {
    fn from(value: f32) -> Self {
        let bits = value.to_bits();
        match value.is_nan() {
            true => Self((bits >> 16) as u16 | 0x40),
            false => Self(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16),
        }
    }
}

impl From<Bf16> for f32 {
    fn from(Bf16(bits): Bf16) -> Self {
        Self::from_bits(u32::from(bits) << 16)
    }
}

/// A type that elements have on the host.
pub trait Element: bytemuck::Pod {
    /// What memory holds that is made of them, in NCHW.
    const FORMAT: Format;
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
}

impl Element for Bf16 {
    const FORMAT: Format = Format::BF16;
}

impl Element for u8 {
    const FORMAT: Format = Format::U8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_the_nearest_of_its_neighbours() {
        let round = |value: f32| f32::from(Bf16::from(value));
        for (value, nearest) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0), // halfway: to the even one
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.01 / 256.0, 1.0 + 2.0 / 256.0),
            (-3.0e38, -3.004e38),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
            (-0.0, -0.0),
        ] {
            assert!(
                (round(value) - nearest).abs() <= nearest.abs() * 1e-4 || round(value) == nearest,
                "{value}"
            );
        }
        assert!(round(f32::from_bits(0x7f80_0001)).is_nan(), "a NaN whose upper half is infinity");
        assert_eq!(round(-0.0).to_bits(), (-0.0f32).to_bits());
    }
}
