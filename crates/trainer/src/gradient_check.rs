//! The gradient checker: every layer's backward pass against differences of its forward pass.
//!
//! The objective is a sum of the tops with fixed random weights (of a loss: the loss itself), added up in double precision.
//! Each element of each bottom and parameter is moved by a step in both directions; half the difference of the two
//! objectives over the step is what backward has to find. Errors count relative to the gradient's size, but to no less than
//! 1. Where a function has a kink, the case says so, and elements that would step over it are left out.
//!
//! A layer gets what its declaration asks for and nothing else: views that it did not declare are missing, of a top whose
//! sign it needs only the sign is right, and memory that holds nothing yet holds NaN.

mod cases;
mod convolution;
mod run;

use crate::{
    layers::{self, BuildOptions, Declaration, InPlace, Layer},
    spec::{NetSpec, Phase},
};
use convolution::{Installed, configurations, install};
use run::{Forwarded, Wanted, iteration};
use std::path::Path;
use tensor::{
    Arena, Device, Setting, Space, TensorType,
    testing::{difference_tolerance, random},
};

/// One layer with one set of parameters, on bottoms of given shapes.
#[derive(Clone, Debug)]
struct Case {
    type_name: &'static str,
    fields: &'static str,
    shapes: Vec<Vec<usize>>,
    phase: Phase,
    tops: usize,
    /// A top that leads to no loss.
    dead_top: Option<usize>,
    step: f32,
    threshold: f64,
    kink: Option<f32>,
    distinct: bool,
    /// Values of a bottom, where random ones will not do.
    given: Option<(usize, Vec<f32>)>,
    /// Persistent state, where there is any.
    state: Vec<Vec<f32>>,
}

impl Case {
    fn new(type_name: &'static str, fields: &'static str, shapes: &[&[usize]]) -> Self {
        Self {
            type_name,
            fields,
            shapes: shapes.iter().map(|shape| shape.to_vec()).collect(),
            phase: Phase::Train,
            tops: 1,
            dead_top: None,
            step: 1e-2,
            threshold: 2e-3,
            kink: None,
            distinct: false,
            given: None,
            state: Vec::new(),
        }
    }

    /// For a function that is linear in each operand, differences are exact at any step: a large one drowns the rounding.
    fn linear(self) -> Self {
        Self { step: 0.5, threshold: 2e-4, ..self }
    }

    /// Elements within a step of `at` are left out.
    fn kink(self, at: f32) -> Self {
        Self { kink: Some(at), ..self }
    }

    /// Any two elements of the bottoms differ by more than two steps, so that no maximum changes hands.
    fn distinct(self) -> Self {
        Self { distinct: true, ..self }
    }

    fn given(self, bottom: usize, values: &[f32]) -> Self {
        Self { given: Some((bottom, values.to_vec())), ..self }
    }

    fn text(&self) -> String {
        let bottoms = (0..self.shapes.len()).map(|index| format!(" bottom: 'x{index}'"));
        let tops = (0..self.tops).map(|index| format!(" top: 'y{index}'"));
        let blobs: String = bottoms.chain(tops).collect();
        format!("layer {{ name: 'l' type: '{}'{blobs} {} }}", self.type_name, self.fields)
    }

    fn build(&self, device: &Device) -> Box<dyn Layer> {
        let net = NetSpec::parse(Path::new("case.prototxt"), &self.text()).unwrap().for_phase(self.phase);
        assert_eq!(net.warnings, [], "{}", self.text());
        let options = BuildOptions { device: device.clone(), seed: 5, synthetic: None };
        layers::build(&net, &net.layers[0], &options).unwrap()
    }

    fn bottoms(&self) -> Vec<Vec<f32>> {
        let lens: Vec<usize> = self.shapes.iter().map(|shape| shape.iter().product()).collect();
        let mut values: Vec<f32> = random(lens.iter().sum(), 11);
        if self.distinct {
            values = spread(&values, 4.0 * self.step);
        }
        let mut rest = &values[..];
        let mut bottoms: Vec<Vec<f32>> = Vec::new();
        for len in lens {
            let (bottom, behind) = rest.split_at(len);
            bottoms.push(bottom.to_vec());
            rest = behind;
        }
        if let Some((index, values)) = &self.given {
            assert_eq!(values.len(), bottoms[*index].len(), "{}", self.text());
            bottoms[*index].clone_from(values);
        }
        bottoms
    }

