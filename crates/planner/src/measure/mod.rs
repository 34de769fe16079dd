//! What is measured, and how far that can be trusted.

mod adaptive;
mod coverage;
mod estimate;
mod estimator;
mod measuring;
mod profile;
mod profiler;
mod repeat;

pub use coverage::{Coverage, coverage, measured_pairs};
pub use estimator::{EstimateError, Estimator};
pub use measuring::{ProfileError, Progress};
pub use profile::profile;
pub use profiler::{Done, Profiler, ProfilerError, Request, RequestError};
pub use repeat::{Noise, repeat};
