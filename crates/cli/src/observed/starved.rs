//! Advice about locks that threads get too late or not at all: writers behind readers, and trylocks that fail.

use super::target::Target;
use lockwright_numbers::format::{count, time};
use lockwright_observer::counts::beyond::{Prefers, Side};
use lockwright_observer::counts::observation::{Ranked, Rule};
use lockwright_observer::counts::snapshot::LockKind;

/// A writer that waits longer than this behind readers starves, ns.
const STARVED_NS: u64 = 10_000_000;
/// Fewer failed tries aren't worth a word.
const TRIES: u64 = 100;

/// The rule, the advice and a command; `None`: nobody starves, and few tries fail.
pub(super) fn advise(lock: &Ranked, target: &Target) -> Option<(Rule, String, String)> {
    writers(lock, target).or_else(|| tries(lock))
}

/// What was found about it, in one line; `None` as above.
pub(super) fn brief(lock: &Ranked) -> Option<String> {
    let found = starving(lock)
        .or_else(|| in_vain(lock).map(|(who, failed)| format!("in {who}, {failed}")))?;
    Some(format!("{}: {found}", lock.name))
}

/// Writers that readers keep out.
fn writers(lock: &Ranked, target: &Target) -> Option<(Rule, String, String)> {
    starving(lock)?;
    let text = "let new readers wait behind a waiting writer: by PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP in the program, or on \
                lockwright's lock"
        .to_owned();
    Some((Rule::WritersStarve, text, target.prefer_writers(lock)))
}

/// Who waited how long behind readers, and why.
fn starving(lock: &Ranked) -> Option<String> {
    let sides = lock.beyond.sides.as_ref()?;
    let Side { waits, max_ns, behind_readers, .. } = sides.writers;
    let readers_win = matches!(sides.prefer, Prefers::Readers | Prefers::Writers);
    let is_starved = max_ns >= STARVED_NS && 2 * behind_readers >= waits && waits > 0;
    if !(readers_win && is_starved) {
        return None;
    }
    let who = lock.waiters.iter().max_by_key(|site| site.max_ns);
    let who = who.map_or("a writer", |site| site.function.as_str());
    let prefers = match sides.prefer {
        Prefers::Readers => "the lock prefers readers",
        _ => "readers join those who read",
    };
    Some(format!("{who} waited {} to write, because {prefers}", time(max_ns as f64)))
}

/// Threads that try again and again.
fn tries(lock: &Ranked) -> Option<(Rule, String, String)> {
    let (who, failed) = in_vain(lock)?;
    let instead = match lock.kind {
        LockKind::Spin => "a mutex",
        _ => "a lock with a deadline (pthread_mutex_timedlock)",
    };
    let text =
        format!("wait for it in {who}, by {instead}, instead of trying again and again: {failed}");
    Some((Rule::TriedInVain, text, String::new()))
}

/// Who tries, and how many of the tries fail.
fn in_vain(lock: &Ranked) -> Option<(&str, String)> {
    let failed = lock.beyond.failed_tries;
    if failed < TRIES || lock.contended > failed / 10 {
        return None;
    }
    let who = lock.beyond.triers.first().map_or("a thread", |site| site.function.as_str());
    let whom = match lock.beyond.tried_holders.first() {
        Some(site) => format!(" while another thread held it in {}", site.function),
        None => String::new(),
    };
    Some((who, format!("{} tries failed{whom}", count(failed))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::advice::tests::lock;
    use lockwright_observer::counts::beyond::Sides;
    use lockwright_observer::counts::observation::Site;

    fn site(function: &str) -> Site {
        Site { function: function.to_owned(), max_ns: 1, ..Site::default() }
    }

    fn of(lock: &Ranked) -> Option<(Rule, String, String)> {
        advise(lock, &Target::Process(42))
    }

    #[test]
    fn a_writer_behind_readers_starves() {
        let mut table = lock(4_000_000_000, (1, 1, 1));
        (table.kind, table.name) = (LockKind::ReadWrite, "table".to_owned());
        table.waiters = vec![site("insert_row")];
        let starved =
            Side { waits: 1, max_ns: 4_000_000_000, behind_readers: 1, ..Side::default() };
        table.beyond.sides = Some(Sides { writers: starved, ..Sides::default() });
        let (rule, text, command) = of(&table).unwrap();
        assert_eq!(rule, Rule::WritersStarve);
        assert!(text.contains("PTHREAD_RWLOCK_PREFER_WRITER"), "{text}");
        assert!(brief(&table).unwrap().contains("insert_row waited 4.00 s to write"));
        assert_eq!(command, "lockwright switch 42 table rwlock:prefer=patient");
        for (prefer, behind_readers) in [(Prefers::Patient, 1), (Prefers::Readers, 0)] {
            let writers = Side { behind_readers, ..starved };
            table.beyond.sides = Some(Sides { prefer, writers, ..Sides::default() });
            assert!(of(&table).is_none(), "{prefer:?} {behind_readers}");
        }
    }

    #[test]
    fn many_failed_tries_are_told_where_nobody_waits() {
        let mut tried = lock(0, (0, 0, 0));
        tried.contended = 3;
        tried.beyond.failed_tries = 28_818;
        (tried.beyond.triers, tried.beyond.tried_holders) =
            (vec![site("evict")], vec![site("scan")]);
        let (rule, text, _) = of(&tried).unwrap();
        assert_eq!(rule, Rule::TriedInVain);
        assert!(text.starts_with("wait for it in evict, by "), "{text}");
        assert!(
            text.ends_with("28.8 k tries failed while another thread held it in scan"),
            "{text}"
        );
        tried.contended = 28_818;
        assert!(of(&tried).is_none());
    }
}
