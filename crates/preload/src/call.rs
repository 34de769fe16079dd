//! A call of one of cuDNN's functions, as its caller made it.

use crate::cudnn::{NOT_SUPPORTED, Raw, SUCCESS, Status, call, done};
use planner::ConvOp;
use std::{ffi::c_int, ptr::null_mut};

/// The handle and the descriptors that every function of a convolution takes.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) op: ConvOp,
    handle: Raw,
    /// Of the operands, in the order of the function.
    pub(crate) descriptors: [Raw; 3],
    pub(crate) convolution: Raw,
}

/// What a convolution computes with and on, beside its descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    /// alpha and beta.
    pub(crate) scalars: [Raw; 2],
    /// Addresses of the operands, in the order of the descriptors.
    pub(crate) operands: [Raw; 3],
    /// Address and bytes.
    pub(crate) workspace: (Raw, usize),
    /// Of a fused convolution, y = activation(alpha · x * w + beta · z + bias): descriptor and address of z, the same
    /// of the bias, and the descriptor of the activation.
    pub(crate) epilogue: Option<[Raw; 5]>,
}

impl Call {
    /// # Safety
    /// As cuDNN asks of its caller: the handle and the descriptors, in the order of the function of `op`, are alive and
    /// not changed as long as the value is used, and so is what is given to its functions as addresses, of which
    /// operands and workspace are memory of the GPU, as large as the descriptors say.
    pub(crate) unsafe fn new(op: ConvOp, handle: Raw, descriptors: [Raw; 3], convolution: Raw) -> Self {
        Self { op, handle, descriptors, convolution }
    }

    /// The same call with these descriptors, which are used as long as the value.
    pub(crate) fn of(self, descriptors: [Raw; 3], convolution: Raw) -> Self {
        Self { descriptors, convolution, ..self }
    }

    /// The stream that the handle works in.
    pub(crate) fn stream(&self) -> Raw {
        let mut stream: Raw = null_mut();
        // SAFETY: the handle is alive; a stream is written to. Should that fail, the handle's next call says why.
        unsafe { call!(cudnn, "cudnnGetStream", (self.handle, &mut stream)) };
        stream
    }

    /// Bytes of workspace that an algorithm needs, if it applies.
    pub(crate) fn workspace_bytes(&self, algorithm: c_int) -> Option<usize> {
        let Self { handle: h, descriptors: [a, b, c], convolution: conv, .. } = *self;
        let (name, mut bytes) = (format!("cudnnGetConvolution{}WorkspaceSize", self.op), 0usize);
        // SAFETY: all descriptors are alive, the caller's or ours; a size is written to.
        unsafe { done!(&name, (h, a, b, conv, c, algorithm, &mut bytes)) }.then_some(bytes)
    }

    /// Launches the convolution.
    pub(crate) fn launch(&self, algorithm: c_int, arguments: &Arguments) -> Status {
        let Self { op, handle: h, descriptors: [a, b, c], convolution: conv } = *self;
        let Arguments { scalars: [alpha, beta], operands: [pa, pb, pc], workspace: (ws, len), epilogue } =
            *arguments;
        // SAFETY: `new`'s promise; a micro-batch lies within the operands, as its samples are some of theirs. cuDNN
        // checks the size of the workspace. The work goes to the handle's stream, like all that the caller launches
        // with it.
        unsafe {
            match epilogue {
                None => call!(
                    cudnn,
                    &format!("cudnnConvolution{op}"),
                    (h, alpha, a, pa, b, pb, conv, algorithm, ws, len, beta, c, pc)
                ),
                Some([z, pz, bias, pbias, activation]) => call!(
                    cudnn,
                    "cudnnConvolutionBiasActivationForward",
                    (
                        h, alpha, a, pa, b, pb, conv, algorithm, ws, len, beta, z, pz, bias, pbias,
                        activation, c, pc
                    )
                ),
            }
        }
    }

    /// cuDNN's default algorithms, of every operation: 1 if there is room for its workspace, or else 0, which needs
    /// none.
    pub(crate) const DEFAULTS: [c_int; 2] = [1, 0];

    /// Launches the whole convolution with a default: for a caller who asks for the virtual algorithm where no plan
    /// does with the workspace.
    pub(crate) fn launch_default(&self, arguments: &Arguments) -> Status {
        let launches = |&algorithm: &c_int| {
            let needed = self.workspace_bytes(algorithm);
            needed.is_some_and(|bytes| bytes <= arguments.workspace.1)
                && self.launch(algorithm, arguments) == SUCCESS
        };
        if Self::DEFAULTS.iter().any(launches) { SUCCESS } else { NOT_SUPPORTED }
    }
}
