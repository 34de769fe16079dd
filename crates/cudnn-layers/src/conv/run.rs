//! Running a configuration: one call after the other over slices of the mini-batch, without waiting in between.
//!
//! Calls of one algorithm follow each other. So on the CPU what the first of them prepares of the filter is still in the
//! workspace when the others need it, and a configuration takes as long as its plan says: what is shared counts once for
//! each algorithm.

use super::{
    ConvError, ConvOp,
    cpu::{self, CpuAlgorithm, Operands},
    cuda::{self, Convolution},
    operands::{operand_lens, slices},
};
use crate::cudnn::Cudnn;
use planner::{ARENA_ALIGNMENT, Bytes, Configuration, Measurement, Run};
use std::{ops::Range, sync::Arc};
use tensor::{
    ALIGNMENT, Accumulate, ConvGeometry, Cpu, Device, Format, Space, View, ViewMut,
    cuda::{Cuda, CudaError},
};

#[cfg(test)]
mod tests;

const _: () = assert!(ARENA_ALIGNMENT == ALIGNMENT as u64, "workspaces lie where they were planned");

/// A kernel with the configuration it runs in, all made ready beforehand.
#[derive(Clone, Debug)]
pub struct Runner {
    op: ConvOp,
    geometry: ConvGeometry,
    /// In the order of execution.
    calls: Vec<Call>,
    workspace: Bytes,
}

/// One micro-batch.
#[derive(Clone, Debug)]
struct Call {
    backend: Backend,
    samples: Range<usize>,
    /// The number, in the configuration, of the first run with this algorithm.
    algorithm: usize,
}

/// An algorithm that applies to a micro-batch, and its workspace.
struct Ready {
    backend: Backend,
    workspace: Bytes,
}

#[derive(Clone, Debug)]
enum Backend {
    Cpu(&'static dyn CpuAlgorithm),
    Cuda(Arc<Convolution>),
}

impl Runner {
    /// Checks that `configuration` covers the mini-batch of `geometry` and that each of its algorithms exists, applies and
    /// needs no more workspace than was planned.
    ///
    /// # Errors
    /// The first of these that does not hold, or a failure of the device.
    pub fn new(
        device: &Device,
        op: ConvOp,
        geometry: ConvGeometry,
        configuration: &Configuration,
    ) -> Result<Self, ConvError> {
        let found = configuration.mini_batch() as usize;
        if found != geometry.n {
            return Err(ConvError::MiniBatch { found, expected: geometry.n });
        }
        let mut runner = Self { op, geometry, calls: Vec::new(), workspace: Bytes(0) };
        let mut first = 0;
        for run in configuration.runs() {
            let is_same = |other: &Run| other.micro.algorithm == run.micro.algorithm;
            let algorithm = configuration.runs().iter().position(is_same).unwrap_or_default();
            let micro_batch = run.micro.micro_batch as usize;
            let ready = ready(device, op, geometry.with_batch(micro_batch), &run.micro)?;
            let (needed, planned) = (ready.workspace, run.micro.workspace);
            if needed > planned {
                let algorithm = run.micro.algorithm.as_str().to_owned();
                return Err(ConvError::Workspace { algorithm, micro_batch, needed, planned });
            }
            runner.workspace = runner.workspace.max(needed);
            for _ in 0..run.count {
                let samples = first..first + micro_batch;
                runner.calls.push(Call { backend: ready.backend.clone(), samples, algorithm });
                first += micro_batch;
            }
        }
        runner.calls.sort_by_key(|call| call.algorithm);
        Ok(runner)
    }

    /// The workspace: the most that any micro-batch needs, for they run one after the other.
    pub fn workspace(&self) -> Space {
        Space::aligned(self.workspace.0 as usize)
    }

