//! What a resumed run needs besides the weights.

use super::weights::{STATE, load_weights};
use super::{NamedTensor, NetError, Result, Tensors, load_tensors, save_tensors};
use files::fnv1a;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// Key of the plans.
pub(crate) const PLANS: &str = "plans";
/// Further than any training goes, and still far from where numbers of 64 bits end.
const MOST_COUNTED: u64 = 1 << 53;

/// The state of a solver, but for its history tensors and the weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolverState {
    /// Iterations done.
    pub iteration: u64,
    /// Name of the net.
    pub net: String,
    /// Kind of solver, as the solver file spells it (`SGD`): it gives the history tensors their meaning.
    pub solver_type: String,
    /// [`fingerprint`] of the parameters.
    pub parameters: String,
    /// File name of the weights, which lie in the same folder.
    pub weights: String,
    /// Checksum of the weights ([`Tensors::checksum`]), so that state and weights of different runs are not mixed.
    pub weights_checksum: u32,
    /// Seed of the run.
    pub random_seed: u64,
    /// Samples consumed, by name of the data layer and phase (`data/TRAIN`).
    pub data_positions: BTreeMap<String, u64>,
    /// Other counters that bit-exact resuming needs, by name.
    pub counters: BTreeMap<String, u64>,
    /// What else its numbers follow from (the solver's settings, the layers, the data), by name: a digest of each.
    /// What is not named counts as changed.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl SolverState {
    /// Reads the weights that were saved with this state, which was read from `path`.
    ///
    /// # Errors
    /// Those of [`load_weights`]; [`NetError::Refused`] for other weights.
    pub fn weights(&self, path: &Path) -> Result<Tensors> {
        let weights = load_weights(&path.with_file_name(&self.weights))?;
        if weights.checksum() == self.weights_checksum {
            return Ok(weights);
        }
        let other = format!("{} holds other weights than were saved with it", weights.path().display());
        Err(NetError::refused(path, format!("cannot be resumed: {other}")))
    }
}

/// A short name for names and shapes of all parameters, in order: equal where nets can share weights and history.
pub fn fingerprint<'a>(parameters: impl IntoIterator<Item = (&'a str, impl AsRef<[usize]>)>) -> String {
    let texts = parameters.into_iter().map(|(name, shape)| format!("{name:?}{:?};", shape.as_ref()));
    format!("{:016x}", fnv1a(texts.flat_map(String::into_bytes)))
}

/// Writes the state, the plans under which the training runs, and the solver's history tensors.
///
/// # Errors
/// Those of [`save_tensors`].
pub fn save_solver_state(
    path: &Path,
    state: &SolverState,
    plans: &impl Serialize,
    history: &[NamedTensor],
) -> Result<()> {
    let json = serde_json::to_string(state).expect("strings and numbers always have a JSON form");
    let plans = serde_json::to_string(plans).expect("plans are made of strings and numbers, too");
    let metadata = BTreeMap::from([(STATE.to_owned(), json), (PLANS.to_owned(), plans)]);
    save_tensors(path, history, &metadata).map(drop)
}

/// Reads the state and the history tensors.
///
/// # Errors
/// Those of [`load_tensors`]; [`NetError::Refused`] for a file without a solver state (one of weights, perhaps).
pub fn load_solver_state(path: &Path) -> Result<(SolverState, Tensors)> {
    let history = load_tensors(path)?;
    let is_possible = |state: &SolverState| {
        let counts = std::iter::once(&state.iteration).chain(state.data_positions.values());
        match counts.into_iter().find(|&&count| count > MOST_COUNTED) {
            Some(count) => Err(format!("no training counts to {count}")),
            None => Ok(()),
        }
    };
    match history.json(STATE, "its solver state is", is_possible)? {
        Some(state) => Ok((state, history)),
        None => {
            let what = "holds weights, not a solver state; --weights starts a new training from it";
            Err(NetError::refused(path, what))
        }
    }
}
