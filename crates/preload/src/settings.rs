//! What the environment says, read once.

use crate::shared::warn;
use files::database::{Database, default_folder};
use planner::{BatchSizePolicy, Bytes};
use std::{
    env,
    fmt::Display,
    path::{Path, PathBuf},
    str::FromStr,
    sync::OnceLock,
};

const POLICY: &str = "UCUDNN_BATCH_SIZE_POLICY";
const LIMIT: &str = "UCUDNN_DEFAULT_WORKSPACE_LIMIT";
const TOTAL: &str = "UCUDNN_TOTAL_WORKSPACE_SIZE";
/// cuDNN's own cap on the workspace of convolutions, in MiB.
const CAP: &str = "CUDNN_CONV_WSCAP_DBG";
const DATABASE: &str = "UCUDNN_DATABASE";
const REPORT: &str = "MICROBATCH_REPORT";

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) policy: BatchSizePolicy,
    /// Of all convolutions together; none is 0, as the original has it.
    total: Option<Bytes>,
    cap: Option<Bytes>,
    limit: Option<Bytes>,
    /// Where measurements are kept.
    pub(crate) database: Option<Database>,
    pub(crate) report: Option<PathBuf>,
}

/// What workspace a convolution may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// With micro-batches.
    pub(crate) plan: usize,
    /// With one of cuDNN's algorithms, which, if nobody set a limit, has none.
    pub(crate) own: usize,
}

impl Settings {
    pub(crate) fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let named = env::var_os(DATABASE).filter(|name| !name.is_empty());
            let database = Database::named(named.as_ref().map(Path::new), default_folder());
            Self {
                policy: variable(POLICY).unwrap_or_default(),
                total: variable(TOTAL).filter(|&total| total > Bytes(0)),
                cap: variable(CAP).map(Bytes::mib),
                limit: variable(LIMIT),
                database: database.unwrap_or_else(|error| {
                    warn(&error);
                    None
                }),
                report: env::var_os(REPORT).map(PathBuf::from),
            }
        })
    }

    /// The limits of a convolution whose caller gave so much workspace to Find…Ex. Convolutions of a stream run one after
    /// the other, in memory that their program hands to each in turn: each may have all of a total.
    pub(crate) fn limits(&self, given: Option<usize>) -> Limits {
        let given = given.map(|bytes| Bytes(bytes as u64));
        match self.total.or(self.cap).or(given).or(self.limit) {
            Some(Bytes(limit)) => Limits { plan: limit as usize, own: limit as usize },
            None => Limits { plan: 64 << 20, own: usize::MAX },
        }
    }
}

/// The value of a variable that is set; a warning if it says nothing.
fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let parsed = text.parse().map_err(|error| warn(&format!("{name} is ignored: {error}")));
    parsed.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_stands_above_the_cap_that_above_the_callers_workspace_and_that_above_the_default() {
        let policy = BatchSizePolicy::PowerOfTwo;
        let settings =
            |total, cap, limit| Settings { policy, total, cap, limit, database: None, report: None };
        let both = |bytes| Limits { plan: bytes, own: bytes };
        let (total, cap, limit) = (Some(Bytes(3)), Some(Bytes(5)), Some(Bytes(7)));
        assert_eq!(settings(total, cap, limit).limits(Some(9)), both(3));
        assert_eq!(settings(None, cap, limit).limits(Some(9)), both(5));
        assert_eq!(settings(None, None, limit).limits(Some(9)), both(9));
        assert_eq!(settings(None, None, limit).limits(None), both(7));
        assert_eq!(settings(None, None, None).limits(None), Limits { plan: 64 << 20, own: usize::MAX });
    }
}
