//! What measures: a device, other GPUs of its model, or nothing.

use crate::stop::Stop;
use cudnn_layers::conv::{ParallelProfiler, ProfileOptions, parallel::OpenProfiler, profiler};
use planner::{Done, Measurement, Profiler, ProfilerError, Request, RequestError};
use std::collections::BTreeSet;
use tensor::{Device, cuda::probe};

/// What measures.
pub(super) enum Source {
    /// A device of this machine.
    Device(Device, ProfileOptions),
    /// A profiler of the caller.
    Profiler(Box<dyn Profiler>),
}

impl Source {
    /// Lets `run` measure: on the device itself, or on these `gpus`, which are of its model, if there are any.
    pub(super) fn with_profiler<R>(&mut self, gpus: &[usize], run: impl FnOnce(&mut dyn Profiler) -> R) -> R {
        match self {
            Source::Profiler(profiler) => run(profiler.as_mut()),
            Source::Device(device, options) if gpus.is_empty() => run(profiler(device, *options).as_mut()),
            Source::Device(device, options) => {
                // Each in a thread of its own, in which it opens its GPU; one may be `device` itself.
                let worker = |&ordinal: &usize| -> OpenProfiler {
                    let is_own = matches!(device, Device::Cuda(own) if own.info().ordinal == ordinal);
                    let (own, options) = (is_own.then(|| device.clone()), *options);
                    Box::new(move || match &own {
                        Some(own) => Ok(profiler(own, options)),
                        None => Ok(profiler(&Device::Cuda(probe()?.open(ordinal)?), options)),
                    })
                };
                run(&mut ParallelProfiler::new(gpus.iter().map(worker).collect()))
            }
        }
    }
}

/// A profiler that stops after the measurement during which `stop` is requested; the measurements so far are kept.
pub(super) struct Interruptible<'p> {
    pub(super) profiler: &'p mut dyn Profiler,
    pub(super) stop: &'p Stop,
}

impl Profiler for Interruptible<'_> {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        self.profiler.measure(request)
    }

    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        let stop = self.stop;
        self.profiler.measure_each(requests, &mut |index, rows| {
            done(index, rows)?;
            if stop.is_requested() { Err("stopped".into()) } else { Ok(()) }
        })
    }
}

/// The GPUs that measure for a device, by ordinal: `all` of the machine's (`None`), or numbers such as `0,1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchmarkDevices(pub Option<BTreeSet<usize>>);

impl BenchmarkDevices {
    /// Their ordinals, on a machine with GPUs of these `models`, for the GPU `own`.
    ///
    /// # Errors
    /// In a sentence: there is no such GPU, or it is of another model, so that its measurements would not hold.
    pub fn ordinals(&self, models: &[String], own: usize) -> Result<Vec<usize>, String> {
        let ordinals = self.0.clone().unwrap_or_else(|| (0..models.len()).collect());
        for &ordinal in &ordinals {
            let Some(model) = models.get(ordinal) else {
                let last = models.len() - 1;
                return Err(format!("there is no cuda:{ordinal}: the machine's GPUs are 0 to {last}"));
            };
            if *model != models[own] {
                let own = format!("cuda:{own}, for which it would measure: {model}, and {}", models[own]);
                return Err(format!("cuda:{ordinal} is of another model than {own}"));
            }
        }
        Ok(ordinals.into_iter().collect())
    }
}

impl std::str::FromStr for BenchmarkDevices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("all") {
            return Ok(Self(None));
        }
        let ordinals: Result<_, _> = text.split(',').map(|ordinal| ordinal.trim().parse()).collect();
        let must = |_| "it must be all, or numbers of GPUs such as 0,1".to_owned();
        ordinals.map(|ordinals| Self(Some(ordinals))).map_err(must)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_number_or_all_together() {
        let parse = |text: &str| text.parse::<BenchmarkDevices>();
        assert_eq!(parse("all"), Ok(BenchmarkDevices(None)));
        assert_eq!(parse("0"), Ok(BenchmarkDevices(Some([0].into()))));
        assert_eq!(parse("0, 2"), Ok(BenchmarkDevices(Some([0, 2].into()))));
        for bad in ["", "0,", "cuda:1", "-1", "0;1"] {
            assert!(parse(bad).unwrap_err().contains("such as 0,1"), "{bad}");
        }
    }

    #[test]
    fn only_gpus_of_one_model_measure_for_each_other() {
        let models = ["H200", "H200", "A100"].map(str::to_owned);
        let these = |ordinals: &[usize]| {
            BenchmarkDevices(Some(ordinals.iter().copied().collect())).ordinals(&models, 0)
        };
        assert_eq!(these(&[1, 0, 1]), Ok(vec![0, 1]));
        assert_eq!(these(&[1]), Ok(vec![1]));
        assert_eq!(these(&[0, 3]).unwrap_err(), "there is no cuda:3: the machine's GPUs are 0 to 2");
        assert_eq!(
            BenchmarkDevices(None).ordinals(&models, 1).unwrap_err(),
            "cuda:2 is of another model than cuda:1, for which it would measure: A100, and H200"
        );
        assert_eq!(BenchmarkDevices(None).ordinals(&models[..2], 1), Ok(vec![0, 1]));
    }
}
