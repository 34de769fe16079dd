//! `Convolution`: the layer that this project is about. Its kernels run as the plan says.

use super::{Backward, Declaration, Forward, Layer, ParamDeclaration, images};
use crate::{error::BoxError, spec::ConvolutionParams};
use cudnn_layers::conv::{ConvOp, Runner, kernel_id};
use cudnn_layers::{AxisExtents, bias, space_to_depth};
use planner::{Configuration, Kernel, KernelId, Math};
use tensor::{AxisOrder, ConvGeometry, Device, ElementType, Format, Mark, Out, Space, TensorType, ViewMut};

/// A kernel's configuration, and the byte at which its workspace begins in the scratch of its step.
struct Installed {
    runner: Runner,
    offset: usize,
    /// When it last began and ended, if kernels are timed.
    marks: Option<[Mark; 2]>,
}

/// y = x ⋆ w + b, unless the layer behind adds b. Backward needs x.
pub struct ConvolutionLayer {
    params: ConvolutionParams,
    /// Of no sample until the layer is declared.
    geometry: ConvGeometry,
    /// What x and y consist of.
    format: Format,
    installed: [Option<Installed>; 3],
}

impl ConvolutionLayer {
    /// With feature maps of this format.
    pub(super) fn new(params: ConvolutionParams, format: Format) -> Self {
        Self { params, geometry: ConvGeometry::default(), format, installed: Default::default() }
    }

    /// Lets it read images of this shape as [blocks of pixels](space_to_depth), where that is faster; as which geometry.
    pub(crate) fn read_blocks(&mut self, x: &TensorType) -> Option<ConvGeometry> {
        let g = self.geometry_on(x).ok()?;
        let is_faster = self.format.layout == AxisOrder::Nhwc;
        self.geometry = space_to_depth::blocks(&g, self.format).filter(|_| is_faster)?;
        Some(self.geometry)
    }

    fn geometry_on(&self, x: &TensorType) -> Result<ConvGeometry, String> {
        let p = &self.params;
        let geometry = ConvGeometry::new(images("a convolution", x)?, p.num_output, p.kernel);
        let geometry = geometry.pad(p.pad).stride(p.stride).dilation(p.dilation).groups(p.group);
        geometry.validate().map_err(|error| error.to_string())
    }

    /// y seen from its channels.
    fn channels(&self) -> AxisExtents {
        let g = self.geometry;
        AxisExtents::new(&TensorType::new(&[g.n, g.k, g.out_h(), g.out_w()], self.format), 1)
    }

    /// The kernel of `op` on `device`, named after `layer`.
    pub fn kernel(&self, device: &Device, layer: &str, op: ConvOp) -> Kernel {
        let g = self.geometry;
        let mini_batch = u32::try_from(g.n).expect("a mini-batch of 32 bits");
        let math = match device {
            Device::Cuda(cuda) if cuda.tf32 && self.format.dtype == ElementType::F32 => Math::Tf32,
            _ => Math::Fp32,
        };
        Kernel { name: layer.to_owned(), id: KernelId { math, ..kernel_id(op, &g, self.format) }, mini_batch }
    }

    /// Fixes how `op` will run, with a workspace from byte `offset` of its step's scratch on, and returns that.
    ///
    /// # Errors
    /// A configuration that does not fit the kernel, or names an unknown algorithm.
    pub fn install(
        &mut self,
        device: &Device,
        op: ConvOp,
        configuration: &Configuration,
        offset: usize,
    ) -> Result<Space, BoxError> {
        let runner = Runner::new(device, op, self.geometry, configuration)?;
        let workspace = runner.workspace();
        self.installed[op as usize] = Some(Installed { runner, offset, marks: None });
        Ok(workspace)
    }

    /// When the kernel of `op` last began and ended; `None` if kernels were not timed, or it has not run since.
    pub fn take_marks(&mut self, op: ConvOp) -> Option<[Mark; 2]> {
        self.installed[op as usize].as_mut()?.marks.take()
    }

    fn run(
        &mut self,
        device: &Device,
        op: ConvOp,
        operands: [tensor::View<'_>; 2],
        out: Out<'_>,
        scratch: &mut ViewMut<'_>,
        timed: bool,
    ) -> Result<(), BoxError> {
        let Installed { runner, offset, marks } =
            self.installed[op as usize].as_mut().ok_or_else(|| format!("the {op} kernel was not planned"))?;
        let start = timed.then(|| device.mark()).transpose()?;
        let workspace = scratch.slice(*offset..*offset + runner.workspace().bytes());
        if let Err(error) = runner.run(operands, out, workspace) {
            // A GPU that failed before refuses everything; its first failure says more.
            device.check()?;
            return Err(error.into());
        }
        *marks = start.map(|start| device.mark().map(|end| [start, end])).transpose()?;
        Ok(())
    }
}

impl Layer for ConvolutionLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        if self.geometry.pack == 0 {
            self.geometry = self.geometry_on(&bottoms[0])?;
        }
        let (g, p) = (self.geometry, &self.params);
        let filter = TensorType::new(&[g.k, g.c / g.groups, g.r, g.s], self.format);
        let filter = ParamDeclaration::learned(filter, p.weight_filler);
        let bias = p.bias_term.then(|| ParamDeclaration::learned(TensorType::f32(&[g.k]), p.bias_filler));
        Ok(Declaration {
            params: std::iter::once(filter).chain(bias).collect(),
            read_bottoms: 1,
            ..Declaration::one(TensorType::new(&[g.n, g.k, g.out_h(), g.out_w()], self.format))
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let y = io.tops[0].reborrow().replaced();
        self.run(device, ConvOp::Forward, [io.bottoms[0], io.params[0]], y, &mut io.scratch, io.timed)?;
        if let Some(&b) = io.params.get(1) {
            bias::forward_in_place(device, &self.channels(), b, false, io.tops[0].reborrow());
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (x, w, dy) = (io.bottoms[0], io.params[0], io.top_diff());
        let mut param_diffs = io.param_diffs.into_iter();
        if let Some(dw) = param_diffs.next().flatten() {
            self.run(device, ConvOp::BackwardFilter, [x, dy], dw, &mut io.scratch, io.timed)?;
        }
        if let Some(db) = param_diffs.next().flatten() {
            bias::backward(device, &self.channels(), None, dy, db);
        }
        if let Some(dx) = io.bottom_diffs.pop().flatten() {
            self.run(device, ConvOp::BackwardData, [dy, w], dx, &mut io.scratch, io.timed)?;
        }
        Ok(())
    }
}
