//! Residences, waits and places of schedules that are made by hand.

use memory::Action::{self, Backward, Forward, Offload, Prefetch, Recompute, Update};
use memory::{ArenaLayout, Buffer, Outline, OutlineNode, OutlineParam, OutlineValue, Place, Schedule};
use planner::Bytes;

/// Data, then `layers` one after another, each with a parameter, whose backward passes see their bottoms again.
fn chain(layers: usize) -> Outline {
    let node = |index: usize| OutlineNode {
        name: format!("layer{index}"),
        bottoms: (index > 0).then(|| index - 1).into_iter().collect(),
        tops: vec![index],
        propagates: if index > 0 { vec![index > 1] } else { Vec::new() },
        backward: index > 0,
        read_bottoms: usize::from(index > 0),
        gradients: (index > 0).then(|| index - 1).into_iter().collect(),
        ..OutlineNode::default()
    };
    let value = |index: usize| OutlineValue {
        bytes: Bytes(1000),
        producer: index,
        root: index,
        needs_diff: index > 0 && index < layers,
        constant: false,
        output: index == layers,
    };
    let param = |index: usize| OutlineParam {
        name: format!("layer{index}.0"),
        bytes: Bytes(100),
        copy: Bytes::ZERO,
        trained: true,
        history: Bytes(100),
    };
    Outline {
        nodes: (0..=layers).map(node).collect(),
        values: (0..=layers).map(value).collect(),
        params: (1..=layers).map(param).collect(),
        updates: true,
        keeps_gradients: false,
        staged: Bytes::ZERO,
        host: Bytes(7),
    }
}

fn residences(schedule: &Schedule, buffer: Buffer) -> Vec<(Place, usize, usize)> {
    let all = &schedule.buffers[schedule.find(buffer).unwrap()].1;
    all.iter().map(|one| (one.place, one.first, one.last)).collect()
}

/// Three layers, with value 1 away while it is not needed.
fn away() -> Vec<Action> {
    let moved = Buffer::Data(1);
    let forward = [Forward(0), Forward(1), Offload(moved), Forward(2), Forward(3)];
    let backward = [Backward(3), Prefetch(moved), Backward(2), Backward(1), Update(0, 3)];
    forward.into_iter().chain(backward).collect()
}

/// What layers hold of the device's memory themselves is a part of what a budget has to hold, and nothing else lies
/// elsewhere for it.
#[test]
fn mini_batches_prepared_ahead_count_with_the_arena_and_lie_beside_it() {
    let (plain, ahead) = (chain(3), Outline { staged: Bytes(1000), ..chain(3) });
    let before = ArenaLayout::plain(std::slice::from_ref(&plain));
    let after = ArenaLayout::plain(&[ahead.clone(), ahead.clone()]);
    assert_eq!(after.report.staged, Bytes(2000));
    assert_eq!(after.report.arena, before.report.arena + Bytes(2000));
    assert_eq!(after.nets[0].offsets, before.nets[0].offsets);
    assert_eq!(ArenaLayout::base(&[ahead]), ArenaLayout::base(&[plain]) + Bytes(1000));
}

#[test]
fn everything_stays_from_its_first_to_its_last_use() {
    let schedule = Schedule::plain(&chain(3));
    let expected =
        [Forward(0), Forward(1), Forward(2), Forward(3), Backward(3), Backward(2), Backward(1), Update(0, 3)];
    assert_eq!(schedule.actions, expected);
    for (value, last) in [(0, 6), (1, 5), (2, 4), (3, 7)] {
        assert_eq!(residences(&schedule, Buffer::Data(value)), [(Place::Device, value, last)]);
    }
    assert_eq!(residences(&schedule, Buffer::Diff(2)), [(Place::Device, 4, 5)]);
    for (param, first) in [(0, 6), (2, 4)] {
        assert_eq!(residences(&schedule, Buffer::Gradient(param)), [(Place::Device, first, 7)]);
    }
    let kept = Schedule::plain(&Outline { keeps_gradients: true, ..chain(3) });
    assert_eq!(residences(&kept, Buffer::Gradient(0)), [(Place::Device, 0, 7)]);
    assert!(schedule.waits.iter().all(Vec::is_empty));
    // What is read and written again is the same.
    let json = serde_json::to_string(&schedule).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule);
}

