//! The sum of all ranks' gradients, in buckets, while the backward pass goes on.

use crate::net::{Net, NetLayout};
use crate::{error::NetError, group::Group};
use cudnn_layers::update::{self, StepState};
use memory::Action;
use std::{ops::RangeInclusive, sync::Arc};
use tensor::cuda::{Communicator, Cuda, CudaError, Event, Stream};
use tensor::{Arena, Device, Format, Span};

/// Bytes of a bucket, as in PyTorch: so many that a sum runs at the full rate, so few that the first begins early.
/// Towards the end they become smaller, as no backward pass is left to hide the last sum.
const BUCKET: RangeInclusive<usize> = 1 << 20..=25 << 20;

/// Where the state of an iteration lies in its memory.
pub(super) const STATE: Span = Span { offset: 0, len: StepState::SPACE.bytes(), format: Format::U8 };

/// Gradients that are added up together: neighbours in the arena, none of which changes after action number `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    span: Span,
    at: usize,
}

/// How one rank adds its gradients to those of the others.
pub(super) struct Reduction {
    group: Group,
    buckets: Vec<Bucket>,
    nccl: Option<Nccl>,
}

/// Sums of GPUs, in a stream of their own.
struct Nccl {
    communicator: Arc<Communicator>,
    compute: Stream,
    stream: Stream,
    /// Where each bucket is ready, and where its loss is; and where all sums are there.
    ready: Vec<Event>,
    done: Event,
}

impl Reduction {
    /// For the gradients of `net`; nothing to do for a rank that is alone.
    pub(super) fn new(
        device: &Device,
        net: &Net,
        layout: &NetLayout,
        group: Group,
    ) -> Result<Self, NetError> {
        if group.share().ranks == 1 {
            return Ok(Self { group, buckets: Vec::new(), nccl: None });
        }
        let buckets = buckets(net, layout, BUCKET);
        let nccl = match device {
            Device::Cpu(_) => None,
            Device::Cuda(cuda) => Some(Nccl::new(cuda, &group, buckets.len())?),
        };
        Ok(Self { group, buckets, nccl })
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Adds up the buckets that are complete after action number `at`. A GPU's sums are launched, not waited for.
    pub(super) fn add_up(&mut self, arena: &mut Arena, at: usize) -> Result<(), NetError> {
        for (index, bucket) in self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.at == at) {
            let mut gradients = arena.view_mut(bucket.span);
            match &self.nccl {
                None => self.group.sum(gradients.host::<f32>())?,
                Some(nccl) => {
                    nccl.begin(index)?;
                    // SAFETY: the sum begins after the last work that writes these gradients, and all that uses them
                    // again is launched after `finish`, which has it wait for the sums.
                    unsafe { nccl.communicator.sum(&nccl.stream, None, gradients) }?;
                }
            }
        }
        Ok(())
    }

    /// The same with the loss in `state`; what is launched from now on finds all sums. Where one never comes, the loss
    /// is no number, so that nothing is updated.
    pub(super) fn finish(&mut self, device: &Device, state: &mut Arena) -> Result<(), NetError> {
        if self.buckets.is_empty() {
            return Ok(());
        }
        update::offer_loss(device, state.view_mut(STATE));
        let ([offered], [loss]) =
            state.lease([StepState::OFFERED], [StepState::LOSS]).expect("they lie apart");
        let Some(nccl) = &self.nccl else {
            let mut sum = [bytemuck::pod_read_unaligned::<f64>(offered.host::<u8>())];
            self.group.sum(&mut sum)?;
            loss.into_host::<u8>().copy_from_slice(bytemuck::bytes_of(&sum));
            return Ok(());
        };
        nccl.begin(self.buckets.len())?;
        // SAFETY: the loss is offered before the sum, and read after the event below.
        unsafe { nccl.communicator.sum(&nccl.stream, Some(offered), loss) }?;
        nccl.done.record()?;
        Ok(nccl.compute.wait(&nccl.done)?)
    }
}

impl Nccl {
    fn new(cuda: &Cuda, group: &Group, buckets: usize) -> Result<Self, NetError> {
        let id = group.from_leader(|| Ok::<_, NetError>(Communicator::unique_id()?))?;
        // What keeps a rank from coming is known now, and not while all others wait for it in NCCL.
        group.sum(&mut [0.0f64])?;
        let share = group.share();
        let communicator = Arc::new(Communicator::new(cuda, &id, share.rank, share.ranks)?);
        let of_others = Arc::downgrade(&communicator);
        group.on_failure(move || of_others.upgrade().iter().for_each(|communicator| communicator.abort()));
        let (compute, stream) = (cuda.stream().clone(), cuda.new_stream()?);
        let ready = (0..=buckets).map(|_| compute.event()).collect::<Result<_, _>>()?;
        Ok(Self { communicator, compute, ready, done: stream.event()?, stream })
    }

