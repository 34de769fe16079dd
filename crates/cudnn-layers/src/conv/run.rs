//! Running a configuration: one call after the other over slices of the mini-batch.

use super::cpu::{self, CpuAlgorithm, Operands};
use super::{ConvOp, operand_lens};
use planner::{Bytes, Configuration};
use std::ops::Range;
use tensor::{Accumulate, ConvGeometry, Device, View, ViewMut};
use thiserror::Error;

/// Why a configuration cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunnerError {
    /// The backend has no algorithm of this name.
    #[error("{op} has no algorithm {algorithm} on this device")]
    Unknown {
        /// The operation.
        op: ConvOp,
        /// The name asked for.
        algorithm: String,
    },
    /// The algorithm does not apply to this geometry.
    #[error("{algorithm} does not apply to {op} of {geometry:?}")]
    Unsupported {
        /// The operation.
        op: ConvOp,
        /// The algorithm.
        algorithm: String,
        /// The micro-batch's geometry.
        geometry: Box<ConvGeometry>,
    },
    /// The micro-batches do not add up to the mini-batch.
    #[error("a configuration of {found} samples does not cover a mini-batch of {expected}")]
    MiniBatch {
        /// Samples of the configuration.
        found: usize,
        /// Samples of the kernel.
        expected: usize,
    },
    /// The plan was made for less workspace than the algorithm needs here.
    #[error(
        "{algorithm} at micro-batch {micro_batch} needs {needed} of workspace, but was planned with {planned}"
    )]
    Workspace {
        /// The algorithm.
        algorithm: String,
        /// Samples of the call.
        micro_batch: usize,
        /// What it needs.
        needed: Bytes,
        /// What the plan says.
        planned: Bytes,
    },
}

/// A kernel with the configuration it runs in.
#[derive(Clone, Debug)]
pub struct Runner {
    op: ConvOp,
    geometry: ConvGeometry,
    calls: Vec<Call>,
    workspace_len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    algorithm: &'static dyn CpuAlgorithm,
    first_sample: usize,
    micro_batch: usize,
}

impl Runner {
    /// Checks that `configuration` covers the mini-batch of `geometry` and that each of its algorithms exists, applies and
    /// needs no more workspace than was planned.
    ///
    /// # Errors
    /// The first of these that does not hold.
    pub fn new(
        device: &Device,
        op: ConvOp,
        geometry: ConvGeometry,
        configuration: &Configuration,
    ) -> Result<Self, RunnerError> {
        let found = configuration.mini_batch() as usize;
        if found != geometry.n {
            return Err(RunnerError::MiniBatch { found, expected: geometry.n });
        }
        let Device::Cpu(cpu) = device;
        let mut runner = Self { op, geometry, calls: Vec::new(), workspace_len: 0 };
        for (first_sample, micro) in configuration.micro_batches() {
            let name = micro.algorithm.as_str();
            let algorithm = find(op, name)?;
            let micro_batch = micro.micro_batch as usize;
            let geometry = geometry.with_batch(micro_batch);
            let len = algorithm.workspace_len(op, &geometry, cpu.threads()).ok_or_else(|| {
                RunnerError::Unsupported { op, algorithm: name.to_owned(), geometry: Box::new(geometry) }
            })?;
            let (needed, planned) = (workspace_bytes(len), micro.workspace);
            if needed > planned {
                return Err(RunnerError::Workspace {
                    algorithm: name.to_owned(),
                    micro_batch,
                    needed,
                    planned,
                });
            }
            runner.workspace_len = runner.workspace_len.max(len);
            runner.calls.push(Call { algorithm, first_sample: first_sample as usize, micro_batch });
        }
        Ok(runner)
    }

    /// Elements of workspace: the most that any micro-batch needs, for they run one after the other.
    pub fn workspace_len(&self) -> usize {
        self.workspace_len
    }

    /// Runs the kernel. Operands are those of the table in [`super`], of the whole mini-batch.
    ///
    /// Micro-batches of [`ConvOp::BackwardFilter`] share one output: the first does what `accumulate` says, the others
    /// add to it.
    ///
    /// # Panics
    /// If an operand has another length than the geometry says, or the workspace is too small.
    pub fn run(
        &self,
        device: &Device,
        [a, b]: [View<'_>; 2],
        mut out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) {
        assert_eq!(
            [a.len(), b.len(), out.len()],
            operand_lens(self.op, &self.geometry),
            "operands of {:?}",
            self.op
        );
        assert!(workspace.len() >= self.workspace_len, "the workspace is smaller than planned");
        let Device::Cpu(cpu) = device;
        for call in &self.calls {
            let geometry = self.geometry.with_batch(call.micro_batch);
            let samples =
                |sample: usize| sample * call.first_sample..sample * (call.first_sample + call.micro_batch);
            let [a_range, b_range, out_range] = self.slices(samples);
            let operands = Operands {
                a: a.slice(a_range).host(),
                b: b.slice(b_range).host(),
                out: out.slice(out_range).into_host(),
            };
            let adds_up = self.op == ConvOp::BackwardFilter && call.first_sample > 0;
            let accumulate = if adds_up { Accumulate::Add } else { accumulate };
            call.algorithm.run(cpu, self.op, &geometry, operands, accumulate, workspace.host());
        }
    }

    /// The parts of the operands that belong to some samples, given the range for a number of elements per sample.
    fn slices(&self, samples: impl Fn(usize) -> Range<usize>) -> [Range<usize>; 3] {
        let g = &self.geometry;
        let (x, y, w) = (samples(g.x_sample()), samples(g.y_sample()), 0..g.w_len());
        match self.op {
            ConvOp::Forward => [x, w, y],
            ConvOp::BackwardData => [y, w, x],
            ConvOp::BackwardFilter => [x, y, w],
        }
    }
}

/// Bytes of a workspace of `len` elements.
pub(super) fn workspace_bytes(len: usize) -> Bytes {
    Bytes((len * size_of::<f32>()) as u64)
}

fn find(op: ConvOp, name: &str) -> Result<&'static dyn CpuAlgorithm, RunnerError> {
    let found = cpu::algorithms().iter().find(|algorithm| algorithm.name() == name);
    found.copied().ok_or_else(|| RunnerError::Unknown { op, algorithm: name.to_owned() })
}
