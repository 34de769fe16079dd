//! The devices a net can run on.

use crate::{
    Cpu, Format, ViewMut,
    cuda::{Cuda, CudaError, Event},
};
use std::time::Instant;

/// Where a net runs. Operations match on this in one place each, their contract file.
#[derive(Clone, Debug)]
pub enum Device {
    /// The host's processor.
    Cpu(Cpu),
    /// An NVIDIA GPU.
    Cuda(Cuda),
}

impl Device {
    /// The host with all its threads, for where these can be relied upon.
    ///
    /// # Panics
    /// If the operating system refuses to start a thread.
    pub fn cpu() -> Self {
        Device::Cpu(Cpu::new(Cpu::available_threads()))
    }

    /// Runs `body` where the device's work is best started: on a thread of the processor's pool, or, for a GPU, on this
    /// thread.
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match self {
            Device::Cpu(cpu) => cpu.run(body),
            Device::Cuda(_) => body(),
        }
    }

    /// Whether work is being recorded, to be replayed without the host.
    pub fn is_recording(&self) -> bool {
        match self {
            Device::Cpu(_) => false,
            Device::Cuda(cuda) => cuda.is_recording(),
        }
    }

    /// Waits for all work enqueued so far. The processor's is always done.
    ///
    /// # Errors
    /// The first failure of a GPU since it was opened.
    pub fn check(&self) -> Result<(), CudaError> {
        match self {
            Device::Cpu(_) => Ok(()),
            Device::Cuda(cuda) => cuda.check(),
        }
    }

    /// Bytes of a GPU's memory that are taken, by this and other processes; `None` for the processor.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn bytes_in_use(&self) -> Result<Option<u64>, CudaError> {
        match self {
            Device::Cpu(_) => Ok(None),
            Device::Cuda(cuda) => cuda.memory().map(|[free, total]| Some(total - free)),
        }
    }

    /// Writes zeros.
    pub fn zero(&self, mut view: ViewMut<'_>) {
        match self {
            Device::Cpu(_) => view.take(Format::U8, view.byte_len()).host::<u8>().fill(0),
            Device::Cuda(cuda) => cuda.note(cuda.stream().set(view, 0)),
        }
    }

    /// Marks this point in the device's work, to be timed from or to.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn mark(&self) -> Result<Mark, CudaError> {
        Ok(match self {
            Device::Cpu(_) => Mark(Point::Cpu(Instant::now())),
            Device::Cuda(cuda) => {
                let event = cuda.event()?;
                event.record()?;
                Mark(Point::Cuda(event))
            }
        })
    }
}

/// A point in a device's work. A GPU's lies in its own time, not in that of the host, which runs ahead.
#[derive(Debug)]
pub struct Mark(Point);

#[derive(Debug)]
enum Point {
    Cpu(Instant),
    Cuda(Event),
}

impl Mark {
    /// Milliseconds from this point to `end`, once a GPU has reached both.
    ///
    /// # Errors
    /// Work of the GPU failed.
    ///
    /// # Panics
    /// If the points are of different devices.
    pub fn ms_until(&self, end: &Mark) -> Result<f64, CudaError> {
        match (&self.0, &end.0) {
            (Point::Cpu(start), Point::Cpu(end)) => Ok(end.duration_since(*start).as_secs_f64() * 1e3),
            (Point::Cuda(start), Point::Cuda(end)) => start.elapsed_ms(end),
            _ => panic!("two devices have no common time"),
        }
    }
}
