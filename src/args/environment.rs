//! The original's environment variables, under the options.

use crate::Result;
use files::database::default_folder;
use std::{collections::BTreeMap, env, fmt::Display, path::PathBuf, str::FromStr};

/// Which micro-batch sizes may be used.
pub(super) const POLICY: &str = "UCUDNN_BATCH_SIZE_POLICY";
/// Workspace of each kernel.
pub(super) const LIMIT: &str = "UCUDNN_DEFAULT_WORKSPACE_LIMIT";
/// Workspace of all kernels together.
pub(super) const TOTAL: &str = "UCUDNN_TOTAL_WORKSPACE_SIZE";
/// Where measurements are kept: here a folder, or none.
pub(super) const DATABASE: &str = "UCUDNN_DATABASE";
/// The GPUs that measure.
pub(super) const DEVICES: &str = "UCUDNN_BENCHMARK_DEVICES";

/// The original µ-cuDNN's environment variables that have a meaning here, as they are set; an empty one is not.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<&'static str, String>,
    /// Where measurements are kept if no variable says so.
    pub(super) measurements: Option<PathBuf>,
}

impl Environment {
    /// This process's.
    pub fn of_process() -> Self {
        let variable = |name| Some(env::var_os(name)?.to_string_lossy().into_owned());
        Self { measurements: default_folder(), ..Self::new(variable) }
    }

    /// What `variable` says of each name.
    pub fn new(mut variable: impl FnMut(&'static str) -> Option<String>) -> Self {
        let names = [POLICY, LIMIT, TOTAL, DATABASE, DEVICES].into_iter();
        let set = names.filter_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)));
        Self { variables: set.collect(), measurements: None }
    }

    /// The value of the variable `name`, if it is set.
    pub(super) fn get<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.variables.get(name) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|reason| usage!("invalid value '{text}' of the environment variable {name}: {reason}"))
    }
}
