//! Which threads wait for a lock, and for which threads others wait.

use crate::output::{beside, shown};
use crate::profile::words::duration;
use lockwright_observer::counts::observation::{Ranked, ThreadWaits};
use lockwright_observer::counts::snapshot::LockKind;

/// A thread that others waited for, or that waited, for less than this share of the one with the most is left out.
const LEAST: f64 = 0.01;

/// Both sides in one line; empty unless several threads are known.
pub(super) fn line(lock: &Ranked) -> String {
    if lock.threads.len() < 2 {
        return String::new();
    }
    // Readers hold a lock together, and only the last one is known.
    let is_known = lock.kind != LockKind::ReadWrite;
    let kept = side(&lock.threads, |thread| if is_known { thread.blamed_ns } else { 0 });
    let waited = side(&lock.threads, |thread| thread.wait_ns);
    let is_first = kept.is_none();
    // One hold keeps several threads waiting: its time isn't the sum of theirs.
    let kept = kept.map(|(who, ..)| format!("{who} kept others waiting"));
    let waited = waited.map(|(who, brief, times)| {
        format!("{} waited {times}", if is_first { who } else { brief })
    });
    let parts: Vec<String> = [kept, waited].into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => beside("   threads   ", &shown(&parts.join("; "))),
    }
}

/// The threads of one side, the same behind the other side's, and for how long; `None`: there are none.
fn side(all: &[ThreadWaits], ns: impl Fn(&ThreadWaits) -> u64) -> Option<(String, String, String)> {
    let most = all.iter().map(&ns).max().filter(|most| *most > 0)?;
    let mut times: Vec<(u64, &ThreadWaits)> =
        all.iter().map(|thread| (ns(thread), thread)).collect();
    times.retain(|(ns, _)| *ns as f64 >= LEAST * most as f64);
    times.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    // All threads that weren't told apart are one entry.
    let are_others = times.iter().any(|(_, thread)| thread.tid.is_none());
    match &times[..] {
        [(ns, ThreadWaits { tid: Some(tid), name, .. })] => {
            let name = if name.is_empty() { "thread" } else { name };
            let who = format!("{name} ({tid})");
            Some((who.clone(), who, duration(*ns)))
        }
        [(ns, _)] => Some(("several threads".to_owned(), "several".to_owned(), duration(*ns))),
        [(first, _), .., (last, _)] => {
            let who = format!("{}{}", times.len(), if are_others { " or more" } else { "" });
            Some((format!("{who} threads"), who, between(*last, *first)))
        }
        [] => None,
    }
}

/// Two times, the shorter one first: `264 to 295 ms`.
fn between(from_ns: u64, to_ns: u64) -> String {
    let (from, to) = (duration(from_ns), duration(to_ns));
    match (from.split_once(' '), to.split_once(' ')) {
        _ if from == to => to,
        (Some((figure, one)), Some((_, other))) if one == other => format!("{figure} to {to}"),
        _ => format!("{from} to {to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::lock;
    use super::*;

    #[test]
    fn one_thread_has_its_name_and_several_are_counted() {
        let part = |tid, name: &str, wait_ns, blamed_ns| {
            let name = name.to_owned();
            ThreadWaits { tid, name, waits: 1, wait_ns, blamed_ns }
        };
        let of = |threads: &[ThreadWaits]| {
            line(&Ranked { threads: threads.to_vec(), ..lock(1, (1, 1, 1)) })
        };
        let (hoard, one) =
            (part(Some(7), "hoard", 0, 570_000_000), part(Some(8), "", 271_000_000, 0));
        let other = part(Some(9), "", 282_000_000, 1_000);
        let all = [hoard.clone(), one.clone(), other];
        assert_eq!(
            of(&all),
            "   threads   hoard (7) kept others waiting; 2 waited 271 to 282 ms\n"
        );
        let rest = part(None, "", 300_000_000, 0);
        let others =
            of(&[hoard.clone(), one, rest]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(others.ends_with("; 2 or more waited 271 to 300 ms"), "{others}");
        assert_eq!((of(&[hoard]), of(&[])), (String::new(), String::new()));
    }
}
