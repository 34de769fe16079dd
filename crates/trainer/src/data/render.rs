//! A labelled set of images that anybody can draw: figures with textures, of any place, size, turn, colour, on noise.
//!
//! A class is a figure with a texture, and neither place nor colour tells it: a linear model of the pixels learns next
//! to nothing, while a convolutional net learns it well. The arithmetic is that of whole numbers and of `f64` with
//! sums, products, quotients and roots alone, which are the same on every machine.

use super::{NetError, Result, order::below};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::{fs, io};
use tensor::rng::{self, mix64};

const FIGURES: [&str; 10] =
    ["disc", "square", "triangle", "ring", "cross", "star", "half", "crescent", "bar", "corner"];
const TEXTURES: [&str; 10] =
    ["plain", "stripes", "fine", "checks", "dots", "slope", "rings", "grid", "cells", "quarters"];

/// Most classes that can be drawn.
pub const MOST_CLASSES: usize = FIGURES.len() * TEXTURES.len();

/// How far noise changes a value, at most.
const NOISE: usize = 24;

/// A set that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendering {
    /// Classes, at most [`MOST_CLASSES`].
    pub classes: usize,
    /// Images of each.
    pub per_class: usize,
    /// Height and width in pixels.
    pub size: usize,
    /// Seed: images are a function of seed, size, class and number.
    pub seed: u64,
}

/// Draws a set as PNG files in a folder of `out` for each class; `progress` is called after each, from several threads.
///
/// # Errors
/// Too many classes, a folder with something in it, or files that cannot be written.
pub fn render(set: &Rendering, out: &Path, progress: impl Fn() + Sync) -> Result<()> {
    if set.classes > MOST_CLASSES {
        let reason = format!("{} classes are more than the {MOST_CLASSES} that can be drawn", set.classes);
        return Err(NetError::Refused(reason));
    }
    if out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(NetError::at(out.display(), "is not empty, and images would mix with what is there"));
    }
    let folders: Vec<PathBuf> = (0..set.classes).map(|class| out.join(set.class_name(class))).collect();
    folders.iter().try_for_each(|folder| fs::create_dir_all(folder).map_err(unwritable(folder)))?;
    (0..set.classes * set.per_class).into_par_iter().try_for_each(|image| {
        let (class, number) = (image / set.per_class, image % set.per_class);
        let file = folders[class].join(format!("{number:05}.png"));
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, set.size as u32, set.size as u32);
        encoder.set_color(png::ColorType::Rgb);
        let encoded = encoder.write_header().and_then(|mut to| to.write_image_data(&set.draw(class, number)));
        encoded.map_err(io::Error::from).and_then(|()| fs::write(&file, bytes)).map_err(unwritable(&file))?;
        progress();
        Ok(())
    })
}

fn unwritable(file: &Path) -> impl Fn(io::Error) -> NetError {
    move |error| NetError::at(file.display(), format!("cannot be written: {error}"))
}

impl Rendering {
    /// The name of a class.
    pub fn class_name(&self, class: usize) -> String {
        let (figure, texture) = parts(class);
        format!("{}-{}", FIGURES[figure], TEXTURES[texture])
    }

    /// The pixels of an image: row, column, and red, green and blue.
    pub fn draw(&self, class: usize, number: usize) -> Vec<u8> {
        let mut rng = rng::stream(self.seed, (class as u64) << 32 | number as u64);
        let (figure, pattern) = parts(class);
        let ground_hue = below(&mut rng, 12);
        // Never the hue of the ground.
        let figure_hue = ground_hue + 3 + below(&mut rng, 7);
        let ground = color(&mut rng, ground_hue, 1.0);
        let side = self.size as f64;
        let radius = side * uniform(&mut rng, 0.24, 0.4);
        let centre: [f64; 2] = std::array::from_fn(|_| uniform(&mut rng, 0.8 * radius, side - 0.8 * radius));
        let [cos, sin] = turn(&mut rng);
        let bright = color(&mut rng, figure_hue, 1.0);
        let beside = below(&mut rng, 2);
        let dark = color(&mut rng, figure_hue + beside, 0.35);
        let [first, second] = if below(&mut rng, 2) == 0 { [bright, dark] } else { [dark, bright] };
        // By which the cells of a texture are told.
        let salt = below(&mut rng, 1 << 30) as u64;
        let color_at = |[row, column]: [f64; 2]| {
            let [y, x] = [row - centre[0], column - centre[1]].map(|away| away / radius);
            let (u, v) = (cos * x - sin * y, sin * x + cos * y);
            is_inside(figure, u, v).then(|| {
                let part = texture(pattern, u, v, salt);
                [0, 1, 2].map(|at| first[at] * (1.0 - part) + second[at] * part)
            })
        };
        let slope: [f64; 2] = std::array::from_fn(|_| uniform(&mut rng, -60.0, 60.0) / side);
        let mut pixels = Vec::with_capacity(3 * self.size * self.size);
        for row in 0..self.size {
            for column in 0..self.size {
                let at = [row as f64 + 0.5, column as f64 + 0.5];
                let shade = slope[0] * (at[0] - side / 2.0) + slope[1] * (at[1] - side / 2.0);
                let behind = ground.map(|value| value + shade);
                for value in color_at(at).unwrap_or(behind) {
                    let noise = below(&mut rng, 2 * NOISE + 1) as f64 - NOISE as f64;
                    pixels.push((value + noise) as u8);
                }
            }
        }
        pixels
    }
}