    /// Runs the kernel. Operands are those of the table in [`super`], of the whole mini-batch. On a GPU all micro-batches
    /// are asked for and none is waited for.
    ///
    /// Micro-batches of [`ConvOp::BackwardFilter`] share one output: the first to run does what `accumulate` says, the
    /// others add to it.
    ///
    /// # Panics
    /// If an operand has another length than the geometry says, the workspace is too small, or the device is of another
    /// kind than the one that the runner was made for.
    pub fn run(
        &self,
        device: &Device,
        operands: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        workspace: ViewMut<'_>,
    ) {
        let [a, b] = &operands;
        assert_eq!(
            [a.len(), b.len(), out.len()],
            operand_lens(self.op, &self.geometry),
            "operands of {:?}",
            self.op
        );
        assert!(workspace.byte_len() as u64 >= self.workspace.0, "the workspace is smaller than planned");
        match device {
            Device::Cpu(cpu) => self.run_on_cpu(cpu, operands, out, accumulate, workspace),
            Device::Cuda(cuda) => {
                let asked = cuda.with_library(|cudnn: &mut Cudnn| {
                    self.run_on_cuda(cudnn, operands, out, accumulate, workspace)
                });
                cuda.note(asked.map_err(|error: ConvError| failure(cuda, self.op, error)));
            }
        }
    }

    fn run_on_cpu(
        &self,
        cpu: &Cpu,
        [a, b]: [View<'_>; 2],
        mut out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) {
        let mut prepared = None;
        let workspace = workspace.take(Format::F32, workspace.byte_len() / size_of::<f32>()).into_host();
        for (index, call) in self.calls.iter().enumerate() {
            let Backend::Cpu(algorithm) = &call.backend else { panic!("the runner is one for a GPU") };
            let geometry = self.geometry.with_batch(call.samples.len());
            let [a_range, b_range, out_range] = slices(self.op, &self.geometry, &call.samples);
            let operands = Operands {
                a: a.slice(a_range).host(),
                b: b.slice(b_range).host(),
                out: out.slice(out_range).into_host(),
            };
            if prepared.replace(call.algorithm) != Some(call.algorithm) {
                algorithm.prepare(cpu, self.op, &geometry, operands.b, workspace);
            }
            let accumulate = self.accumulate(index, accumulate);
            algorithm.run(cpu, self.op, &geometry, operands, accumulate, workspace);
        }
    }

    fn run_on_cuda(
        &self,
        cudnn: &Cudnn,
        [a, b]: [View<'_>; 2],
        mut out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        cudnn.stream().bind()?;
        for (index, call) in self.calls.iter().enumerate() {
            let Backend::Cuda(convolution) = &call.backend else {
                panic!("the runner is one for the processor")
            };
            let [a_range, b_range, out_range] = slices(self.op, &self.geometry, &call.samples);
            let operands = [a.slice(a_range), b.slice(b_range)];
            let accumulate = self.accumulate(index, accumulate);
            convolution.run(cudnn, operands, out.slice(out_range), accumulate, workspace.reborrow())?;
        }
        Ok(())
    }

    /// What call number `index` does with the output.
    fn accumulate(&self, index: usize, asked: Accumulate) -> Accumulate {
        let adds_up = self.op == ConvOp::BackwardFilter && index > 0;
        if adds_up { Accumulate::Add } else { asked }
    }
}

fn failure(cuda: &Cuda, op: ConvOp, error: ConvError) -> CudaError {
    match error {
        ConvError::Cuda(error) => error,
        other => CudaError::new(format!("{op} on GPU {}", cuda.info().ordinal), other.to_string()),
    }
}

/// The algorithm of `micro`, made ready for `geometry`.
fn ready(
    device: &Device,
    op: ConvOp,
    geometry: ConvGeometry,
    micro: &Measurement,
) -> Result<Ready, ConvError> {
    let name = micro.algorithm.as_str();
    let unknown = || ConvError::Unknown { op, algorithm: name.to_owned() };
    let unsupported =
        || ConvError::Unsupported { op, algorithm: name.to_owned(), geometry: Box::new(geometry) };
    match device {
        Device::Cpu(cpu) => {
            let found = cpu::algorithms().iter().find(|algorithm| algorithm.name() == name);
            let algorithm = *found.ok_or_else(unknown)?;
            let workspace = algorithm.workspace(op, &geometry, cpu.threads()).ok_or_else(unsupported)?;
            Ok(Ready { backend: Backend::Cpu(algorithm), workspace })
        }
        Device::Cuda(cuda) => {
            let algorithm = cuda::find(op, name).ok_or_else(unknown)?;
            let made = cuda.with_library(|cudnn: &mut Cudnn| Convolution::new(cudnn, algorithm, geometry))?;
            let convolution = made.ok_or_else(unsupported)?;
            let workspace = convolution.workspace();
            Ok(Ready { backend: Backend::Cuda(Arc::new(convolution)), workspace })
        }
    }
}
