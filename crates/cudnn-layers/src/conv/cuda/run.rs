//! Running a configuration on the GPU: one call after the other over slices of the mini-batch, without waiting in between.

use super::{Convolution, CudaConvError, find};
use crate::conv::{ConvOp, RunnerError, operand_lens};
use crate::raw::Cudnn;
use planner::{Bytes, Configuration, MicroConfiguration};
use std::ops::Range;
use tensor::{
    Accumulate, ConvGeometry,
    cuda::{DeviceView, DeviceViewMut},
};

/// A kernel with the configuration it runs in. All descriptors are made beforehand.
#[derive(Debug)]
pub struct CudaRunner {
    op: ConvOp,
    geometry: ConvGeometry,
    /// One for each micro-configuration.
    convolutions: Vec<Convolution>,
    calls: Vec<Call>,
    workspace_len: usize,
}

/// One micro-batch.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Index of the convolution.
    convolution: usize,
    first_sample: usize,
}

impl CudaRunner {
    /// Checks that `configuration` covers the mini-batch of `geometry` and that each of its algorithms exists, applies and
    /// needs no more workspace than was planned.
    ///
    /// # Errors
    /// The first of these that does not hold, or a failure of cuDNN.
    pub fn new(
        cudnn: &Cudnn,
        op: ConvOp,
        geometry: ConvGeometry,
        configuration: &Configuration,
    ) -> Result<Self, CudaConvError> {
        let found = configuration.mini_batch() as usize;
        if found != geometry.n {
            return Err(RunnerError::MiniBatch { found, expected: geometry.n }.into());
        }
        let mut runner = Self { op, geometry, convolutions: Vec::new(), calls: Vec::new(), workspace_len: 0 };
        let mut first_sample = 0;
        for run in configuration.runs() {
            let convolution = ready(cudnn, op, geometry, &run.micro)?;
            let index = runner.convolutions.len();
            runner.workspace_len = runner.workspace_len.max(convolution.workspace_len());
            runner.convolutions.push(convolution);
            for _ in 0..run.count {
                runner.calls.push(Call { convolution: index, first_sample });
                first_sample += run.micro.micro_batch as usize;
            }
        }
        Ok(runner)
    }

    /// The operation.
    pub fn op(&self) -> ConvOp {
        self.op
    }

    /// What it computes.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// Elements of workspace: the most that any micro-batch needs, for they run one after the other.
    pub fn workspace_len(&self) -> usize {
        self.workspace_len
    }

    /// Asks for all micro-batches and waits for none. Operands are those of the table in [`crate::conv`], of the whole
    /// mini-batch, in the memory of the GPU that `cudnn` works on.
    ///
    /// Micro-batches of [`ConvOp::BackwardFilter`] share one output: the first does what `accumulate` says, the others
    /// add to it.
    ///
    /// # Errors
    /// cuDNN refuses. Work that fails later shows when the device is waited for.
    ///
    /// # Panics
    /// If an operand has another length than the geometry says, or the workspace is too small.
    pub fn run(
        &self,
        cudnn: &Cudnn,
        [a, b]: [DeviceView<'_>; 2],
        mut out: DeviceViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: DeviceViewMut<'_>,
    ) -> Result<(), CudaConvError> {
        let lens = operand_lens(self.op, &self.geometry);
        assert_eq!([a.len(), b.len(), out.len()], lens, "operands of {:?}", self.op);
        cudnn.cuda().bind()?;
        for call in &self.calls {
            let convolution = &self.convolutions[call.convolution];
            let samples = call.first_sample..call.first_sample + convolution.geometry().n;
            let [a_range, b_range, out_range] = slices(self.op, &self.geometry, samples);
            let adds_up = self.op == ConvOp::BackwardFilter && call.first_sample > 0;
            let accumulate = if adds_up { Accumulate::Add } else { accumulate };
            let operands = [a.slice(a_range), b.slice(b_range)];
            convolution.run(cudnn, operands, out.slice(out_range), accumulate, workspace.reborrow())?;
        }
        Ok(())
    }
}

/// The parts of the operands of `op` that belong to `samples`: of the filter and its gradient all, of the others a slice.
pub(super) fn slices(op: ConvOp, g: &ConvGeometry, samples: Range<usize>) -> [Range<usize>; 3] {
    let part = |sample: usize| sample * samples.start..sample * samples.end;
    let (x, y, w) = (part(g.x_sample()), part(g.y_sample()), 0..g.w_len());
    match op {
        ConvOp::Forward => [x, w, y],
        ConvOp::BackwardData => [y, w, x],
        ConvOp::BackwardFilter => [x, y, w],
    }
}

/// The convolution that a micro-configuration stands for.
fn ready(
    cudnn: &Cudnn,
    op: ConvOp,
    geometry: ConvGeometry,
    micro: &MicroConfiguration,
) -> Result<Convolution, CudaConvError> {
    let name = || micro.algorithm.as_str().to_owned();
    let algorithm =
        find(op, micro.algorithm.as_str()).ok_or_else(|| RunnerError::Unknown { op, algorithm: name() })?;
    let micro_batch = micro.micro_batch as usize;
    let geometry = geometry.with_batch(micro_batch);
    let convolution = Convolution::new(cudnn, algorithm, geometry)?
        .ok_or_else(|| RunnerError::Unsupported { op, algorithm: name(), geometry: Box::new(geometry) })?;
    let (needed, planned): (Bytes, Bytes) = (convolution.workspace(), micro.workspace);
    if needed > planned {
        return Err(RunnerError::Workspace { algorithm: name(), micro_batch, needed, planned }.into());
    }
    Ok(convolution)
}
