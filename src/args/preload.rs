//! Other programs.

use clap::Args;
use planner::Bytes;
use std::ffi::OsString;

/// `microbatch run`.
#[derive(Clone, Debug, Args)]
pub struct PreloadArgs {
    /// Workspace of a convolution for which the program gives none [default: 64MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub workspace_limit: Option<Bytes>,
    /// What every convolution got, when the program ends: a file, JSON if it is called .json [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub report: Option<OsString>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}
