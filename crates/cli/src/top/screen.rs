//! Draws the screen, for 80 x 24 and larger; smaller ones show less.

use super::columns::{self, right};
use super::details;
use super::keys::KEYS;
use super::names::{fit, short};
use super::view::{Detail, Field, Mode, Shown, View};
use crate::ctl::epochs;
use crate::observed::brief;
use crate::output::shown;
use lockwright_numbers::format::{si, time};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, TableState};

/// Lines below the table of locks, on a screen of 24.
const DETAIL: u16 = 11;
/// Lines of such a screen without the last.
const SMALL: u16 = 23;

pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    let [body, status] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    match &view.process {
        Some(process) => locks(frame, body, process, view.interval.as_secs_f64()),
        None => processes(frame, body, view),
    }
    let line = match &view.mode {
        Mode::Typing(field, typed) => {
            let what = match field {
                Field::Rule => "lock",
                Field::Slo => "SLO, as in `get 100us`",
            };
            Line::from(format!("{what}: {typed}_   (Enter: do it, Esc: don't)"))
        }
        _ if !view.status.is_empty() => Line::from(shown(&view.status).into_owned()).bold(),
        _ if view.process.as_ref().is_some_and(|process| process.elsewhere.is_some()) => {
            let process = view.process.as_ref().and_then(|process| process.elsewhere.as_deref());
            Line::from(format!("{}  ? help", process.unwrap_or_default())).dim()
        }
        _ => {
            let keys = "q quit  s sort  r rule  e epochs  o SLO  l level  f stacks  w save  ? help";
            let is_narrow = usize::from(status.width) < keys.len();
            Line::from(if is_narrow { "q quit  s sort  ? help" } else { keys }).dim()
        }
    };
    frame.render_widget(line, status);
    if view.mode == Mode::Help {
        help(frame, body);
    }
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::from(format!(" {key:13} {what}"))).collect();
    let height = lines.len() as u16 + 2;
    let area = area.centered(Constraint::Max(78), Constraint::Length(height));
    frame.render_widget(Clear, area);
    let block = Block::new().borders(Borders::ALL).title(" Keys ");
    frame.render_widget(Paragraph::new(Text::from(lines)).block(block), area);
}

