//! Algorithms that do part of their work once for all micro-batches: exact in every policy.

use planner::*;

use crate::synthetic::*;

/// Random measurements of which some algorithms share. Times are multiples of a quarter: sums are exact.
fn sharing_micros(random: &mut Random, mini_batch: u32) -> Vec<Measurement> {
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

/// (time, workspace) of every multiset of `micros` that covers `samples`, the fixed cost of each algorithm counted once.
fn every_configuration(micros: &[Measurement], samples: u32) -> Vec<(f64, Bytes)> {
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
        let mut seen: Vec<&Algorithm> = Vec::new();
        let mut cost = (0.0, Bytes(0));
        for &index in chosen.iter() {
            let micro = &micros[index];
            cost = (cost.0 + micro.time_ms, cost.1.max(micro.workspace));
            if seen.contains(&&micro.algorithm) {
                cost.0 -= agreed_ms(micros, &micro.algorithm);
            }
            seen.push(&micro.algorithm);
        }
        return found.push(cost);
    }
    for index in first..micros.len() {
        if micros[index].micro_batch <= samples {
            chosen.push(index);
            extend(micros, index, samples - micros[index].micro_batch, chosen, found);
            chosen.pop();
        }
    }
}

fn fastest(configurations: &[(f64, Bytes)], limit: Bytes) -> f64 {
    configurations.iter().filter(|c| c.1 <= limit).map(|c| c.0).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_sweep_finds_the_best_of_all_configurations_under_every_limit() {
    let mut random = Random(31);
    for _ in 0..300 {
        let mini_batch = 1 + random.below(6) as u32;
        let micros = sharing_micros(&mut random, mini_batch);
        let every = every_configuration(&micros, mini_batch);
        let mut sweep = Sweep::new(&micros, mini_batch);
        for limit in (0..60).map(|step| Bytes(512 * step)) {
            sweep.raise_limit(limit);
            assert_eq!(sweep.time_ms(), fastest(&every, limit));
            if let Some(configuration) = sweep.configuration() {
                assert_eq!(configuration.time_ms(), sweep.time_ms());
                assert_eq!(configuration.mini_batch(), mini_batch);
                assert!(configuration.workspace() <= limit);
            }
        }
        let set = desirable_set(&micros, mini_batch, Bytes::MAX);
        for point in &set {
            assert_eq!(point.time_ms(), fastest(&every, point.workspace()));
            let mut with_less = every.iter().filter(|other| other.1 < point.workspace());
            assert!(with_less.all(|other| other.0 > point.time_ms()));
        }
    }
}

#[test]
fn every_workspace_policy_is_exact() {
    let mut random = Random(32);
    for _ in 0..150 {
        let mini_batch = 1 + random.below(4) as u32;
        let kernels = [kernel(1, mini_batch), kernel(2, mini_batch)];
        let mut table = CostTable::default();
        let every: Vec<Vec<(f64, Bytes)>> = kernels
            .iter()
            .map(|kernel| {
                let micros = sharing_micros(&mut random, mini_batch);
                insert_micros(&mut table, kernel, &micros);
                every_configuration(&micros, mini_batch)
            })
            .collect();
        for limit in [0, 2048, 5000, 9000, 30_000].map(Bytes) {
            let time_ms = |policy| {
                plan(&kernels, &table, &options(BatchSizePolicy::All, policy, limit)).unwrap().time_ms
            };
            let equal: f64 = every.iter().map(|every| fastest(every, limit)).sum();
            assert!(close(time_ms(WorkspacePolicy::Wr), equal) && close(time_ms(WorkspacePolicy::Ws), equal));
            let segment = |bytes: Bytes| bytes.align_up(ARENA_ALIGNMENT);
            let divided = every[0].iter().filter(|one| segment(one.1) <= limit).map(|one| {
                let rest = limit.saturating_sub(segment(one.1));
                one.0 + fastest(&every[1], Bytes(rest.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT))
            });
            assert!(close(time_ms(WorkspacePolicy::Wd), divided.fold(f64::INFINITY, f64::min)));
        }
    }
}

#[test]
fn what_is_shared_makes_small_micro_batches_worth_while() {
    // A call of WINOGRAD takes 2 ms, of which the filter's transform is 1.5.
    let row = |micro_batch: u32, name: &str, time_ms: f64, shared_ms: f64, workspace: u64| Measurement {
        algorithm: name.into(),
        micro_batch,
        time_ms,
        shared_ms,
        workspace: Bytes(workspace),
        max_error: 1e-6,
        deterministic: true,
    };
    let at = |shared_ms: f64| {
        let micros: Vec<Measurement> = [1, 2, 4]
            .into_iter()
            .flat_map(|size| {
                let samples = f64::from(size);
                let winograd = row(size, "WINOGRAD", 1.5 + 0.5 * samples, shared_ms, 100 * u64::from(size));
                [winograd, row(size, "GEMM", 1.5 * samples, 0.0, 0)]
            })
            .collect();
        desirable_set(&micros, 4, Bytes(250)).iter().last().unwrap().clone()
    };
    assert_eq!(
        (at(0.0).to_string().as_str(), at(0.0).time_ms()),
        ("2x2 WINOGRAD", 5.0),
        "1.5 and 3 ms for GEMM"
    );
    assert_eq!((at(1.0).to_string().as_str(), at(1.0).time_ms()), ("2x2 WINOGRAD", 4.0));
    // With nothing left of a call but its samples, the least workspace is as good.
    assert_eq!((at(1.5).to_string().as_str(), at(1.5).time_ms()), ("4x1 WINOGRAD", 3.5));
}

#[test]
fn sharing_survives_json_and_must_be_possible() {
    let mut table = CostTable::default();
    let mut row = fft_and_gemm()[0].at(4);
    let id = kernel(1, 4).id;
    table.insert(id, 4, vec![row.clone()]).unwrap();
    assert!(!table.to_json_lines().contains("shared_ms"), "nothing is written of what shares nothing");
    row.shared_ms = 0.25;
    table.insert(id, 4, vec![row.clone()]).unwrap();
    assert_eq!(CostTable::from_json_lines(&table.to_json_lines()), Ok(table.clone()));
    for shared_ms in [-0.1, row.time_ms + 0.1, f64::NAN] {
        let refused = table.insert(id, 4, vec![Measurement { shared_ms, ..row.clone() }]).unwrap_err();
        assert!(refused.to_string().contains("FFT_TILING cannot share"), "{refused}");
    }
}

#[test]
fn more_algorithms_than_are_planned_with_still_give_a_plan_that_holds() {
    let micros: Vec<Measurement> = (0..9)
        .flat_map(|index| {
            (1..=8).map(move |micro_batch| Measurement {
                algorithm: format!("SHARES_{index}").into(),
                micro_batch,
                time_ms: 1.0 + 0.2 * f64::from(micro_batch),
                shared_ms: 0.1 * f64::from(index),
                workspace: Bytes(64 * u64::from(micro_batch)),
                max_error: 1e-6,
                deterministic: true,
            })
        })
        .collect();
    let mut sweep = Sweep::new(&micros, 8);
    sweep.raise_limit(Bytes(64));
    let configuration = sweep.configuration().unwrap();
    // Eight calls: the one that shares most saves it seven times.
    assert_eq!(configuration.to_string(), "8x1 SHARES_8");
    assert!(
        close(configuration.time_ms(), 8.0 * 1.2 - 7.0 * 0.8)
            && close(sweep.time_ms(), configuration.time_ms())
    );
}
