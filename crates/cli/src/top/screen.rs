//! Draws the screen: 80 x 24 or larger.

use super::keys::KEYS;
use super::view::{COURSE, Detail, Field, Mode, Shown, View};
use crate::ctl::epochs;
use crate::observed::brief;
use crate::observed::report::{Looks, nobody, told};
use crate::output::{shown, wrapped};
use lockwright_numbers::format::{si, time};
use lockwright_observer::counts::observation::{Ranked, Site};
use lockwright_observer::counts::snapshot::LockKind;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, TableState};
use std::time::Instant;

/// Lines below the table of locks.
const DETAIL: u16 = 10;
/// Number of stacks shown of each kind, and their depth.
const STACKS: usize = 2;

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
            Line::from("q quit  s sort  r rule  e epochs  o SLO  l level  f stacks  w save  ? help")
                .dim()
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

fn header<'a>(names: &[&'a str]) -> Row<'a> {
    let cell = |(at, name): (usize, &&'a str)| match at {
        0 => Cell::from(*name),
        _ => Cell::from(Text::from(*name).alignment(Alignment::Right)),
    };
    Row::new(names.iter().enumerate().map(cell))
        .style(Style::new().add_modifier(Modifier::UNDERLINED))
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
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
        let number = |value: Option<u64>, text: &dyn Fn(f64) -> String| {
            right(value.map_or("-".to_owned(), |value| text(value as f64)))
        };
        Row::new([
            right(row.pid.to_string()),
            Cell::from(shown(&row.name).into_owned()),
            right(row.level.to_owned()),
            number(row.blocked_ns, &|ns| percent(ns / elapsed)),
            number(row.contended, &|count| si(count * 1e9 / elapsed)),
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
    let names = ["pid", "name", "counts", "blocked", "waits/s", "lock"];
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
    let mut now = now(process);
    now.extend(found(process, ABOVE - now.len(), area.width.into()));
    let heights =
        [Constraint::Length(2 + now.len() as u16), Constraint::Min(4), Constraint::Length(DETAIL)];
    let [top, table, detail] = Layout::vertical(heights).areas(area);
    let mut head = about(process, interval_s);
    head.splice(1..1, now);
    frame.render_widget(Text::from(head), top);
    let elapsed = process.outcome.elapsed_ns.max(1) as f64;
    // The width left by the other columns and the gaps.
    let name = usize::from(table.width).saturating_sub(66);
    let rows = process.outcome.locks.iter().map(|lock| row(process, lock, elapsed, name));
    let widths = [15, 5, 5, 6, 5, 7, 7, 7, 7, COURSE as u16];
    let widths = widths.iter().enumerate().map(|(at, &width)| match at {
        0 => Constraint::Min(width - 1),
        _ => Constraint::Length(width),
    });
    let names =
        ["lock", "block", "wait", "wait/s", "slept", "P50", "P99", "P99.9", "hold", "course"];
    let drawn = Table::new(rows, widths).header(header(&names)).row_highlight_style(selected());
    let some = !process.outcome.locks.is_empty();
    let mut state = TableState::new().with_selected(some.then_some(process.selected));
    frame.render_stateful_widget(drawn, table, &mut state);
    let block = Block::new().borders(Borders::TOP);
    let lines = match (process.selected(), process.detail) {
        (_, Detail::Epochs) => slos(process),
        (None, _) => without_locks(process),
        (Some(lock), Detail::Places) => places(process, lock),
        (Some(lock), Detail::Stacks(until)) => stacks(lock, until),
    };
    frame.render_widget(Paragraph::new(Text::from(lines)).block(block), detail);
}

/// Who waits now, in a few lines.
fn now(process: &Shown) -> Vec<Line<'static>> {
    let text = crate::standing::text(&process.standing);
    text.lines().take(NOW).map(|line| Line::from(line.to_owned()).reversed()).collect()
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

/// What is said in place of a lock's details if no wait for a lock was counted.
fn without_locks(process: &Shown) -> Vec<Line<'static>> {
    let outcome = &process.outcome;
    if outcome.elapsed_ns == 0 {
        return vec![Line::from("looking ...")];
    }
    let some_wait = !process.standing.is_empty();
    let text = match brief::details(outcome) {
        nothing if nothing.is_empty() => {
            let looks = Looks { count: outcome.samples, some_wait, ..Looks::default() };
            wrapped(&nobody(&looks))
        }
        details => details,
    };
    text.lines().map(|line| Line::from(line.to_owned())).collect()
}

/// The two lines at the top.
fn about(process: &Shown, interval_s: f64) -> Vec<Line<'static>> {
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
    let first = format!("{}  {}  {state}", outcome.pid, shown(&outcome.command));
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
        "{} locks with waits, {} waits/s; {epochs}, by {}",
        process.locks,
        si(process.contended as f64 * 1e9 / elapsed),
        process.sort.name(),
    );
    vec![Line::from(first).bold(), Line::from(second)]
}