fn selected() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn processes(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let [top, table] = Layout::vertical([Constraint::Length(2), Constraint::Min(0)]).areas(area);
    let rows = view.list.as_ref().map_or(&[][..], |list| &list.rows);
    let title = match rows.len() {
        0 => "no process uses our locks; start one: lockwright run -- PROGRAM".to_owned(),
        1 => "1 process uses our locks; Enter opens it and starts counting".to_owned(),
        count => format!("{count} processes use our locks; Enter opens one and starts counting"),
    };
    frame.render_widget(Line::from(title), top);
    let drawn = rows.iter().map(|row| {
        let elapsed = row.elapsed_ns.max(1) as f64;
        let number = |value: Option<f64>, text: &dyn Fn(f64) -> String| {
            right(value.map_or("-".to_owned(), text))
        };
        Row::new([
            right(row.pid.to_string()),
            Cell::from(shown(&row.name).into_owned()),
            right(row.level.to_owned()),
            number(row.waiting, &|waiting| format!("{waiting:.2}")),
            number(row.contended.map(|count| count as f64), &|count| si(count * 1e9 / elapsed)),
            Cell::from(match &row.refused {
                Some(why) => shown(why).into_owned(),
                None => row.lock.as_ref().map_or("-".into(), |lock| shown(lock).into_owned()),
            }),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Length(16),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Min(20),
    ];
    let names = ["pid", "name", "counts", "waiting", "waits/s", "lock"];
    let heads = names.iter().enumerate().map(|(at, name)| match at {
        1 | 5 => Cell::from(*name),
        _ => right((*name).to_owned()),
    });
    let heads = Row::new(heads).style(Style::new().add_modifier(Modifier::UNDERLINED));
    let drawn = Table::new(drawn, widths).header(heads).row_highlight_style(selected());
    let mut state = TableState::new().with_selected((!rows.is_empty()).then_some(view.row));
    frame.render_stateful_widget(drawn, table, &mut state);
}

fn locks(frame: &mut Frame<'_>, area: Rect, process: &Shown, interval_s: f64) {
    let columns = usize::from(area.width);
    let mut now = now(process, columns);
    now.extend(found(process, ABOVE - now.len(), columns));
    let more = area.height.saturating_sub(SMALL);
    let detail = Constraint::Length(DETAIL + more * 3 / 5);
    let heights = [Constraint::Length(2 + now.len() as u16), Constraint::Min(4), detail];
    let [top, table, detail] = Layout::vertical(heights).areas(area);
    let mut head = about(process, interval_s, columns);
    head.splice(1..1, now);
    frame.render_widget(Text::from(head), top);
    let drawn = columns::table(process, table.width).row_highlight_style(selected());
    let some = !process.outcome.locks.is_empty();
    let mut state = TableState::new().with_selected(some.then_some(process.selected));
    frame.render_stateful_widget(drawn, table, &mut state);
    let block = Block::new().borders(Borders::TOP);
    let room = (columns, usize::from(block.inner(detail).height));
    let lines = match (process.selected(), process.detail) {
        (_, Detail::Epochs) => slos(process),
        (None, _) => details::without_locks(process),
        (Some(lock), Detail::Places) => details::places(process, lock, room),
        (Some(lock), Detail::Stacks(until)) => details::stacks(lock, until, columns),
    };
    frame.render_widget(Paragraph::new(Text::from(lines)).block(block), detail);
}

/// Who waits now, in a few lines.
fn now(process: &Shown, columns: usize) -> Vec<Line<'static>> {
    let text = crate::standing::text(&process.standing);
    text.lines().take(NOW).map(|line| Line::from(fit(line, columns)).reversed()).collect()
}

/// What else was found, a line each.
fn found(process: &Shown, room: usize, columns: usize) -> Vec<Line<'static>> {
    let mut all = brief::lines(&process.outcome);
    let room = room.min(FOUND);
    if all.len() > room {
        all.truncate(room.saturating_sub(1));
        all.push(format!("and more: lockwright profile -p {}", process.pid()));
    }
    let line = |line: &String| Line::from(short(&format!("* {line}"), columns)).bold();
    all.iter().take(room).map(line).collect()
}

/// The two lines at the top.
fn about(process: &Shown, interval_s: f64, columns: usize) -> Vec<Line<'static>> {
    let outcome = &process.outcome;
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    // The table in force, or else the lock in force when counting began.
    let lock = match process.rules.default.as_str() {
        "" => &outcome.lock,
        lock => lock,
    };
    let state = match process.has_ended {
        true => "has ended; its last state".to_owned(),
        false => {
            format!("{} threads, under {}, {}", outcome.threads, shown(lock), process.level.name())
        }
    };
    // Of a long command line, the ends.
    let pid = outcome.pid.to_string();
    let room = columns.saturating_sub(pid.len() + state.chars().count() + 4).max(8);
    let first = format!("{pid}  {}  {state}", short(&shown(&outcome.command), room));
    let ended: u64 = process.epochs.iter().map(|epoch| u64::from(epoch.ended)).sum();
    let missed: u64 = process.epochs.iter().map(|epoch| u64::from(epoch.missed)).sum();
    let epochs = match ended {
        0 => format!("every {}", time(interval_s * 1e9)),
        _ => format!(
            "epochs: {}/s, {:.2} % missed",
            si(ended as f64 * 1e9 / elapsed),
            100.0 * missed as f64 / ended as f64
        ),
    };
    let second = format!(
        "{} with waits, {} waits/s; {epochs}, by {}",
        if process.locks == 1 { "1 lock".to_owned() } else { format!("{} locks", process.locks) },
        si(process.contended as f64 * 1e9 / elapsed),
        process.sort.name(),
    );
    vec![Line::from(fit(&first, columns)).bold(), Line::from(fit(&second, columns))]
}

/// Lines for who waits now.
const NOW: usize = 5;
/// Lines for what else was found.
const FOUND: usize = 3;
/// Lines for both: on a screen of 24 lines, some are left for the table.
const ABOVE: usize = 6;

/// How well the epochs meet their SLOs.
fn slos(process: &Shown) -> Vec<Line<'static>> {
    if process.epochs.is_empty() {
        return vec![Line::from("the program has no epochs: docs/epochs.md says how to add some")];
    }
    let seconds = process.outcome.elapsed_ns.max(1) as f64 / 1e9;
    let text = epochs::text(&process.epochs, seconds);
    text.lines().map(|line| Line::from(line.to_owned())).collect()
}
