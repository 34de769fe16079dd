//! The sums against the definition, and faults that must show.

use super::operand::{PERIOD, pattern, runs};
use super::*;
use crate::conv::tests::{random_geometry, reference};
use crate::conv::{candidates, find, kernel_id, operands::slices};
use crate::testing::on_every_device;
use planner::{Measurement, Run};

/// Sizes that divide 2^20, where operands that repeat after as many values make all samples alike.
fn geometry() -> ConvGeometry {
    ConvGeometry::new([4, 4, 16, 16], 4, [3, 3]).pad([1, 1])
}

fn configuration(algorithm: &str, micro_batches: &[u32]) -> Configuration {
    let run = |&micro_batch: &u32| Run {
        count: 1,
        micro: Measurement {
            shared_ms: 0.0,
            algorithm: algorithm.into(),
            micro_batch,
            time_ms: 1.0,
            workspace: Bytes::mib(64),
            max_error: 0.0,
            deterministic: true,
        },
    };
    Configuration::new(micro_batches.iter().map(run))
}

/// The algorithms of `device` that apply.
fn algorithms(device: &Device, op: ConvOp, g: ConvGeometry) -> Vec<String> {
    let kernel = kernel_id(op, &g, Format::F32);
    let candidates = candidates(device, &kernel, g.n as u32).unwrap();
    candidates.iter().map(|convolver| convolver.facts().name.clone()).collect()
}

/// What can be wrong with running two micro-batches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The second reads the samples of the first of operand `a`
    ReadsAnothersA,
    /// The same of the operand `b` that has samples, in [`ConvOp::BackwardFilter`]
    ReadsAnothersB,
    /// Both replace what they should add to
    Replaces,
    /// The second replaces what the first has written to the same output
    ReplacesTheFirst,
    /// There is no second
    LeavesOut,
}

/// The distances of a kernel that runs in two micro-batches with `fault`.
fn with_fault(device: &Device, op: ConvOp, fault: Fault) -> [f64; 2] {
    let g = geometry();
    let algorithm = &algorithms(device, op, g.with_batch(2))[0];
    let runner = Runner::new(device, op, g.with_batch(2), &configuration(algorithm, &[2])).unwrap();
    let shares_output = op == ConvOp::BackwardFilter;
    let run = |[a, b]: [View<'_>; 2], mut out: Out<'_>, mut workspace: ViewMut<'_>| {
        for (index, samples) in [0..2, 2..4].into_iter().enumerate() {
            if index == 1 && fault == Fault::LeavesOut {
                continue;
            }
            let ([mut a_range, mut b_range, out_range], [first_a, first_b, _]) =
                (slices(op, &g, &samples), slices(op, &g, &(0..2)));
            match fault {
                Fault::ReadsAnothersA => a_range = first_a,
                Fault::ReadsAnothersB => b_range = first_b,
                _ => {}
            }
            let adds = shares_output && index == 1 && fault != Fault::ReplacesTheFirst;
            let accumulate = match fault {
                _ if adds => Accumulate::Add,
                Fault::Replaces => Accumulate::Replace,
                Fault::ReplacesTheFirst if index == 1 => Accumulate::Replace,
                _ => out.accumulate,
            };
            let (operands, to) = ([a.slice(a_range), b.slice(b_range)], out.to.slice(out_range));
            runner.run(operands, Out { to, accumulate }, workspace.reborrow())?;
        }
        Ok(())
    };
    let distances = distances_of(device, op, &g, runner.workspace(), run).unwrap();
    distances.map(|(_, distance)| distance)
}

