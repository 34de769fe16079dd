//! vDNN and AccUDNN on the nets of the papers and on random ones.

mod nets;

use memory::Action::{self, Backward, Forward, Hold, Offload, Prefetch};
use memory::policy::{
    Algorithms, LayerWork, MemoryPlan, MemoryPolicy, Offloading, Speeds, TimedSize, learning_rate, tune,
    vdnn, vdnn_dyn,
};
use memory::{ArenaLayout, Buffer, Schedule};
use nets::{EVERYTHING, FP32, Net, offloaded};
use planner::Bytes;

fn vdnn_of(net: &Net, offloading: Offloading, algorithms: Algorithms) -> MemoryPlan {
    vdnn(&net.outline, &net.costs, EVERYTHING, net.classifier(), (offloading, algorithms)).unwrap()
}

#[test]
fn vdnn_frees_a_map_after_its_last_reader_and_waits_as_published() {
    let net = nets::resnet([1, 1, 1, 1], 8, FP32);
    let plan = vdnn_of(&net, Offloading::All, Algorithms::LeastMemory);
    let schedule = Schedule::new(&net.outline, plan.actions.clone()).unwrap();
    let at = |wanted: Action| plan.actions.iter().position(|&action| action == wanted).unwrap();
    let computing = |from: usize| {
        let later = (from..plan.actions.len()).filter(|&at| plan.actions[at].pass().is_some());
        later.collect::<Vec<_>>()
    };
    let mut copies = 0;
    for (index, &action) in plan.actions.iter().enumerate() {
        let spans = &plan.timeline.spans_ms;
        match action {
            Offload(buffer) => {
                let [beside, next] = computing(index)[..2] else { panic!("a copy out runs beside a layer") };
                let Buffer::Data(root) = buffer else { panic!("{buffer:?} is no input") };
                let reads = |at: &usize| {
                    matches!(plan.actions[*at], Forward(node)
                    if net.outline.nodes[node].bottoms.iter().any(|&id| net.outline.values[id].root == root))
                };
                let readers: Vec<usize> = (0..plan.actions.len()).filter(reads).collect();
                assert_eq!(readers.last(), Some(&beside), "{buffer:?} leaves beside its last reader");
                assert!(spans[next][0] >= spans[index][1], "the next layer waits for {buffer:?}");
                copies += 1;
            }
            Prefetch(buffer) => {
                let [beside, next] = computing(index)[..2] else { panic!("a copy back runs beside a layer") };
                let is_held = plan.actions[beside..next].contains(&Hold(buffer));
                assert!(!is_held || spans[next][0] >= spans[index][1], "the next layer waits for {buffer:?}");
                assert!(index > at(Offload(buffer)));
            }
            _ => {}
        }
    }
    // The input of the first block's fork is read by both of its branches.
    assert!(copies > 10 && schedule.waits.iter().any(|waits| !waits.is_empty()));
    assert!(plan.timeline.alive.iter().all(|&alive| alive <= plan.device));
}

#[test]
fn vdnn_prefetches_within_windows() {
    let mut net = Net::new(4, FP32);
    let data = net.data(3, 32);
    let mut x = net.conv(data, 8, 3, 1);
    x = net.relu(x);
    x = net.pool(x, 2);
    x = net.conv(x, 8, 3, 1);
    x = net.product(x, 10);
    let net = net.loss(x);
    // Nodes: 0 data, 1 conv, 2 relu in place, 3 pool, 4 conv, 5 product, 6 loss; values are their tops.
    let copies = |offloading| {
        let actions = vdnn_of(&net, offloading, Algorithms::Fastest).actions;
        let copies = actions.into_iter().filter(|action| !matches!(action, Hold(_)));
        copies.skip_while(|action| !matches!(action, Prefetch(_))).collect::<Vec<_>>()
    };
    let data = |root| Prefetch(Buffer::Data(root));
    let update = Action::Update(0, net.outline.params.len());
    assert_eq!(
        copies(Offloading::Convolutions),
        [
            data(3),
            Backward(6),
            Backward(5),
            data(0),
            Backward(4),
            Backward(3),
            Backward(2),
            Backward(1),
            update
        ]
    );
    assert_eq!(
        copies(Offloading::All),
        [
            data(3),
            Backward(6),
            Backward(5),
            data(1),
            Backward(4),
            data(0),
            Backward(3),
            Backward(2),
            Backward(1),
            update
        ]
    );
}

