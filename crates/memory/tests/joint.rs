//! The joint plan beside the published policies, on the nets of the papers and on random ones.

mod nets;

use memory::Action::{Backward, Forward, Hold, Offload, Prefetch};
use memory::policy::{
    Algorithms, BelowFloor, Costs, Fate, MemoryPlan, MemoryPolicy, Offloading, joint, simulate, vdnn,
    vdnn_dyn,
};
use memory::{Buffer, Outline, Schedule, StreamKind};
use nets::{EVERYTHING, FP32, Net, TF32, floor, offloaded};
use planner::{Bytes, Cost, Curve};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// What the report says follows from the actions, and nothing exceeds what was allowed.
fn check(outline: &Outline, costs: &Costs, plan: &MemoryPlan, budget: Bytes) {
    let schedule = Schedule::new(outline, plan.actions.clone()).unwrap();
    assert_eq!(simulate(outline, &schedule, costs, &plan.workspace).total_ms, plan.planned_ms());
    let again = MemoryPlan::new(outline, costs, plan.actions.clone(), plan.workspace.clone()).unwrap();
    assert_eq!((again.device, again.host), (plan.device, plan.host));
    assert!(plan.device <= budget && plan.host <= costs.host, "{} of {budget}, {}", plan.device, plan.host);
    assert!(plan.bound_ms <= plan.planned_ms() && plan.timeline.alive.iter().all(|&alive| alive <= budget));
    let kernels = |node: usize| [0, 1].map(|pass| &costs.nodes[node][pass].front);
    for (node, (limits, workspace)) in plan.limits.iter().zip(&plan.workspace).enumerate() {
        for (pass, front) in kernels(node).into_iter().enumerate().filter(|(_, one)| !one.points().is_empty())
        {
            let chosen = front.within(limits[pass]).map(|cost| cost.workspace);
            assert_eq!(chosen, Some(workspace[pass]), "of the {} that node {node} may have", limits[pass]);
        }
    }
    let json = serde_json::to_string(plan).unwrap();
    assert_eq!(serde_json::from_str::<MemoryPlan>(&json).unwrap(), *plan);
}

fn baselines(net: &Net, budget: Bytes) -> Vec<(&'static str, Result<MemoryPlan, BelowFloor>)> {
    let (outline, costs) = (&net.outline, &net.costs);
    let vdnn =
        |offloading, algorithms| vdnn(outline, costs, budget, net.classifier(), (offloading, algorithms));
    vec![
        ("vDNN_all (m)", vdnn(Offloading::All, Algorithms::LeastMemory)),
        ("vDNN_all (p)", vdnn(Offloading::All, Algorithms::Greedy)),
        ("vDNN_conv (p)", vdnn(Offloading::Convolutions, Algorithms::Greedy)),
        ("vDNN_dyn", vdnn_dyn(vdnn)),
        ("AccUDNN", MemoryPolicy::Accudnn.plan(outline, costs, budget, 0)),
    ]
}

#[test]
fn a_joint_plan_of_a_resnet_is_the_fastest() {
    the_joint_plan_is_never_slower_than_others_or_with_more_memory(
        &nets::resnet([1, 1, 1, 1], 64, TF32),
        1.02,
    );
}

#[test]
fn a_joint_plan_of_a_vgg_is_the_fastest() {
    the_joint_plan_is_never_slower_than_others_or_with_more_memory(&nets::vgg(0, 64, FP32), 1.02);
}

#[test]
fn a_joint_plan_of_a_random_net_is_the_fastest() {
    the_joint_plan_is_never_slower_than_others_or_with_more_memory(&nets::random(3, 30), f64::INFINITY);
}

