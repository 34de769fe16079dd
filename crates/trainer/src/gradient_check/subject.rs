//! A layer that is checked.

use super::case::Case;
use super::convolution::{Installed, install};
use crate::layers::{Declaration, Layer};
use tensor::{Arena, Device, Setting, Space, TensorType, testing::random};

/// The iteration that random layers draw from: the third.
fn iteration(device: &Device) -> Setting<u64> {
    let mut iteration = Setting::new(device).unwrap();
    iteration.set(3).unwrap();
    iteration
}

/// A layer ready to run, and its blobs.
pub(super) struct Subject<'a> {
    pub(super) case: &'a Case,
    pub(super) configuration: Option<&'a Installed>,
    pub(super) layer: Box<dyn Layer>,
    pub(super) device: Device,
    /// Where it runs, made with the first pass.
    pub(super) arena: Option<Arena>,
    /// The iteration that random layers draw from.
    pub(super) iteration: Setting<u64>,
    pub(super) declaration: Declaration,
    pub(super) bottoms: Vec<Vec<f32>>,
    pub(super) learned: Vec<Vec<f32>>,
    /// State as it is before each forward pass.
    pub(super) state: Vec<Vec<f32>>,
    pub(super) scratch: [Space; 2],
    /// For each top, the gradient that reaches it: what its elements weigh in the objective.
    pub(super) weights: Vec<Option<Vec<f32>>>,
}

/// What is differentiated for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Blob {
    Bottom(usize),
    Param(usize),
}

impl<'a> Subject<'a> {
    pub(super) fn new(case: &'a Case, device: &Device, configuration: Option<&'a Installed>) -> Self {
        let device = device.clone();
        let mut layer = case.build(&device);
        let shapes: Vec<TensorType> = case.shapes.iter().map(|dims| TensorType::f32(dims)).collect();
        let mut declaration = layer.declare(&shapes).unwrap();
        declaration.tops.truncate(case.tops);
        let scratch = match configuration {
            None => declaration.scratch,
            Some(configuration) => install(&mut *layer, &device, configuration),
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

    /// Everything that has a gradient.
    pub(super) fn targets(&self) -> Vec<Blob> {
        let bottoms = (0..self.bottoms.len()).filter(|&bottom| self.declaration.gradients[bottom]);
        bottoms.map(Blob::Bottom).chain((0..self.learned.len()).map(Blob::Param)).collect()
    }

    pub(super) fn values(&mut self, blob: Blob) -> &mut Vec<f32> {
        match blob {
            Blob::Bottom(index) => &mut self.bottoms[index],
            Blob::Param(index) => &mut self.learned[index],
        }
    }
}
