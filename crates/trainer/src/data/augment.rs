//! Random changes of an image that Caffe lacks: a random region of it, turning, and changes of colours.

use super::{order::below, resize::Region};
use crate::spec::ColorJitter;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Attempts to find a region of the area and aspect drawn that fits into the image, as torchvision makes.
const ATTEMPTS: usize = 10;

/// Weights of red, green and blue in grey (ITU-R BT.601).
const GREY: [f32; 3] = [0.299, 0.587, 0.114];

/// A number from `low` to below `high`, of which there are 2^24.
fn uniform(rng: &mut ChaCha8Rng, low: f32, high: f32) -> f32 {
    low + (high - low) * ((rng.next_u32() >> 8) as f32 / (1 << 24) as f32)
}

/// A random part of an image: between `min_area` and all of its area, its longer side at most `max_aspect` times the
/// shorter. An image too long for that gives its middle.
pub(super) fn region(rng: &mut ChaCha8Rng, size: [usize; 2], min_area: f32, max_aspect: f32) -> Region {
    let area = size[0] as f32 * size[1] as f32;
    for _ in 0..ATTEMPTS {
        let part = area * uniform(rng, min_area, 1.0);
        let aspect = uniform(rng, 1.0, max_aspect);
        let [short, long] =
            [part / aspect, part * aspect].map(|square| square.sqrt().round().max(1.0) as usize);
        let [height, width] = if rng.next_u32() & 1 == 0 { [short, long] } else { [long, short] };
        if height <= size[0] && width <= size[1] {
            let [top, left] = [size[0] - height, size[1] - width].map(|room| below(rng, room + 1));
            return Region { top, left, size: [height, width] };
        }
    }
    let short = size[0].min(size[1]);
    let long = (short as f32 * max_aspect) as usize;
    Region::centre(size, size.map(|side| side.min(long.max(short))))
}

/// Turns `from` by up to `degrees` about its middle, into `into`; between pixels lie means, outside is as the border.
pub(super) fn rotate(
    rng: &mut ChaCha8Rng,
    from: &[u8],
    ([height, width], channels): ([usize; 2], usize),
    degrees: f32,
    into: &mut Vec<u8>,
) {
    let (sin, cos) = uniform(rng, -degrees, degrees).to_radians().sin_cos();
    let [bottom, right] = [height, width].map(|side| (side - 1) as f32);
    into.clear();
    into.reserve_exact(from.len());
    for row in 0..height {
        for column in 0..width {
            let (dy, dx) = (row as f32 - bottom / 2.0, column as f32 - right / 2.0);
            let y = (bottom / 2.0 + cos * dy - sin * dx).clamp(0.0, bottom);
            let x = (right / 2.0 + sin * dy + cos * dx).clamp(0.0, right);
            let ([top, left], [down, along]) = ([y as usize, x as usize], [y.fract(), x.fract()]);
            let [below, beside] = [(top + 1).min(height - 1), (left + 1).min(width - 1)];
            for channel in 0..channels {
                let at = |y: usize, x: usize| f32::from(from[(y * width + x) * channels + channel]);
                let [upper, lower] =
                    [top, below].map(|y| at(y, left) + along * (at(y, beside) - at(y, left)));
                into.push(byte(upper + down * (lower - upper)));
            }
        }
    }
}

/// Changes the colours of pixels of red, green and blue, or the greys of those of another number of `channels`.
///
/// Brightness, contrast, saturation and hue are all linear, so that together they are one matrix and one grey to add:
/// each pixel is rounded once, and cut off at black and white once.
pub(super) fn jitter(rng: &mut ChaCha8Rng, jitter: &ColorJitter, pixels: &mut [u8], channels: usize) {
    let mut factor = |part: f32| uniform(rng, (1.0 - part).max(0.0), 1.0 + part);
    let [brightness, contrast, saturation] =
        [jitter.brightness, jitter.contrast, jitter.saturation].map(&mut factor);
    let turn = uniform(rng, -jitter.hue, jitter.hue) * std::f32::consts::TAU;
    let offset = (1.0 - contrast) * brightness * mean_grey(pixels, channels);
    let gain = contrast * brightness;
    if channels != 3 {
        pixels.iter_mut().for_each(|pixel| *pixel = byte(gain * f32::from(*pixel) + offset));
        return;
    }
    let hue = about_grey(turn);
    let saturated = |row: usize, column: usize| {
        (1.0 - saturation) * GREY[column] + if row == column { saturation } else { 0.0 }
    };
    let matrix: [[f32; 3]; 3] = std::array::from_fn(|row| {
        std::array::from_fn(|column| gain * (0..3).map(|k| hue[row][k] * saturated(k, column)).sum::<f32>())
    });
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let [a, b, c] = pixel.map(f32::from);
        *pixel = matrix.map(|[x, y, z]| byte(x * a + y * b + z * c + offset));
    }
}

/// The nearest value that a byte has.
fn byte(value: f32) -> u8 {
    (value + 0.5) as u8
}

/// The mean over all pixels, of three channels weighed by [`GREY`].
fn mean_grey(pixels: &[u8], channels: usize) -> f32 {
    let sum = |channel: usize| {
        pixels[channel..].iter().step_by(channels).map(|&pixel| u64::from(pixel)).sum::<u64>()
    };
    let count = (pixels.len() / channels) as f32;
    match channels {
        3 => (0..3).map(|channel| GREY[channel] * (sum(channel) as f32 / count)).sum(),
        _ => (0..channels).map(sum).sum::<u64>() as f32 / pixels.len() as f32,
    }
}

/// The rotation about the axis of greys by `angle`.
fn about_grey(angle: f32) -> [[f32; 3]; 3] {
    let (sin, cos) = angle.sin_cos();
    let (equal, next) = ((1.0 - cos) / 3.0, sin / 3f32.sqrt());
    std::array::from_fn(|row| {
        std::array::from_fn(|column| match (3 + column - row) % 3 {
            0 => equal + cos,
            1 => equal - next,
            _ => equal + next,
        })
    })
}