/// From 3/8 of the way between the least memory and the most on, it takes at most so many times its bound.
fn the_joint_plan_is_never_slower_than_others_or_with_more_memory(net: &Net, over_bound: f64) {
    let (outline, costs) = (&net.outline, &net.costs);
    let keep = joint(outline, costs, EVERYTHING).unwrap();
    assert!((keep.planned_ms() / costs.unlimited_ms(outline) - 1.0).abs() < 1e-9 && keep.host == Bytes::ZERO);
    let least = floor(outline, costs).floor;
    let (mut last_ms, mut last_bound_ms) = (f64::INFINITY, f64::INFINITY);
    for step in 0..=8 {
        let budget = Bytes(least.0 + (keep.device.0 - least.0) / 8 * step);
        let plan = joint(outline, costs, budget).unwrap();
        check(outline, costs, &plan, budget);
        assert!(
            plan.planned_ms() <= last_ms * (1.0 + 1e-9),
            "step {step}: {} after {last_ms}",
            plan.planned_ms()
        );
        // A bound for more memory is one for less.
        assert!(
            plan.bound_ms <= 1.002 * last_bound_ms,
            "step {step}: a bound of {} after {last_bound_ms}",
            plan.bound_ms
        );
        (last_ms, last_bound_ms) = (plan.planned_ms(), plan.bound_ms);
        for (name, other) in baselines(net, budget) {
            let Ok(other) = other else { continue };
            check(outline, costs, &other, budget);
            assert!(
                plan.planned_ms() <= other.planned_ms() * (1.0 + 1e-9),
                "step {step}: {name} takes {}",
                other.planned_ms()
            );
        }
        if step >= 3 {
            assert!(
                plan.planned_ms() <= over_bound * plan.bound_ms,
                "step {step}: {} over {}",
                plan.planned_ms(),
                plan.bound_ms
            );
        }
    }
    let below = joint(outline, costs, Bytes(least.0 - 256)).unwrap_err();
    assert_eq!(below, floor(outline, costs));
}

/// Buffers that are there while memory is shortest lie side by side without gaps.
#[test]
fn the_smallest_budget_is_what_is_alive_at_once() {
    for net in
        [nets::resnet([1, 1, 1, 1], 64, TF32), nets::resnet([2, 2, 2, 2], 32, FP32), nets::random(1, 30)]
    {
        let least = floor(&net.outline, &net.costs).floor;
        let plan = joint(&net.outline, &net.costs, least).unwrap();
        check(&net.outline, &net.costs, &plan, least);
        assert_eq!(plan.timeline.alive.iter().max(), Some(&least));
    }
}

/// Copies that take far longer to launch than to run are slow, not forbidden.
#[test]
fn the_smallest_budget_is_the_same_however_slow_copies_are() {
    let mut net = nets::resnet([1, 1, 1, 1], 2, FP32);
    let quick = floor(&net.outline, &net.costs);
    let keep = joint(&net.outline, &net.costs, EVERYTHING).unwrap();
    net.costs.launch_ms = 100.0;
    let slow = floor(&net.outline, &net.costs);
    assert_eq!(slow, quick);
    assert!(slow.floor.0 < keep.device.0 / 2, "{} of {}", slow.floor, keep.device);
    let plan = joint(&net.outline, &net.costs, slow.floor).unwrap();
    check(&net.outline, &net.costs, &plan, slow.floor);
}

/// Copies cost even where they end in time, and each the same beside its bytes: few and large ones are best.
#[test]
fn computation_that_waits_for_copies_goes_on_later() {
    let mut net = nets::resnet([1, 1, 1, 1], 32, FP32);
    let keep = joint(&net.outline, &net.costs, EVERYTHING).unwrap();
    let budget = Bytes(keep.device.0 / 10 * 6);
    let plan = joint(&net.outline, &net.costs, budget).unwrap();
    let schedule = Schedule::new(&net.outline, plan.actions.clone()).unwrap();
    let waits = schedule.actions.iter().zip(&schedule.waits);
    let waits = waits.filter(|(action, waits)| action.stream() == StreamKind::Compute && !waits.is_empty());
    let waiting_ms = waits.count() as f64 * net.costs.launch_ms;
    assert!(waiting_ms > 0.0);
    let free = Costs { launch_ms: 0.0, bytes_per_ms: [1e18; 2], ..net.costs.clone() };
    let computing_ms = simulate(&net.outline, &schedule, &free, &plan.workspace).total_ms;
    let expected_ms = computing_ms + plan.timeline.stall_ms + waiting_ms;
    assert!((plan.planned_ms() - expected_ms).abs() < 1e-9, "{} of {expected_ms}", plan.planned_ms());
    net.costs.launch_ms *= 20.0;
    let fewer = joint(&net.outline, &net.costs, budget).unwrap();
    assert!(offloaded(&fewer) < offloaded(&plan), "{} of {}", offloaded(&fewer), offloaded(&plan));
}