/// Whether a figure of radius 1 covers a point.
fn is_inside(figure: usize, u: f64, v: f64) -> bool {
    let (square, most, least) = (u * u + v * v, u.abs().max(v.abs()), u.abs().min(v.abs()));
    match figure {
        0 => square <= 0.8,
        1 => most <= 0.75,
        2 => v <= 0.75 && 2.0 * u.abs() <= v + 0.95,
        3 => (0.25..=0.9).contains(&square),
        4 => least <= 0.28 && most <= 0.95,
        5 => u.abs().sqrt() + v.abs().sqrt() <= 1.05,
        6 => square <= 0.95 && v >= -0.05,
        7 => square <= 0.9 && (u - 0.45) * (u - 0.45) + v * v >= 0.5,
        8 => u.abs() <= 1.0 && v.abs() <= 0.32,
        _ => most <= 0.85 && (u <= -0.25 || v >= 0.25),
    }
}

/// How much of the second colour a point has, from 0 to 1.
fn texture(texture: usize, u: f64, v: f64, salt: u64) -> f64 {
    let part = |value: f64| value - value.floor();
    let is_second = match texture {
        0 => false,
        1 => part(1.6 * u) < 0.5,
        2 => part(3.2 * u) < 0.5,
        3 => (part(1.3 * u) < 0.5) != (part(1.3 * v) < 0.5),
        4 => {
            let [x, y] = [u, v].map(|at| part(2.2 * at) - 0.5);
            x * x + y * y < 0.1
        }
        5 => return (0.5 + 0.6 * v).clamp(0.0, 1.0),
        6 => part(2.2 * (u * u + v * v).sqrt()) < 0.5,
        7 => part(2.0 * u) < 0.25 || part(2.0 * v) < 0.25,
        8 => {
            let [x, y] = [u, v].map(|at| ((4.0 * at).floor() + 64.0) as u64);
            mix64(salt ^ mix64(x * 128 + y)) & 1 == 0
        }
        _ => (u > 0.0) != (v > 0.0),
    };
    f64::from(u8::from(is_second))
}

/// Figure and texture of a class: the first classes differ in both.
fn parts(class: usize) -> (usize, usize) {
    (class % FIGURES.len(), (class + class / FIGURES.len()) % TEXTURES.len())
}

/// One of 2^20 numbers from `low` to below `high`.
fn uniform(rng: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * (below(rng, 1 << 20) as f64 / f64::from(1 << 20))
}

/// Cosine and sine of any angle, without asking for either.
fn turn(rng: &mut ChaCha8Rng) -> [f64; 2] {
    let (half, side) = (uniform(rng, -1.0, 1.0), if below(rng, 2) == 0 { 1.0 } else { -1.0 });
    let square = half * half;
    [side * (1.0 - square) / (1.0 + square), side * 2.0 * half / (1.0 + square)]
}

/// Red, green and blue of a hue in twelfths of a turn, paler or darker by chance.
fn color(rng: &mut ChaCha8Rng, hue: usize, light: f64) -> [f64; 3] {
    let (value, pale) = (light * uniform(rng, 130.0, 240.0), uniform(rng, 0.0, 0.5));
    std::array::from_fn(|channel| {
        let away = (hue + 12 - 4 * channel) % 12;
        // 0 to 2 and 10 to 12 twelfths away a channel is full, 4 to 8 it is empty.
        let full = (2.0 - away.min(12 - away) as f64 / 2.0).clamp(0.0, 1.0);
        value * (pale + (1.0 - pale) * full)
    })
}
