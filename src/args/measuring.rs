//! Who measures, and where measurements are kept from run to run.

use super::environment::{DATABASE, DEVICES, Environment};
use crate::{Error, Result};
use clap::Args;
use files::database::Database;
use std::path::PathBuf;
use tensor::{Device, cuda::probe};
use trainer::planning::{BenchmarkDevices, Records};

/// The options about measurements.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Measuring")]
pub struct MeasuringArgs {
    /// Folder of the measurements of all runs, or none [default: microbatch/measurements in the user's cache folder]
    #[arg(long, value_name = "FOLDER")]
    pub database: Option<PathBuf>,
    /// Measure everything again, and record nothing; the same as --database none
    #[arg(long, conflicts_with = "database")]
    pub no_database: bool,
    /// Measure nothing: plan from what the database has
    #[arg(long, conflicts_with = "benchmark_devices")]
    pub offline: bool,
    /// GPUs that measure at the same time, of the model of the one that runs: all, or numbers such as 0,1 [default: the
    /// one that runs]
    #[arg(long, value_name = "GPUS")]
    pub benchmark_devices: Option<BenchmarkDevices>,
    /// The variables below the options, read when these are.
    #[arg(skip = Environment::of_process())]
    pub environment: Environment,
}

impl MeasuringArgs {
    /// Where measurements are kept: what is typed, else what the environment says, else the user's cache folder.
    ///
    /// # Errors
    /// [`Error::Usage`]: a database that is a file, or none to plan from without measuring.
    pub fn records(&self) -> Result<Records> {
        let environment = &self.environment;
        let of_variable = environment.get(DATABASE)?;
        let named =
            if self.no_database { Some("none".into()) } else { self.database.clone().or(of_variable) };
        let database = Database::named(named.as_deref(), environment.measurements.clone());
        let database = database.map_err(Error::Usage)?;
        let knows_nothing = self.offline && database.is_none();
        refuse_if!(knows_nothing, "--offline needs a database to plan from, and there is none");
        Ok(Records { database, offline: self.offline, benchmark_devices: Vec::new() })
    }

    /// The same for measurements of `device`.
    ///
    /// # Errors
    /// As [`MeasuringArgs::records`]; or GPUs to measure on that are not there, are of another model than `device`, or,
    /// if they are typed, cannot measure for it.
    pub fn records_of(&self, device: &Device) -> Result<Records> {
        let mut records = self.records()?;
        let (typed, of_variable) = (self.benchmark_devices.clone(), self.environment.get(DEVICES)?);
        let Device::Cuda(own) = device else {
            // The variable is meant for runs on a GPU.
            refuse_if!(typed.is_some(), "--benchmark-devices: a GPU cannot measure for a CPU");
            return Ok(records);
        };
        if let Some(gpus) = typed.or(of_variable) {
            let present = probe().map_err(|absent| usage!("{absent}"))?;
            let models: Vec<String> = present.devices.iter().map(ToString::to_string).collect();
            let ordinals = gpus.ordinals(&models, own.info().ordinal);
            records.benchmark_devices = ordinals.map_err(|reason| usage!("--benchmark-devices: {reason}"))?;
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_in_the_cache_unless_somebody_says_otherwise() {
        let cache = "/home/me/.cache/microbatch/measurements";
        let environment = |database: &str| {
            let mut environment = Environment::new(|name| (name == DATABASE).then(|| database.to_owned()));
            environment.measurements = Some(cache.into());
            environment
        };
        let typed = |database: Option<&str>, no_database| MeasuringArgs {
            database: database.map(PathBuf::from),
            no_database,
            ..MeasuringArgs::default()
        };
        for (args, variable, expected) in [
            (typed(None, false), "", Some(cache)),
            (typed(None, false), "/data", Some("/data")),
            (typed(None, false), "none", None),
            (typed(Some("here"), false), "none", Some("here")),
            (typed(Some("none"), false), "/data", None),
            (typed(None, true), "/data", None),
        ] {
            let args = MeasuringArgs { environment: environment(variable), ..args };
            let records = args.records().unwrap();
            assert_eq!(records.database, expected.map(Database::new), "{args:?} {variable}");
            let offline = MeasuringArgs { offline: true, ..args }.records();
            assert_eq!(offline.is_ok(), expected.is_some());
        }
        let nowhere = typed(None, false).records().unwrap();
        assert_eq!(nowhere, Records::default());
        let typed_gpus =
            MeasuringArgs { benchmark_devices: Some(BenchmarkDevices(None)), ..typed(None, false) };
        let error = typed_gpus.records_of(&Device::cpu()).unwrap_err();
        assert!(error.to_string().contains("--benchmark-devices: a GPU cannot measure for a CPU"), "{error}");
        let mut of_variable = typed(None, false);
        of_variable.environment = Environment::new(|name| (name == DEVICES).then(|| "0,1".to_owned()));
        assert_eq!(of_variable.records_of(&Device::cpu()).unwrap(), Records::default());
        let file = typed(Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")), false);
        assert!(file.records().unwrap_err().to_string().contains("Cargo.toml is a file"));
    }
}
