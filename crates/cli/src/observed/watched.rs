//! What a report has watched, and what it can't exclude.

use lockwright_numbers::format::count;
use lockwright_observer::sampler::family::MOST;

/// What a report that names no lock can't exclude.
pub(crate) fn unwatched(looks: &Looks) -> String {
    let spins = "not watched: locks whose waiters only spin, and those of fibers and goroutines. Waits for locks of the program's own \
        (futexes), file locks (flock) and C++'s initialisation of static variables aren't told from waits for work";
    let mut text = match &looks.running_unseen {
        None => spins.to_owned(),
        Some(why) => format!("{spins}; and {}", running_unwatched(why)),
    };
    if looks.is_crowded {
        text += &format!("; and {}", crowd());
    }
    text
}

/// What isn't known where too many processes run.
pub(crate) fn crowd() -> String {
    format!("processes beyond the first {MOST} that ran at a time, by samples")
}

/// What isn't known where the kernel samples no running threads.
pub(crate) fn running_unwatched(why: &str) -> String {
    format!(
        "locks that are taken too often without waiting, since the kernel samples no running threads for us ({why}): \
         it may if kernel.perf_event_paranoid is 2 or less, and no seccomp filter refuses perf_event_open"
    )
}

/// What looks at threads have told, besides the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    /// How often threads were looked at.
    pub(crate) count: u64,
    /// Threads have waited for long, and still do: the report begins with them.
    pub(crate) some_wait: bool,
    /// Why running threads couldn't be sampled.
    pub(crate) running_unseen: Option<String>,
    /// More processes ran at a time than are sampled.
    pub(crate) is_crowded: bool,
}

/// What is said if no wait was counted.
pub(crate) fn nobody(looks: &Looks) -> String {
    match looks.some_wait {
        true => {
            "no wait has ended in that time, so none is counted: who waits is told above".to_owned()
        }
        false => "no thread had to wait for a lock that is watched".to_owned(),
    }
}

/// Which locks are, where none is named.
pub(crate) fn are_watched(looks: &Looks) -> String {
    let sampled = match looks.count {
        0 => "threads weren't looked at for waits of other kinds".to_owned(),
        many => format!(
            "in {} looks no thread slept for a lock of another kind that this command knows",
            count(many)
        ),
    };
    format!(
        "watched: mutexes, readers-writer locks, spin locks, semaphores that are locks, and trylocks, as far as its processes could count (one \
         that couldn't has said so on its standard error); {sampled}"
    )
}
