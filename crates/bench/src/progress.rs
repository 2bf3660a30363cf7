//! Shows the progress of a measurement on standard error.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar with this many steps, the time left and a message; nothing if `quiet` or not on a terminal.
pub fn progress(steps: u64, quiet: bool) -> ProgressBar {
    let target =
        if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(4) };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {left}{msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key(
        "left",
        // Before the first step, the remaining time is unknown.
        |state: &ProgressState, to: &mut dyn std::fmt::Write| {
            if state.pos() > 0 {
                let _ = write!(to, "{:#} left  ", HumanDuration(state.eta()));
            }
        },
    );
    ProgressBar::with_draw_target(Some(steps), target).with_style(style)
}
