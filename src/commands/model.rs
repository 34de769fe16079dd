//! `microbatch model`: nets that are too deep to be kept as files.

use crate::{Console, Result, models::Model};

/// Convolutions in the groups of VGG-16.
const GROUPS: [usize; 5] = [2, 2, 3, 3, 3];

/// Prints VGG with `depth` layers of weights: VGG-16 with more convolutions a group (Rhu et al. 2016, section V-E).
pub(super) fn vgg(depth: usize) -> Result<()> {
    let more = depth.checked_sub(16).filter(|more| more.is_multiple_of(GROUPS.len()));
    let more = more
        .ok_or_else(|| usage!("--depth {depth} is not 16 and a multiple of five more, such as 21 or 116"))?;
    let vgg16 = Model::find("vgg16").expect("it is part of the command").net;
    let layers =
        vgg16.split_once("name:").map_or(vgg16, |(_, net)| net).replace("vgg16", &format!("vgg{depth}"));
    let net =
        (1..).zip(GROUPS).fold(layers, |net, (group, size)| deepen(&net, group, size, more / GROUPS.len()));
    Console::new(false).text(format!("name:{}", net.trim_end()))
}

/// `net` with the last convolution of `group`, which has `size` of them, and its ReLU repeated `more` times.
fn deepen(net: &str, group: usize, size: usize, more: usize) -> String {
    let layer =
        |name: String| net.find(&format!("layer {{\n  name: \"{name}\"")).expect("VGG-16 has this layer");
    let (last, pool) = (layer(format!("conv{group}_{size}")), layer(format!("pool{group}")));
    let (before, rest) = net.split_at(pool);
    let number = |text: &str, from: usize, to: usize| {
        text.replace(&format!("{group}_{from}\""), &format!("{group}_{to}\""))
    };
    let repeat = |to: usize| number(&number(&net[last..pool], size, to), size - 1, to - 1);
    let repeated: String = (size + 1..=size + more).map(repeat).collect();
    format!("{before}{repeated}{}", number(rest, size, size + more))
}
