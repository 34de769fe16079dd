//! The mini-batch that is prepared while the net computes.

use super::{NetError, Result, batch::BatchSource};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, atomic::Ordering};
use tensor::{Cpu, Device, Staged, ViewMut};

/// Threads that fill one buffer again and again, each time when the last mini-batch has been copied out of it.
pub(super) struct Worker {
    source: Arc<BatchSource>,
    pool: ThreadPool,
    /// Where the buffer comes from when it is filled.
    filled: Receiver<Result<Staged>>,
}

/// Threads that decode samples for `device`.
pub(super) fn decoders(device: &Device) -> usize {
    if let Device::Cpu(cpu) = device { cpu.threads() } else { Cpu::available_threads() }
}

impl Worker {
    /// Begins with the mini-batch at `position`, in memory of `device`.
    pub(super) fn start(source: &Arc<BatchSource>, device: &Device, position: u64) -> Result<Self> {
        let buffer = Staged::new(device, source.len() * size_of::<f32>())?;
        let threads = if source.dataset.facts().is_decoded { decoders(device) } else { 1 };
        // Threads of its own: the library's common ones end the process where the system refuses them. Of a panic
        // whoever waits for the buffer hears.
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| "data".to_owned());
        let pool = pool.panic_handler(|_| ()).build();
        let refused = |error| NetError::Refused(format!("no thread can be started to load data: {error}"));
        let pool = pool.map_err(refused)?;
        let filled = fill(source, &pool, buffer, position);
        Ok(Self { source: Arc::clone(source), pool, filled })
    }

    /// Waits for the mini-batch, copies it out, and begins with the one at `next`. After an error it is of no more use.
    pub(super) fn take(&mut self, data: ViewMut<'_>, labels: Option<ViewMut<'_>>, next: u64) -> Result<()> {
        let mut buffer = self.filled.recv().expect("no data set panics in a thread")?;
        let data_bytes = data.byte_len();
        buffer.copy_to([(0, data)].into_iter().chain(labels.map(|labels| (data_bytes, labels))))?;
        self.filled = fill(&self.source, &self.pool, buffer, next);
        Ok(())
    }
}

/// Has the mini-batch at `position` filled into `buffer`, which comes back when that is done.
fn fill(
    source: &Arc<BatchSource>,
    pool: &ThreadPool,
    mut buffer: Staged,
    position: u64,
) -> Receiver<Result<Staged>> {
    let (source, (sender, filled)) = (Arc::clone(source), sync_channel(1));
    pool.spawn(move || {
        let result = buffer.fill(source.len(), |values| {
            let (data, labels) = values.split_at_mut(source.data_len());
            source.fill(position, data, labels)
        });
        let _ = sender.send(result.map(|()| buffer));
    });
    filled
}

impl Drop for Worker {
    fn drop(&mut self) {
        // No reader outlives its loader: it ends after one sample at most.
        self.source.abandoned.store(true, Ordering::Relaxed);
        let _ = self.filled.recv();
        self.source.abandoned.store(false, Ordering::Relaxed);
    }
}
