//! Both passes of a layer over plain memory, poisoned where the layer may not rely on it.

use super::{Blob, Subject};
use crate::layers::{Backward, Forward, Gradient, Need};
use tensor::{Accumulate, View, ViewMut, arena::ALIGNMENT};

/// The iteration that random layers draw from.
const ITERATION: u64 = 3;

/// What a forward pass leaves.
pub(super) struct Forwarded {
    pub(super) tops: Vec<Vec<f32>>,
    saved: Vec<f32>,
    state: Vec<Vec<f32>>,
}

/// The gradients that a backward pass is asked for.
pub(super) struct Wanted {
    /// Of these.
    pub(super) blobs: Vec<Blob>,
    /// One of them is added to what its blob holds already; all others replace.
    pub(super) prior: Option<(Blob, Vec<f32>)>,
}

impl Wanted {
    pub(super) fn all(blobs: &[Blob]) -> Self {
        Self { blobs: blobs.to_vec(), prior: None }
    }

    /// Memory for the gradient of `blob` if it is wanted.
    fn diff(&self, blob: Blob, len: usize) -> Option<(Vec<f32>, Accumulate)> {
        self.blobs.contains(&blob).then(|| match &self.prior {
            Some((added, prior)) if *added == blob => (prior.clone(), Accumulate::Add),
            _ => (nothing(len), Accumulate::Replace),
        })
    }
}

/// Memory that holds nothing yet.
fn nothing(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

/// Scratch of `len` elements that begins on a cache line, as in an arena, and holds nothing yet.
struct Scratch {
    memory: Vec<f32>,
    len: usize,
}

impl Scratch {
    fn new(len: usize) -> Self {
        Self { memory: nothing(len + ALIGNMENT), len }
    }

    fn view(&mut self) -> ViewMut<'_> {
        let start = self.memory.as_ptr().align_offset(ALIGNMENT * size_of::<f32>());
        ViewMut::from(&mut self.memory[start..start + self.len])
    }
}

fn views(blobs: &[Vec<f32>]) -> Vec<View<'_>> {
    blobs.iter().map(View::from).collect()
}

fn views_mut(blobs: &mut [Vec<f32>]) -> Vec<ViewMut<'_>> {
    blobs.iter_mut().map(ViewMut::from).collect()
}

fn gradients<'a>(diffs: &'a mut [Option<(Vec<f32>, Accumulate)>]) -> Vec<Option<Gradient<'a>>> {
    let gradient = |(diff, accumulate): &'a mut (Vec<f32>, Accumulate)| Gradient {
        diff: diff.into(),
        accumulate: *accumulate,
    };
    diffs.iter_mut().map(|diff| diff.as_mut().map(gradient)).collect()
}

impl Subject<'_> {
    /// The forward pass, with the only bottom in the only top's memory if `in_place`.
    pub(super) fn forward(&mut self, in_place: bool) -> Forwarded {
        let mut tops: Vec<Vec<f32>> = match in_place {
            true => vec![self.bottoms[0].clone()],
            false => self.declaration.tops.iter().map(|shape| nothing(shape.count())).collect(),
        };
        let (mut state, mut saved) = (self.state.clone(), nothing(self.declaration.saved_len));
        let mut scratch = Scratch::new(self.scratch_len[0]);
        let io = Forward {
            iteration: ITERATION,
            bottoms: if in_place { Vec::new() } else { views(&self.bottoms) },
            tops: views_mut(&mut tops),
            params: views(&self.learned),
            state: views_mut(&mut state),
            saved: (&mut saved).into(),
            scratch: scratch.view(),
        };
        self.layer.forward(&self.device, io).unwrap();
        Forwarded { tops, saved, state }
    }

    /// The gradients of the blobs that are wanted, bottoms first.
    pub(super) fn backward(&mut self, forwarded: &Forwarded, wanted: &Wanted) -> Vec<Vec<f32>> {
        let mut bottom_diffs: Vec<_> = (self.bottoms.iter().enumerate())
            .map(|(index, x)| wanted.diff(Blob::Bottom(index), x.len()))
            .collect();
        let mut param_diffs: Vec<_> = (self.learned.iter().enumerate())
            .map(|(index, w)| wanted.diff(Blob::Param(index), w.len()))
            .collect();
        let top_diffs = match self.declaration.loss_weights[..] {
            [] => self.weights.iter().map(|weights| weights.as_ref().map(View::from)).collect(),
            // Nobody gives a loss a gradient: it knows its weight.
            _ => vec![None; self.weights.len()],
        };
        let unwanted = match bottom_diffs[0] {
            None if self.declaration.always_propagates => self.bottoms[0].len(),
            _ => 0,
        };
        let (tops, mut scratch) =
            (self.declared_tops(forwarded), Scratch::new(self.scratch_len[1] + unwanted));
        let io = Backward {
            iteration: ITERATION,
            bottoms: if self.declaration.needs_bottom { views(&self.bottoms) } else { Vec::new() },
            tops: views(&tops),
            top_diffs,
            bottom_diffs: gradients(&mut bottom_diffs),
            params: views(&self.learned),
            param_diffs: gradients(&mut param_diffs),
            state: views(&forwarded.state),
            saved: (&forwarded.saved).into(),
            scratch: scratch.view(),
        };
        self.layer.backward(&self.device, io).unwrap();
        let bottoms = bottom_diffs.into_iter().enumerate().map(|(index, diff)| (Blob::Bottom(index), diff));
        let params = param_diffs.into_iter().enumerate().map(|(index, diff)| (Blob::Param(index), diff));
        let asked = bottoms.chain(params).filter(|(blob, _)| wanted.blobs.contains(blob));
        asked.map(|(_, diff)| diff.expect("it was asked for").0).collect()
    }

    /// The gradient of the only bottom, written over that of the only top.
    pub(super) fn backward_in_place(&mut self, forwarded: &Forwarded) -> Vec<f32> {
        let tops = self.declared_tops(forwarded);
        let mut diff = self.weights[0].clone().expect("its top leads to the loss");
        let gradient = Gradient { diff: (&mut diff).into(), accumulate: Accumulate::Replace };
        let mut scratch = Scratch::new(self.scratch_len[1]);
        let io = Backward {
            iteration: ITERATION,
            bottoms: Vec::new(),
            tops: views(&tops),
            top_diffs: Vec::new(),
            bottom_diffs: vec![Some(gradient)],
            params: views(&self.learned),
            param_diffs: Vec::new(),
            state: Vec::new(),
            saved: (&forwarded.saved).into(),
            scratch: scratch.view(),
        };
        self.layer.backward(&self.device, io).unwrap();
        diff
    }

    /// What backward sees of the tops: as much as the layer declared.
    fn declared_tops(&self, forwarded: &Forwarded) -> Vec<Vec<f32>> {
        let sign = |y: f32| if y > 0.0 { 0.25 } else { -0.75 };
        match self.declaration.needs_top {
            Need::Nothing => Vec::new(),
            Need::Sign => forwarded.tops.iter().map(|top| top.iter().map(|&y| sign(y)).collect()).collect(),
            Need::Values => forwarded.tops.clone(),
        }
    }
}
