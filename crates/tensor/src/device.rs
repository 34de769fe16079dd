//! The devices a net can run on.

use crate::cuda::{Cuda, CudaError, Event, Pinned};
use crate::{Cpu, Element, Format, View, ViewMut};
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
            Self::Cuda(cuda) => cuda.format(),
        }
    }

    /// Has nets keep their feature maps in this format. A processor computes in single precision and NCHW alone: in the
    /// place of a GPU that is not here, nets are built and planned on it, but do not run.
    pub fn set_format(&mut self, format: Format) {
        match self {
            Self::Cpu(cpu) => cpu.format = format,
            Self::Cuda(cuda) => *cuda = cuda.clone().with_format(format),
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

    /// Reads what `from` holds once all work launched so far is done. A GPU copies it to the host in its own time:
    /// [`Later::get`] waits for that copy, not for work that was launched after it. No part of recorded work.
    pub fn read_later(&self, from: View<'_>) -> Result<Later, CudaError> {
        let len = from.byte_len();
        Ok(Later(match self {
            Self::Cpu(_) => Pending::Done(from.tagged(Format::U8).host::<u8>().to_vec()),
            Self::Cuda(cuda) => {
                let mut buffer = cuda.take_buffer(len)?;
                buffer.copy_from(from)?;
                Pending::Copied { cuda: cuda.clone(), buffer: Some(buffer), len }
            }
        }))
    }

    /// Writes zeros.
    pub fn zero(&self, mut view: ViewMut<'_>) {
        match self {
            Self::Cpu(_) => view.take(Format::U8, view.byte_len()).host::<u8>().fill(0),
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

/// Elements on their way to the host ([`Device::read_later`]).
#[derive(Debug)]
pub struct Later(Pending);

#[derive(Debug)]
enum Pending {
    Done(Vec<u8>),
    Copied { cuda: Cuda, buffer: Option<Pinned>, len: usize },
}

impl Later {
    /// Waits until they have arrived.
    ///
    /// # Errors
    /// The first failure of the GPU since it was opened.
    pub fn get<T: Element>(mut self) -> Result<Vec<T>, CudaError> {
        let bytes = match &mut self.0 {
            Pending::Done(bytes) => &bytes[..],
            Pending::Copied { cuda, buffer, len } => {
                let buffer = buffer.as_mut().expect("present until dropped").elements::<u8>();
                cuda.first_failure(buffer.as_ref().map(|_| ()).map_err(Clone::clone))?;
                &buffer?[..*len]
            }
        };
        Ok(bytemuck::pod_collect_to_vec(bytes))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Pending::Copied { cuda, buffer, .. } = self {
            buffer.take().into_iter().for_each(|buffer| cuda.give_buffer(buffer));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Cursor, cuda::probe};

    /// Each reading has the values of its own time, in whatever order they are asked for.
    fn readings_are_of_their_time(device: &Device) {
        let span = Cursor::default().take(Format::F32, 3);
        let mut arena = Arena::on(device, span.len).unwrap();
        let mut readings = Vec::new();
        for value in 0..6 {
            arena.repeat(span, &[value as f32, -1.0]).unwrap();
            let reading = device.read_later(arena.view(span)).unwrap();
            if value % 3 == 0 {
                drop(reading); // its buffer goes to the next
            } else {
                readings.push((value as f32, reading));
            }
        }
        arena.set(span, 0xff).unwrap();
        for (value, reading) in readings.into_iter().rev() {
            assert_eq!(reading.get::<f32>().unwrap(), [value, -1.0, value]);
        }
    }

    #[test]
    fn readings_of_the_processor_are_of_their_time() {
        readings_are_of_their_time(&Device::cpu());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_readings_are_of_their_time() {
        readings_are_of_their_time(&Device::Cuda(probe().unwrap().open(0).unwrap()));
    }
}
