//! The sum of all ranks' gradients while the backward pass goes on.

use crate::error::{NetError, Result};
use crate::group::{Group, Share};
use crate::net::layout::ParamSpans;
use cudnn_layers::update::{self, StepState};
use std::{cell::Cell, sync::Arc};
use tensor::cuda::{Communicator, Cuda, Event, Stream};
use tensor::{Arena, AxisOrder, Device, Format, Span};

/// Where the state of an iteration lies in its memory.
pub(super) const STATE: Span = Span { offset: 0, len: StepState::SPACE.bytes(), format: Format::U8 };

/// How one rank adds its gradients to those of the others.
pub(super) struct Reduction {
    pub(super) group: Group,
    nccl: Option<Nccl>,
}

/// Sums of GPUs, in a stream of their own.
struct Nccl {
    communicator: Arc<Communicator>,
    compute: Stream,
    stream: Stream,
    /// Where what is to be added up next is ready, and where all sums are there.
    ready: Event,
    done: Event,
    /// Whether all sums of an iteration have been launched once.
    are_connected: Cell<bool>,
}

impl Reduction {
    /// Nothing to do for a rank that is alone. Gradients lie in `arena`, which is dropped after this.
    pub(super) fn new(device: &Device, group: Group, arena: &Arena) -> Result<Self> {
        let nccl = match device {
            Device::Cuda(cuda) if group.share().ranks > 1 => {
                Some(Nccl::new(cuda, &group, arena, blocks(device.format()))?)
            }
            _ => None,
        };
        Ok(Self { group, nccl })
    }

    /// Adds up the gradients of `params`, which are complete and neighbours in the arena, unless this rank is alone. A
    /// GPU's sums are launched, not waited for.
    pub(super) fn add_up(&self, arena: &mut Arena, params: &[ParamSpans]) -> Result<()> {
        let mut spans = params.iter().filter_map(|spans| spans.diff);
        let first = spans.next().filter(|_| self.group.share().ranks > 1);
        let Some(first) = first else { return Ok(()) };
        let end = spans.next_back().unwrap_or(first).end();
        let mut gradients = arena.view_mut(Span { len: end - first.offset, ..first });
        let Some(nccl) = &self.nccl else { return Ok(self.group.sum(gradients.host::<f32>())?) };
        self.begin(nccl)?;
        // SAFETY: the sum begins after the last work that writes these gradients, and all that uses them again is
        // launched after `finish`, which has it wait for the sums.
        unsafe { nccl.communicator.sum(&nccl.stream, None, gradients) }?;
        Ok(())
    }

    /// The same with the loss in `state`; what is launched from now on finds all sums. Where one never comes, the loss
    /// is no number, so that nothing is updated.
    pub(super) fn finish(&self, device: &Device, state: &mut Arena) -> Result<()> {
        if self.group.share().ranks == 1 {
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
        self.begin(nccl)?;
        // SAFETY: the loss is offered before the sum, and read after the event below.
        unsafe { nccl.communicator.sum(&nccl.stream, Some(offered), loss) }?;
        nccl.are_connected.set(true);
        nccl.done.record()?;
        Ok(nccl.compute.wait(&nccl.done)?)
    }

    /// The next sum begins after what is computed now, and in the first iteration when all ranks have come as far: NCCL
    /// connects them at the first use of each of its algorithms, and nobody is freed from waiting for that.
    fn begin(&self, nccl: &Nccl) -> Result<()> {
        if !nccl.are_connected.get() {
            self.group.sum(&mut [0.0f64])?;
        }
        nccl.ready.record()?;
        Ok(nccl.stream.wait(&nccl.ready)?)
    }
}

/// How many blocks add up at least. NCCL takes 7 where GPUs read each other's memory, enough for the link. 12 are done
/// sooner, before they get in the way of more kernels: that saves 0.7 % of an iteration of AlexNet in TF32 on two H100.
/// In NHWC, whose kernels are few and large, AlexNet's in TF32 on two H200 takes 6 % longer with 12 than with 10.
fn blocks(maps: Format) -> u8 {
    if maps == (Format { layout: AxisOrder::Nhwc, ..Format::F32 }) { 10 } else { 12 }
}

impl Nccl {
    fn new(cuda: &Cuda, group: &Group, arena: &Arena, blocks: u8) -> Result<Self> {
        let id = group.from_leader(|| Ok::<_, NetError>(Communicator::unique_id()?))?;
        // What keeps a rank from coming is known now, and not while all others wait for it in NCCL.
        group.sum(&mut [0.0f64])?;
        let (Share { rank, ranks }, memory) = (group.share(), arena.view(arena.all()));
        // SAFETY: an execution drops its arena last.
        let communicator = unsafe { Communicator::new(cuda.stream(), &id, (rank, ranks), memory, blocks) }?;
        let communicator = Arc::new(communicator);
        let of_others = Arc::downgrade(&communicator);
        group.on_failure(move || of_others.upgrade().iter().for_each(|communicator| communicator.abort()));
        let (compute, stream) = (cuda.stream().clone(), cuda.new_stream()?);
        let (ready, done) = (compute.event()?, stream.event()?);
        Ok(Self { communicator, compute, stream, ready, done, are_connected: Cell::new(false) })
    }
}
