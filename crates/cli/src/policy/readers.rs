//! Which readers-writer locks ask a policy: those that its rules name.
//!
//! A process follows the rules for mutexes only, and its readers-writer locks ask the policy that was loaded last. So a policy for some locks
//! gets a hook that sends all others on to the policy before it. Functions, libraries and kinds select no readers-writer locks.

use super::over;
use crate::hints::Failure;
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use lockwright_observer::targets;
use lockwright_symbols::{Mapping, mappings};
use std::ops::Range;

/// Where the readers-writer locks lie that ask the policy in this slot, by this table; `None`: all do.
pub(super) fn asked(
    process: &Process,
    table: &Table,
    slot: u32,
) -> Result<Option<Vec<Range<u64>>>, Failure> {
    let asks = |lock: &str| over::slot(lock) == Some(slot);
    let mut targets = table.rules.iter().filter(|rule| asks(&rule.lock)).map(|rule| &*rule.target);
    if asks(&table.default) || targets.clone().any(|target| target == targets::ALL) {
        return Ok(None);
    }
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    Ok(Some(targets.by_ref().filter_map(|target| range(&maps, target)).collect()))
}

/// The addresses that `mutex:server+0x40-0x68` or `mutex:+0x7f10-0x7f38` means; `None`: it means no addresses.
fn range(maps: &[Mapping], target: &str) -> Option<Range<u64>> {
    let (module, offsets) = target.strip_prefix("mutex:")?.rsplit_once("+0x")?;
    let (low, high) = offsets.split_once("-0x")?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_its = |map: &&Mapping| map.path.file_name().is_some_and(|name| name == module);
    let base = match module {
        "" => 0,
        _ => maps.iter().filter(is_its).map(|map| map.start).min()?,
    };
    Some(base.checked_add(number(low)?)?..base.checked_add(number(high)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_symbols::mappings_in;

    #[test]
    fn a_target_is_a_range_of_addresses() {
        let maps = mappings_in(
            "5000-6000 r--p 00000000 08:01 7 /bin/server\n6000-7000 rw-p 00001000 08:01 7 /bin/server\n",
        );
        let of = |target| range(&maps, target);
        assert_eq!(of("mutex:server+0x1040-0x1077"), Some(0x6040..0x6077));
        assert_eq!(of("mutex:+0x7f10-0x7f37"), Some(0x7f10..0x7f37));
        for none in ["mutex:other+0x10-0x37", "call:server+0x10-0x20", "kind:normal+0x0-0xff"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
