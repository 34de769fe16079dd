//! Measures how near to a copy's bandwidth the GPU's operations are that memory limits.
//!
//! ```text
//! cargo run --release -p microbatch-layers --example bandwidth
//! ```
//!
//! Each row is an operation on blobs of some samples, channels and pixels, with the passes over such a blob that it
//! needs at least, by which its rate counts. A blob that fits the GPU's second-level cache may be faster than a copy
//! from memory; one below 8 MiB is limited by how fast this program launches.

use cudnn_layers::activation::{self, Activation};
use cudnn_layers::batch_norm::{self, Added, BatchNorm, RunningSums, Statistics};
use cudnn_layers::scale::{Affine, AffineGradients};
use cudnn_layers::{AxisExtents, bias, copy, pooling};
use tensor::{
    Arena, AxisOrder, Cursor, Device, Format, PoolGeometry, Rounding, Span, TensorType, View, ViewMut,
    cuda::probe,
};

const SHAPES: [[usize; 4]; 7] = [
    [256, 256, 56, 56],
    [128, 64, 112, 112],
    [256, 64, 55, 55],
    [128, 64, 56, 56],
    [32, 256, 56, 56],
    [32, 1024, 14, 14],
    [32, 512, 7, 7],
];

fn main() {
    let gpu = probe().expect("an NVIDIA GPU").open(0).expect("the first GPU");
    let device = Device::Cuda(gpu);
    println!(
        "{:<24} {:<18} {:<30} {:>9} {:>8} {:>8}",
        "format", "shape", "operation", "us", "TB/s", "of copy"
    );
    for format in [Format::BF16.in_order(AxisOrder::Nhwc), Format::F32.in_order(AxisOrder::Nhwc), Format::F32]
    {
        SHAPES.iter().for_each(|&dims| measure(&device, format, dims));
    }
}

/// Five blobs, the pooled one and its winners, and six parameters of a channel each.
fn spans(format: Format, dims: [usize; 4], pool: &PoolGeometry) -> (Vec<Span>, usize) {
    let mut cursor = Cursor::default();
    let blob = TensorType::new(&dims, format);
    let mut spans: Vec<Span> = (0..5).map(|_| cursor.take(blob.format(), blob.count())).collect();
    spans.push(cursor.take(blob.format(), pool.y_len()));
    spans.push(cursor.take(Format::U8, pooling::mask(pool).bytes()));
    spans.push(cursor.take(Format::U8, 2 * 1024 * dims[1]));
    spans.extend((0..7).map(|_| cursor.take(Format::F32, dims[1])));
    let end = spans.iter().map(Span::end).max().unwrap_or(0);
    (spans, end)
}

fn measure(device: &Device, format: Format, dims: [usize; 4]) {
    let [n, c, h, w] = dims;
    let pool =
        PoolGeometry { n, c, h, w, window: [3; 2], pad: [0; 2], stride: [2; 2], rounding: Rounding::Ceil };
    let pool = pool.validate().expect("a geometry");
    let (spans, end) = spans(format, dims, &pool);
    let mut arena = Arena::on(device, end).expect("memory");
    arena.set(arena.all(), 0).expect("a device");
    let (_, views) = arena.lease_all(&[], &spans).expect("different places");
    let Ok::<[ViewMut<'_>; 15], _>(
        [
            x,
            mut y,
            dy,
            mut dx,
            mut other,
            mut pooled,
            mut mask,
            mut saved,
            gamma,
            beta,
            mut dgamma,
            mut dbeta,
            mut mean,
            mut variance,
            mut factor,
        ],
    ) = views.try_into()
    else {
        unreachable!("as many views as spans")
    };
    let extents = AxisExtents::new(&TensorType::new(&dims, format), 1);
    let affine = Affine { gamma: Some(gamma.as_view()), beta: Some(beta.as_view()) };
    let norm = BatchNorm { extents, statistics: Statistics::Batch, affine, relu: true, pool: None };
    let mut copy_ms = 0.0;
    let mut row = |name: &str, passes: f64, op: &mut dyn FnMut()| {
        let ms = time_ms(device, op);
        let bytes = passes * (extents.len() * format.dtype.bytes()) as f64;
        copy_ms = if copy_ms == 0.0 { ms / passes } else { copy_ms };
        let (rate, ratio) = (bytes / ms / 1e9, copy_ms * passes / ms);
        let [format, shape] = [format!("{format}"), format!("{n} {c} {h} {w}")];
        println!("{format:<24} {shape:<18} {name:<30} {:>9.1} {rate:>8.2} {ratio:>8.2}", ms * 1e3);
    };
    row("copy", 2.0, &mut || copy::copy(device, x.as_view(), y.reborrow().replaced()));
    let mut forward = |added: bool, x: View<'_>, other: View<'_>, y: ViewMut<'_>, saved: ViewMut<'_>| {
        let [mean, variance, mut factor] =
            [&mut mean, &mut variance, &mut factor].map(|state| state.reborrow());
        let factor = factor.slice(0..1);
        let running = RunningSums { mean, variance, factor, moving_average_fraction: 0.9 };
        batch_norm::forward(device, &norm, 1e-5, x, added.then_some(other), y, saved, running);
    };
    for (name, passes, added) in [("batch norm", 3.0, false), ("batch norm, sum", 4.0, true)] {
        row(name, passes, &mut || {
            forward(added, x.as_view(), other.as_view(), y.reborrow(), saved.reborrow())
        });
    }
    for (name, passes, added) in
        [("batch norm backward", 5.0, false), ("batch norm, sum backward", 7.0, true)]
    {
        row(name, passes, &mut || {
            let [gamma, beta] = [&mut dgamma, &mut dbeta].map(|diff| Some(diff.reborrow().replaced()));
            let gradient = Some(other.reborrow().replaced());
            let added = added.then_some(Added { y: Some(y.as_view()), gradient });
            let gradients = AffineGradients { gamma, beta };
            batch_norm::backward(
                device,
                &norm,
                x.as_view(),
                saved.as_view(),
                dy.as_view(),
                dx.reborrow().replaced(),
                gradients,
                added,
            );
        });
    }
    row("bias backward", 1.0, &mut || {
        bias::backward(device, &extents, None, dy.as_view(), dbeta.reborrow().replaced())
    });
    row("ReLU backward", 3.0, &mut || {
        activation::backward(
            device,
            Activation::RELU,
            y.as_view(),
            Some(dy.as_view()),
            dx.reborrow().replaced(),
        );
    });
    let shrunk = pool.y_len() as f64 / extents.len() as f64;
    let with_mask = 1.0 + shrunk * (1.0 + 1.0 / format.dtype.bytes() as f64);
    row("max pooling", with_mask, &mut || {
        pooling::forward_max(device, &pool, x.as_view(), (None, true), pooled.reborrow(), mask.reborrow());
    });
    row("max pooling backward", with_mask, &mut || {
        pooling::backward_max(device, &pool, mask.as_view(), pooled.as_view(), dx.reborrow().replaced());
    });
}

/// The median of ten times ten.
fn time_ms(device: &Device, op: &mut dyn FnMut()) -> f64 {
    let mut ten = || {
        let start = device.mark().expect("a device");
        (0..10).for_each(|_| op());
        let end = device.mark().expect("a device");
        device.check().expect("the operation runs");
        start.ms_until(&end).expect("both were reached") / 10.0
    };
    ten();
    let mut times: Vec<f64> = (0..10).map(|_| ten()).collect();
    times.sort_by(f64::total_cmp);
    times[5]
}
