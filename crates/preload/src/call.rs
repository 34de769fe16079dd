//! A call of one of cuDNN's functions, as its caller made it.

use crate::{
    cudnn::{AlgorithmPerformance, Cudnn, NOT_SUPPORTED, SUCCESS, Status},
    library::Raw,
    signature::{Signature, Tensors},
};
use planner::ConvOp;
use std::{ffi::c_int, ptr::null_mut};

/// The handle and the descriptors that every function of a convolution takes.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) cudnn: &'static Cudnn,
    pub(crate) op: ConvOp,
    handle: Raw,
    /// Of the operands, in the order of the function.
    descriptors: [Raw; 3],
    convolution: Raw,
}

/// What a convolution computes with and on, beside its descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    /// alpha and beta.
    pub(crate) scalars: [Raw; 2],
    /// Addresses of the operands, in the order of the descriptors.
    pub(crate) operands: [Raw; 3],
    pub(crate) workspace: Raw,
    pub(crate) workspace_bytes: usize,
    pub(crate) epilogue: Option<Epilogue>,
}

impl Arguments {
    pub(crate) fn new(scalars: [Raw; 2], operands: [Raw; 3], workspace: Raw, workspace_bytes: usize) -> Self {
        Self { scalars, operands, workspace, workspace_bytes, epilogue: None }
    }
}

/// What is fused to a forward convolution: y = activation(alpha · x * w + beta · z + bias), as descriptors and addresses.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue {
    pub(crate) z: Raw,
    pub(crate) pz: Raw,
    pub(crate) bias: Raw,
    pub(crate) pbias: Raw,
    pub(crate) activation: Raw,
}

/// One micro-batch of a convolution.
#[derive(Clone, Copy)]
pub(crate) struct Micro<'p> {
    pub(crate) algorithm: c_int,
    pub(crate) tensors: &'p Tensors,
    /// Where it begins in each operand, in bytes.
    pub(crate) offsets: [usize; 3],
}

impl Call {
    /// # Safety
    /// As cuDNN asks of its caller: the handle and the descriptors, in the order of the function of `op`, are alive and not
    /// changed as long as the value is used, and so is what is given to its functions as addresses, of which operands and
    /// workspace are memory of the GPU, as large as the descriptors say.
    pub(crate) unsafe fn new(
        cudnn: &'static Cudnn,
        op: ConvOp,
        handle: Raw,
        descriptors: [Raw; 3],
        convolution: Raw,
    ) -> Self {
        Self { cudnn, op, handle, descriptors, convolution }
    }

    pub(crate) fn signature(&self, device: c_int) -> Option<Signature> {
        Signature::read(self.cudnn, device, self.op, self.descriptors, self.convolution)
    }

    /// The stream that the handle works in.
    pub(crate) fn stream(&self) -> Raw {
        let mut stream = null_mut();
        // SAFETY: the handle is alive; a stream is written to. Should that fail, the handle's next call says why.
        unsafe { (self.cudnn.stream)(self.handle, &mut stream) };
        stream
    }

    /// Bytes of workspace that an algorithm needs for a micro-batch, if it applies.
    pub(crate) fn workspace_bytes(&self, algorithm: c_int, tensors: &Tensors) -> Option<usize> {
        let ([a, b, c], mut bytes) = (tensors.or(self.descriptors), 0);
        let size = self.cudnn.workspace_size[self.op as usize];
        // SAFETY: all descriptors are alive, the caller's or ours; a size is written to.
        let status = unsafe { size(self.handle, a, b, self.convolution, c, algorithm, &mut bytes) };
        (status == SUCCESS).then_some(bytes)
    }

    /// The algorithms that cuDNN's heuristics name, most promising first.
    pub(crate) fn heuristics(&self) -> Vec<AlgorithmPerformance> {
        const MOST: usize = 16;
        let ([a, b, c], mut found) = (self.descriptors, 0);
        let mut list = Vec::with_capacity(MOST);
        let get = self.cudnn.get[self.op as usize];
        // SAFETY: the descriptors are alive; cuDNN writes at most as many answers as there is room for, and says how many.
        unsafe {
            let most = MOST as c_int;
            let status = get(self.handle, a, b, self.convolution, c, most, &mut found, list.as_mut_ptr());
            list.set_len(if status == SUCCESS { found.clamp(0, most) as usize } else { 0 });
        }
        list
    }

    /// Runs the whole convolution with an algorithm of cuDNN.
    pub(crate) fn run(&self, algorithm: c_int, arguments: &Arguments) -> Status {
        self.launch(self.descriptors, algorithm, arguments)
    }

    /// Runs one micro-batch. `arguments` are those of the whole convolution.
    pub(crate) fn run_micro(&self, micro: &Micro<'_>, arguments: &Arguments) -> Status {
        let (descriptors, mut arguments) = (micro.tensors.or(self.descriptors), *arguments);
        for (operand, offset) in arguments.operands.iter_mut().zip(micro.offsets) {
            *operand = operand.wrapping_byte_add(offset);
        }
        if let Some(epilogue) = &mut arguments.epilogue {
            // z is as y, and often is y.
            epilogue.z = descriptors[2];
            epilogue.pz = epilogue.pz.wrapping_byte_add(micro.offsets[2]);
        }
        self.launch(descriptors, micro.algorithm, &arguments)
    }

    /// Runs the whole convolution with the most promising algorithm that does with the workspace: for a caller who asks for
    /// the virtual algorithm where there is no plan that would.
    pub(crate) fn run_any(&self, arguments: &Arguments) -> Status {
        let fits = |answer: &AlgorithmPerformance| {
            let needed = self.workspace_bytes(answer.algorithm, &Tensors::NONE);
            answer.status == SUCCESS && needed.is_some_and(|bytes| bytes <= arguments.workspace_bytes)
        };
        let mut fitting = self.heuristics().into_iter().filter(fits);
        match fitting.any(|answer| self.run(answer.algorithm, arguments) == SUCCESS) {
            true => SUCCESS,
            false => NOT_SUPPORTED,
        }
    }

    fn launch(&self, [a, b, c]: [Raw; 3], algorithm: c_int, arguments: &Arguments) -> Status {
        let Self { cudnn, op, handle: h, convolution: conv, .. } = *self;
        let Arguments {
            scalars: [alpha, beta],
            operands: [pa, pb, pc],
            workspace: ws,
            workspace_bytes: len,
            epilogue,
        } = *arguments;
        let (convolve, fused) = (cudnn.convolve[op as usize], cudnn.convolve_bias_activation);
        // SAFETY: `new`'s promise; a micro-batch lies within the operands, as its samples are some of theirs. cuDNN checks
        // the size of the workspace. The work goes to the handle's stream, like all that the caller launches with it.
        unsafe {
            match epilogue {
                None => convolve(h, alpha, a, pa, b, pb, conv, algorithm, ws, len, beta, c, pc),
                Some(Epilogue { z, pz, bias, pbias, activation: act }) => fused(
                    h, alpha, a, pa, b, pb, conv, algorithm, ws, len, beta, z, pz, bias, pbias, act, c, pc,
                ),
            }
        }
    }
}
