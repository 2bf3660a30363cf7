//! `lockwright top`: locks of running processes, live.

pub(crate) mod batch;
mod keys;
mod list;
mod rule;
mod screen;
#[cfg(test)]
mod screen_tests;
mod view;

use crate::hints::{Failure, cause};
use crate::output;
use crate::signals::{Event, Watch};
use keys::After;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::View;

/// How often we ask for signals.
const SIGNALS: Duration = Duration::from_millis(250);

/// For how long a process counts for us if we don't come again.
pub(crate) fn lease(interval: Duration) -> Duration {
    2 * interval + Duration::from_secs(3)
}

/// The screen.
pub(crate) fn run(pid: Option<libc::pid_t>, interval: Duration) -> Result<ExitCode, Failure> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        let pid = pid.map_or_else(String::new, |pid| format!("{pid} "));
        return Err(Failure::new("top needs a terminal to draw on")
            .hint(format!("lines of JSON: lockwright top {pid}--batch")));
    }
    // What can't be looked at says so on a whole terminal.
    let mut view = View::open(pid, interval)?;
    let signals = Watch::new();
    // A panic restores the terminal before it is told.
    let mut terminal = ratatui::try_init().map_err(|error| {
        Failure::new(format!("cannot draw on this terminal: {}", cause(&error)))
    })?;
    let ended = draw(&mut view, &mut terminal, &signals, interval);
    ratatui::restore();
    drop(view); // takes the level back
    match ended? {
        Some(signal) => Ok(ExitCode::from(128 + signal as u8)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Until a key or a signal ends it.
fn draw(
    view: &mut View,
    terminal: &mut DefaultTerminal,
    signals: &Watch,
    interval: Duration,
) -> Result<Option<i32>, Failure> {
    let fail = |error: std::io::Error| Failure::new(format!("the terminal: {}", cause(&error)));
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| screen::draw(frame, view)).map_err(fail)?;
        // Until there is something to draw.
        loop {
            match signals.next(Some(Duration::ZERO)) {
                Event::Signal { number: libc::SIGWINCH, .. } => break,
                Event::Signal { number, .. } => return Ok(Some(number)),
                Event::Child | Event::Nothing => {}
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                view.look();
                next = (next + interval).max(Instant::now());
                break;
            }
            if event::poll(left.min(SIGNALS)).map_err(fail)? {
                match keys::pressed(view, &event::read().map_err(fail)?) {
                    After::Quit => return Ok(None),
                    After::Draw => break,
                }
            }
        }
    }
}

/// Writes what the screen is about; the file's name.
fn save(view: &View) -> Result<String, Failure> {
    let Some(process) = &view.process else { return Err(Failure::new("open a process first")) };
    let name = format!("lockwright-top-{}.json", process.pid());
    let text = output::json(&serde_json::to_value(&process.outcome).map_err(Failure::new)?);
    std::fs::write(&name, text)
        .map_err(|error| Failure::new(format!("cannot write '{name}': {}", cause(&error))))?;
    Ok(name)
}