on_every_device! {
    fn every_algorithm_is_near_the_definition(on: &TestDevice) {
        let device = &on.devices()[0];
        for op in ConvOp::ALL {
            for algorithm in algorithms(device, op, geometry()) {
                let applies = |&&size: &&u32| {
                    let g = geometry().with_batch(size as usize);
                    find(device, op, g, &algorithm).is_ok()
                };
                for micro_batches in [&[4][..], &[1, 3]] {
                    if micro_batches.iter().filter(|size| applies(size)).count() < micro_batches.len() {
                        continue;
                    }
                    let planned = configuration(&algorithm, micro_batches);
                    for (accumulate, found) in distances(device, op, geometry(), &planned).unwrap() {
                        assert!(
                            found > 0.0 && found < 1e-3,
                            "{op} {algorithm} {micro_batches:?} {accumulate:?}: {found:e}"
                        );
                    }
                }
            }
        }
    }

    fn a_micro_batch_that_reads_anothers_samples_shows(on: &TestDevice) {
        let device = &on.devices()[0];
        let cases = ConvOp::ALL.map(|op| (op, Fault::ReadsAnothersA));
        for (op, fault) in cases.into_iter().chain([(ConvOp::BackwardFilter, Fault::ReadsAnothersB)]) {
            let found = with_fault(device, op, fault);
            assert!(found.iter().all(|&distance| distance > 0.1), "{op} {fault:?}: {found:?}");
        }
    }

    fn a_kernel_that_replaces_what_it_should_add_to_shows(on: &TestDevice) {
        let device = &on.devices()[0];
        for op in ConvOp::ALL {
            let [replaced, added] = with_fault(device, op, Fault::Replaces);
            assert!(replaced < 1e-5 && added > 0.1, "{op}: {replaced:e} {added:e}");
        }
        let found = with_fault(device, ConvOp::BackwardFilter, Fault::ReplacesTheFirst);
        assert!(found.iter().all(|&distance| distance > 0.1), "{found:?}");
    }

    fn a_slice_that_is_left_out_shows(on: &TestDevice) {
        let device = &on.devices()[0];
        for op in ConvOp::ALL {
            let found = with_fault(device, op, Fault::LeavesOut);
            let shows = |distance: &f64| distance.is_nan() || *distance > 0.1;
            assert!(found.iter().all(shows), "{op}: {found:?}");
            assert!(with_fault(device, op, Fault::None).iter().all(|&distance| distance < 1e-5), "{op}");
        }
    }
}

#[test]
fn sums_are_those_over_the_output_of_the_definition() {
    let mut rng = tensor::rng::stream(5, 0);
    for _ in 0..60 {
        let g = random_geometry(&mut rng);
        for op in ConvOp::ALL {
            let patterns = [pattern(1, 1), pattern(1, 2)];
            let [a_len, b_len, out_len] = operand_lens(op, &g);
            let values = |pattern: &[f32], len| runs(pattern, 0, len).flatten().copied().collect::<Vec<_>>();
            let (a, b) = (values(&patterns[0], a_len), values(&patterns[1], b_len));
            let direct = reference::direct(op, &g, &a, &b);
            let draws = Draw::some(op, &g);
            let exact: Vec<f64> = draws.iter().map(|draw| draw.exact(op, &g, &patterns)).collect();
            // Rounding the output to single precision is all that lies between the two.
            let mut found: Vec<f32> = direct.iter().map(|&value| value as f32).collect();
            let distance = draw::distance(&found, &draws, &exact, 1.0);
            assert!(distance < 3e-7, "{op} {g:?}: {distance:e}");
            // An error in one element is as large as in the norm, if not to the digit.
            let norm = direct.iter().map(|value| value * value).sum::<f64>().sqrt();
            found[out_len / 2] += norm as f32;
            let distance = draw::distance(&found, &draws, &exact, 1.0);
            assert!(distance > 0.01, "{op} {g:?}: {distance:e}");
        }
    }
}

#[test]
fn no_two_samples_are_alike() {
    for sample in [1, 1 << 10, 1 << 16, 1 << 20, 3 << 20, PERIOD, 2 * PERIOD] {
        let [x, w] = [1, 2].map(|seed| pattern(sample, seed));
        let mut starts: Vec<Vec<u32>> = Vec::new();
        for pattern in [&x, &w] {
            for number in 0..64 {
                let start =
                    runs(pattern, number * sample, 32).flatten().map(|value| value.to_bits()).collect();
                assert!(!starts.contains(&start), "sample {number} of {sample} elements");
                starts.push(start);
            }
        }
    }
}
