//! Running a configuration: one call after the other over slices of the mini-batch, without waiting in between.
//!
//! Calls of one algorithm follow each other, so what the first of them derives from the filter is still in the
//! workspace when the others need it, and a configuration takes as long as its plan says: what is shared counts once
//! for each algorithm.

use super::operands::{operand_lens, slices};
use super::{ConvError, ConvOp, Convolver, Result, find};
use planner::{ARENA_ALIGNMENT, Bytes, Configuration, Run};
use std::{ops::Range, sync::Arc};
use tensor::{ALIGNMENT, ConvGeometry, Device, Out, Space, View, ViewMut};

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
    convolver: Arc<dyn Convolver>,
    samples: Range<usize>,
    /// The number, in the configuration, of the first run with this algorithm.
    algorithm: usize,
}

impl Runner {
    /// Checks that `geometry` is valid, that `configuration` covers its mini-batch, and that each of its algorithms exists,
    /// applies and needs no more workspace than was planned.
    ///
    /// # Errors
    /// The first of these that does not hold, or a failure of the library.
    pub fn new(
        device: &Device,
        op: ConvOp,
        geometry: ConvGeometry,
        configuration: &Configuration,
    ) -> Result<Self> {
        let geometry = geometry.validate()?;
        let (found, expected) = (configuration.mini_batch() as usize, geometry.n);
        if found != expected {
            let reason =
                format!("a configuration of {found} samples does not cover a mini-batch of {expected}");
            return Err(ConvError::Refused(reason));
        }
        let mut runner = Self { op, geometry, calls: Vec::new(), workspace: Bytes(0) };
        let mut first = 0;
        for run in configuration.runs() {
            let is_same = |other: &Run| other.micro.algorithm == run.micro.algorithm;
            let algorithm = configuration.runs().iter().position(is_same).unwrap_or_default();
            let (name, micro_batch) = (run.micro.algorithm.as_str(), run.micro.micro_batch as usize);
            let convolver = find(device, op, geometry.with_batch(micro_batch), name)?;
            let (needed, planned) = (convolver.facts().workspace, run.micro.workspace);
            if needed > planned {
                return Err(ConvError::Refused(format!(
                    "{name} at micro-batch {micro_batch} needs {needed} of workspace, but was planned with {planned}"
                )));
            }
            convolver.load()?;
            runner.workspace = runner.workspace.max(needed);
            for _ in 0..run.count {
                let samples = first..first + micro_batch;
                runner.calls.push(Call { convolver: convolver.clone(), samples, algorithm });
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

    /// Runs the kernel. Operands are those of the table in [`super`], of the whole mini-batch. On a GPU all
    /// micro-batches are launched and none is waited for.
    ///
    /// Micro-batches of [`ConvOp::BackwardFilter`] share one output: the first does what `out` says, the others add.
    ///
    /// # Errors
    /// The library refuses a micro-batch. Work that fails later shows when the device is waited for.
    ///
    /// # Panics
    /// If an operand has another length than the geometry says, the workspace is too small, or one of them is in
    /// another device's memory.
    pub fn run(
        &self,
        [a, b]: [View<'_>; 2],
        Out { to: mut out, accumulate }: Out<'_>,
        mut workspace: ViewMut<'_>,
    ) -> Result<()> {
        let lens = operand_lens(self.op, &self.geometry);
        assert_eq!([a.len(), b.len(), out.len()], lens, "operands of {:?}", self.op);
        assert!(workspace.byte_len() as u64 >= self.workspace.0, "the workspace is smaller than planned");
        let mut prepared = None;
        for (index, call) in self.calls.iter().enumerate() {
            let [a_range, b_range, out_range] = slices(self.op, &self.geometry, &call.samples);
            let operands = [a.slice(a_range), b.slice(b_range)];
            if prepared.replace(call.algorithm) != Some(call.algorithm) {
                call.convolver.prepare(operands[1], workspace.reborrow());
            }
            let adds_up = self.op == ConvOp::BackwardFilter && index > 0;
            let to = out.slice(out_range);
            let out = if adds_up { to.added() } else { Out { to, accumulate } };
            call.convolver.run(operands, out, workspace.reborrow())?;
        }
        Ok(())
    }
}
