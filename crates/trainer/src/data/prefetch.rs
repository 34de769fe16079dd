//! The background thread of a loader.

use super::{NetError, batch::BatchSource};
use rayon::ThreadPoolBuilder;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::{io, sync::Arc, sync::atomic::AtomicBool, sync::atomic::Ordering};
use tensor::{Cpu, Device, Staged, ViewMut};

/// Where the filled buffer comes from, and where the empty one goes.
type Channels = (Receiver<Result<Staged, NetError>>, SyncSender<Staged>);

/// A running thread with the two channels that one buffer travels through, round and round: neither side waits to send,
/// and the thread notices the end of its loader after one sample at most.
pub(super) struct Worker {
    /// The filled and the empty buffer; both present until dropped.
    channels: Option<Channels>,
    thread: Option<JoinHandle<()>>,
    abandoned: Arc<AtomicBool>,
}

/// Threads that decode samples for `device`.
pub(super) fn decoders(device: &Device) -> usize {
    if let Device::Cpu(cpu) = device { cpu.threads() } else { Cpu::available_threads() }
}

impl Worker {
    /// Starts a thread that fills mini-batches from `position` on, in memory of `device`.
    pub(super) fn start(source: &Arc<BatchSource>, device: &Device, from: u64) -> Result<Self, NetError> {
        let (empty, empties) = sync_channel::<Staged>(1);
        let (fulls, filled) = sync_channel(1);
        let buffer = Staged::new(device, source.len() * size_of::<f32>())?;
        empty.send(buffer).expect("the receiver is in this function");
        let source = Arc::clone(source);
        let refused =
            |error: io::Error| NetError::Refused(format!("no thread can be started to load data: {error}"));
        // Threads of its own: the library's common ones end the process where the system refuses them.
        let pool = ThreadPoolBuilder::new().num_threads(decoders(device));
        let pool = source.dataset.facts().is_decoded.then(|| pool.build());
        let pool = pool.transpose().map_err(|error| refused(io::Error::other(error)))?;
        let mut cursor = source.cursor(from);
        let abandoned = Arc::clone(&cursor.abandoned);
        let work = move || {
            while let Ok(mut buffer) = empties.recv() {
                let mut fill = || {
                    buffer.fill(source.len(), |values| {
                        let (data, labels) = values.split_at_mut(source.data_len());
                        source.fill(&mut cursor, data, labels)
                    })
                };
                let filling = match &pool {
                    Some(pool) => pool.install(fill),
                    None => fill(),
                };
                let failed = filling.is_err();
                if fulls.send(filling.map(|()| buffer)).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("data-prefetch".to_owned()).spawn(work);
        Ok(Self { channels: Some((filled, empty)), thread: Some(thread.map_err(refused)?), abandoned })
    }

    /// Waits for the next mini-batch and copies it out. A worker that fails has ended and is not given back.
    pub(super) fn take(self, data: ViewMut<'_>, labels: Option<ViewMut<'_>>) -> Result<Self, NetError> {
        let (filled, empty) = self.channels.as_ref().expect("present until dropped");
        let mut buffer = filled.recv().expect("no data set panics in the thread")?;
        let data_bytes = data.byte_len();
        buffer.copy_to([(0, data)].into_iter().chain(labels.map(|labels| (data_bytes, labels))))?;
        // If the thread has ended meanwhile, the next `recv` tells why.
        let _ = empty.send(buffer);
        Ok(self)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closing both channels ends the thread; then wait, so that no reader outlives its loader.
        self.abandoned.store(true, Ordering::Relaxed);
        self.channels = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