    /// Checks the layer on `device`, a convolution in several configurations.
    fn check(&self, device: &Device) {
        let mut layer = self.build(device);
        let shapes: Vec<TensorType> = self.shapes.iter().map(|dims| TensorType::f32(dims)).collect();
        layer.declare(&shapes).unwrap_or_else(|error| panic!("{}: {error}", self.text()));
        let configurations = match layer.planned() {
            None => vec![None],
            Some(planned) => configurations(device, planned).into_iter().map(Some).collect(),
        };
        for configuration in &configurations {
            Subject::new(self, device, configuration.as_ref()).check();
        }
    }
}

/// The ranks of `values`, `gap` apart and centred on 0: a permutation without ties.
fn spread(values: &[f32], gap: f32) -> Vec<f32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranked = vec![0.0; values.len()];
    for (rank, index) in order.into_iter().enumerate() {
        ranked[index] = gap * (rank as f32 - values.len() as f32 / 2.0);
    }
    ranked
}

/// A layer ready to run, and its blobs.
struct Subject<'a> {
    case: &'a Case,
    configuration: Option<&'a Installed>,
    layer: Box<dyn Layer>,
    device: Device,
    /// Where it runs, made with the first pass.
    arena: Option<Arena>,
    /// The iteration that random layers draw from.
    iteration: Setting<u64>,
    declaration: Declaration,
    bottoms: Vec<Vec<f32>>,
    learned: Vec<Vec<f32>>,
    /// State as it is before each forward pass.
    state: Vec<Vec<f32>>,
    scratch: [Space; 2],
    /// For each top, the gradient that reaches it: what its elements weigh in the objective.
    weights: Vec<Option<Vec<f32>>>,
}

/// What is differentiated for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blob {
    Bottom(usize),
    Param(usize),
}

impl<'a> Subject<'a> {
    fn new(case: &'a Case, device: &Device, configuration: Option<&'a Installed>) -> Self {
        let device = device.clone();
        let mut layer = case.build(&device);
        let shapes: Vec<TensorType> = case.shapes.iter().map(|dims| TensorType::f32(dims)).collect();
        let declaration = layer.declare(&shapes).unwrap();
        let scratch = match configuration {
            None => declaration.scratch,
            Some(configuration) => install(layer.as_mut(), &device, configuration),
        };
        let params = |learned: bool| declaration.params.iter().filter(move |param| param.learned == learned);
        let learned: Vec<Vec<f32>> =
            params(true).zip(20..).map(|(param, seed)| random(param.shape.count(), seed)).collect();
        let state: Vec<usize> = params(false).map(|param| param.shape.count()).collect();
        assert_eq!(state, case.state.iter().map(Vec::len).collect::<Vec<_>>(), "state of {}", case.text());
        let weights = (declaration.tops.iter().enumerate())
            .map(|(top, shape)| match declaration.loss_weights.get(top) {
                Some(&weight) => Some(vec![weight; shape.count()]),
                None => (Some(top) != case.dead_top).then(|| random(shape.count(), 40 + top as u64)),
            })
            .collect();
        let (bottoms, state) = (case.bottoms(), case.state.clone());
        Self {
            case,
            configuration,
            layer,
            iteration: iteration(&device),
            device,
            arena: None,
            declaration,
            bottoms,
            learned,
            state,
            scratch,
            weights,
        }
    }

    fn check(&mut self) {
        let forwarded = self.forward(false);
        let targets = self.targets();
        let gradients = self.backward(&forwarded, &Wanted::all(&targets));
        for (&target, gradient) in targets.iter().zip(&gradients) {
            self.compare(target, gradient);
            self.check_alone(&forwarded, target, gradient);
            self.check_added(&forwarded, target, gradient);
        }
        if self.declaration.in_place != InPlace::No {
            self.check_in_place(&forwarded, &gradients[0]);
        }
    }

    /// Everything that has a gradient.
    fn targets(&self) -> Vec<Blob> {
        let bottoms = (0..self.bottoms.len()).filter(|&bottom| self.declaration.gradients[bottom]);
        bottoms.map(Blob::Bottom).chain((0..self.learned.len()).map(Blob::Param)).collect()
    }

    fn values(&mut self, blob: Blob) -> &mut Vec<f32> {
        match blob {
            Blob::Bottom(index) => &mut self.bottoms[index],
            Blob::Param(index) => &mut self.learned[index],
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

    /// How far backward and differences may lie apart: a GPU's algorithms differ more in their rounding than the processor's.
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
