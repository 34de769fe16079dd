//! Both passes of a layer in an arena of its device, poisoned where the layer may not rely on it.

use super::subject::{Blob, Subject};
use crate::layers::{Backward, Forward, Need, Out};
use crate::testing::set;
use std::ops::Range;
use tensor::{Accumulate, Arena, Cursor, Device, Format, Space, Span, View, ViewMut};

/// What a forward pass leaves.
pub(super) struct Forwarded {
    pub(super) tops: Vec<Vec<f32>>,
    saved: Vec<f32>,
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

    /// What the gradient of `blob` holds before, if it is wanted.
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

/// The blobs of one pass, those to read and those to write each in the order in which it takes them, with what they
/// hold before.
#[derive(Default)]
struct Blobs {
    reads: Vec<Vec<f32>>,
    writes: Vec<Vec<f32>>,
}

impl Blobs {
    fn reads<'b>(&mut self, blobs: impl IntoIterator<Item = &'b Vec<f32>>) -> usize {
        let before = self.reads.len();
        self.reads.extend(blobs.into_iter().cloned());
        self.reads.len() - before
    }

    fn writes(&mut self, blobs: impl IntoIterator<Item = Vec<f32>>) -> Range<usize> {
        let start = self.writes.len();
        self.writes.extend(blobs);
        start..self.writes.len()
    }

    /// Has `pass` run on the blobs and on scratch, and returns what those to write hold after it. The scratch holds
    /// nothing yet if `poison`, otherwise what the pass before left there.
    fn run(
        self,
        device: &Device,
        arena: &mut Option<Arena>,
        scratch: Space,
        poison: bool,
        pass: impl FnOnce(Leases<'_>),
    ) -> Vec<Vec<f32>> {
        let mut cursor = Cursor::default();
        // One element at least between any two.
        let mut place = |values: &Vec<f32>| cursor.take(Format::F32, values.len() + 1).slice(0..values.len());
        let reads: Vec<Span> = self.reads.iter().map(&mut place).collect();
        let mut writes: Vec<Span> = self.writes.iter().map(&mut place).collect();
        let blobs = Span::bytes(0, cursor.end()).tagged(Format::F32);
        let scratch = cursor.take(Format::U8, scratch.bytes());
        if arena.as_ref().is_none_or(|arena| arena.len() < cursor.end()) {
            *arena = Some(Arena::on(device, cursor.end()).unwrap());
        }
        let arena = arena.as_mut().expect("made above");
        let elements = |span: &Span| span.offset / size_of::<f32>()..span.end() / size_of::<f32>();
        set(arena, blobs, |all: &mut [f32]| {
            all.fill(f32::NAN);
            let values = self.reads.iter().chain(&self.writes);
            for (span, values) in reads.iter().chain(&writes).zip(values) {
                all[elements(span)].copy_from_slice(values);
            }
        });
        if poison {
            arena.set(scratch, 0xff).unwrap();
        }
        writes.push(scratch);
        let (read, written) = arena.lease_all(&reads, &writes).unwrap();
        pass(Leases { reads: read.into_iter(), writes: written.into_iter() });
        device.check().unwrap();
        let after = arena.read::<f32>(blobs).unwrap();
        writes[..self.writes.len()].iter().map(|span| after[elements(span)].to_vec()).collect()
    }
}

/// Views of the blobs, taken in their order; the scratch is the last to be written.
struct Leases<'a> {
    reads: std::vec::IntoIter<View<'a>>,
    writes: std::vec::IntoIter<ViewMut<'a>>,
}

impl<'a> Leases<'a> {
    fn read(&mut self) -> View<'a> {
        self.reads.next().expect("a blob to read comes here")
    }

    fn write(&mut self) -> ViewMut<'a> {
        self.writes.next().expect("a blob to write comes here")
    }

    fn reads(&mut self, count: usize) -> Vec<View<'a>> {
        self.reads.by_ref().take(count).collect()
    }

    fn writes(&mut self, range: &Range<usize>) -> Vec<ViewMut<'a>> {
        self.writes.by_ref().take(range.len()).collect()
    }

    fn gradients(&mut self, wanted: &[Option<Accumulate>]) -> Vec<Option<Out<'a>>> {
        let mut gradient = |accumulate: &Accumulate| Out { to: self.write(), accumulate: *accumulate };
        wanted.iter().map(|wanted| wanted.as_ref().map(&mut gradient)).collect()
    }
}

/// What wanted gradients hold before, and how each is to be written.
fn split_diffs(diffs: Vec<Option<(Vec<f32>, Accumulate)>>) -> (Vec<Vec<f32>>, Vec<Option<Accumulate>>) {
    let how = diffs.iter().map(|diff| diff.as_ref().map(|(_, accumulate)| *accumulate)).collect();
    (diffs.into_iter().flatten().map(|(before, _)| before).collect(), how)
}

