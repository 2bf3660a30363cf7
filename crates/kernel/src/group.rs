//! Groups waits by lock, by caller or by type.

use crate::{Kind, Sum};
use std::collections::BTreeMap;

/// Waits for one lock by one chain of callers, with names.
#[derive(Clone, Debug)]
pub struct Named {
    /// The lock.
    pub lock: String,
    /// Where it is.
    pub address: u64,
    /// Its type, and the kind of access.
    pub kind: Kind,
    /// Functions, the innermost caller first; empty if the stack was lost.
    pub callers: Vec<String>,
    /// The waits.
    pub sum: Sum,
}

/// What a group has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Group by lock; the parts are its callers.
    Lock,
    /// Group by innermost caller; the parts are locks.
    Caller,
    /// Group by type of lock; the parts are locks.
    Type,
}

/// Waits with something in common.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name of what they have in common.
    pub name: String,
    /// Their kinds, in order, each once.
    pub kinds: Vec<Kind>,
    /// Addresses of the locks, in order, each once.
    pub locks: Vec<u64>,
    /// For a part: its callers, the innermost first.
    pub callers: Vec<String>,
    /// The waits.
    pub sum: Sum,
    /// The same waits divided into parts, the most time first.
    pub parts: Vec<Group>,
}

/// A caller whose stack was lost.
const NOBODY: &str = "(stack lost)";

/// Adds waits up; the most time first.
pub fn groups(waits: &[Named], by: By) -> Vec<Group> {
    let first = |wait: &Named| wait.callers.first().map_or(NOBODY.to_owned(), String::clone);
    let groups = match by {
        By::Lock => merged(waits, |wait| (wait.lock.clone(), wait.address)),
        By::Caller => merged(waits, |wait| (first(wait), 0)),
        By::Type => merged(waits, |wait| (wait.kind.name().to_owned(), 0)),
    };
    let part = |waits: &[Named]| match by {
        By::Lock => merged(waits, |wait| (wait.callers.clone(), wait.kind)),
        By::Caller | By::Type => merged(waits, |wait| (vec![wait.lock.clone()], wait.kind)),
    };
    let mut done: Vec<_> = groups
        .into_iter()
        .map(|((name, _), waits)| {
            let parts = part(&waits).into_iter().map(|((callers, _), waits)| match by {
                By::Lock => group(first(&waits[0]), callers, &waits),
                By::Caller | By::Type => group(waits[0].lock.clone(), Vec::new(), &waits),
            });
            let mut parts: Vec<_> = parts.collect();
            sort(&mut parts);
            Group { parts, ..group(name, Vec::new(), &waits) }
        })
        .collect();
    sort(&mut done);
    done
}

fn merged<K: Ord>(waits: &[Named], key: impl Fn(&Named) -> K) -> BTreeMap<K, Vec<Named>> {
    let mut all = BTreeMap::<K, Vec<Named>>::new();
    for wait in waits {
        all.entry(key(wait)).or_default().push(wait.clone());
    }
    all
}

fn group(name: String, callers: Vec<String>, waits: &[Named]) -> Group {
    let mut sum = Sum::default();
    waits.iter().for_each(|wait| sum.merge(&wait.sum));
    let mut kinds: Vec<_> = waits.iter().map(|wait| wait.kind).collect();
    kinds.sort();
    kinds.dedup();
    let mut locks: Vec<_> = waits.iter().map(|wait| wait.address).collect();
    locks.sort_unstable();
    locks.dedup();
    Group { name, kinds, locks, callers, sum, parts: Vec::new() }
}

/// Sorts by time, the most first, and equal times by name.
fn sort(groups: &mut [Group]) {
    groups.sort_by(|a, b| b.sum.total_ns.cmp(&a.sum.total_ns).then_with(|| a.name.cmp(&b.name)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds_of;

    fn wait(lock: &str, kind: &str, callers: &[&str], ns: u64) -> Named {
        let mut sum = Sum::default();
        sum.add(10, 1, ns, ns);
        let kind = Kind(kinds_of([kind]).unwrap().trailing_zeros() as u8);
        let callers = callers.iter().map(|name| (*name).to_owned()).collect();
        Named { lock: lock.into(), address: lock.len() as u64, kind, callers, sum }
    }

    #[test]
    fn waits_are_sorted_by_what_they_have_in_common() {
        let waits = [
            wait("mmap", "rwsem", &["vm_mmap", "syscall"], 5),
            wait("mmap", "rwsem", &["munmap", "syscall"], 7),
            wait("mmap", "rwsem", &["munmap", "exit"], 1),
            wait("zone", "spinlock", &["munmap", "free"], 3),
            wait("zone", "spinlock", &[], 2),
        ];
        let told = |by| {
            let told = |group: &Group| (group.name.clone(), group.sum.total_ns, group.parts.len());
            groups(&waits, by).iter().map(told).collect::<Vec<_>>()
        };
        assert_eq!(told(By::Lock), [("mmap".into(), 13, 3), ("zone".into(), 5, 2)]);
        assert_eq!(
            told(By::Caller),
            [("munmap".into(), 11, 2), ("vm_mmap".into(), 5, 1), (NOBODY.into(), 2, 1)]
        );
        assert_eq!(told(By::Type), [("rwsem".into(), 13, 1), ("spinlock".into(), 5, 1)]);
        let by_lock = groups(&waits, By::Lock);
        assert_eq!(by_lock[0].parts[0].callers, ["munmap", "syscall"]);
    }
}