#[test]
fn without_host_memory_nothing_is_offloaded() {
    let mut net = nets::resnet([1, 1, 1, 1], 32, FP32);
    net.costs.host = Bytes::ZERO;
    let keep = joint(&net.outline, &net.costs, EVERYTHING).unwrap();
    let budget = Bytes(keep.device.0 / 10 * 6);
    let plan = joint(&net.outline, &net.costs, budget).unwrap();
    check(&net.outline, &net.costs, &plan, budget);
    assert_eq!(offloaded(&plan), 0);
    assert!(plan.fates.iter().any(|(_, _, fate)| *fate == Fate::Recomputed));
    assert!(plan.actions.iter().all(|action| action.stream() == StreamKind::Compute));
    // Less than what recomputation alone needs is refused, though offloading would do with less.
    let least = floor(&net.outline, &net.costs);
    assert_eq!(joint(&net.outline, &net.costs, Bytes(least.floor.0 - 256)).unwrap_err(), least);
}

#[test]
fn more_memory_and_more_ways_to_save_it_make_no_plan_slower() {
    for net in [nets::vgg(0, 64, TF32), nets::random(5, 12)] {
        let Net { outline, costs, .. } = &net;
        let repeats_never = Costs { again_ms: vec![1e6; outline.nodes.len()], ..costs.clone() };
        let alone = [Costs { host: Bytes::ZERO, ..costs.clone() }, repeats_never];
        let least = floor(outline, costs).floor.0;
        let most = joint(outline, costs, EVERYTHING).unwrap().device.0;
        let planned = |step| {
            let budget = Bytes(least + (most - least) / 40 * step);
            let plan = joint(outline, costs, budget).unwrap();
            check(outline, costs, &plan, budget);
            let planned_ms = plan.planned_ms();
            for costs in alone.iter().filter(|_| step % 5 == 2) {
                let Ok(one) = joint(outline, costs, budget) else { continue };
                let alone_ms = one.planned_ms();
                assert!(planned_ms <= alone_ms * (1.0 + 1e-9), "step {step}: {planned_ms} over {alone_ms}");
            }
            planned_ms
        };
        let planned_ms: Vec<f64> = thread::scope(|scope| {
            let steps: Vec<_> = (0..=40).map(|step| scope.spawn(move || planned(step))).collect();
            steps.into_iter().map(|step| step.join().unwrap()).collect()
        });
        for (step, pair) in planned_ms.windows(2).enumerate() {
            assert!(pair[1] <= pair[0] * (1.0 + 1e-9), "step {step}: {} after {}", pair[1], pair[0]);
        }
    }
}

/// From then on, work is recorded.
#[test]
fn data_are_all_brought_before_any_of_them_leave() {
    let mut net = Net::new(64, FP32);
    let [x, y] = [net.data(3, 64), net.data(3, 64)].map(|data| net.conv(data, 16, 3, 1));
    let sum = net.sum(x, y);
    let scores = net.product(sum, 10);
    let net = net.loss(scores);
    let least = floor(&net.outline, &net.costs).floor;
    let plan = joint(&net.outline, &net.costs, least).unwrap();
    let first = plan.actions.iter().position(|action| matches!(action, Offload(_))).unwrap();
    assert!(plan.actions.contains(&Offload(Buffer::Data(0))) && first >= 2, "{:?}", plan.actions);
}

/// A released place is waited for where it was released, not where it was last read.
#[test]
fn a_buffer_that_is_held_stays_and_its_copy_is_waited_for_there() {
    let net = nets::random(1, 3);
    let plain = Schedule::plain(&net.outline).actions;
    let buffer = Buffer::Data(1);
    let turn = plain.iter().position(|action| matches!(action, Backward(_))).unwrap();
    let mut actions = plain.clone();
    let read = plain
        .iter()
        .rposition(|action| matches!(action, Forward(node) if net.outline.nodes[*node].bottoms.contains(&1)))
        .unwrap();
    let seen = plain.len() - 3; // before the first layer's own backward pass
    actions.insert(seen, Prefetch(buffer));
    actions.insert(turn, Hold(buffer));
    actions.insert(read, Offload(buffer));
    let schedule = Schedule::new(&net.outline, actions.clone()).unwrap();
    let residences = &schedule.buffers[schedule.find(buffer).unwrap()].1;
    assert_eq!(residences[0].last, turn + 1);
    assert_eq!(schedule.waits[turn + 2], [read], "the first action after the release waits for the copy");
    assert!(schedule.waits[read + 1..=turn + 1].iter().all(Vec::is_empty));
}

