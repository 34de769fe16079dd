//! The devices a net can run on.

use crate::cuda::{Cuda, CudaError, Event};
use crate::{Cpu, Format, ViewMut};
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
        Self::Cpu(Cpu::new(Cpu::available_threads()))
    }

    /// In which format nets keep their feature maps here.
    pub fn format(&self) -> Format {
        match self {
            Self::Cpu(cpu) => cpu.format,
            Self::Cuda(cuda) => cuda.format,
        }
    }

    /// Has nets keep their feature maps in this format. A processor computes in single precision and NCHW alone: in the
    /// place of a GPU that is not here, nets are built and planned on it, but do not run.
    pub fn set_format(&mut self, format: Format) {
        match self {
            Self::Cpu(cpu) => cpu.format = format,
            Self::Cuda(cuda) => cuda.format = format,
        }
    }

    /// Runs `body` where the device's work is best started: on the processor's pool, or, for a GPU, on this thread.
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu(cpu) => cpu.run(body),
            Self::Cuda(_) => body(),
        }
    }

    /// Waits for all work enqueued so far. The processor's is always done.
    ///
    /// # Errors
    /// The first failure of a GPU since it was opened.
    pub fn check(&self) -> Result<(), CudaError> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(cuda) => cuda.check(),
        }
    }

    /// Bytes of a GPU's memory that are taken, by this and other processes; `None` for the processor.
    pub fn bytes_in_use(&self) -> Result<Option<u64>, CudaError> {
        match self {
            Self::Cpu(_) => Ok(None),
            Self::Cuda(cuda) => cuda.memory().map(|[free, total]| Some(total - free)),
        }
    }

    /// Writes zeros.
    pub fn zero(&self, view: ViewMut<'_>) {
        match self {
            Self::Cpu(_) => view.tagged(Format::U8).into_host::<u8>().fill(0),
            Self::Cuda(cuda) => cuda.note(cuda.stream().set(view, 0)),
        }
    }

    /// Marks this point in the device's work, to be timed from or to.
    pub fn mark(&self) -> Result<Mark, CudaError> {
        Ok(match self {
            Self::Cpu(_) => Mark::Cpu(Instant::now()),
            Self::Cuda(cuda) => {
                let event = cuda.stream().event()?;
                event.record()?;
                Mark::Cuda(event)
            }
        })
    }
}

/// A point in a device's work. A GPU's lies in its own time, not in that of the host, which runs ahead.
#[derive(Debug)]
pub enum Mark {
    /// A time of the host.
    Cpu(Instant),
    /// A point in any of a GPU's streams.
    Cuda(Event),
}

impl Mark {
    /// Milliseconds from this point to `end`, once a GPU has reached both.
    ///
    /// # Panics
    /// If the points are of different devices.
    pub fn ms_until(&self, end: &Mark) -> Result<f64, CudaError> {
        match (self, end) {
            (Self::Cpu(start), Self::Cpu(end)) => Ok(end.duration_since(*start).as_secs_f64() * 1e3),
            (Self::Cuda(start), Self::Cuda(end)) => start.elapsed_ms(end),
            _ => panic!("two devices have no common time"),
        }
    }
}
