//! Shows the progress of a measurement on standard error.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// Columns of the bar itself.
const WIDTH: usize = 30;

/// A bar with this many steps of a unit (`runs`), the time left and a message; nothing if `quiet` or not on a terminal.
pub fn progress(steps: u64, unit: &str, quiet: bool) -> ProgressBar {
    let template = format!("{{bar:{WIDTH}}} {{pos}}/{{len}} {unit}  {{left}}{{msg}}");
    let left = |state: &ProgressState, to: &mut dyn Write| {
        // Before the first step, the remaining time is unknown.
        if state.pos() > 0 {
            let _ = write!(to, "{:#} left  ", HumanDuration(state.eta()));
        }
    };
    ProgressBar::with_draw_target(Some(steps), target(quiet))
        .with_style(style(&template).with_key("left", left))
}

/// A bar for something that takes this long; it moves by itself.
pub fn timed(time: Duration, quiet: bool) -> ProgressBar {
    let course = move |state: &ProgressState, to: &mut dyn Write| {
        let done = state.elapsed().as_secs_f64() / time.as_secs_f64().max(1e-9);
        let full = ((done * WIDTH as f64) as usize).min(WIDTH);
        let _ = write!(to, "{}{}", "█".repeat(full), "░".repeat(WIDTH - full));
    };
    let clock = move |state: &ProgressState, to: &mut dyn Write| {
        let _ = to.write_str(&clock(state.elapsed().min(time), time));
    };
    let bar = ProgressBar::with_draw_target(Some(time.as_millis() as u64), target(quiet))
        .with_style(
            style("{course} {clock}  {msg}").with_key("course", course).with_key("clock", clock),
        );
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// `3 s of 10 s, 7 s left`.
fn clock(gone: Duration, all: Duration) -> String {
    let text = |time: Duration| match all.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..600 => format!("{:.0} s", time.as_secs_f64()),
        _ => format!("{:.0} min", time.as_secs_f64() / 60.0),
    };
    format!("{} of {}, {} left", text(gone), text(all), text(all.saturating_sub(gone)))
}

fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(4) }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal of 80 columns that keeps all that is written.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl Kept {
        fn add(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no test panics with it").push_str(text);
            Ok(())
        }
    }

    impl TermLike for Kept {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.add("\n")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// All that a terminal gets while `show` moves the bar.
    fn shown(bar: &ProgressBar, show: impl FnOnce(&ProgressBar)) -> String {
        let kept = Kept::default();
        bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(kept.clone())));
        show(bar);
        bar.tick();
        bar.abandon();
        kept.0.lock().expect("no test panics with it").clone()
    }

    #[test]
    fn steps_have_a_unit_and_then_the_time_left() {
        let bar = progress(8, "runs", true);
        let text = shown(&bar, |bar| bar.set_message("fifo"));
        assert!(text.contains(" 0/8 runs  fifo"), "{text}");
        let bar = progress(8, "runs", true);
        let text = shown(&bar, |bar| bar.set_position(2));
        assert!(text.contains(" 2/8 runs  ") && text.contains(" left"), "{text}");
    }

    #[test]
    fn a_time_has_a_unit_and_what_is_left() {
        let bar = timed(Duration::from_secs(3000), true);
        let text = shown(&bar, |bar| bar.set_message("watching 42"));
        assert!(text.contains(" 0 min of 50 min, 50 min left  watching 42"), "{text}");
        let seconds = Duration::from_secs;
        assert_eq!(clock(seconds(3), seconds(10)), "3 s of 10 s, 7 s left");
        assert_eq!(clock(Duration::from_millis(1500), seconds(5)), "1.5 s of 5.0 s, 3.5 s left");
    }
}
