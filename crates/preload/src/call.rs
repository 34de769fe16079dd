//! A call of one of cuDNN's functions, as its caller made it or as we make it.

use crate::cudnn::{NOT_SUPPORTED, Raw, SUCCESS, Status, call, done};
use planner::ConvOp;
use std::{ffi::c_int, ptr::null_mut};

/// A function of a convolution, and what it is given.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) op: ConvOp,
    pub(crate) handle: Raw,
    /// Of the operands, in the order of the function, and of the convolution.
    pub(crate) descriptors: [Raw; 4],
    /// alpha and beta.
    pub(crate) scalars: [Raw; 2],
    /// Addresses of the operands, in the order of the descriptors; null where the function takes none.
    pub(crate) operands: [Raw; 3],
    /// Address and bytes.
    pub(crate) workspace: (Raw, usize),
    /// Of a fused convolution, y = activation(alpha · x * w + beta · z + bias): descriptor and address of z, the same
    /// of the bias, and the descriptor of the activation.
    pub(crate) epilogue: Option<[Raw; 5]>,
}

impl Call {
    /// A call that is given nothing to compute with or on.
    ///
    /// # Safety
    /// As cuDNN asks of its caller: the handle and the descriptors, in the order of the function of `op`, are alive and
    /// not changed as long as the value is used, and so is what its other fields are set to, of which operands and
    /// workspace are memory of the GPU, as large as the descriptors say.
    pub(crate) unsafe fn new(op: ConvOp, handle: Raw, descriptors: [Raw; 4]) -> Self {
        let (scalars, operands, workspace) = ([null_mut(); 2], [null_mut(); 3], (null_mut(), 0));
        Self { op, handle, descriptors, scalars, operands, workspace, epilogue: None }
    }

    /// The stream that the handle works in.
    pub(crate) fn stream(&self) -> Raw {
        let mut stream: Raw = null_mut();
        // SAFETY: the handle is alive; a stream is written to. Should that fail, the handle's next call says why.
        unsafe { call!("cudnnGetStream", (self.handle, &mut stream)) };
        stream
    }

    /// Bytes of workspace that an algorithm needs, if it applies.
    pub(crate) fn workspace_bytes(&self, algorithm: c_int) -> Option<usize> {
        let Self { handle: h, descriptors: [a, b, c, conv], .. } = *self;
        let (name, mut bytes) = (format!("cudnnGetConvolution{}WorkspaceSize", self.op), 0usize);
        // SAFETY: all descriptors are alive, the caller's or ours; a size is written to.
        unsafe { done!(&name, (h, a, b, conv, c, algorithm, &mut bytes)) }.then_some(bytes)
    }

    pub(crate) fn launch(&self, algorithm: c_int) -> Status {
        let Self { handle: h, descriptors: [a, b, c, conv], operands: [pa, pb, pc], .. } = *self;
        let Self { op, scalars: [alpha, beta], workspace: (ws, len), epilogue, .. } = *self;
        let name = format!("cudnnConvolution{op}");
        // SAFETY: `new`'s promise; a micro-batch lies within the operands, as its samples are some of theirs. cuDNN
        // checks the size of the workspace. The work goes to the handle's stream, like all that its caller launches.
        unsafe {
            match epilogue {
                None => call!(&name, (h, alpha, a, pa, b, pb, conv, algorithm, ws, len, beta, c, pc)),
                Some([z, pz, bias, pbias, activation]) => call!(
                    "cudnnConvolutionBiasActivationForward",
                    (
                        h, alpha, a, pa, b, pb, conv, algorithm, ws, len, beta, z, pz, bias, pbias,
                        activation, c, pc
                    )
                ),
            }
        }
    }

    /// cuDNN's default algorithms, of every operation: 1 if there is room for its workspace, else 0, which needs none.
    pub(crate) const DEFAULTS: [c_int; 2] = [1, 0];

    /// Launches the whole convolution with a default: the virtual algorithm where no plan does with the workspace.
    pub(crate) fn launch_default(&self) -> Status {
        let launches = |&algorithm: &c_int| {
            let needed = self.workspace_bytes(algorithm);
            needed.is_some_and(|bytes| bytes <= self.workspace.1) && self.launch(algorithm) == SUCCESS
        };
        if Self::DEFAULTS.iter().any(launches) { SUCCESS } else { NOT_SUPPORTED }
    }
}
