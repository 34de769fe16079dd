//! Filters of 1x1 as products of matrices, one for each sample, by cuBLAS: in single precision it computes these up to
//! three times as fast as cuDNN's best.

use super::{convolver::padded, kind::Kind};
use crate::{
    blas::{Factor, product},
    conv::{ConvError, ConvOp, Convolver, Facts},
    points::{gather_seen, scatter_seen, sum_terms},
};
use planner::{Bytes, Math};
use tensor::{ConvGeometry, Format, Out, View, ViewMut, cuda::Cuda};

/// The names, and how exact they are.
pub(super) const NAMES: [(&str, Kind); 2] =
    [("BATCHED_GEMM", Kind::Direct), ("BATCHED_GEMM_TF32", Kind::Tf32)];

/// `y = w x`, `dx = w^T dy` or `dw = sum over samples of dy x^T`, where an image is a matrix of channels and pixels.
/// The workspace has the pixels of x that a stride leaves, one behind the other, and then the terms of that sum.
#[derive(Debug)]
pub(super) struct GemmConvolver {
    facts: Facts,
    cuda: Cuda,
    op: ConvOp,
    kind: Kind,
}

impl GemmConvolver {
    /// Those that `math` allows or, with a `name`, the one of that name; none if the convolution is no such product.
    pub(super) fn all(
        cuda: &Cuda,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
        math: Math,
        name: Option<&str>,
    ) -> Vec<Self> {
        let ConvGeometry { r, s, pad, groups, .. } = geometry;
        let applies = format == Format::F32 && [[r, s], pad] == [[1, 1], [0, 0]] && groups == 1;
        let is_asked_for = |&(one, kind): &(&str, Kind)| match name {
            Some(name) => name == one,
            None => kind != Kind::Tf32 || math == Math::Tf32,
        };
        let made = NAMES.into_iter().filter(|one| applies && is_asked_for(one)).map(|(name, kind)| {
            let facts = Facts {
                name: name.to_owned(),
                geometry,
                workspace: Bytes(0),
                prepared: Bytes(0),
                max_error: kind.max_error(&geometry, format),
                deterministic: true,
            };
            let mut made = Self { facts, cuda: cuda.clone(), op, kind };
            made.facts.workspace =
                Bytes(made.parts().into_iter().map(|len| padded(Format::F32, len) as u64).sum());
            made
        });
        made.collect()
    }

    /// The workspace's elements: of the pixels that are seen, and of the terms.
    fn parts(&self) -> [usize; 2] {
        let g = &self.facts.geometry;
        let pixels = g.n * g.c * g.out_h() * g.out_w();
        let is_sum = self.op == ConvOp::BackwardFilter && g.n > 1;
        [if g.stride == [1, 1] { 0 } else { pixels }, if is_sum { g.n * g.w_len() } else { 0 }]
    }

    /// The product for each sample, of factors that are transposed or not.
    fn product(&self, extents: [usize; 3], factors: [(View<'_>, bool); 2], out: Out<'_>) {
        let [a, b] = factors.map(|(view, transposed)| Factor { view, transposed });
        product(&self.cuda, self.kind == Kind::Tf32, extents, a, b, out);
    }
}

impl Convolver for GemmConvolver {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(&self, [a, b]: [View<'_>; 2], out: Out<'_>, mut workspace: ViewMut<'_>) -> Result<(), ConvError> {
        let (g, cuda) = (&self.facts.geometry, &self.cuda);
        let (c, k, pixels) = (g.c, g.k, g.out_h() * g.out_w());
        let mut take = |len| workspace.take(Format::U8, padded(Format::F32, len)).take(Format::F32, len);
        let [mut seen, mut terms] = self.parts().map(&mut take);
        if self.op == ConvOp::BackwardData {
            let factors = [(b, true), (a, false)];
            if seen.is_empty() {
                self.product([c, pixels, k], factors, out);
            } else {
                self.product([c, pixels, k], factors, seen.reborrow().replaced());
                scatter_seen(cuda, g, seen.as_view(), out);
            }
            return Ok(());
        }
        let x = if seen.is_empty() {
            a
        } else {
            gather_seen(cuda, g, a, seen.reborrow());
            seen.as_view()
        };
        if self.op == ConvOp::Forward {
            self.product([k, pixels, c], [(b, false), (x, false)], out);
        } else if terms.is_empty() {
            self.product([k, c, pixels], [(b, false), (x, true)], out);
        } else {
            self.product([k, c, pixels], [(b, false), (x, true)], terms.reborrow().replaced());
            sum_terms(cuda, terms.as_view(), out);
        }
        Ok(())
    }
}
