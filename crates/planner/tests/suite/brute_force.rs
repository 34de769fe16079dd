//! The dynamic programme against every configuration there is, and against the paper's own recurrence.

use crate::synthetic::*;
use planner::*;

/// Random measurements of which some algorithms share. Times are multiples of a quarter: sums are exact.
pub(crate) fn sharing_micros(random: &mut Random, mini_batch: u32) -> Vec<Measurement> {
    let mut micros = random_micros(random, mini_batch, true);
    let part = |random: &mut Random| random.below(4) as f64 * 0.25;
    let shared = [("A", part(random)), ("B", part(random)), ("C", part(random))];
    for micro in &mut micros {
        for (name, shared_ms) in shared {
            if micro.algorithm.as_str() == name {
                // What is shared is the least of all: some say more.
                micro.shared_ms = (shared_ms + part(random)).min(micro.time_ms);
            }
        }
    }
    micros
}

/// What an algorithm shares, as the planner has it.
fn agreed_ms(micros: &[Measurement], algorithm: &Algorithm) -> f64 {
    let of_algorithm = micros.iter().filter(|micro| micro.algorithm == *algorithm);
    of_algorithm.map(|micro| micro.shared_ms).fold(f64::INFINITY, f64::min)
}

/// (time, workspace) of every multiset of `micros` that covers exactly `samples`, what an algorithm shares counted
/// once.
pub(crate) fn every_configuration(micros: &[Measurement], samples: u32) -> Vec<(f64, Bytes)> {
    let (mut found, mut chosen) = (Vec::new(), Vec::new());
    extend(micros, 0, samples, &mut chosen, &mut found);
    found
}

fn extend(
    micros: &[Measurement],
    first: usize,
    samples: u32,
    chosen: &mut Vec<usize>,
    found: &mut Vec<(f64, Bytes)>,
) {
    if samples == 0 {
        return found.push(cost(micros, chosen));
    }
    for index in first..micros.len() {
        if micros[index].micro_batch <= samples {
            chosen.push(index);
            extend(micros, index, samples - micros[index].micro_batch, chosen, found);
            chosen.pop();
        }
    }
}

fn cost(micros: &[Measurement], chosen: &[usize]) -> (f64, Bytes) {
    let mut seen: Vec<&Algorithm> = Vec::new();
    let mut cost = (0.0, Bytes(0));
    for micro in chosen.iter().map(|&index| &micros[index]) {
        cost = (cost.0 + micro.time_ms, cost.1.max(micro.workspace));
        if seen.contains(&&micro.algorithm) {
            cost.0 -= agreed_ms(micros, &micro.algorithm);
        }
        seen.push(&micro.algorithm);
    }
    cost
}

pub(crate) fn fastest(configurations: &[(f64, Bytes)], limit: Bytes) -> f64 {
    configurations.iter().filter(|c| c.1 <= limit).map(|c| c.0).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_sweep_finds_the_best_of_all_configurations_under_every_limit() {
    let mut random = Random(1);
    for round in 0..600 {
        let mini_batch = 1 + random.below(6) as u32;
        let micros = match round % 2 {
            0 => random_micros(&mut random, mini_batch, false),
            _ => sharing_micros(&mut random, mini_batch),
        };
        let every = every_configuration(&micros, mini_batch);
        let set = desirable_set(&micros, mini_batch, Bytes::MAX);
        for limit in (0..60).map(|step| Bytes(512 * step)) {
            let within = desirable_set(&micros, mini_batch, limit);
            let found = within.iter().last();
            assert_eq!(found, set.fastest_within(limit));
            // Times are multiples of a quarter: sums are exact.
            assert_eq!(found.map_or(f64::INFINITY, Configuration::time_ms), fastest(&every, limit));
            assert!(found.is_none_or(|found| found.mini_batch() == mini_batch && found.workspace() <= limit));
        }
        for point in set.iter() {
            assert_eq!(point.time_ms(), fastest(&every, point.workspace()));
            let mut with_less = every.iter().filter(|other| other.1 < point.workspace());
            assert!(with_less.all(|other| other.0 > point.time_ms()));
        }
    }
}

/// The paper's desirable set of `b` samples: every micro-configuration of `s` joined with every point of `b -
/// s`.
fn paper_recurrence(micros: &[Measurement], mini_batch: u32) -> Vec<(f64, Bytes)> {
    let mut fronts = vec![vec![(0.0, Bytes(0))]];
    for samples in 1..=mini_batch as usize {
        let mut joined: Vec<(f64, Bytes)> = Vec::new();
        for micro in micros.iter().filter(|micro| micro.micro_batch as usize <= samples) {
            let rest = &fronts[samples - micro.micro_batch as usize];
            joined.extend(rest.iter().map(|rest| (rest.0 + micro.time_ms, rest.1.max(micro.workspace))));
        }
        joined.sort_by(|a, b| a.1.cmp(&b.1).then(a.0.total_cmp(&b.0)));
        let mut fastest_ms = f64::INFINITY;
        joined.retain(|point| {
            let better = point.0 < fastest_ms;
            fastest_ms = fastest_ms.min(point.0);
            better
        });
        fronts.push(joined);
    }
    fronts.pop().unwrap()
}

#[test]
fn the_desirable_set_is_that_of_the_papers_recurrence() {
    let mut random = Random(2);
    for _ in 0..100 {
        let mini_batch = 1 + random.below(32) as u32;
        let micros = random_micros(&mut random, mini_batch, true);
        let set = desirable_set(&micros, mini_batch, Bytes::MAX);
        let found: Vec<(f64, Bytes)> = set.iter().map(|point| (point.time_ms(), point.workspace())).collect();
        assert_eq!(found, paper_recurrence(&micros, mini_batch));
        assert!(set.iter().all(|point| point.mini_batch() == mini_batch));
    }
}

#[test]
fn of_equal_configurations_the_one_with_less_workspace_and_fewer_calls_is_taken() {
    let affine =
        |name, sample_bytes| Affine { name, call_ms: 0.0, sample_ms: 0.1, call_bytes: 0, sample_bytes };
    let mut micros: Vec<Measurement> = Vec::new();
    for size in 1..=60 {
        micros.extend([affine("HUNGRY", 8).at(size), affine("FRUGAL", 0).at(size)]);
    }
    for _ in 0..2 {
        let set = desirable_set(&micros, 60, Bytes::MAX);
        assert_eq!(set.iter().last().unwrap().to_string(), "60 FRUGAL");
        micros.reverse();
    }
}
