//! Algorithms that do part of their work once for all micro-batches: exact in every policy.

use crate::{brute_force::*, synthetic::*};
use planner::*;

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
            let segment = |bytes: Bytes| bytes.aligned();
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
                algorithm: Algorithm::from(&*format!("SHARES_{index}")),
                micro_batch,
                time_ms: 1.0 + 0.2 * f64::from(micro_batch),
                shared_ms: 0.1 * f64::from(index),
                workspace: Bytes(64 * u64::from(micro_batch)),
                max_error: 1e-6,
                deterministic: true,
            })
        })
        .collect();
    let set = desirable_set(&micros, 8, Bytes(64));
    let configuration = set.iter().last().unwrap();
    // Eight calls: the one that shares most saves it seven times.
    assert_eq!(configuration.to_string(), "8x1 SHARES_8");
    assert!(close(configuration.time_ms(), 8.0 * 1.2 - 7.0 * 0.8));
}

/// Also those that come from a file.
#[test]
fn counts_beyond_all_numbers_are_the_largest_and_none_is_none() {
    let run = |count: u32, micro_batch: u32, shared_ms: f64| {
        let (time_ms, workspace, max_error, deterministic) = (2.0, Bytes(0), 0.0, true);
        let algorithm = "A".into();
        let micro =
            Measurement { algorithm, micro_batch, time_ms, shared_ms, workspace, max_error, deterministic };
        Run { count, micro }
    };
    let most = Configuration::new([run(u32::MAX, 3, 1.0), run(5, 3, 1.0)]);
    assert_eq!((most.runs().len(), most.runs()[0].count, most.mini_batch()), (1, u32::MAX, u32::MAX));
    let two = Configuration::new([run(u32::MAX, 1, 0.0), run(1, 2, 0.0)]);
    assert_eq!(two.mini_batch(), u32::MAX);
    let json = serde_json::to_string(&Configuration::new([run(1, 4, 1.0)])).unwrap();
    let none: Configuration = serde_json::from_str(&json.replace("\"count\":1", "\"count\":0")).unwrap();
    assert_eq!((none.time_ms(), none.mini_batch()), (0.0, 0));
}