/// Formats 0.123 as `12.3%`. A wait that exceeds the interval shows as `100%`.
fn percent(part: f64) -> String {
    match 100.0 * part {
        part if part >= 99.95 => "100%".to_owned(),
        part => format!("{part:.1}%"),
    }
}

fn row(process: &Shown, lock: &Ranked, elapsed: f64, name: usize) -> Row<'static> {
    let duration = |ns: u64| right(time(ns as f64));
    let none = || right("-".to_owned());
    let timed = |ns| if lock.wait.count == 0 { none() } else { duration(ns) };
    Row::new([
        Cell::from(short(&shown(&lock.name), name)),
        right(percent(lock.blocked_ns as f64 / elapsed)),
        right(format!("{:.2}", lock.wait_ns as f64 / elapsed)),
        right(si(lock.contended as f64 * 1e9 / elapsed)),
        right(format!("{:.0}%", 100.0 * lock.slept as f64 / lock.wait.count.max(1) as f64)),
        timed(lock.wait.p50_ns),
        timed(lock.wait.p99_ns),
        timed(lock.wait.p999_ns),
        if lock.hold.count == 0 { none() } else { duration(lock.hold.p50_ns) },
        right(course(process, lock)),
    ])
}

/// Lines for who waits now.
const NOW: usize = 5;
/// Lines for what else was found.
const FOUND: usize = 3;
/// Lines for both: on a screen of 24 lines, some are left for the table.
const ABOVE: usize = 6;

/// Shortens a name to this many columns. It keeps the end, which distinguishes parts of a variable.
fn short(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns || columns < 8 {
        return name.to_owned();
    }
    let tail = columns / 2;
    let head: String = name.chars().take(columns - 1 - tail).collect();
    let tail: String = name.chars().skip(length - tail).collect();
    format!("{head}…{tail}")
}

/// The blocked share of the recent intervals, one column each.
fn course(process: &Shown, lock: &Ranked) -> String {
    let levels = [
        NINE_LEVELS.empty,
        NINE_LEVELS.one_eighth,
        NINE_LEVELS.one_quarter,
        NINE_LEVELS.three_eighths,
        NINE_LEVELS.half,
        NINE_LEVELS.five_eighths,
        NINE_LEVELS.three_quarters,
        NINE_LEVELS.seven_eighths,
        NINE_LEVELS.full,
    ];
    let parts = process.courses.get(&lock.of).into_iter().flatten();
    parts.map(|&part| levels[usize::from(part).div_ceil(13).min(8)]).collect()
}

/// The lock, its rule, its holders and its waiters.
fn places(process: &Shown, lock: &Ranked) -> Vec<Line<'static>> {
    let text = told(process.selected + 1, lock);
    let mut lines: Vec<Line<'static>> =
        text.lines().map(|line| Line::from(line.to_owned())).collect();
    if lock.kind != LockKind::Mutex {
        return lines;
    }
    let mut rule =
        format!("   rule      {}", shown(&super::rule::shown(&process.rules, lock.place)));
    if let Some(delegated) = process.delegated.of(lock.address) {
        rule += &format!("; {delegated}");
    }
    lines.insert(1.min(lines.len()), Line::from(rule));
    lines
}

/// How well the epochs meet their SLOs.
fn slos(process: &Shown) -> Vec<Line<'static>> {
    if process.epochs.is_empty() {
        return vec![Line::from("the program has no epochs: docs/epochs.md says how to add some")];
    }
    let seconds = process.outcome.elapsed_ns.max(1) as f64 / 1e9;
    let text = epochs::text(&process.epochs, seconds);
    text.lines().map(|line| Line::from(line.to_owned())).collect()
}

/// Whole stacks of holders and waiters.
fn stacks(lock: &Ranked, until: Instant) -> Vec<Line<'static>> {
    let left = until.saturating_duration_since(Instant::now());
    let heading = match left.is_zero() {
        true => format!("{}: stacks; f: back to places", shown(&lock.name)),
        false => format!("{}: samples stacks, {} s left", shown(&lock.name), left.as_secs() + 1),
    };
    let mut lines = vec![Line::from(heading)];
    let mut add = |verb: &str, sites: &[Site]| {
        for site in sites.iter().filter(|site| !site.stack.is_empty()).take(STACKS) {
            let stack: Vec<_> = site.stack.iter().map(|frame| shown(frame)).collect();
            let line = format!("{verb} {:.0} %  {}", 100.0 * site.share, stack.join(" < "));
            let line = crate::output::beside("", &line);
            lines.extend(line.lines().map(|line| Line::from(line.to_owned())));
        }
    };
    add("held", &lock.holders);
    add("waits", &lock.waiters);
    if lines.len() == 1 && left.is_zero() {
        lines.push(Line::from("none: no thread waited, or the process can't copy its stack"));
    }
    lines
}
