//! One convolution on the command line.

use super::ShapeSpec;
use planner::ConvShape;

/// What can be said of a convolution, and what it means.
const KEYS: &str = "n, c, h, w, k, r, s, pad, stride, dilation, groups, name";

/// Reads `n=256,c=64,h=27,w=27,k=192,r=5,s=5,pad=2`: samples, input channels, height and width, filters and their
/// height and width; then what may be left out: `pad`, `stride` and `dilation`, one number or two as in `2x1`
/// (vertical, horizontal), `groups`, and a `name`. `w` and `s` are those of a square if left out.
///
/// # Errors
/// A sentence that names what is missing, unknown or no number.
pub fn parse_shape(text: &str) -> Result<ShapeSpec, String> {
    let mut values: Vec<(&str, &str)> = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!("\"{part}\" is no KEY=VALUE; write such as n=256,c=64,h=27,w=27,k=192,r=5,s=5,pad=2")
        })?;
        let key = key.trim();
        if !KEYS.split(", ").any(|known| known == key) {
            return Err(format!("\"{key}\" is unknown; the keys are {KEYS}"));
        }
        if values.iter().any(|&(other, _)| other == key) {
            return Err(format!("{key} is given twice"));
        }
        values.push((key, value.trim()));
    }
    let value = |key: &str| values.iter().find(|(other, _)| *other == key).map(|(_, value)| *value);
    let number = |key: &str| value(key).map(|text| whole(key, text)).transpose();
    let needed = |key: &str| number(key)?.ok_or_else(|| format!("{key}= is missing"));
    let pair = |key: &str, default: u32| value(key).map_or(Ok([default; 2]), |text| two(key, text));
    let (h, r) = (needed("h")?, needed("r")?);
    let shape = ConvShape {
        c: needed("c")?,
        h,
        w: number("w")?.unwrap_or(h),
        k: needed("k")?,
        r,
        s: number("s")?.unwrap_or(r),
        pad: pair("pad", 0)?,
        stride: pair("stride", 1)?,
        dilation: pair("dilation", 1)?,
        groups: number("groups")?.unwrap_or(1),
        pack: 0,
    };
    let name = value("name").filter(|name| !name.is_empty()).unwrap_or("conv").to_owned();
    let convolution = ShapeSpec { name, shape, mini_batch: needed("n")? };
    convolution.check()?;
    Ok(convolution)
}

fn whole(key: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{key}={text} is no whole number from 0 to 4294967295"))
}

fn two(key: &str, text: &str) -> Result<[u32; 2], String> {
    match text.split_once('x') {
        Some((vertical, horizontal)) => Ok([whole(key, vertical)?, whole(key, horizontal)?]),
        None => Ok([whole(key, text)?; 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_with_its_defaults() {
        let conv2 = parse_shape("n=256,c=64,h=27,k=192,r=5,pad=2").unwrap();
        assert_eq!((conv2.name.as_str(), conv2.mini_batch), ("conv", 256));
        assert_eq!(conv2.shape.to_string(), "64x27x27, 192 filters 5x5, pad 2");
        let odd = parse_shape("name=odd, n=1, c=4, h=9, w=7, k=6, r=3, s=1, pad=2x0, stride=2x1, groups=2")
            .unwrap();
        assert_eq!(odd.shape.to_string(), "4x9x7, 6 filters 3x1, pad 2x0, stride 2x1, 2 groups");
        assert_eq!(odd.name, "odd");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("", "\"\" is no KEY=VALUE"),
            ("256", "\"256\" is no KEY=VALUE"),
            ("n=1,q=2", "\"q\" is unknown"),
            ("n=1,n=2", "n is given twice"),
            ("n=1,c=1,h=1,k=1", "r= is missing"),
            ("n=-1,c=1,h=1,k=1,r=1", "n=-1 is no whole number from 0 to 4294967295"),
            ("n=1,c=1,h=1,k=1,r=1,pad=1x", "pad= is no whole number from 0 to 4294967295"),
            ("n=1,c=1,h=1,k=1,r=3", "a window of 3"),
            ("n=0,c=1,h=1,k=1,r=1", "the mini-batch must be at least 1"),
            ("n=1,c=3,h=1,k=1,r=1,groups=2", "2 groups"),
            ("n=4294967295,c=1,h=1,k=1,r=1", "4294967295 is more than"),
            ("n=1000000,c=1000000,h=1000000,k=1,r=1", "more than any machine holds"),
        ] {
            let message = parse_shape(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
