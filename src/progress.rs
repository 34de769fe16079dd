//! Progress bars on stderr, drawn only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use planner::Progress;
use std::time::Duration;

/// A bar for so many steps. `what` says what they are, in the bar's own words.
pub(crate) fn bar(steps: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>9} {bar:32} {pos}/{len} {elapsed}/{duration} {msg}");
    // indicatif's default target is stderr, and draws nothing if that is not a terminal.
    ProgressBar::new(steps).with_style(style.expect("a valid template")).with_prefix(what)
}

/// A line that says what is done for as long as it takes, which nobody knows.
pub(crate) fn busy(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a valid template");
    let busy = ProgressBar::new_spinner().with_style(style).with_message(what);
    busy.enable_steady_tick(Duration::from_millis(200));
    busy
}

/// A bar that follows the measuring of kernels.
#[derive(Default)]
pub(crate) struct ProfileBar(Option<ProgressBar>);

impl ProfileBar {
    /// Moves the bar to `progress`.
    pub(crate) fn show(&mut self, progress: Progress<'_>) {
        let bar = self.0.get_or_insert_with(|| bar(progress.total as u64, "measuring"));
        bar.set_position(progress.done as u64);
        match progress.next {
            Some((kernel, micro_batch)) => bar.set_message(format!("{kernel} at {micro_batch}")),
            None => bar.finish_and_clear(),
        }
    }
}