    /// The next sum begins after what is computed now; number `index` of an iteration.
    fn begin(&self, index: usize) -> Result<(), CudaError> {
        self.ready[index].record()?;
        self.stream.wait(&self.ready[index])
    }
}

/// The gradients of `net` in the order in which they lie, from the last to the first, which is about that of the
/// backward pass: joined until there are as many bytes as are left, or as the nearest that `bytes` allow.
fn buckets(net: &Net, layout: &NetLayout, bytes: RangeInclusive<usize>) -> Vec<Bucket> {
    let actions = layout.places.schedule.actions.iter().enumerate();
    let mut last = vec![0; layout.params.len()];
    for (at, action) in actions {
        if let Action::Backward(node) = action {
            net.graph().nodes[*node].used_params.iter().for_each(|&param| last[param] = at);
        }
    }
    let gradients = layout.params.iter().zip(last);
    let mut gradients: Vec<(Span, usize)> =
        gradients.filter_map(|(spans, at)| Some((spans.diff?, at))).collect();
    gradients.sort_by_key(|(span, _)| std::cmp::Reverse(span.offset));
    let mut left: usize = gradients.iter().map(|(span, _)| span.len).sum();
    let mut buckets: Vec<Bucket> = Vec::new();
    for (span, at) in gradients {
        let enough = left.clamp(*bytes.start(), *bytes.end());
        left -= span.len;
        match buckets.last_mut().filter(|bucket| bucket.span.len < enough) {
            Some(bucket) => {
                let len = bucket.span.end() - span.offset;
                *bucket = Bucket { span: Span { len, ..span }, at: bucket.at.max(at) };
            }
            None => buckets.push(Bucket { span, at }),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{net::RunLayout, testing::build};

    /// Three fully connected layers, the last two with one filter: of 8, 12 and 4 elements with their biases.
    const NET: &str = "
  layer { name: 'data' type: 'DummyData' top: 'data' top: 'label'
    dummy_data_param { shape { dim: 2 dim: 2 } shape { dim: 2 } } }
  layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a' inner_product_param { num_output: 3 } }
  layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' param { name: 'w' } param { name: 'v' }
    inner_product_param { num_output: 3 } }
  layer { name: 'c' type: 'InnerProduct' bottom: 'b' top: 'c' param { name: 'w' } param { name: 'v' }
    inner_product_param { num_output: 3 } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'c' bottom: 'label' top: 'loss' }";

    /// Each gradient is in one bucket, which is not added up before the last layer that adds to it has done so.
    #[test]
    fn buckets_have_every_gradient_once_it_is_complete() {
        let net = build(NET).unwrap();
        let layout = &RunLayout::new(&[&net], true).nets[0];
        let actions = &layout.places.schedule.actions;
        let backward = |name: &str| {
            let node = net.graph().nodes.iter().position(|node| node.spec.name == name).unwrap();
            actions.iter().position(|action| *action == Action::Backward(node)).unwrap()
        };
        let gradients: Vec<Span> = layout.params.iter().filter_map(|spans| spans.diff).collect();
        assert_eq!(gradients.len(), 4);
        // The third has as much as is left once b's are in it, although there may be more.
        for (bytes, count) in [(1..=1, 4), (200..=200, 2), (1..=*BUCKET.end(), 2), (BUCKET, 1)] {
            let buckets = buckets(&net, layout, bytes);
            for gradient in &gradients {
                let whole = |bucket: &&Bucket| {
                    bucket.span.offset <= gradient.offset && gradient.end() <= bucket.span.end()
                };
                assert_eq!(buckets.iter().filter(whole).count(), 1, "{gradient:?} in {buckets:?}");
            }
            let bytes: usize = buckets.iter().map(|bucket| bucket.span.len).sum();
            let all = gradients.last().unwrap().end() - gradients[0].offset;
            assert!(bytes <= all && buckets.windows(2).all(|pair| !pair[0].span.overlaps(&pair[1].span)));
            // b and c share theirs, and b is the last of both.
            assert_eq!(buckets[0].at, if count == 1 { backward("a") } else { backward("b") });
            assert_eq!(buckets.last().unwrap().at, backward("a"));
            assert_eq!(buckets.len(), count);
        }
    }
}
