//! The keys and their effects.

use super::view::{Field, Mode, View};
use crate::hints::{Failure, cause};
use crate::output;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

/// Each key with its effect.
pub(crate) const KEYS: [(&str, &str); 12] = [
    ("q, Ctrl-C", "end"),
    ("j, k, arrows", "next line, previous line"),
    ("Enter", "open the process"),
    ("Esc", "back to the list of processes"),
    ("s", "sort by: waiting, waits, mean wait, longest wait"),
    ("r", "another lock for the process, as `lockwright switch` does"),
    ("e", "epochs: how they keep their SLOs; again: back to the lock"),
    ("o", "another SLO for epochs, as `lockwright switch` sets it"),
    ("l", "count more or less: counters, full (owners, stacks), off"),
    ("f", "sample stacks for five seconds; again: back to places"),
    ("w", "save what is shown to lockwright-top-PID.json"),
    ("?", "these keys"),
];

/// What happens after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Quit,
    Draw,
}

/// Handles a key or another terminal event.
pub(crate) fn pressed(view: &mut View, event: &Event) -> After {
    let Event::Key(key) = event else { return After::Draw };
    if key.kind != KeyEventKind::Press {
        return After::Draw;
    }
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return After::Quit;
    }
    view.status.clear();
    match &mut view.mode {
        Mode::Typing(field, typed) => match key.code {
            KeyCode::Char(char) => typed.push(char),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => view.mode = Mode::Locks,
            KeyCode::Enter => {
                let (field, typed) = (*field, std::mem::take(typed));
                view.mode = Mode::Locks;
                match field {
                    _ if typed.is_empty() => {}
                    Field::Rule => view.act(|process| process.switch(&typed)),
                    Field::Slo => view.act(|process| process.set_slo(&typed)),
                }
            }
            _ => {}
        },
        Mode::Help => view.mode = Mode::Locks,
        Mode::Locks => return command(view, key.code),
    }
    After::Draw
}

fn command(view: &mut View, key: KeyCode) -> After {
    match key {
        KeyCode::Char('q') => return After::Quit,
        KeyCode::Esc | KeyCode::Left if !view.back() && key == KeyCode::Esc => return After::Quit,
        KeyCode::Char('j') | KeyCode::Down => view.step(1),
        KeyCode::Char('k') | KeyCode::Up => view.step(-1),
        KeyCode::PageDown => view.step(10),
        KeyCode::PageUp => view.step(-10),
        KeyCode::Enter => view.enter(),
        KeyCode::Char('?') => view.mode = Mode::Help,
        KeyCode::Char('s') => view.act(|process| {
            process.sort = process.sort.next();
            Ok(format!("sorts by {}, from the next sample on", process.sort.name()))
        }),
        KeyCode::Char('r') => ask(view, Field::Rule),
        KeyCode::Char('o') => ask(view, Field::Slo),
        KeyCode::Char('e') => view.act(super::view::Shown::show_epochs),
        KeyCode::Char('l') => view.act(super::view::Shown::next_level),
        KeyCode::Char('f') => view.act(super::view::Shown::sample),
        KeyCode::Char('w') => {
            view.status = match save(view) {
                Ok(name) => format!("written: {name}"),
                Err(failure) => failure.message().to_owned(),
            }
        }
        _ => {}
    }
    After::Draw
}

/// Lets the user type a value, if a process is selected.
fn ask(view: &mut View, field: Field) {
    match &view.process {
        Some(process) if !process.has_ended => view.mode = Mode::Typing(field, String::new()),
        _ => view.act(|_| Ok(String::new())),
    }
}

/// Writes the data behind the screen to a file, and returns its name.
fn save(view: &View) -> Result<String, Failure> {
    let Some(process) = &view.process else { return Err(Failure::new("open a process first")) };
    let name = format!("lockwright-top-{}.json", process.pid());
    let text = output::json(&serde_json::to_value(&process.outcome).map_err(Failure::new)?);
    lockwright_files::write(&name, text)
        .map_err(|error| Failure::new(format!("cannot write '{name}': {}", cause(&error))))?;
    Ok(name)
}
