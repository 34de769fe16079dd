//! Does a planned configuration compute the convolution?
//!
//! It runs on operands in which no sample is like another, and all of its output is compared with the definition in double
//! precision, not with another algorithm, which may share its fault. That would take too long element by element, so sums
//! are compared (`draw.rs` says why that is enough). The output holds NaN before the kernel replaces it, which a slice
//! that is left out keeps, and then its own result, which the kernel adds once more.

mod draw;
#[cfg(test)]
mod tests;

use super::{ConvBackend, ConvError, ConvOp, Runner, operand_lens};
use draw::Draw;
use planner::{Bytes, Configuration};
use tensor::{
    Accumulate, Arena, ConvGeometry, Cursor, Device, Format, Space, View, ViewMut, pattern::random,
};

/// The relative L2 distance between the results of `configuration` and the exact ones, as estimated from a few sums over
/// all elements: where the output is replaced, and where it is added to.
///
/// # Errors
/// A configuration that cannot run, or a GPU that fails or lacks memory.
pub fn distances(
    device: &Device,
    op: ConvOp,
    geometry: ConvGeometry,
    configuration: &Configuration,
) -> Result<[(Accumulate, f64); 2], ConvError> {
    let runner = Runner::new(&ConvBackend::of(device)?, op, geometry, configuration)?;
    distances_of(device, op, &geometry, runner.workspace(), |operands, out, accumulate, workspace| {
        runner.run(operands, out, accumulate, workspace)
    })
}

/// The memory that [`distances`] takes: operands and workspace, and on the host sums of the size of a sample.
pub fn memory(op: ConvOp, g: &ConvGeometry, configuration: &Configuration) -> Bytes {
    let operands = operand_lens(op, g).into_iter().sum::<usize>() * size_of::<f32>();
    let sums = (g.x_sample() + g.y_sample() + g.w_len()) * size_of::<f64>();
    Bytes((operands + sums) as u64) + configuration.workspace()
}

/// As [`distances`], for anything that runs a kernel as [`Runner::run`] does.
fn distances_of(
    device: &Device,
    op: ConvOp,
    g: &ConvGeometry,
    workspace: Space,
    run: impl Fn([View<'_>; 2], ViewMut<'_>, Accumulate, ViewMut<'_>) -> Result<(), ConvError> + Sync,
) -> Result<[(Accumulate, f64); 2], ConvError> {
    let [a_len, b_len, out_len] = operand_lens(op, g);
    let mut cursor = Cursor::default();
    let [a, b, out] = [a_len, b_len, out_len].map(|len| cursor.take(Format::F32, len));
    let workspace = cursor.take(Format::U8, workspace.bytes());
    let mut arena = Arena::on(device, cursor.end())?;
    let filters = if op == ConvOp::BackwardFilter { g.n } else { g.k };
    let operands = [Operand::new(a_len / g.n, 1), Operand::new(b_len / filters, 2)];
    arena.repeat(a, &operands[0].pattern)?;
    arena.repeat(b, &operands[1].pattern)?;
    arena.set(out, 0xff)?;
    let draws = Draw::some(op, g);
    let exact: Vec<f64> = draws.iter().map(|draw| draw.exact(op, g, &operands)).collect();
    let mut distance = |accumulate, times| -> Result<f64, ConvError> {
        let ([a, b], [to, workspace]) = arena.lease([a, b], [out, workspace]).expect("spans side by side");
        device.run(|| run([a, b], to, accumulate, workspace))?;
        device.check()?;
        Ok(draw::distance(&arena.read(out)?, &draws, &exact, times))
    };
    Ok([
        (Accumulate::Replace, distance(Accumulate::Replace, 1.0)?),
        (Accumulate::Add, distance(Accumulate::Add, 2.0)?),
    ])
}

/// The values of an operand: a pattern over and over, of a length at which no two samples begin.
struct Operand {
    pattern: Vec<f32>,
}

/// A prime number. Samples that are no multiple of it are alike only if their numbers differ by a multiple of it.
const PERIOD: usize = (1 << 20) - 3;

impl Operand {
    /// Values for samples (or filters) of `sample` elements. Operands with different `seed`s are independent.
    fn new(sample: usize, seed: u64) -> Self {
        // In multiples of one period, samples are alike only after more values than any memory has of the other.
        let period = if sample.is_multiple_of(PERIOD) { PERIOD - 1 } else { PERIOD };
        Self { pattern: random(period, seed) }
    }

    /// `len` values from number `start` on, in runs of neighbours.
    fn runs(&self, start: usize, len: usize) -> impl Iterator<Item = &[f32]> {
        let (mut from, mut left) = (start % self.pattern.len(), len);
        std::iter::from_fn(move || {
            let run = &self.pattern[from..][..left.min(self.pattern.len() - from)];
            (from, left) = (0, left - run.len());
            (!run.is_empty()).then_some(run)
        })
    }
}
