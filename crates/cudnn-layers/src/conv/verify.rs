//! Does a planned configuration compute what the plainest execution computes?

use super::{
    ConvError, ConvOp, Runner, cpu,
    cuda::{self, Convolution},
    operand_lens,
    run::workspace_bytes,
};
use crate::raw::Cudnn;
use planner::{Bytes, Configuration, Math, Measurement, Run};
use tensor::{
    Access, Accumulate, Arena, ConvGeometry, Device, Lease, Span, arena::ALIGNMENT, cuda::CudaError,
    testing::random,
};

/// The relative L2 distance |planned - plain| / |plain| between the results of `configuration` and of the algorithm that
/// needs least workspace, in single precision and undivided as far as the device allows, on operands of pseudo-random
/// numbers.
///
/// # Errors
/// A configuration that cannot run, or a GPU that fails or lacks memory for both results.
pub fn distance(
    device: &Device,
    op: ConvOp,
    geometry: ConvGeometry,
    configuration: &Configuration,
) -> Result<f64, ConvError> {
    let planned = Runner::new(device, op, geometry, configuration)?;
    let plain = Runner::new(device, op, geometry, &plain(device, op, geometry)?)?;
    let workspace_len = planned.workspace_len().max(plain.workspace_len());
    let [a, b, out] = operand_lens(op, &geometry);
    let mut end = 0;
    let [a, b, first, second, workspace] = [a, b, out, out, workspace_len].map(|len| {
        let span = Span { offset: end, len };
        end += len.next_multiple_of(ALIGNMENT);
        span
    });
    let mut arena = Arena::on(device, end)?;
    let pattern = random(1 << 20, 1);
    for span in [a, b] {
        arena.fill(span, |values| -> Result<(), CudaError> {
            values.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, &from)| *to = from);
            Ok(())
        })?;
    }
    for (runner, out) in [(&planned, first), (&plain, second)] {
        let requests =
            [(a, Access::Read), (b, Access::Read), (out, Access::Write), (workspace, Access::Write)];
        let leases = arena.lease(&requests).expect("spans side by side");
        let [Lease::Read(a), Lease::Read(b), Lease::Write(out), Lease::Write(workspace)] =
            <[Lease<'_>; 4]>::try_from(leases).expect("four requests")
        else {
            unreachable!("leases come in the order of the requests")
        };
        device.run(|| runner.run(device, [a, b], out, Accumulate::Replace, workspace));
    }
    device.check()?;
    Ok(relative(&arena.read(first)?, &arena.read(second)?))
}

fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let squares =
        |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let pairs = found.iter().zip(expected);
    let error = squares(&mut pairs.map(|(&found, &expected)| f64::from(found) - f64::from(expected)));
    let norm = squares(&mut expected.iter().map(|&expected| f64::from(expected)));
    if error == 0.0 { 0.0 } else { error / norm }
}

/// The algorithm with the least workspace on the whole mini-batch, or, where none takes so much at once, on parts of it.
fn plain(device: &Device, op: ConvOp, geometry: ConvGeometry) -> Result<Configuration, ConvError> {
    let mut micro_batch = geometry.n;
    loop {
        if let Some((algorithm, workspace)) = smallest(device, op, geometry.with_batch(micro_batch))? {
            let run = |samples: usize, count: usize| Run {
                count: count as u32,
                micro: Measurement {
                    shared_ms: 0.0,
                    algorithm: algorithm.into(),
                    micro_batch: samples as u32,
                    time_ms: 0.0,
                    workspace,
                    max_error: 0.0,
                    deterministic: true,
                },
            };
            let (count, rest) = (geometry.n / micro_batch, geometry.n % micro_batch);
            let rest = (rest > 0).then(|| run(rest, 1));
            return Ok(Configuration::new(std::iter::once(run(micro_batch, count)).chain(rest)));
        }
        if micro_batch == 1 {
            let algorithm = "any algorithm".to_owned();
            return Err(ConvError::Unsupported { op, algorithm, geometry: Box::new(geometry) });
        }
        micro_batch = micro_batch.div_ceil(2);
    }
}

fn smallest(
    device: &Device,
    op: ConvOp,
    geometry: ConvGeometry,
) -> Result<Option<(&'static str, Bytes)>, ConvError> {
    let mut applicable: Vec<(&'static str, Bytes)> = Vec::new();
    match device {
        Device::Cpu(cpu) => applicable.extend(cpu::algorithms().iter().filter_map(|algorithm| {
            let len = algorithm.workspace_len(op, &geometry, cpu.threads())?;
            Some((algorithm.name(), workspace_bytes(len)))
        })),
        Device::Cuda(cuda) => cuda.with_library(|cudnn: &mut Cudnn| -> Result<(), ConvError> {
            for algorithm in cuda::algorithms(op, Math::Fp32) {
                let made = Convolution::new(cudnn, algorithm, geometry)?;
                applicable.extend(made.map(|made| (algorithm.name(), made.workspace())));
            }
            Ok(())
        })?,
    }
    Ok(applicable.into_iter().min_by_key(|&(_, workspace)| workspace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Cpu;

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

    #[test]
    fn a_sound_configuration_is_near_and_the_plain_one_is_equal() {
        let device = Device::Cpu(Cpu::new(2));
        let g = ConvGeometry::new([5, 4, 9, 11], 6, [3, 3]).pad([1, 1]);
        for op in ConvOp::ALL {
            let winograd = distance(&device, op, g, &configuration("WINOGRAD_4X4", &[2, 3])).unwrap();
            assert!(winograd > 0.0 && winograd < 1e-4, "{op}: {winograd:e}");
            assert_eq!(distance(&device, op, g, &plain(&device, op, g).unwrap()).unwrap(), 0.0);
        }
    }

    #[test]
    fn what_differs_shows() {
        assert_eq!(relative(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert!((relative(&[3.0, 5.0], &[3.0, 4.0]) - 0.2).abs() < 1e-12);
        assert!(relative(&[f32::NAN, 4.0], &[3.0, 4.0]).is_nan());
    }
}
