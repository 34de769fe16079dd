//! What the environment says, read once.

use crate::shared::warn;
use files::database::{Database, default_folder};
use planner::{BatchSizePolicy, Bytes};
use std::{env, fmt::Display, path::PathBuf, str::FromStr, sync::OnceLock};

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) policy: BatchSizePolicy,
    /// Of all convolutions together, among which it is divided; none is 0, as the original has it.
    pub(crate) total: Option<Bytes>,
    /// cuDNN's own cap on the workspace of convolutions.
    cap: Option<Bytes>,
    limit: Option<Bytes>,
    /// Where measurements are kept.
    pub(crate) database: Option<Database>,
    pub(crate) report: Option<PathBuf>,
}

/// Bytes of workspace that a plan may have if nobody sets a limit; cuDNN's algorithms then have none.
pub(crate) const USUAL_LIMIT: usize = 64 << 20;

impl Settings {
    pub(crate) fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let path = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
            let database = Database::named(path("UCUDNN_DATABASE").as_deref(), default_folder());
            Self {
                policy: variable("UCUDNN_BATCH_SIZE_POLICY").unwrap_or_default(),
                total: variable("UCUDNN_TOTAL_WORKSPACE_SIZE").filter(|&total| total > Bytes(0)),
                cap: variable("CUDNN_CONV_WSCAP_DBG").map(Bytes::mib),
                limit: variable("UCUDNN_DEFAULT_WORKSPACE_LIMIT"),
                database: database.unwrap_or_else(|error| {
                    warn(&error);
                    None
                }),
                report: path("MICROBATCH_REPORT"),
            }
        })
    }

    /// Bytes of workspace that a convolution may have whose caller gave so much to Find…Ex; of a total, all.
    pub(crate) fn limit(&self, given: Option<usize>) -> Option<usize> {
        let given = given.map(|bytes| Bytes(bytes as u64));
        self.total.or(self.cap).or(given).or(self.limit).map(|limit| limit.0 as usize)
    }
}

/// The value of a variable that is set and not empty; a warning if it says nothing.
fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
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
        let (total, cap, limit) = (Some(Bytes(3)), Some(Bytes(5)), Some(Bytes(7)));
        assert_eq!(settings(total, cap, limit).limit(Some(9)), Some(3));
        assert_eq!(settings(None, cap, limit).limit(Some(9)), Some(5));
        assert_eq!(settings(None, None, limit).limit(Some(9)), Some(9));
        assert_eq!(settings(None, None, limit).limit(None), Some(7));
        assert_eq!(settings(None, None, None).limit(None), None);
    }
}
