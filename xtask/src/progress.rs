//! How far a run of many parts has come.

use anyhow::Result;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use std::time::Duration;

/// A progress bar for this number of steps of a unit (`runs`).
pub(crate) fn progress(total: u64, unit: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(total).with_style(
        ProgressStyle::with_template(&format!(
            "{{bar:32.cyan/dim}} {{pos:>3}}/{{len}} {unit}  {{msg:<30}} {{left}}"
        ))?
        .with_key("left", |state: &ProgressState, to: &mut dyn std::fmt::Write| {
            // Before the first run, the remaining time is unknown.
            if state.pos() > 0 {
                let _ = write!(to, "{:#} left", HumanDuration(state.eta()));
            }
        }),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}
