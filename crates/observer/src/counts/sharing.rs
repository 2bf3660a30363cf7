//! Locks that share a cache line: a thread that takes one slows down users of the others.

use super::observation::{Ranked, Suspects};
use super::snapshot::LockKind;
use std::collections::BTreeSet;

/// Size of a cache line, on all machines that we know except some of Apple's.
const LINE: u64 = 64;
/// The size of a lock.
fn size(kind: LockKind) -> u64 {
    let size = match kind {
        LockKind::Mutex => size_of::<libc::pthread_mutex_t>(),
        LockKind::Semaphore => size_of::<libc::sem_t>(),
        LockKind::ReadWrite => size_of::<libc::pthread_rwlock_t>(),
        LockKind::Spin => size_of::<libc::pthread_spinlock_t>(),
        LockKind::Condition => size_of::<libc::pthread_cond_t>(),
    };
    size as u64
}

/// Locks with fewer waits are not suspected.
const BUSY: u64 = 100;

/// All lines with several locks that threads waited for, the longest waits first.
pub(super) fn suspects(locks: &[Ranked]) -> Vec<Suspects> {
    let is_busy = |lock: &&Ranked| lock.address != 0 && lock.contended >= BUSY;
    let mut placed: Vec<&Ranked> = locks.iter().filter(is_busy).collect();
    placed.sort_by_key(|lock| lock.address);
    let mut found: Vec<Suspects> = Vec::new();
    let mut told = BTreeSet::new();
    for (at, lock) in placed.iter().enumerate() {
        // A lock may span two lines. Data after the lock shares its last line.
        let line = (lock.address + size(lock.kind) - 1) / LINE;
        let others = placed[at + 1..].iter().take_while(|other| other.address / LINE <= line);
        let group: Vec<&&Ranked> = std::iter::once(lock).chain(others).collect();
        if group.len() > 1 && told.insert(line) {
            found.push(Suspects {
                line: line * LINE,
                locks: group.iter().map(|lock| lock.name.clone()).collect(),
                wait_ns: group.iter().map(|lock| lock.wait_ns).fold(0, u64::saturating_add),
            });
        }
    }
    found.sort_by_key(|suspects| std::cmp::Reverse(suspects.wait_ns));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::observation::tests::lock;

    #[test]
    fn neighbours_in_a_line_are_suspects() {
        let at =
            |address: u64| Ranked { address, name: format!("{address}"), ..lock(10, (1, 1, 1)) };
        let names = |addresses: &[u64]| -> Vec<Vec<String>> {
            let locks: Vec<_> = addresses.iter().map(|&address| at(address)).collect();
            suspects(&locks).into_iter().map(|suspects| suspects.locks).collect()
        };
        assert_eq!(names(&[640, 704]), Vec::<Vec<String>>::new());
        // The first mutex ends in the line in which the second begins.
        assert_eq!(names(&[680, 640, 1280]), [["640", "680"]]);
        assert_eq!(names(&[664, 704]), Vec::<Vec<String>>::new());
        assert_eq!(names(&[672, 712]), [["672", "712"]]);
        // Entries that stand for several locks have no address.
        let quiet = Ranked { contended: 99, ..at(680) };
        assert_eq!(suspects(&[at(640), quiet]), []);
        assert_eq!(names(&[0, 0]), Vec::<Vec<String>>::new());
    }
}