/// The sizes follow from the nets' definitions.
#[test]
fn vdnn_offloads_as_much_as_the_nets_have() {
    for (more, n, expected) in [(0, 256, 15.4e9), (80, 32, 64.6e9)] {
        let net = nets::vgg(more, n, FP32);
        let plan = vdnn_of(&net, Offloading::All, Algorithms::LeastMemory);
        // The papers' numbers are without the images.
        let moved = (offloaded(&plan) - net.outline.values[0].bytes.0) as f64;
        assert!((moved / expected - 1.0).abs() < 0.01, "{moved} bytes of VGG + {more}");
    }
}

#[test]
fn vdnn_dyn_tries_in_the_order_of_the_paper() {
    use Algorithms::{Fastest, Greedy, LeastMemory};
    use Offloading::{All, Convolutions, Nothing};
    let order = [
        (All, LeastMemory),
        (Nothing, Fastest),
        (Convolutions, Fastest),
        (All, Fastest),
        (Convolutions, Greedy),
        (All, Greedy),
    ];
    let net = nets::vgg(0, 2, FP32);
    for fitting in 0..=order.len() {
        let mut tried = Vec::new();
        let result = vdnn_dyn(|offloading, algorithms| {
            tried.push((offloading, algorithms));
            let is_first = (offloading, algorithms) == order[0];
            let fits = fitting > 0 && (is_first || (offloading, algorithms) == order[fitting % order.len()]);
            if fits { Ok(vdnn_of(&net, offloading, algorithms)) } else { Err(()) }
        });
        let expected = match fitting {
            0 => Err(()),
            _ => Ok(vdnn_of(&net, order[fitting % order.len()].0, order[fitting % order.len()].1)),
        };
        assert_eq!(result, expected, "{fitting}");
        let count = if fitting == 0 {
            1
        } else if fitting == order.len() {
            order.len()
        } else {
            fitting + 1
        };
        assert_eq!(tried, order[..count], "{fitting}");
    }
}

#[test]
fn no_policy_offloads_more_than_the_host_may_lock() {
    use MemoryPolicy::{Accudnn, VdnnAll, VdnnConvLean, VdnnDyn};
    let mut net = nets::resnet([1, 1, 1, 1], 8, FP32);
    let budget = Accudnn.floor(&net.outline, &net.costs, net.classifier()).floor;
    for (policy, budget) in
        [(Accudnn, budget), (VdnnAll, EVERYTHING), (VdnnConvLean, EVERYTHING), (VdnnDyn, EVERYTHING)]
    {
        net.costs.host = EVERYTHING;
        let plan = |net: &Net| policy.plan(&net.outline, &net.costs, budget, net.classifier());
        let wanted = plan(&net).unwrap().host;
        assert_eq!(
            wanted == Bytes::ZERO,
            policy == VdnnDyn,
            "{policy} keeps what it has room for, or does not"
        );
        net.costs.host = wanted;
        assert_eq!(plan(&net).unwrap().host, wanted, "{policy}");
        net.costs.host = wanted.saturating_sub(Bytes(1));
        let lacks = plan(&net).map_or_else(|below| below.lacks, |_| Bytes::ZERO);
        assert_eq!(lacks, wanted.saturating_sub(net.costs.host), "{policy} of {wanted}");
    }
}

#[test]
fn a_learning_rate_grows_with_the_mini_batch_and_stops_to() {
    let rate = |times, convexity| learning_rate(0.1, times, convexity);
    assert!(
        (rate(592.0 / 256.0, 0.747) - 0.22).abs() < 5e-4,
        "ResNet-101 in the paper: {}",
        rate(592.0 / 256.0, 0.747)
    );
    assert!((rate(3.0, 0.0) - 0.3).abs() < 1e-15 && (rate(3.0, 1e-9) - 0.3).abs() < 1e-9);
    assert!((rate(3.0, 10.0) - 0.1).abs() < 1e-15, "at c = 1/a nothing larger helps");
    assert!((rate(1.0, 2.0) - 0.1).abs() < 1e-15 && (rate(1e4, 2.0) - 0.5).abs() < 1e-9);
    for convexity in [0.1, 1.0, 5.0] {
        let rates: Vec<f64> = (1..20).map(|times| rate(f64::from(times), convexity)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] < pair[1]) && rates[18] < 1.0 / convexity);
    }
}

