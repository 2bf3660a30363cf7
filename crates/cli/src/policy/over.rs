//! Whose locks ask a policy: rules that lie over the process's other rules, and hide them. When they are lifted, the mutexes have the
//! locks again that they had before. So a policy's targets differ from the targets of all other rules, though they select the same
//! mutexes.

use crate::ctl::target::Target;
use lockwright_observer::table::Table;
use lockwright_observer::targets::{ALL, beside};

/// The mutexes' lock that asks a policy.
pub(super) const LOCK: &str = "programmed";
/// That of readers-writer locks.
pub(super) const RW_LOCK: &str = "programmed-rw";

/// The lock that asks the policy in this slot. `options`: more of the lock's options.
pub(crate) fn lock(slot: u32, options: Option<&str>) -> String {
    format!("{LOCK}:{}", in_slot(slot, options))
}

/// The readers-writer lock that does. (In a process, each private one asks by itself.)
pub(super) fn rw_lock(slot: u32, options: Option<&str>) -> String {
    format!("{RW_LOCK}:{}", in_slot(slot, options))
}

fn in_slot(slot: u32, options: Option<&str>) -> String {
    let more = options.map_or_else(String::new, |options| format!(",{options}"));
    format!("slot={slot}{more}")
}

/// The slot that this lock asks; `None`: it asks no policy.
pub(crate) fn slot(lock: &str) -> Option<u32> {
    let options = lock.strip_prefix(LOCK)?.strip_prefix(':')?.split(',');
    let slot = options.filter_map(|option| option.strip_prefix("slot=")).next_back()?;
    slot.parse().ok().filter(|slot| *slot != 0)
}

/// The targets of rules that select all of these mutexes.
pub(crate) fn targets(of: &[Target]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for target in of {
        match target {
            Target::All | Target::Default => all.push(ALL.to_owned()),
            Target::Rules(rules) => all.extend(rules.iter().map(|rule| beside(rule))),
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|target| seen.insert(target.clone()));
    all
}

/// The slots that a table's locks ask.
pub(crate) fn slots(table: &Table) -> Vec<u32> {
    let mut slots: Vec<u32> = table.locks().filter_map(slot).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// The slot of a policy for all mutexes that hides the policy in slot `hidden`: the first rule that fits a mutex counts, and the
/// rule for all comes before each of `hidden`'s. `None`: the policy in that slot is asked, or there is none.
pub(crate) fn hidden_by(table: &Table, hidden: u32) -> Option<u32> {
    let all = table.rules.iter().position(|rule| rule.target == ALL)?;
    let is_before = table.rules[..=all].iter().any(|rule| slot(&rule.lock) == Some(hidden));
    let is_asked = table.locks().any(|lock| slot(lock) == Some(hidden));
    slot(&table.rules[all].lock).filter(|_| is_asked && !is_before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_observer::targets::whose;

    #[test]
    fn old_rules_are_there_again_when_a_policy_is_lifted() {
        let words = "auto\nlib:a.so=fifo;mutex:server+0x40-0x68=cal;";
        let mut table = Table::read(words);
        let kind = lockwright_observer::targets::of_kind("normal").unwrap();
        let rules = ["lib:a.so", "mutex:server+0x40-0x68", "call:server+0x10-0x20", &kind];
        let meant = [Target::All, Target::Rules(rules.map(str::to_owned).to_vec())];
        let targets = targets(&meant);
        assert_eq!(
            targets,
            [
                "mutex:+0x0-0xffffffffffffffff",
                "call:a.so+0x0-0xffffffff",
                "mutex:server+0x40-0x67",
                "call:server+0x10-0x1f",
                "kind:normal+0x0-0xfffffffffffffffe",
            ]
        );
        assert_eq!(whose(&targets[0]).as_deref(), Some("all mutexes"));
        assert_eq!(whose(&targets[1]).as_deref(), Some("library a.so"));
        assert_eq!(whose(&targets[2]), None);
        table.set(&targets, Some(&lock(3, Some("bypass=9"))));
        assert_eq!((slots(&table), table.rules.len()), (vec![3], 7));
        assert_eq!(table.lift(|lock| slot(lock) == Some(3)), 5);
        assert_eq!(table.words(), words);
    }

    #[test]
    fn a_later_policy_for_all_mutexes_hides_an_earlier_one() {
        let mut table = Table::read("auto\nmutex:a+0x0-0x8=fifo;");
        table.set(&["mutex:a+0x0-0x7".to_owned()], Some(&lock(1, None)));
        assert_eq!(hidden_by(&table, 1), None);
        table.set(&[ALL.to_owned()], Some(&lock(2, None)));
        table.set(&["mutex:b+0x0-0x7".to_owned()], Some(&lock(3, None)));
        assert_eq!([1, 2, 3, 4].map(|slot| hidden_by(&table, slot)), [Some(2), None, None, None]);
    }

    #[test]
    fn a_slot_is_read_from_its_lock() {
        assert_eq!(slot("programmed:slot=2,spin=4"), Some(2));
        assert_eq!(slot("programmed:spin=4,slot=15"), Some(15));
        for none in ["programmed", "programmed:slot=0", "programmed:spin=1", "fifo:slot=1"] {
            assert_eq!(slot(none), None, "{none}");
        }
    }
}
