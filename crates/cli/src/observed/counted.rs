//! Programs that count from their start to their end, and what they leave in a folder.

use crate::hints::Failure;
use crate::output::say;
use lockwright_contract::counters::control::Level;
use lockwright_contract::counters::layout::CountersHeader;
use lockwright_contract::header::Layout;
use lockwright_observer::counts::events::Events;
use lockwright_observer::counts::lifetimes::Lifetimes;
use lockwright_observer::counts::observation::Observed;
use lockwright_observer::counts::outcome::outcome;
use lockwright_observer::counts::reader;
use lockwright_observer::files::files;
use lockwright_symbols::Symboliser;
use std::path::Path;
use std::process::Command;

/// The variable with the level.
const OBSERVE: &str = "LOCKWRIGHT_OBSERVE";
/// The variable that names the folder.
const FOLDER: &str = "LOCKWRIGHT_OBSERVE_DIR";
/// Maximum number of processes in the report: naming is the slowest step.
const MOST: usize = 32;

/// Makes a program count into this folder.
pub(crate) fn count_into(command: &mut Command, level: Level, folder: &Path) {
    command.env(OBSERVE, level.name()).env(FOLDER, folder);
}

/// What the processes that counted into this folder counted. A wait that hadn't ended then counts until its process was last seen.
pub(crate) fn counted(
    folder: &Path,
    elapsed_ns: u64,
    lifetimes: Option<&Lifetimes>,
    mut events: Option<&mut Events>,
) -> Result<Vec<Observed>, Failure> {
    let mut outcomes = Vec::new();
    let mut all =
        files(folder, CountersHeader::ENDING, |file, path| reader::read(&file, path), unread)?;
    for segment in &mut all {
        let ran_ns = lifetimes.and_then(|seen| seen.ran_ns(segment.pid)).unwrap_or(0);
        segment.close(0, ran_ns.max(segment.last_ns));
    }
    all.sort_by_key(|segment| {
        std::cmp::Reverse(segment.locks.iter().map(|lock| lock.wait_ns()).sum::<u64>())
    });
    if all.len() > MOST {
        let more = all.len() - MOST;
        say(&format!(
            "the {MOST} processes that waited most are reported, and {more} others are not\n"
        ));
        all.truncate(MOST);
    }
    for segment in all {
        let mut symbols = Symboliser::new(segment.space());
        let own = segment.last_ns.saturating_sub(segment.start_ns);
        let mut outcome = outcome(&segment, &mut symbols, elapsed_ns.max(own), 0);
        if let Some(events) = &mut events {
            events.tell(&mut outcome, &mut symbols);
        }
        outcomes.push(outcome);
    }
    // A process that used semaphores has a segment even if no thread waited.
    outcomes.retain(|outcome| {
        let no_locks = outcome.signals.waits > 0 || !outcome.conditions.is_empty();
        !outcome.locks.is_empty() || no_locks
    });
    Ok(outcomes)
}

/// Says which file can't be read. Its process was killed while it created the file.
pub(super) fn unread(failure: &Failure) {
    say(&format!("{failure}\n"));
}