/// Work of every layer, from its time at a known speed.
fn work(net: &Net) -> Vec<LayerWork> {
    let kind = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let layers = net.outline.nodes.iter().zip(&net.costs.nodes);
    let layer = |(node, costs): (&memory::OutlineNode, &[memory::policy::PassCosts; 2])| LayerWork {
        kind: kind(&node.name),
        flops: [0, 1].map(|pass| 1e9 * costs[pass].time_ms(Bytes::MAX)),
    };
    layers.map(layer).collect()
}

#[test]
fn accudnn_models_times_and_finds_the_largest_mini_batch_without_a_stall() {
    let net = nets::vgg(0, 64, FP32);
    let layers = work(&net);
    // A speed that rises and is flat in the end: 0.05 ms to begin with.
    let sample = |part: f64| TimedSize {
        part,
        ms: layers
            .iter()
            .map(|layer| layer.flops.map(|flops| if flops > 0.0 { 0.05 + flops * part / 1e9 } else { 0.0 }))
            .collect(),
    };
    let speeds = Speeds::fit(&layers, &[0.125, 0.5, 1.0].map(sample));
    let conv = layers.iter().find(|layer| layer.kind == "conv").unwrap();
    for part in [0.25, 2.0] {
        let expected = 0.05 + conv.flops[0] * part / 1e9;
        assert!((speeds.ms(conv, 0, part) - expected).abs() < 1e-9 * expected, "{expected}");
    }
    let budget = Bytes(12 << 30);
    // Parameters lie beside what comes and goes.
    let all = Bytes(budget.0 + ArenaLayout::base(std::slice::from_ref(&net.outline)).0);
    let tuned = tune((&net.outline, 64), (&layers, &speeds), &net.costs, all).unwrap();
    let keeping = |n: u32| {
        MemoryPlan::new(
            &net.outline.scaled(n, 64),
            &net.costs,
            Schedule::plain(&net.outline).actions,
            vec![[Bytes::ZERO; 2]; net.outline.nodes.len()],
        )
    };
    assert!(tuned.plan.device <= budget && tuned.plan.timeline.stall_ms <= 1e-3 * tuned.plan.planned_ms());
    assert!(
        keeping(tuned.mini_batch).unwrap().device > budget,
        "more than without swapping: {}",
        tuned.mini_batch
    );
    let next = tuned.mini_batch + 1;
    let costs = speeds.costs(&layers, f64::from(next) / 64.0, &net.costs);
    let next = MemoryPolicy::Accudnn.plan(&net.outline.scaled(next, 64), &costs, budget, 0);
    assert!(!next.is_ok_and(|plan| plan.timeline.stall_ms <= 1e-3 * plan.planned_ms()), "one more would do");
    assert!(tune((&net.outline, 64), (&layers, &speeds), &net.costs, Bytes(1 << 20)).is_none());
}

/// What is no line is not fitted well, and the model says how badly.
#[test]
fn the_model_of_accudnn_meets_its_own_measurements_within_the_errors_it_tells() {
    let layer = |flops: f64| LayerWork { kind: "conv".to_owned(), flops: [flops, 2.0 * flops] };
    let layers = [layer(1e9), layer(4e9)];
    let sample = |part: f64| {
        let bent = |flops: f64| 0.1 + (flops * part / 1e9).powf(1.2);
        TimedSize { part, ms: layers.iter().map(|layer| layer.flops.map(bent)).collect() }
    };
    let samples = [0.125, 0.25, 0.5, 1.0].map(sample);
    let speeds = Speeds::fit(&layers, &samples);
    let [median, most] = speeds.errors(&layers, &samples);
    let mut within = 0;
    for sample in &samples {
        for (layer, ms) in layers.iter().zip(&sample.ms) {
            for (pass, ms) in ms.iter().enumerate() {
                let distance = (speeds.ms(layer, pass, sample.part) - ms).abs() / ms;
                assert!(distance <= most + 1e-12, "{distance} over {most}");
                within += usize::from(distance <= median + 1e-12);
            }
        }
    }
    assert!((8..=10).contains(&within), "{within} of 16 within the median");
    assert!(0.001 < median && median < most && most < 0.5, "{median} {most}");
    // At the mini-batch that was measured whole, nothing is changed.
    let net = nets::vgg(0, 64, FP32);
    assert_eq!(speeds.costs(&work(&net), 1.0, &net.costs), net.costs);
}