/// Parameters are updated once their gradients are many enough, towards the end fewer at a time, and the gradients'
/// places are free then. What two layers share is complete after the first of them, and all that lies behind it waits.
#[test]
fn parameters_are_updated_as_soon_as_their_gradients_are_complete() {
    let mib = |count: u64| Bytes(count << 20);
    let sized = |sizes: [u64; 4]| {
        let mut outline = chain(4);
        outline.params.iter_mut().zip(sizes).for_each(|(param, size)| param.bytes = mib(size));
        outline
    };
    let updates = |outline: &Outline| {
        let actions = Schedule::plain(outline).actions.into_iter();
        actions.skip(5).filter(|action| !matches!(action, Backward(1..4))).collect::<Vec<_>>()
    };
    // 30 are enough at once; of the last three, two are as many as are left.
    let outline = sized([1, 1, 1, 30]);
    assert_eq!(updates(&outline), [Backward(4), Update(3, 4), Update(1, 3), Update(0, 1)]);
    let schedule = Schedule::plain(&outline);
    let at = |action| schedule.actions.iter().position(|other| *other == action).unwrap();
    for (param, [from, to]) in [
        (3, [Backward(4), Update(3, 4)]),
        (2, [Backward(3), Update(1, 3)]),
        (1, [Backward(2), Update(1, 3)]),
        (0, [Backward(1), Update(0, 1)]),
    ] {
        let expected = [(Place::Device, at(from), at(to))];
        assert_eq!(residences(&schedule, Buffer::Gradient(param)), expected);
    }
    let [freed, kept] = [false, true].map(|keeps_gradients| {
        let outline = Outline { keeps_gradients, ..outline.clone() };
        assert_eq!(updates(&outline).len(), 4);
        ArenaLayout::plain(&[outline]).report
    });
    assert_eq!((kept.gradients, freed.gradients, freed.nets[0].gradients), (mib(33), Bytes(0), mib(33)));
    // All but the largest lie where that has been.
    assert!(kept.arena > freed.arena + mib(2) && kept.arena <= freed.arena + mib(3));
    // Few are updated at the end, and none without updates.
    assert_eq!(updates(&chain(4)), [Backward(4), Update(0, 4)]);
    assert_eq!(updates(&Outline { updates: false, ..outline.clone() }), [Backward(4)]);
    let mut shared = outline;
    shared.nodes[1].gradients.push(3);
    assert_eq!(updates(&shared), [Backward(4), Update(0, 4)]);
    // What nothing trains has no gradient.
    let mut frozen = sized([1, 1, 1, 30]);
    frozen.params[3].trained = false;
    assert_eq!(updates(&frozen), [Backward(4), Update(1, 4), Update(0, 1)]);
    // What no loss reaches waits for nothing, and is updated with what does.
    let mut idle = Outline { keeps_gradients: true, ..sized([1, 1, 1, 30]) };
    idle.nodes[4].gradients.clear();
    assert_eq!(updates(&idle), [Backward(4), Update(2, 4), Update(1, 2), Update(0, 1)]);
}

#[test]
fn an_offloaded_buffer_has_three_residences_and_frees_its_place() {
    let outline = chain(3);
    let schedule = Schedule::new(&outline, away()).unwrap();
    assert_eq!(
        residences(&schedule, Buffer::Data(1)),
        // Layer 2 reads it beside the copy; the copy back begins before layer 2 runs backward.
        [(Place::Device, 1, 3), (Place::Host, 2, 6), (Place::Device, 6, 7)]
    );
    // A copy waits for what was launched before it; the next layer for the copy out, whose memory it may get; the
    // backward pass for the copy in.
    let waits = [vec![], vec![], vec![1], vec![], vec![2], vec![], vec![5, 2], vec![6], vec![], vec![]];
    assert_eq!(schedule.waits, waits);
    let [plain, moved] = [Schedule::plain(&outline), schedule]
        .map(|schedule| ArenaLayout::new(std::slice::from_ref(&outline), vec![schedule]));
    let [before, after] = [&plain, &moved].map(|layout| layout.report.nets[0]);
    assert_eq!((before.slab, after.slab), (Bytes::ZERO, Bytes(1024)));
    assert_eq!(moved.report.host, Bytes(7) + Bytes(1024));
    let places = &moved.nets[0];
    let lies = |place, at| places.residence(Buffer::Data(1), place, at).is_some();
    assert!(lies(Place::Device, 2) && !lies(Place::Device, 4) && lies(Place::Device, 7));
    assert!(lies(Place::Host, 4) && !lies(Place::Host, 7));
    let json = serde_json::to_string(&moved).unwrap();
    assert_eq!(serde_json::from_str::<ArenaLayout>(&json).unwrap(), moved);
}

#[test]
fn what_is_computed_again_is_away_meanwhile() {
    let actions = [
        Forward(0),
        Forward(1),
        Forward(2),
        Forward(3),
        Backward(3),
        Recompute(1),
        Backward(2),
        Backward(1),
        Update(0, 3),
    ];
    let schedule = Schedule::new(&chain(3), actions.to_vec()).unwrap();
    assert_eq!(residences(&schedule, Buffer::Data(1)), [(Place::Device, 1, 2), (Place::Device, 5, 6)]);
    assert_eq!(residences(&schedule, Buffer::Data(0)), [(Place::Device, 0, 7)]);
    assert_eq!(residences(&schedule, Buffer::Saved(1)), [(Place::Device, 1, 1), (Place::Device, 5, 7)]);
}

