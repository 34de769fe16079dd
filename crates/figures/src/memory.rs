//! The memory of a run, as it is laid out before anything is allocated.

use crate::table::Table;
use memory::{LayerMemory, MemoryReport};
use planner::Bytes;

/// The parts of the arena, which lies in a `place` such as ` on the GPU`, and what they would be without sharing.
pub fn arena_lines(report: &MemoryReport, place: &str) -> String {
    let MemoryReport { parameters, gradients, history, constants, segments, staged, nets, arena, .. } =
        report;
    let largest = nets.iter().max_by_key(|net| net.transient).copied().unwrap_or_default();
    let unshared = largest.data + largest.diff + largest.saved + largest.scratch;
    let parts = [
        ("parameters", *parameters),
        ("gradients", *gradients),
        ("history", *history),
        ("inputs", *constants),
        ("WD segments", *segments),
        ("next mini-batches", *staged),
        ("blobs and workspace", largest.transient),
    ];
    let parts = parts.iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let parts: Vec<String> = parts.map(|(name, bytes)| format!("{name} {bytes}")).collect();
    format!(
        "  memory      arena{place} {arena} = {}\n              (blobs and workspace would be {unshared} if none shared \
         its place)",
        parts.join(" + ")
    )
}

/// The memory of all layers, one a line, and the sums.
pub fn layer_table(layers: &[LayerMemory]) -> Table {
    let mut table = Table::new(["layer", "type", "top", ">data", ">diff", ">workspace", ">weights"]);
    let cell = |bytes: Bytes| if bytes == Bytes::ZERO { "-".to_owned() } else { bytes.to_string() };
    let mut row = |words: [&str; 3], sizes: [Bytes; 4]| {
        table.row(words.map(str::to_owned).into_iter().chain(sizes.map(cell)));
    };
    for LayerMemory { name, type_name, shape, data, diff, workspace, weights } in layers {
        row([name, type_name, shape], [*data, *diff, *workspace, *weights]);
    }
    let sum = |of: fn(&LayerMemory) -> Bytes| layers.iter().map(of).sum::<Bytes>();
    let workspace = layers.iter().map(|layer| layer.workspace).max().unwrap_or_default();
    let sums = [sum(|layer| layer.data), sum(|layer| layer.diff), workspace, sum(|layer| layer.weights)];
    row(["sum", "(of workspace: largest)", ""], sums);
    table
}
