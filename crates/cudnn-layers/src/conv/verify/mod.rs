//! Does a planned configuration compute the convolution?
//!
//! It runs on operands in which no sample is like another, and all of its output is compared with the definition in
//! double precision, not with another algorithm, which may share its fault. That would take too long element by
//! element, so sums are compared (`draw.rs` says why that is enough). The output holds NaN before the kernel replaces
//! it, which a slice that is left out keeps, and then its own result, which the kernel adds once more.

mod draw;
mod operand;
#[cfg(test)]
mod tests;

use super::operands::{operand_lens, operands, padded};
use super::{ConvOp, Result, Runner};
use crate::{copy, space_to_depth};
use draw::Draw;
use planner::{Bytes, Configuration};
use tensor::{Accumulate, Arena, ConvGeometry, Cursor, Device, Format, Out, Space, View, ViewMut};

/// The relative L2 distance between the results of `configuration` and the exact ones, as estimated from a few sums
/// over all elements: where the output is replaced, and where it is added to.
///
/// # Errors
/// A configuration that cannot run, or a GPU that fails or lacks memory.
pub fn distances(
    device: &Device,
    op: ConvOp,
    geometry: ConvGeometry,
    configuration: &Configuration,
) -> Result<[(Accumulate, f64); 2]> {
    let (runner, format) = (Runner::new(device, op, geometry, configuration)?, device.format());
    if format == Format::F32 {
        return distances_of(device, op, &geometry, runner.workspace(), |operands, out, workspace| {
            runner.run(operands, out, workspace)
        });
    }
    // Before the workspace lie the operands as the kernel wants them.
    let types = operands(op, &geometry, format);
    let lens = types.each_ref().map(|tensor| padded(tensor.format(), tensor.count()));
    let space = Space::aligned(lens.iter().sum::<usize>() + runner.workspace().bytes());
    let plain = geometry.in_packs(0);
    distances_of(device, op, &plain, space, |[a, b], Out { to: mut out, accumulate }, mut memory| {
        let convert = |operand: usize, from: View<'_>, to: ViewMut<'_>| match operand {
            0 if geometry.pack > 0 => space_to_depth::images_to_blocks(device, &geometry, from, to),
            _ => copy::convert(device, types[operand].dims(), from, to.replaced()),
        };
        let [mut own_a, mut own_b, mut own_out] = std::array::from_fn(|operand| {
            memory.take(Format::U8, lens[operand]).take(types[operand].format(), types[operand].count())
        });
        convert(0, a, own_a.reborrow());
        convert(1, b, own_b.reborrow());
        convert(2, out.as_view(), own_out.reborrow());
        let to = Out { to: own_out.reborrow(), accumulate };
        let run = runner.run([own_a.as_view(), own_b.as_view()], to, memory);
        convert(2, own_out.as_view(), out.reborrow());
        run
    })
}

/// The memory that [`distances`] takes: operands, once more in another `format`, and workspace; on the host sums of the
/// size of a sample.
pub fn memory(op: ConvOp, g: &ConvGeometry, format: Format, configuration: &Configuration) -> Bytes {
    let twice = if format == Format::F32 { 1 } else { 2 };
    let operands = operand_lens(op, g).into_iter().sum::<usize>() * size_of::<f32>() * twice;
    let sums = (g.x_sample() + g.y_sample() + g.w_len()) * size_of::<f64>();
    Bytes((operands + sums) as u64) + configuration.workspace()
}

/// As [`distances`], for anything that runs a kernel as [`Runner::run`] does.
fn distances_of(
    device: &Device,
    op: ConvOp,
    g: &ConvGeometry,
    workspace: Space,
    run: impl Fn([View<'_>; 2], Out<'_>, ViewMut<'_>) -> Result<()> + Sync,
) -> Result<[(Accumulate, f64); 2]> {
    let [a_len, b_len, out_len] = operand_lens(op, g);
    let mut cursor = Cursor::default();
    let [a, b, out] = [a_len, b_len, out_len].map(|len| cursor.take(Format::F32, len));
    let workspace = cursor.take(Format::U8, workspace.bytes());
    let mut arena = Arena::on(device, cursor.end())?;
    let filters = if op == ConvOp::BackwardFilter { g.n } else { g.k };
    let patterns = [operand::pattern(a_len / g.n, 1), operand::pattern(b_len / filters, 2)];
    arena.repeat(a, &patterns[0])?;
    arena.repeat(b, &patterns[1])?;
    arena.set(out, 0xff)?;
    let draws = Draw::some(op, g);
    let exact: Vec<f64> = draws.iter().map(|draw| draw.exact(op, g, &patterns)).collect();
    let mut distance = |accumulate, times| -> Result<(Accumulate, f64)> {
        let ([a, b], [to, workspace]) = arena.lease([a, b], [out, workspace]).expect("spans side by side");
        device.run(|| run([a, b], Out { to, accumulate }, workspace))?;
        device.check()?;
        Ok((accumulate, draw::distance(&arena.read(out)?, &draws, &exact, times)))
    };
    Ok([distance(Accumulate::Replace, 1.0)?, distance(Accumulate::Add, 2.0)?])
}
