//! The columns of the table of locks.

use super::names::short_all;
use super::view::{COURSE, Shown};
use crate::observed::columns;
use crate::output::shown;
use lockwright_numbers::format::si;
use lockwright_observer::counts::observation::Ranked;
use ratatui::layout::{Alignment, Constraint};
use ratatui::style::{Modifier, Style};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::Text;
use ratatui::widgets::{Cell, Row, Table};

/// A column of figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Waiting,
    Rate,
    Acquired,
    Total,
    Slept,
    Mean,
    Longest,
    Course,
}

/// From left to right.
const ORDER: [Column; 8] = [
    Column::Waiting,
    Column::Rate,
    Column::Acquired,
    Column::Total,
    Column::Slept,
    Column::Mean,
    Column::Longest,
    Column::Course,
];

/// The most important one first, and the columns that names have at least beside it.
const IMPORTANCE: [(Column, u16); 8] = [
    (Column::Waiting, 8),
    (Column::Mean, 12),
    (Column::Longest, 12),
    (Column::Rate, 12),
    (Column::Course, 12),
    (Column::Slept, 12),
    (Column::Total, NAME),
    (Column::Acquired, NAME),
];
/// Names have this many columns before there are more figures than the most important ones: as many as at 80.
const NAME: u16 = 34;

/// A full block of the course is at least that many threads: fewer are noise.
const NOISE: f64 = 0.1;

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Rate => "wait/s",
            Self::Acquired => "acquired",
            Self::Total => "total wait",
            Self::Slept => "slept",
            Self::Mean => "mean",
            Self::Longest => "longest",
            Self::Course => "course",
        }
    }

    fn width(self) -> u16 {
        match self {
            Self::Rate => 6,
            Self::Acquired => 8,
            Self::Total => 10,
            Self::Slept => 5,
            Self::Course => COURSE as u16,
            _ => 7, // as long as times are
        }
    }

    fn text(self, process: &Shown, lock: &Ranked) -> String {
        let elapsed_s = process.outcome.elapsed_ns.max(1) as f64 / 1e9;
        match self {
            Self::Waiting => format!("{:.2}", lock.waiting),
            Self::Rate => si(lock.contended as f64 / elapsed_s),
            Self::Acquired | Self::Total | Self::Slept | Self::Mean | Self::Longest => {
                columns::shown(self.name(), lock)
            }
            Self::Course => course(process, lock),
        }
    }
}

/// Those that fit beside the names, and the room that these have.
fn fitting(width: u16) -> (Vec<Column>, usize) {
    let (mut chosen, mut room) = (Vec::new(), width);
    for (column, names) in IMPORTANCE {
        let takes = column.width() + 1;
        if room < takes + names {
            break;
        }
        chosen.push(column);
        room -= takes;
    }
    (ORDER.into_iter().filter(|column| chosen.contains(column)).collect(), room.into())
}

/// The table for a screen of this width, without more room for names than they need.
pub(super) fn table(process: &Shown, width: u16) -> Table<'static> {
    let (columns, room) = fitting(width);
    let locks = &process.outcome.locks;
    let names: Vec<String> = locks.iter().map(|lock| shown(&lock.name).into_owned()).collect();
    let names = short_all(&names, room);
    // As wide as at 80 columns, lest the figures move to and fro.
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let wide = longest.max(room.min(NAME.into()));
    let rows = names.into_iter().zip(locks).map(|(name, lock)| {
        let figures = columns.iter().map(|column| right(column.text(process, lock)));
        Row::new([Cell::from(name)].into_iter().chain(figures))
    });
    let widths = columns.iter().map(|column| Constraint::Length(column.width()));
    let widths = [Constraint::Length(wide as u16)].into_iter().chain(widths);
    let heads = columns.iter().map(|column| right(column.name().to_owned()));
    let heads = Row::new([Cell::from("lock")].into_iter().chain(heads));
    let heads = heads.style(Style::new().add_modifier(Modifier::UNDERLINED));
    Table::new(rows, widths).header(heads)
}

pub(super) fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
}

/// How many threads waited in the recent intervals, one column each. The highest of any lock is a full block.
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
    let Some(course) = process.courses.get(&lock.of) else { return String::new() };
    // One scale for all locks, so that a lock that hardly anybody waits for looks like it.
    let most = process.courses.values().flatten().copied().fold(NOISE, f64::max);
    course.iter().map(|waiting| levels[((8.0 * waiting / most).ceil() as usize).min(8)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_screens_have_more_columns_and_narrow_ones_fewer() {
        let names = |width| {
            let (columns, room) = fitting(width);
            (columns.iter().map(|column| column.name()).collect::<Vec<_>>().join(" "), room)
        };
        assert_eq!(names(80), ("waiting wait/s slept mean longest course".to_owned(), 34));
        assert_eq!(names(40), ("waiting mean longest".to_owned(), 16));
        assert_eq!(names(20), ("waiting".to_owned(), 12));
        assert_eq!(names(3), (String::new(), 3));
        let (all, room) = names(200);
        assert_eq!(all, "waiting wait/s acquired total wait slept mean longest course");
        assert_eq!(room, 134);
    }
}