#[test]
fn what_cannot_be_executed_is_refused() {
    let outline = chain(3);
    let refused = |actions: &[Action]| Schedule::new(&outline, actions.to_vec()).unwrap_err().to_string();
    let missing = |index: usize, action: Action, buffer: Buffer| {
        format!("action {index}, {action:?}, needs {buffer:?}, which is not there at that time")
    };
    let data = Buffer::Data(0);
    assert_eq!(refused(&[Forward(1)]), missing(0, Forward(1), data));
    assert_eq!(refused(&[Prefetch(data)]), missing(0, Prefetch(data), data));
    assert_eq!(refused(&[Forward(0), Forward(1), Backward(1)]), missing(2, Backward(1), Buffer::Diff(1)));
    // The host's copy is not what the device has any more.
    let twice = [Forward(0), Offload(data), Forward(0), Prefetch(data)];
    assert_eq!(refused(&twice), missing(3, Prefetch(data), data));
    let again = refused(&[Forward(0), Recompute(0)]);
    assert_eq!(again, "action 1 would read the data of 'layer0' again");
}

/// As under WD: no other buffer lies there, whenever.
#[test]
fn scratch_that_is_kept_has_its_place_throughout() {
    let mut outline = chain(3);
    (outline.nodes[1].scratch, outline.nodes[1].keeps_scratch) = ([Bytes(512), Bytes(256)], true);
    outline.nodes[2].scratch = [Bytes(512); 2];
    let schedule = Schedule::plain(&outline);
    let end = schedule.actions.len() - 1;
    for (action, life) in [(Forward(1), (0, end)), (Backward(1), (0, end)), (Forward(2), (2, 2))] {
        let at = schedule.actions.iter().position(|other| *other == action).unwrap();
        let (first, last) = life;
        assert_eq!(residences(&schedule, Buffer::Scratch(at)), [(Place::Device, first, last)]);
    }
    let report = ArenaLayout::plain(&[outline]).report.nets[0];
    assert_eq!(report.scratch, Bytes(512 + 256 + 2 * 512));
}

/// What a parameter takes in another type lies with it; its gradient and its history have none.
#[test]
fn copies_of_parameters_lie_with_them() {
    let mut net = Outline { keeps_gradients: true, ..chain(2) };
    net.params[0].copy = Bytes(412);
    let layout = ArenaLayout::plain(&[net]);
    let there = |buffer| layout.nets[0].residence(buffer, Place::Device, 0).unwrap();
    let all = [Buffer::Parameter(0), Buffer::Gradient(0), Buffer::History(0)];
    assert_eq!(all.map(|one| there(one).0.bytes), [512, 100, 100].map(Bytes));
    assert_eq!(there(Buffer::Parameter(1)).1, Bytes(512));
    assert_eq!((layout.report.parameters, layout.report.gradients), (Bytes(612), Bytes(200)));
}

/// The nets of a solver share parameters by name, gradients lie side by side, and the transient parts take turns.
#[test]
fn nets_share_an_arena() {
    let train = Outline { keeps_gradients: true, ..chain(3) };
    let mut test = chain(2);
    (test.updates, test.nodes[1].backward, test.nodes[2].backward) = (false, false, false);
    test.params.iter_mut().for_each(|param| param.trained = false);
    let layout = ArenaLayout::plain(&[train, test]);
    let spot =
        |net: usize, buffer| layout.nets[net].residence(buffer, Place::Device, 0).map(|(_, offset)| offset);
    for param in 0..2 {
        assert_eq!(spot(0, Buffer::Parameter(param)), spot(1, Buffer::Parameter(param)));
    }
    let gradients = [0, 1, 2].map(|param| spot(0, Buffer::Gradient(param)).unwrap());
    assert_eq!(gradients, [768, 1024, 1280].map(Bytes));
    assert_eq!((spot(0, Buffer::History(0)), spot(1, Buffer::Gradient(0))), (Some(Bytes(1536)), None));
    assert_eq!(spot(0, Buffer::Data(0)), spot(1, Buffer::Data(0)));
    assert_eq!(layout.report.arena, Bytes(9 * 256) + layout.report.nets[0].transient);
}

#[test]
fn actions_of_another_net_are_refused() {
    let outline = chain(2);
    let foreign = [Forward(3), Backward(9), Recompute(usize::MAX), Update(0, 3), Update(2, 1)];
    for action in foreign {
        let error = Schedule::new(&outline, vec![Forward(0), action]).unwrap_err().to_string();
        assert_eq!(error, format!("action 1, {action:?}, is of another net"));
    }
}
