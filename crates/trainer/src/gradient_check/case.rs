//! What is checked of a layer.

use crate::layers::{self, BuildOptions, Layer};
use crate::spec::{NetSpec, Phase};
use std::path::Path;
use tensor::{Device, testing::random};

/// One layer with one set of parameters, on bottoms of given shapes.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) type_name: &'static str,
    pub(super) fields: &'static str,
    pub(super) shapes: Vec<Vec<usize>>,
    pub(super) phase: Phase,
    pub(super) tops: usize,
    /// A top that leads to no loss.
    pub(super) dead_top: Option<usize>,
    pub(super) step: f32,
    pub(super) threshold: f64,
    pub(super) kink: Option<f32>,
    pub(super) distinct: bool,
    /// Values of a bottom, where random ones will not do.
    pub(super) given: Option<(usize, Vec<f32>)>,
    /// Persistent state, where there is any.
    pub(super) state: Vec<Vec<f32>>,
}

impl Case {
    pub(super) fn new(type_name: &'static str, fields: &'static str, shapes: &[&[usize]]) -> Self {
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

    /// For a function that is linear in each operand, differences are exact at any step: a large one drowns the
    /// rounding.
    pub(super) fn linear(self) -> Self {
        Self { step: 0.5, threshold: 2e-4, ..self }
    }

    /// Elements within a step of `at` are left out.
    pub(super) fn kink(self, at: f32) -> Self {
        Self { kink: Some(at), ..self }
    }

    /// Any two elements of the bottoms differ by more than two steps, so that no maximum changes hands.
    pub(super) fn distinct(self) -> Self {
        Self { distinct: true, ..self }
    }

    pub(super) fn given(self, bottom: usize, values: &[f32]) -> Self {
        Self { given: Some((bottom, values.to_vec())), ..self }
    }

    pub(super) fn text(&self) -> String {
        let bottoms = (0..self.shapes.len()).map(|index| format!(" bottom: 'x{index}'"));
        let tops = (0..self.tops).map(|index| format!(" top: 'y{index}'"));
        let blobs: String = bottoms.chain(tops).collect();
        format!("layer {{ name: 'l' type: '{}'{blobs} {} }}", self.type_name, self.fields)
    }

    pub(super) fn build(&self, device: &Device) -> Box<dyn Layer> {
        let net = NetSpec::parse(Path::new("case.prototxt"), &self.text()).unwrap().for_phase(self.phase);
        assert_eq!(net.warnings, [], "{}", self.text());
        let options = BuildOptions { device: device.clone(), seed: 5, synthetic: None };
        layers::build(&net, &net.layers[0], &options).unwrap()
    }

    pub(super) fn bottoms(&self) -> Vec<Vec<f32>> {
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
