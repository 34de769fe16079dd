//! First values of parameters.

use crate::spec::{Filler, FillerKind, VarianceNorm};
use files::fnv1a;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tensor::TensorType;

/// Fills `values`, a blob of `shape`, as `filler` says, from the stream of `seed` that belongs to `name`: what a blob
/// gets does not depend on what else is in the net.
pub fn fill(values: &mut [f32], shape: &TensorType, filler: Filler, seed: u64, name: &str) {
    let mut rng = tensor::rng::stream(seed, fnv1a(name.bytes()));
    let scale = |variance: f64| (variance / fan(shape, filler.variance_norm)).sqrt() as f32;
    match filler.kind {
        FillerKind::Constant => values.fill(filler.value),
        FillerKind::Uniform => uniform(values, filler.min, filler.max, &mut rng),
        FillerKind::Gaussian => gaussian(values, filler.mean, filler.std, &mut rng),
        FillerKind::Xavier => uniform(values, -scale(3.0), scale(3.0), &mut rng),
        FillerKind::Msra => gaussian(values, 0.0, scale(2.0), &mut rng),
    }
}

/// The number that scales Xavier's and He's distributions. Caffe takes elements / K for the inputs of one output and
/// elements / C for the outputs of one input.
fn fan(shape: &TensorType, norm: VarianceNorm) -> f64 {
    let (fan_in, fan_out) =
        (shape.count() as f64 / shape.n() as f64, shape.count() as f64 / shape.c() as f64);
    match norm {
        VarianceNorm::FanIn => fan_in,
        VarianceNorm::FanOut => fan_out,
        VarianceNorm::Average => (fan_in + fan_out) / 2.0,
    }
}

fn uniform(values: &mut [f32], min: f32, max: f32, rng: &mut ChaCha8Rng) {
    values.iter_mut().for_each(|value| *value = min + (max - min) * rng.random::<f32>());
}

/// Box and Muller's transform of pairs of uniform numbers.
fn gaussian(values: &mut [f32], mean: f32, std: f32, rng: &mut ChaCha8Rng) {
    for pair in values.chunks_mut(2) {
        let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let (radius, angle) = ((-2.0 * u.ln()).sqrt(), 2.0 * std::f64::consts::PI * v);
        for (value, unit) in pair.iter_mut().zip([angle.cos(), angle.sin()]) {
            *value = mean + std * (radius * unit) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(filler: Filler, shape: &[usize], name: &str) -> Vec<f32> {
        let shape = TensorType::f32(shape);
        let mut values = vec![f32::NAN; shape.count()];
        fill(&mut values, &shape, filler, 3, name);
        values
    }

    fn moments(values: &[f32]) -> (f64, f64) {
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>();
        (mean, (square / values.len() as f64).sqrt())
    }

    #[test]
    fn distributions_have_their_moments() {
        // 64 filters of 32 x 5 x 5: n is 800 by FAN_IN.
        let (shape, tolerance) = ([64, 32, 5, 5], 0.02);
        let xavier = filled(Filler { kind: FillerKind::Xavier, ..Filler::constant(0.0) }, &shape, "a");
        let bound = (3.0f32 / 800.0).sqrt();
        assert!(xavier.iter().all(|value| value.abs() <= bound));
        assert!((moments(&xavier).1 / (1.0 / 800.0f64).sqrt() - 1.0).abs() < tolerance);
        let variance_norm = VarianceNorm::FanOut;
        let msra = Filler { kind: FillerKind::Msra, variance_norm, ..Filler::constant(0.0) };
        let msra = filled(msra, &shape, "a");
        assert!((moments(&msra).1 / (2.0 / 1600.0f64).sqrt() - 1.0).abs() < tolerance);
        let gaussian = Filler { kind: FillerKind::Gaussian, mean: 2.0, std: 0.5, ..Filler::constant(0.0) };
        let (mean, std) = moments(&filled(gaussian, &shape, "a"));
        assert!((mean - 2.0).abs() < tolerance && (std / 0.5 - 1.0).abs() < tolerance);
    }

    #[test]
    fn a_blob_draws_from_its_own_stream() {
        let gaussian = Filler { kind: FillerKind::Gaussian, ..Filler::constant(0.0) };
        assert_eq!(filled(gaussian, &[7], "conv1.0"), filled(gaussian, &[7], "conv1.0"));
        assert_ne!(filled(gaussian, &[7], "conv1.0"), filled(gaussian, &[7], "conv2.0"));
        assert_eq!(filled(Filler::constant(0.1), &[3], "b"), [0.1; 3]);
    }
}
