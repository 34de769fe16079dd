//! How far something long has come: a bar on stderr where that is a terminal, elsewhere a line every few seconds.

use crate::console::complain;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use planner::Progress;
use std::{thread, time::Duration};

/// Between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// A bar for so many steps, which goes when it is dropped. `what` says what they are, in the bar's own words.
pub(crate) fn bar(steps: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>9} {bar:32} {pos}/{len} {elapsed}, {eta} left {msg}");
    // indicatif's default target is stderr, and draws nothing if that is not a terminal.
    let bar = ProgressBar::new(steps).with_style(style.expect("a valid template")).with_prefix(what);
    let bar = bar.with_finish(ProgressFinish::AndClear);
    if bar.is_hidden() {
        let weak = bar.downgrade();
        let tell = move || {
            loop {
                thread::sleep(EVERY);
                let Some(bar) = weak.upgrade() else { return };
                // What is finished counts as if all steps were done.
                if !bar.is_finished() {
                    complain(&line(&bar));
                }
            }
        };
        // If the system refuses a thread, work continues without these lines.
        let _ = thread::Builder::new().name("progress".to_owned()).spawn(tell);
    }
    bar
}

/// A bar for one step that may take long, in which this is `at_work`.
pub(crate) fn one_step(what: &'static str, at_work: &'static str) -> ProgressBar {
    let bar = bar(1, what);
    bar.set_message(at_work);
    // Between steps it is drawn, and its clock goes on, only so.
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// How far it has come, such as `measuring 20/84 after 5 s: conv2 Forward at 32`: the time goes on where steps do not.
fn line(bar: &ProgressBar) -> String {
    let (message, seconds) = (bar.message(), bar.elapsed().as_secs());
    let colon = if message.is_empty() { "" } else { ": " };
    let (done, all) = (bar.position(), bar.length().unwrap_or_default());
    format!("{} {done}/{all} after {seconds} s{colon}{message}", bar.prefix())
}

/// What follows the measuring of kernels with a bar.
pub(crate) fn measuring() -> impl FnMut(Progress<'_>) {
    let mut shown = None;
    move |progress| {
        let (kernel, micro_batch) = progress.next;
        let bar = shown.get_or_insert_with(|| bar(progress.total as u64, "measuring"));
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(format!("{kernel} at {micro_batch}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_it_has_been_at_the_same_step() {
        let bar = ProgressBar::hidden().with_prefix("dividing").with_elapsed(Duration::from_secs(65));
        bar.set_length(1);
        assert_eq!(line(&bar), "dividing 0/1 after 65 s");
        bar.set_message("by the ILP solver");
        assert_eq!(line(&bar), "dividing 0/1 after 65 s: by the ILP solver");
    }
}
