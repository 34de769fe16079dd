//! `microbatch data render`.

use crate::{Console, Result, args::RenderArgs, progress};
use figures::counted;
use trainer::data::{Rendering, render as draw};

pub(super) fn render(args: &RenderArgs) -> Result<()> {
    let &RenderArgs { classes, per_class, size, seed, .. } = args;
    let images = classes * per_class;
    let bar = progress::bar(images as u64, "drawing");
    let drawn = draw(&Rendering { classes, per_class, size, seed }, &args.out, || bar.inc(1));
    drop(bar);
    drawn?;
    let (out, images, classes) = (args.out.display(), counted(images, "image"), counted(classes, "class"));
    Console::new(false).text(format!("{out}: {images} of {size}x{size} pixels, {classes}"))
}