impl Subject<'_> {
    /// The forward pass, with the only bottom in the only top's memory if `in_place`.
    pub(super) fn forward(&mut self, in_place: bool) -> Forwarded {
        self.forward_in(in_place, true)
    }

    /// The tops once more: a pass as many before it, whose scratch holds what they left.
    pub(super) fn tops_again(&mut self) -> Vec<Vec<f32>> {
        self.forward_in(false, false).tops
    }

    fn forward_in(&mut self, in_place: bool, poison: bool) -> Forwarded {
        let tops: Vec<Vec<f32>> = match in_place {
            true => vec![self.bottoms[0].clone()],
            false => self.declaration.tops.iter().map(|shape| nothing(shape.count())).collect(),
        };
        let mut blobs = Blobs::default();
        let bottoms = blobs.reads(if in_place { &[][..] } else { &self.bottoms });
        let tops = blobs.writes(tops);
        let params = blobs.reads(&self.learned);
        let state = blobs.writes(self.state.clone());
        let saved = blobs.writes([nothing(self.declaration.saved.bytes().div_ceil(size_of::<f32>()))]);
        let scratch = self.scratch[0];
        let mut after = blobs.run(&self.device, &mut self.arena, scratch, poison, |mut leases| {
            let io = Forward {
                iteration: self.iteration.view(),
                repeat: false,
                bottoms: leases.reads(bottoms),
                tops: leases.writes(&tops),
                params: leases.reads(params),
                state: leases.writes(&state),
                rectify: false,
                timed: false,
                saved: leases.write(),
                scratch: leases.write(),
            };
            self.layer.forward(&self.device, io).unwrap();
        });
        let saved = std::mem::take(&mut after[saved.start]);
        Forwarded { tops: after[tops].to_vec(), saved }
    }

    /// The gradients of the blobs that are wanted, bottoms first.
    pub(super) fn backward(&mut self, forwarded: &Forwarded, wanted: &Wanted) -> Vec<Vec<f32>> {
        let bottom_diffs = (self.bottoms.iter().enumerate())
            .map(|(index, x)| wanted.diff(Blob::Bottom(index), x.len()))
            .collect();
        let param_diffs = (self.learned.iter().enumerate())
            .map(|(index, w)| wanted.diff(Blob::Param(index), w.len()))
            .collect();
        // Nobody gives a loss a gradient: it knows its weight.
        let is_loss = !self.declaration.loss_weights.is_empty();
        let given: Vec<Option<Vec<f32>>> =
            self.weights.iter().map(|weights| weights.clone().filter(|_| !is_loss)).collect();
        let (bottom_diffs, propagates) = split_diffs(bottom_diffs);
        let (param_diffs, trains) = split_diffs(param_diffs);
        let unwanted = match propagates[0] {
            None if self.declaration.always_propagates => Space::of::<f32>(self.bottoms[0].len()),
            _ => Space::NONE,
        };
        let mut blobs = Blobs::default();
        let bottoms = blobs.reads(&self.bottoms[..self.declaration.read_bottoms]);
        let tops = blobs.reads(&self.declared_tops(forwarded));
        blobs.reads(given.iter().flatten());
        let bottom_diffs = blobs.writes(bottom_diffs);
        let params = blobs.reads(&self.learned);
        let param_diffs = blobs.writes(param_diffs);
        blobs.reads([&forwarded.saved]);
        let scratch = Space::all_of([self.scratch[1], unwanted]);
        let after = blobs.run(&self.device, &mut self.arena, scratch, true, |mut leases| {
            let io = Backward {
                iteration: self.iteration.view(),
                bottoms: leases.reads(bottoms),
                tops: leases.reads(tops),
                top_diffs: given.iter().map(|given| given.as_ref().map(|_| leases.read())).collect(),
                bottom_diffs: leases.gradients(&propagates),
                params: leases.reads(params),
                param_diffs: leases.gradients(&trains),
                rectify: false,
                timed: false,
                saved: leases.read(),
                scratch: leases.write(),
            };
            self.layer.backward(&self.device, io).unwrap();
        });
        after[bottom_diffs].iter().chain(&after[param_diffs]).cloned().collect()
    }

    /// The gradient of the only bottom, written over that of the only top.
    pub(super) fn backward_in_place(&mut self, forwarded: &Forwarded) -> Vec<f32> {
        let mut blobs = Blobs::default();
        let tops = blobs.reads(&self.declared_tops(forwarded));
        let diff = blobs.writes(self.weights[0].clone());
        let params = blobs.reads(&self.learned);
        blobs.reads([&forwarded.saved]);
        let scratch = self.scratch[1];
        let mut after = blobs.run(&self.device, &mut self.arena, scratch, true, |mut leases| {
            let io = Backward {
                iteration: self.iteration.view(),
                bottoms: Vec::new(),
                tops: leases.reads(tops),
                top_diffs: Vec::new(),
                bottom_diffs: leases.gradients(&[Some(Accumulate::Replace)]),
                params: leases.reads(params),
                param_diffs: Vec::new(),
                rectify: false,
                timed: false,
                saved: leases.read(),
                scratch: leases.write(),
            };
            self.layer.backward(&self.device, io).unwrap();
        });
        after.swap_remove(diff.start)
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
