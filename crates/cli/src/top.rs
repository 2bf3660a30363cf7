//! `lockwright top`: shows the locks of running processes, live.

pub(crate) mod batch;
mod columns;
mod details;
mod keys;
pub(crate) mod list;
mod names;
mod rule;
mod screen;
#[cfg(test)]
mod screen_tests;
mod view;

use crate::hints::{Failure, cause};
use crate::signals::{Event, Watch};
use keys::After;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use std::env;
use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::View;

/// How often we check for signals.
const SIGNALS: Duration = Duration::from_millis(250);

/// Runs the interactive screen.
pub(crate) fn run(pid: Option<libc::pid_t>, interval: Duration) -> Result<ExitCode, Failure> {
    // A dumb terminal, such as an editor's, only appends text.
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !stdin().is_terminal() || !stdout().is_terminal() || is_dumb {
        let pid = pid.map_or_else(String::new, |pid| format!("{pid} "));
        return Err(Failure::new("top needs a terminal to draw on")
            .hint(format!("lines of JSON: lockwright top {pid}--batch")));
    }
    let signals = Watch::new(); // before the view starts threads, which inherit the mask
    // A process that can't be observed causes an error before the terminal changes.
    let mut view = View::open(pid, interval)?;
    // On a panic, the terminal is restored before the message appears.
    let mut terminal = ratatui::try_init().map_err(|error| {
        Failure::new(format!("cannot draw on this terminal: {}", cause(&error)))
    })?;
    let ended = draw(&mut view, &mut terminal, &signals, interval);
    if is_gone() {
        drop(view);
        // There is no terminal to restore, and no way to print a message.
        std::process::exit(128 + libc::SIGHUP);
    }
    ratatui::restore();
    drop(view); // restores the level
    match ended? {
        Some(signal) => Ok(ExitCode::from(128 + signal as u8)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Draws until a key or a signal ends it.
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
        // Wait until there is something to draw.
        loop {
            match signals.next(Some(Duration::ZERO)) {
                Event::Signal { number: libc::SIGWINCH, .. } => break,
                Event::Signal { number, .. } => return Ok(Some(number)),
                Event::Child | Event::Nothing => {}
            }
            if is_gone() {
                return Ok(Some(libc::SIGHUP));
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                view.look();
                next = (next + interval).max(Instant::now());
                break;
            }
            if !has_input(left.min(SIGNALS)) || is_gone() {
                continue;
            }
            // Handle all typed keys: poll doesn't report keys that the library has already read.
            let mut is_pressed = false;
            while event::poll(Duration::ZERO).map_err(fail)? {
                is_pressed = true;
                if keys::pressed(view, &event::read().map_err(fail)?) == After::Quit {
                    return Ok(None);
                }
            }
            if is_pressed {
                break;
            }
        }
    }
}

/// The poll events of the terminal's input.
fn input(wait: Duration) -> libc::c_short {
    let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    // SAFETY: one writable `pollfd`.
    let got = unsafe { libc::poll(&mut input, 1, wait.as_millis() as libc::c_int) };
    if got > 0 { input.revents } else { 0 }
}

/// Has the terminal disappeared? SIGHUP may be ignored, and reading keys would then never end.
fn is_gone() -> bool {
    input(Duration::ZERO) & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Waits up to this long for keys.
fn has_input(wait: Duration) -> bool {
    // At least a millisecond, because a shorter wait would be rounded to zero.
    input(wait.max(Duration::from_millis(1))) != 0
}
