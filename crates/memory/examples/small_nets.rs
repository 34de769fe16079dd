//! Joint plans of small nets with all that they depend on, a JSON line each, for `benches/peers/memory_ilp.py`.

#[path = "../tests/nets/mod.rs"]
mod nets;

use memory::policy::joint;
use nets::{FP32, Net, TF32, floor, random};
use planner::Bytes;

fn main() {
    let mut chain = Net::new(16, FP32);
    let data = chain.data(3, 64);
    let mut x = chain.conv(data, 16, 3, 1);
    for k in [16, 32] {
        x = chain.relu(x);
        x = chain.conv(x, k, 3, 1);
        x = chain.relu(x);
        x = chain.pool(x, 2);
        x = chain.conv(x, k, 3, 1);
    }
    let x = chain.product(x, 10);
    let mut block = Net::new(32, TF32);
    let data = block.data(64, 56);
    let start = block.conv(data, 64, 1, 1);
    let mut y = start;
    for (k, r) in [(16, 1), (16, 3), (64, 1)] {
        y = block.conv(y, k, r, 1);
        y = block.norm(y);
    }
    let y = block.sum(start, y);
    let y = block.relu(y);
    let y = block.product(y, 10);
    let nets = [("chain".to_owned(), chain.loss(x)), ("block".to_owned(), block.loss(y))];
    let nets = nets.into_iter().chain((0..8).map(|seed| (format!("random {seed}"), random(seed, 6))));
    for (name, Net { outline, costs, .. }) in nets {
        let least = floor(&outline, &costs).floor.0;
        let most = joint(&outline, &costs, Bytes(1 << 50)).expect("all of it fits").device.0;
        for part in [0.25, 0.5, 0.75] {
            let budget = Bytes(least + ((most - least) as f64 * part) as u64);
            let plan = joint(&outline, &costs, budget).expect("it is above the floor");
            let line = (&name, part, budget, plan.planned_ms(), plan.bound_ms, &outline, &costs);
            println!("{}", serde_json::to_string(&line).expect("plain data"));
        }
    }
}
