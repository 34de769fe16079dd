//! Reading the values of options.

use clap::builder::{PathBufValueParser, TypedValueParser};
use planner::ConvOp;
use std::{ffi::OsStr, path::PathBuf, str::FromStr};
use tensor::Cpu;

/// Samples per mini-batch: so many, or as many as fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many.
    Samples(usize),
    /// As many as a budget of device memory holds.
    Largest,
}

/// A mini-batch, or `max`.
pub(super) fn batch(text: &str) -> Result<Batch, String> {
    let is_largest = text.eq_ignore_ascii_case("max");
    if is_largest { Ok(Batch::Largest) } else { count::<1_000_000>(text).map(Batch::Samples) }
}

/// Reads a number that `holds`; `must` says what it has to be.
fn number<T: FromStr>(text: &str, must: &str, holds: impl Fn(&T) -> bool) -> Result<T, String> {
    text.parse().ok().filter(holds).ok_or_else(|| format!("it must be {must}"))
}

/// A number above 0, of single or double precision.
pub(super) fn positive<T: FromStr + Copy + Into<f64>>(text: &str) -> Result<T, String> {
    number(text, "a number above 0", |&number: &T| number.into().is_finite() && number.into() > 0.0)
}

/// A part of a whole: from 0 to below 1.
pub(super) fn part(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to below 1", |part| (0.0..1.0).contains(part))
}

/// Microseconds of latency and GB/s of what joins two GPUs.
pub type Link = [f64; 2];

/// A link of NVLink as an H200 has it, of InfiniBand at 400 and Ethernet at 100 Gbit/s, or by numbers.
pub(super) fn link(text: &str) -> Result<Link, String> {
    match text {
        "nvlink" => Ok([10.0, 290.0]),
        "infiniband" => Ok([10.0, 45.0]),
        "ethernet" => Ok([30.0, 11.0]),
        _ => match text.split_once(',').map(|(latency, rate)| [convexity(latency), positive(rate)]) {
            Some([Ok(us @ 0.0..=1e9), Ok(gb_per_s @ 1e-6..=1e12)]) => Ok([us, gb_per_s]),
            _ => {
                Err("choose nvlink, infiniband, ethernet, or microseconds and GB/s such as 10,290".to_owned())
            }
        },
    }
}

/// A number from 0, which may be -0.
pub(super) fn convexity(text: &str) -> Result<f64, String> {
    number(text, "a number from 0", |&number: &f64| number.is_finite() && number >= 0.0).map(f64::abs)
}

/// A whole number from 1 to `MOST`.
pub(super) fn count<const MOST: usize>(text: &str) -> Result<usize, String> {
    number(text, &format!("a whole number from 1 to {MOST}"), |number| (1..=MOST).contains(number))
}

/// Threads: results do not depend on their number, which may exceed this machine's; of many more, most would only wait.
pub(super) fn threads(text: &str) -> Result<usize, String> {
    let most = Cpu::available_threads().max(256);
    number(text, &format!("a whole number from 1 to {most}"), |threads| (1..=most).contains(threads))
}

/// A seed.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    number(text, &format!("a whole number from 0 to {}", u64::MAX), |_| true)
}

/// A file to draw into.
pub(super) fn drawing() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|file| match file.extension().and_then(OsStr::to_str) {
        Some("svg" | "png") => Ok(file),
        _ => Err("its name must end in .svg or .png"),
    })
}

/// An accuracy class.
pub(super) fn max_error(text: &str) -> Result<f32, String> {
    positive(text).map_err(|must| must + ", such as 1e-6")
}

/// Reads the name, in any case, of one of `choices`.
pub(super) fn one_of<T: Copy + Send + Sync, const N: usize>(
    choices: [(&'static str, T); N],
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let found = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        let names = || choices.map(|(name, _)| name).join(" or ");
        found.map(|&(_, choice)| choice).ok_or_else(|| format!("it must be {}", names()))
    }
}

/// Channels, height and width.
pub(super) fn image_shape(text: &str) -> Result<[usize; 3], String> {
    let extents: Option<Vec<usize>> = text.split('x').map(|extent| count::<65536>(extent).ok()).collect();
    let shape = extents.and_then(|extents| <[usize; 3]>::try_from(extents).ok());
    shape.ok_or_else(|| "it must be channels, height and width, such as 3x224x224".to_owned())
}

/// An operation, in any case, with or without a hyphen.
pub(super) fn op(text: &str) -> Result<ConvOp, String> {
    let plain = text.replace(['-', '_'], "");
    let found = ConvOp::ALL.into_iter().find(|op| op.to_string().eq_ignore_ascii_case(&plain));
    found.ok_or_else(|| "it must be forward, backwardData or backwardFilter".to_owned())
}