/// All of its parameters are frozen: nothing is copied or computed again, but kernels have less workspace.
#[test]
fn a_net_without_a_backward_pass_has_a_plan_in_every_budget_from_the_smallest_on() {
    let mut net = nets::vgg(0, 8, FP32);
    net.outline.updates = false;
    net.outline.nodes.iter_mut().for_each(|node| (node.backward, node.gradients) = (false, vec![]));
    let least = floor(&net.outline, &net.costs).floor.0;
    let most = joint(&net.outline, &net.costs, EVERYTHING).unwrap().device.0;
    for part in 0..=4 {
        let budget = Bytes(least + (most - least) / 4 * part);
        let plan = joint(&net.outline, &net.costs, budget).unwrap();
        check(&net.outline, &net.costs, &plan, budget);
    }
}

/// There is a plan in every budget from the smallest on.
fn has_plans_from_its_floor_on(net: &Net) {
    let (outline, costs) = (&net.outline, &net.costs);
    let least = floor(outline, costs).floor;
    for twentieths in 0..20 {
        let budget = Bytes(least.0 + least.0 * twentieths / 20);
        let plan = joint(outline, costs, budget).unwrap_or_else(|below| panic!("{below:?} of {budget}"));
        check(outline, costs, &plan, budget);
    }
}

/// Here a normalisation without a backward pass reads the data, which nothing can make again.
#[test]
fn data_that_no_backward_pass_sees_are_kept() {
    let mut net = Net::new(16, FP32);
    let data = net.data(16, 32);
    let mut x = net.norm(data);
    net.outline.nodes[1].backward = false;
    net.outline.values[1].needs_diff = false;
    x = net.conv(x, 16, 3, 1);
    net.outline.nodes[2].propagates = vec![false];
    for _ in 0..3 {
        x = net.conv(x, 16, 3, 1);
    }
    let x = net.product(x, 10);
    has_plans_from_its_floor_on(&net.loss(x));
}

/// What is only in part too large for the host's memory cannot leave either.
#[test]
fn the_smallest_budget_counts_on_no_more_than_the_hosts_memory() {
    let mut net = Net::new(16, FP32);
    let data = net.data(16, 32);
    let x = net.conv(data, 16, 3, 1);
    let x = net.product(x, 10);
    let mut net = net.loss(x);
    net.costs.host = Bytes(768 << 10);
    has_plans_from_its_floor_on(&net);
}

/// Searches for the fastest of what is no number would never end.
#[test]
fn costs_that_are_none_end_in_a_panic_that_says_so() {
    let net = nets::random(1, 6);
    let (outline, least) = (&net.outline, floor(&net.outline, &net.costs).floor);
    let budget = Bytes(least.0 + 4096);
    let changed = |change: &dyn Fn(&mut Costs)| {
        let mut costs = net.costs.clone();
        change(&mut costs);
        costs
    };
    let mut wrong = vec![changed(&|costs| costs.nodes.truncate(2))];
    for number in [f64::NAN, f64::INFINITY, -1.0] {
        wrong.push(changed(&|costs| costs.launch_ms = number));
        wrong.push(changed(&|costs| costs.update_ms = number));
        wrong.push(changed(&|costs| costs.bytes_per_ms[1] = number));
        wrong.push(changed(&|costs| costs.nodes[3][1].fixed_ms = number));
        wrong.push(changed(&|costs| costs.again_ms = vec![number]));
        let front = Curve::new([Cost { time_ms: number, workspace: Bytes(0) }]);
        wrong.push(changed(&|costs| costs.nodes[2][0].front = front.clone()));
    }
    wrong.push(changed(&|costs| costs.bytes_per_ms[1] = 0.0));
    for costs in wrong {
        let policies: [&dyn Fn(); 4] = [
            &|| drop(joint(outline, &costs, budget)),
            &|| drop(floor(outline, &costs)),
            &|| drop(MemoryPolicy::Accudnn.plan(outline, &costs, budget, 0)),
            &|| drop(MemoryPolicy::Keep.plan(outline, &costs, budget, 0)),
        ];
        for policy in policies {
            assert!(panic_of(policy).starts_with("costs are finite") || costs.nodes.len() == 2);
            assert!(panic_of(policy).starts_with("each node has costs") || costs.nodes.len() > 2);
        }
    }
    let actions = Schedule::plain(outline).actions;
    let short = || drop(MemoryPlan::new(outline, &net.costs, actions.clone(), vec![]));
    assert_eq!(panic_of(&short), "each node has costs and a workspace");
}

/// What `policy` says as it panics.
fn panic_of(policy: &dyn Fn()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(policy)).expect_err("it panics");
    let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned()).expect("it says something")
}
