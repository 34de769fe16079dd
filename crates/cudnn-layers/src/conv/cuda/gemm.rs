//! Convolutions as products of matrices, one for each sample, by cuBLAS: in single precision faster than cuDNN's sums of
//! products, with filters of 1x1 up to three times.

use super::convolver::{FP32_ERROR, TF32_ERROR};
use crate::blas::product;
use crate::conv::{ConvOp, Convolver, Facts, Result, operands::padded};
use crate::lowering::{col2im, im2col, sum_terms};
use planner::{Bytes, Math};
use std::sync::Arc;
use tensor::{ConvGeometry, Format, Out, View, ViewMut, cuda::Cuda, geometry::elements};

/// The names, and how exact they are.
pub(super) const NAMES: [(&str, f32); 2] = [("BATCHED_GEMM", FP32_ERROR), (IN_TF32, TF32_ERROR)];
const IN_TF32: &str = "BATCHED_GEMM_TF32";

/// `y = w x`, `dx = w^T dy` or `dw = sum over samples of dy x^T`, where the image of a sample is a matrix: what taps of
/// the filter see of its channels, for the pixels of y (im2col). With filters of 1x1 and no stride it is that as it lies
/// there; otherwise the workspace has it, and then the terms of the sum.
#[derive(Debug)]
pub(super) struct GemmConvolver {
    facts: Facts,
    cuda: Cuda,
    op: ConvOp,
}

impl GemmConvolver {
    /// Those that `math` allows or, with a `name`, the one of that name; none if the convolution is no such product.
    pub(super) fn all(
        cuda: &Cuda,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
        math: Math,
        name: Option<&str>,
    ) -> Vec<Arc<dyn Convolver>> {
        let ConvGeometry { n, c, h, w, k, r, s, pad, groups, .. } = geometry;
        let (matrices, terms) = ([n, c, r, s, geometry.out_h(), geometry.out_w()], [n, k, c, r, s]);
        let is_small = [h + 2 * pad[0], w + 2 * pad[1]].map(i32::try_from).iter().all(Result::is_ok)
            && elements(&matrices).and(elements(&terms)).is_some();
        let applies = format == Format::F32 && groups == 1 && is_small;
        let is_allowed = |own: &str| own != IN_TF32 || math == Math::Tf32;
        let asked = |&(own, _): &(&str, f32)| name.map_or(is_allowed(own), |name| name == own);
        let make = |(name, max_error): (&str, f32)| -> Arc<dyn Convolver> {
            let parts = parts(op, &geometry).map(|len| padded(format, len) as u64);
            let (name, workspace) = (name.to_owned(), Bytes(parts.iter().sum()));
            let prepared = Bytes(0);
            let facts = Facts { name, geometry, workspace, prepared, max_error, deterministic: true };
            Arc::new(Self { facts, cuda: cuda.clone(), op })
        };
        NAMES.into_iter().filter(|own| applies && asked(own)).map(make).collect()
    }
}

/// The workspace's elements: of the matrices that are not images as they are, and of the terms.
fn parts(op: ConvOp, g: &ConvGeometry) -> [usize; 2] {
    let is_image = [[g.r, g.s], g.stride, g.pad] == [[1, 1], [1, 1], [0, 0]];
    let matrices = g.n * g.c * g.r * g.s * g.out_h() * g.out_w();
    let is_sum = op == ConvOp::BackwardFilter && g.n > 1;
    [if is_image { 0 } else { matrices }, if is_sum { g.n * g.w_len() } else { 0 }]
}

impl Convolver for GemmConvolver {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(&self, [a, b]: [View<'_>; 2], out: Out<'_>, mut workspace: ViewMut<'_>) -> Result<()> {
        let (g, cuda, tf32) = (&self.facts.geometry, &self.cuda, self.facts.name == IN_TF32);
        let (k, taps, pixels) = (g.k, g.c * g.r * g.s, g.out_h() * g.out_w());
        let mut take = |len| workspace.take(Format::U8, padded(Format::F32, len)).take(Format::F32, len);
        let [mut matrices, mut terms] = parts(self.op, g).map(&mut take);
        if self.op == ConvOp::BackwardData {
            let factors = [(b, true), (a, false)];
            if matrices.is_empty() {
                product(cuda, tf32, [taps, pixels, k], factors, out);
            } else {
                product(cuda, tf32, [taps, pixels, k], factors, matrices.reborrow().replaced());
                col2im(cuda, g, matrices.as_view(), out);
            }
            return Ok(());
        }
        let x = if matrices.is_empty() {
            a
        } else {
            im2col(cuda, g, a, matrices.reborrow());
            matrices.as_view()
        };
        if self.op == ConvOp::Forward {
            product(cuda, tf32, [k, pixels, taps], [(b, false), (x, false)], out);
        } else if terms.is_empty() {
            product(cuda, tf32, [k, taps, pixels], [(b, false), (x, true)], out);
        } else {
            product(cuda, tf32, [k, taps, pixels], [(b, false), (x, true)], terms.reborrow().replaced());
            sum_terms(cuda, terms.as_view(), out);
        }
        Ok(())
    }
}
