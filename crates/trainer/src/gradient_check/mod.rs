//! The gradient checker: every layer's backward pass against differences of its forward pass.
//!
//! The objective is a sum of the tops with fixed random weights (of a loss: the loss itself), added up in double
//! precision. Each element of each bottom and parameter is moved by a step in both directions; half the difference of
//! the two objectives over the step is what backward has to find. Errors count relative to the gradient's size, but to
//! no less than
//! 1. Where a function has a kink, the case says so, and elements that would step over it are left out.
//!
//! A layer gets what its declaration asks for and nothing else: views that it did not declare are missing, of a top
//! whose sign it needs only the sign is right, and memory that holds nothing yet holds NaN.

mod case;
mod cases;
mod convolution;
mod run;
mod subject;

use case::Case;
use convolution::configurations;
use run::{Forwarded, Wanted};
use subject::{Blob, Subject};
use tensor::testing::{difference_tolerance, random};
use tensor::{Device, TensorType};

impl Case {
    /// Checks the layer on `device`, a convolution in several configurations.
    fn check(&self, device: &Device) {
        let mut layer = self.build(device);
        let shapes: Vec<TensorType> = self.shapes.iter().map(|dims| TensorType::f32(dims)).collect();
        layer.declare(&shapes).unwrap_or_else(|error| panic!("{}: {error}", self.text()));
        let configurations = match layer.convolution() {
            None => vec![None],
            Some(planned) => configurations(device, planned).into_iter().map(Some).collect(),
        };
        for configuration in &configurations {
            Subject::new(self, device, configuration.as_ref()).check();
        }
    }
}

impl Subject<'_> {
    fn check(&mut self) {
        let forwarded = self.forward(false);
        let targets = self.targets();
        let gradients = self.backward(&forwarded, &Wanted::all(&targets));
        for (&target, gradient) in targets.iter().zip(&gradients) {
            self.compare(target, gradient);
            self.check_alone(&forwarded, target, gradient);
            self.check_added(&forwarded, target, gradient);
        }
        if self.declaration.in_place.is_some() {
            self.check_in_place(&forwarded, &gradients[0]);
        }
    }

    /// Compares with central differences.
    fn compare(&mut self, blob: Blob, gradient: &[f32]) {
        let (step, threshold) = (self.case.step, self.threshold());
        let mut checked = 0;
        for (index, &found) in gradient.iter().enumerate() {
            let value = self.values(blob)[index];
            if self.case.kink.is_some_and(|at| (value - at).abs() <= step) && matches!(blob, Blob::Bottom(_))
            {
                continue;
            }
            let mut at = |moved: f32| {
                self.values(blob)[index] = moved;
                (self.objective(), f64::from(moved))
            };
            let (above, below) = (at(value + step), at(value - step));
            self.values(blob)[index] = value;
            // The distance that was really gone: adding a step to a number rounds.
            let expected = (above.0 - below.0) / (above.1 - below.1);
            let found = f64::from(found);
            let scale = found.abs().max(expected.abs()).max(1.0);
            assert!(
                (found - expected).abs() <= threshold * scale,
                "{blob:?} element {index}: backward says {found}, differences say {expected}\n{}",
                self.describe()
            );
            checked += 1;
        }
        assert!(checked * 2 > gradient.len(), "most elements are away from kinks: {}", self.describe());
    }

    fn objective(&mut self) -> f64 {
        let tops = self.tops_again();
        let weighted = |(top, weights): (&Vec<f32>, &Option<Vec<f32>>)| -> f64 {
            let weights = weights.iter().flatten();
            top.iter().zip(weights).map(|(&y, &weight)| f64::from(y) * f64::from(weight)).sum()
        };
        tops.iter().zip(&self.weights).map(weighted).sum()
    }

    /// The same gradient where nothing else is wanted: of a frozen layer, or below the first layer that learns.
    fn check_alone(&mut self, forwarded: &Forwarded, blob: Blob, gradient: &[f32]) {
        let wanted = Wanted { blobs: vec![blob], prior: None };
        let alone = self.backward(forwarded, &wanted).swap_remove(0);
        if self.is_deterministic() {
            assert_eq!(alone, gradient, "{blob:?} alone: {}", self.describe());
        }
        for (&alone, &gradient) in alone.iter().zip(gradient) {
            assert!(
                (alone - gradient).abs() <= 1e-5 * gradient.abs().max(1.0),
                "{blob:?} alone is {alone} instead of {gradient}: {}",
                self.describe()
            );
        }
    }

    /// Added to what is there already.
    fn check_added(&mut self, forwarded: &Forwarded, blob: Blob, gradient: &[f32]) {
        let prior = random(gradient.len(), 77);
        let mut wanted = Wanted::all(&self.targets());
        wanted.prior = Some((blob, prior.clone()));
        let place = wanted.blobs.iter().position(|&other| other == blob).expect("a target");
        let sums = self.backward(forwarded, &wanted).swap_remove(place);
        for (index, ((&sum, &prior), &gradient)) in sums.iter().zip(&prior).zip(gradient).enumerate() {
            let expected = f64::from(prior) + f64::from(gradient);
            let error = (f64::from(sum) - expected).abs();
            assert!(
                error <= 1e-5 * expected.abs().max(1.0),
                "{blob:?} element {index}: {prior} + {gradient} gave {sum}\n{}",
                self.describe()
            );
        }
    }

    /// The top over the bottom, and the bottom's gradient over the top's.
    fn check_in_place(&mut self, forwarded: &Forwarded, gradient: &[f32]) {
        let in_place = self.forward(true);
        assert_eq!(in_place.tops, forwarded.tops, "forward in place: {}", self.describe());
        let found = self.backward_in_place(&in_place);
        assert_eq!(found, gradient, "backward in place: {}", self.describe());
    }

    /// How far backward and differences may lie apart: a GPU's algorithms differ more in their rounding than the
    /// processor's.
    fn threshold(&self) -> f64 {
        match (&self.device, self.configuration) {
            (Device::Cuda(_), Some(configuration)) => {
                let error = configuration.iter().map(|kernel| kernel.max_error()).fold(0.0, f32::max);
                self.case.threshold.max(difference_tolerance(error))
            }
            _ => self.case.threshold,
        }
    }

    /// Whether every pass gives the same bits.
    fn is_deterministic(&self) -> bool {
        self.configuration.is_none_or(|kernels| kernels.iter().all(|kernel| kernel.deterministic()))
    }

    fn describe(&self) -> String {
        let configuration = self.configuration.map(|[y, dx, dw]| format!("\ny: {y}, dx: {dx}, dw: {dw}"));
        format!("{} on {:?}{}", self.case.text(), self.case.shapes, configuration.unwrap_or_default())
    }
}
