//! Every operation on a GPU, on blobs in BF16 and in NHWC, against the processor's in single precision and NCHW, which
//! has tests of its own.

use super::operands::{BOTH, Operand, SHAPES, blob, channels, check, check_in, floats, rounded};
use crate::activation::{self, Activation};
use crate::batch_norm::{self, Added, BatchNorm, RunningSums, Statistics};
use crate::copy::{self, Columns};
use crate::dropout::{self, Dropout};
use crate::eltwise::{self, Combination};
use crate::inner_product::{self, InnerProduct};
use crate::lrn::{self, Lrn, Region};
use crate::scale::{self, Affine, AffineGradients};
use crate::softmax::{self, LossOptions};
use crate::{AxisExtents, bias, pooling, testing::gpu};
use tensor::{
    ALIGNMENT, Accumulate, Arena, AxisOrder, Device, ElementType, Format, Out, PoolGeometry, Rounding, Space,
    Span,
};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_activations() {
    let functions = [
        Activation::RELU,
        Activation::Relu { slope: 0.1 },
        Activation::Elu { alpha: 0.5 },
        Activation::Sigmoid,
        Activation::TanH,
        Activation::Below,
    ];
    for dims in SHAPES {
        for f in functions {
            let reads = [blob(&dims, 1), blob(&dims, 2)];
            let writes = [blob(&dims, 3), blob(&dims, 4), blob(&dims, 5)];
            check(&format!("{f:?} {dims:?}"), [&reads, &writes], |device, _, reads, writes| {
                let [y, dx, in_place] = writes else { unreachable!() };
                activation::forward(device, f, Some(reads[0]), y.reborrow());
                activation::forward(device, f, None, in_place.reborrow());
                activation::backward(device, f, reads[0], Some(reads[1]), dx.reborrow().added());
            });
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_dropouts() {
    for dims in SHAPES {
        let (reads, writes) = ([blob(&dims, 1), Operand::Bytes(8)], [blob(&dims, 2), blob(&dims, 3)]);
        check_in(&[AxisOrder::Nchw], "dropout", [&reads, &writes], |device, _, reads, writes| {
            let dropout = Dropout { ratio: 0.25, seed: 5, iteration: reads[1] };
            dropout::apply(device, &dropout, Some(reads[0]), writes[0].reborrow().added());
            dropout::apply(device, &dropout, None, writes[1].reborrow().replaced());
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_eltwises() {
    for dims in SHAPES {
        let [two, three] = [vec![1.0, 0.5], vec![1.0, -0.5, 2.0]].map(Combination::Sum);
        for (combination, inputs) in
            [(two, 2), (three, 3), (Combination::Product, 3), (Combination::Maximum, 3)]
        {
            let reads: Vec<Operand> = (0..=inputs).map(|seed| blob(&dims, seed as u64)).collect();
            let writes = [blob(&dims, 7), blob(&dims, 8)];
            check(&format!("{combination:?} {dims:?}"), [&reads, &writes], |device, _, reads, writes| {
                let [y, dx] = writes else { unreachable!() };
                let relu = matches!(combination, Combination::Sum(_));
                let (x, dy) = (&reads[..inputs], reads[inputs]);
                eltwise::forward(device, &combination, x, relu, y.reborrow());
                eltwise::backward(device, &combination, x, 1, dy, dx.reborrow().added());
            });
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_scales() {
    for dims in SHAPES {
        let c = dims[1];
        let reads = [blob(&dims, 1), blob(&dims, 2), floats(c, 3), floats(c, 4)];
        let blobs = [blob(&dims, 5), blob(&dims, 6), blob(&dims, 7)].into_iter();
        let writes: Vec<Operand> = (blobs.chain([floats(c, 8), floats(c, 9), floats(c, 10)]))
            .chain([blob(&dims, 11), floats(c, 12), floats(c, 13)])
            .collect();
        check(&format!("scale {dims:?}"), [&reads, &writes], |device, format, reads, writes| {
            let e = channels(&dims, format);
            let [x, dy, gamma, beta] = *reads else { unreachable!() };
            let [y, in_place, dx, dgamma, dbeta, db, passed, of_passed, in_place_db] = writes else {
                unreachable!()
            };
            let affine = Affine { gamma: Some(gamma), beta: Some(beta) };
            scale::forward(device, &e, affine, true, Some(x), y.reborrow());
            scale::forward(device, &e, Affine { gamma: None, ..affine }, false, None, in_place.reborrow());
            scale::backward(device, &e, gamma, dy, dx.reborrow().added());
            let [gamma, beta] = [dgamma, dbeta].map(|diff| Some(diff.reborrow().added()));
            scale::backward_affine(device, &e, x, dy, AffineGradients { gamma, beta });
            bias::backward(device, &e, None, dy, db.reborrow().added());
            bias::backward(device, &e, Some(x), dy, of_passed.reborrow().added());
            bias::backward_in_place(device, &e, x, passed.reborrow(), in_place_db.reborrow().replaced());
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_batch_norms() {
    for (dims, statistics) in SHAPES
        .iter()
        .flat_map(|&dims| [Statistics::Batch, Statistics::Running].map(|statistics| (dims, statistics)))
    {
        let c = dims[1];
        let saved = Operand::Bytes(batch_norm::saved(&channels(&dims, Format::F32), None).bytes());
        let reads = [blob(&dims, 1), blob(&dims, 2), floats(c, 3), floats(c, 4), blob(&dims, 11)];
        let positive = Operand::Floats(vec![1.5; c]);
        let writes = [
            blob(&dims, 5),
            blob(&dims, 6),
            blob(&dims, 7),
            saved,
            floats(c, 8),
            positive,
            Operand::Floats(vec![2.0]),
            floats(c, 9),
            floats(c, 10),
            blob(&dims, 12),
        ];
        let check_norm = |relu: bool, sum: bool| {
            let what = format!("{statistics:?} {dims:?}, a ReLU: {relu}, a sum: {sum}");
            check(&what, [&reads, &writes], |device, format, reads, writes| {
                let extents = channels(&dims, format);
                let [x, dy, gamma, beta, added] = *reads else { unreachable!() };
                let [y, again, dx, saved, mean, variance, factor, dgamma, dbeta, of_added] = writes else {
                    unreachable!()
                };
                let affine = Affine { gamma: Some(gamma), beta: Some(beta) };
                let norm = BatchNorm { extents, statistics, affine, relu, pool: None };
                let [mean, variance, factor] = [mean, variance, factor].map(|view| view.reborrow());
                let running = RunningSums { mean, variance, factor, moving_average_fraction: 0.9 };
                let other = sum.then_some(added);
                batch_norm::forward(device, &norm, 1e-3, x, other, y.reborrow(), saved.reborrow(), running);
                batch_norm::repeat(device, &norm, x, other, again.reborrow(), saved.as_view());
                let gradients = AffineGradients {
                    gamma: Some(dgamma.reborrow().added()),
                    beta: Some(dbeta.reborrow().added()),
                };
                // Signs are those of an operand: two devices may round a sum to either side of 0.
                let gradient = Some(of_added.reborrow().replaced());
                let other = sum.then_some(Added { y: relu.then_some(added), gradient });
                batch_norm::backward(
                    device,
                    &norm,
                    x,
                    saved.as_view(),
                    dy,
                    dx.reborrow().added(),
                    gradients,
                    other,
                );
            });
        };
        [(true, false), (true, true), (false, true)].iter().for_each(|&(relu, sum)| check_norm(relu, sum));
    }
}

/// One operation on a GPU, and one after the other on the processor.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_batch_norms_with_a_pooling_behind() {
    for ([n, c, h, w], (pad, rounding)) in
        [[2, 8, 17, 16], [3, 5, 20, 23], [2, 72, 28, 27], [4, 1, 18, 19], [1, 16, 3, 2]].iter().flat_map(
            |&dims| {
                [(0, Rounding::Ceil), (1, Rounding::Floor), (1, Rounding::Ceil), (2, Rounding::Floor)]
                    .map(|how| (dims, how))
            },
        )
    {
        let pool = PoolGeometry { n, c, h, w, window: [3; 2], stride: [2; 2], pad: [pad; 2], rounding };
        let Ok(pool) = pool.validate() else { continue };
        let (image, outputs) = ([n, c, h, w], [n, c, pool.out_h(), pool.out_w()]);
        let plain = channels(&image, Format::F32);
        let bytes = |space: Space| Operand::Bytes(space.bytes());
        let between = Space::of::<f32>(pool.x_len());
        let reads = [blob(&image, 1), blob(&outputs, 2), floats(c, 3), floats(c, 4)];
        let writes = [
            blob(&outputs, 5),
            blob(&outputs, 6),
            blob(&image, 7),
            bytes(batch_norm::saved(&plain, Some(&pool))),
            floats(c, 8),
            Operand::Floats(vec![1.5; c]),
            Operand::Floats(vec![2.0]),
            floats(c, 9),
            floats(c, 10),
            bytes(between),
            bytes(between),
        ];
        let check_pooled = |relu: bool| {
            let what = format!("{pool:?}, a ReLU: {relu}");
            check_in(&BOTH[1..], &what, [&reads, &writes], |device, _, reads, writes| {
                let [x, dy, gamma, beta] = *reads else { unreachable!() };
                let [y, again, dx, saved, mean, variance, factor, dgamma, dbeta, normal, of_normal] = writes
                else {
                    unreachable!()
                };
                let affine = Affine { gamma: Some(gamma), beta: Some(beta) };
                let side_by_side = AxisExtents { outer: plain.per_index(), inner: 1, ..plain };
                let is_one = matches!(device, Device::Cuda(_));
                let (extents, pool_behind) = if is_one { (side_by_side, Some(pool)) } else { (plain, None) };
                let norm =
                    BatchNorm { extents, statistics: Statistics::Batch, affine, relu, pool: pool_behind };
                let [mean, variance, factor] = [mean, variance, factor].map(|view| view.reborrow());
                let running = RunningSums { mean, variance, factor, moving_average_fraction: 0.9 };
                let gradients = AffineGradients {
                    gamma: Some(dgamma.reborrow().added()),
                    beta: Some(dbeta.reborrow().added()),
                };
                if is_one {
                    batch_norm::forward(
                        device,
                        &norm,
                        1e-3,
                        x,
                        None,
                        y.reborrow(),
                        saved.reborrow(),
                        running,
                    );
                    batch_norm::repeat(device, &norm, x, None, again.reborrow(), saved.as_view());
                    let (saved, dx) = (saved.as_view(), dx.reborrow().added());
                    return batch_norm::backward(device, &norm, x, saved, dy, dx, gradients, None);
                }
                let [mut normal, mut of_normal] =
                    [normal, of_normal].map(|view| view.reborrow().take(Format::F32, pool.x_len()));
                let mut saved = saved.reborrow();
                let mut statistics = saved.take(Format::U8, batch_norm::saved(&plain, None).bytes());
                let to = (normal.reborrow(), statistics.reborrow());
                batch_norm::forward(device, &norm, 1e-3, x, None, to.0, to.1, running);
                for y in [y, again] {
                    let winners = saved.reborrow();
                    pooling::forward_max(
                        device,
                        &pool,
                        normal.as_view(),
                        (None, false),
                        y.reborrow(),
                        winners,
                    );
                }
                pooling::backward_max(device, &pool, saved.as_view(), dy, of_normal.reborrow().replaced());
                let (statistics, dx) = (statistics.as_view(), dx.reborrow().added());
                batch_norm::backward(device, &norm, x, statistics, of_normal.as_view(), dx, gradients, None);
            });
        };
        [false, true].into_iter().for_each(check_pooled);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_poolings() {
    let windows: [([usize; 2], [usize; 2], [usize; 2]); 7] = [
        ([2, 2], [2, 2], [0, 0]),
        ([3, 3], [2, 2], [0, 0]),
        ([3, 3], [2, 2], [1, 1]),
        ([3, 3], [1, 1], [1, 1]),
        ([2, 3], [1, 2], [0, 1]),
        ([7, 5], [3, 2], [2, 2]),
        ([17, 16], [1, 1], [0, 0]),
    ];
    for ([n, c, h, w], (window, stride, pad)) in
        [[2, 8, 17, 16], [3, 5, 20, 23], [2, 64, 28, 28], [4, 1, 18, 19]]
            .iter()
            .flat_map(|&dims| windows.map(|w| (dims, w)))
    {
        let g =
            PoolGeometry { n, c, h, w, window, stride, pad, rounding: Rounding::Ceil }.validate().unwrap();
        let (image, outputs) = ([n, c, h, w], [n, c, g.out_h(), g.out_w()]);
        let reads = [blob(&image, 1), blob(&outputs, 2), floats(c, 7)];
        let mask = Operand::Bytes(pooling::mask(&g).bytes());
        let writes = [blob(&outputs, 3), blob(&outputs, 4), blob(&image, 5), blob(&image, 6), mask];
        let (relu, is_biased) = (c % 2 == 0, h % 2 == 0);
        check(&format!("{g:?}"), [&reads, &writes], |device, _, reads, writes| {
            let [largest, mean, dx, of_mean, mask] = writes else { unreachable!() };
            let behind = (is_biased.then_some(reads[2]), relu);
            pooling::forward_max(device, &g, reads[0], behind, largest.reborrow(), mask.reborrow());
            pooling::backward_max(device, &g, mask.as_view(), reads[1], dx.reborrow().added());
            pooling::forward_average(device, &g, reads[0], mean.reborrow());
            pooling::backward_average(device, &g, reads[1], of_mean.reborrow().added());
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_lrns() {
    use Region::{AcrossChannels, WithinChannel};
    for (dims, region, size) in SHAPES.iter().flat_map(|&dims| {
        [(AcrossChannels, 5), (AcrossChannels, 3), (WithinChannel, 3)].map(|(r, s)| (dims, r, s))
    }) {
        let layouts = if region == AcrossChannels { &BOTH[..] } else { &BOTH[..1] };
        let lrn = Lrn { region, size, alpha: 0.5, beta: 0.75, k: 1.0 };
        let scratch = Operand::Bytes(lrn::scratch(&lrn, dims.iter().product()).bytes());
        let (reads, writes) = ([blob(&dims, 1), blob(&dims, 2)], [blob(&dims, 3), blob(&dims, 4), scratch]);
        check_in(layouts, &format!("{lrn:?} {dims:?}"), [&reads, &writes], |device, _, reads, writes| {
            let [y, dx, scratch] = writes else { unreachable!() };
            lrn::forward(device, &lrn, dims, reads[0], y.reborrow());
            let dx = dx.reborrow().added();
            lrn::backward(device, &lrn, dims, [reads[0], reads[1]], dx, scratch.reborrow());
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_softmaxes() {
    for dims in SHAPES.into_iter().filter(|dims| dims[1] > 4) {
        let e = channels(&dims, Format::F32);
        let labels = (0..e.per_index()).map(|i| (i * 7 % e.axis) as f32).collect();
        let saved = Operand::Bytes(softmax::saved(&e).bytes());
        let reads = [blob(&dims, 1), blob(&dims, 2), Operand::Floats(labels)];
        let writes = [blob(&dims, 3), blob(&dims, 4), blob(&dims, 5), floats(1, 6), floats(1, 7), saved];
        check_in(&BOTH[..1], &format!("softmax {dims:?}"), [&reads, &writes], |device, _, reads, writes| {
            let options = LossOptions::default();
            let [x, dy, labels] = *reads else { unreachable!() };
            let [y, dx, of_loss, loss, share, saved] = writes else { unreachable!() };
            softmax::forward(device, &e, x, y.reborrow());
            softmax::backward(device, &e, x, dy, dx.reborrow().added());
            softmax::loss(device, &e, &options, x, labels, saved.reborrow(), loss.reborrow()).unwrap();
            let (saved, dx) = (saved.as_view(), of_loss.reborrow().added());
            softmax::loss_backward(device, &e, &options, 3.0, saved, labels, dx);
            softmax::accuracy(device, &e, 3, None, x, labels, share.reborrow(), None).unwrap();
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_copies() {
    for dims in SHAPES {
        let [n, c, h, w] = dims;
        let (part, whole) = ([n, c, h, w], [n, c + 8, h, w]);
        let (reads, writes) =
            ([blob(&part, 1), blob(&whole, 2)], [blob(&whole, 3), blob(&part, 4), blob(&part, 5)]);
        check(&format!("copies {dims:?}"), [&reads, &writes], |device, format, reads, writes| {
            // A single channel lies alike in both orders, but not among others.
            let AxisExtents { outer: rows, inner, .. } = channels(&whole, format);
            let columns = Columns { rows, stride: (c + 8) * inner, offset: 4 * inner, width: c * inner };
            let [joined, cut, copied] = writes else { unreachable!() };
            copy::into_columns(device, &columns, reads[0], joined.reborrow().replaced());
            copy::from_columns(device, &columns, reads[1], cut.reborrow().added());
            copy::copy(device, reads[0], copied.reborrow().added());
        });
    }
}

/// From every format to every other.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_conversions() {
    let formats = [Format::F32, Format::BF16].map(|format| BOTH.map(|order| format.in_order(order))).concat();
    // Images of three channels have a CUDA kernel of their own; one fills several blocks of it, one is no whole packs.
    let shapes = SHAPES.into_iter().chain([[5, 3, 36, 36], [3, 3, 5, 5]]);
    for (dims, &from) in shapes.flat_map(|dims| formats.iter().map(move |from| (dims, from))) {
        for &to in &formats {
            let (x, start) = (blob(&dims, 1), blob(&dims, 2));
            let place = |operand: &Operand, format: Format, offset| {
                let tensor = operand.tensor_format(format);
                Span { offset, len: operand.len() * tensor.dtype.bytes(), format: tensor }
            };
            let a = place(&x, from, 0);
            let b = place(&start, to, a.end().next_multiple_of(ALIGNMENT));
            let mut arena = Arena::on(&gpu(), b.end()).unwrap();
            x.write(&mut arena, a);
            for accumulate in [Accumulate::Replace, Accumulate::Add] {
                start.write(&mut arena, b);
                let ([from_view], [to_view]) = arena.lease([a], [b]).unwrap();
                copy::convert(&gpu(), &dims, from_view, Out { to: to_view, accumulate });
                gpu().check().unwrap();
                let (Operand::Blob(_, x), Operand::Blob(_, old)) = (&x, &start) else { unreachable!() };
                let sum = |(&x, &old): (&f32, &f32)| match (accumulate, to.dtype) {
                    (Accumulate::Replace, _) => x,
                    (Accumulate::Add, ElementType::Bf16) => rounded(x + old),
                    (Accumulate::Add, _) => x + old,
                };
                let expected: Vec<f32> = x.iter().zip(old).map(sum).collect();
                assert_eq!(start.read(&arena, b), expected, "{from} to {to}, {dims:?}, {accumulate:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_inner_products() {
    for [n, inputs, outputs] in [[1, 1, 1], [3, 17, 5], [32, 100, 70], [64, 800, 500], [8, 64, 1000]] {
        for transpose in [false, true] {
            let e = InnerProduct { n, inputs, outputs, transpose };
            let [_, w_len, _] = e.lens();
            let reads =
                [blob(&[n, inputs], 1), blob(&[n, outputs], 2), floats(outputs, 3), blob(&[w_len], 4)];
            let writes =
                [blob(&[n, outputs], 5), blob(&[n, inputs], 6), floats(w_len, 7), floats(outputs, 8)];
            check_in(&BOTH[..1], &format!("{e:?}"), [&reads, &writes], |device, _, reads, writes| {
                let [x, dy, b, w] = *reads else { unreachable!() };
                let [y, dx, dw, db] = writes else { unreachable!() };
                inner_product::forward(device, &e, x, w, y.reborrow());
                bias::forward_in_place(device, &e.rows(), b, false, y.reborrow());
                inner_product::backward_data(device, &e, dy, w, dx.reborrow().added());
                inner_product::backward_weights(device, &e, x, dy, dw.reborrow().added());
                bias::backward(device, &e.rows(), None, dy, db.reborrow().added());
            });
        }
    }
}
