//! Functions that were compiled while the program ran, from its runtime's list: `/tmp/perf-PID.map`.

use crate::space::proc_text;
use lockwright_files::read_file;

/// Larger lists aren't read. Those of large programs have a few MiB.
const LARGEST: u64 = 64 << 20;

pub(crate) struct JitMap {
    /// Start, end and name, sorted by start.
    functions: Vec<(u64, u64, String)>,
}

impl JitMap {
    /// The list of a process, in its own container and with its own id there.
    pub(crate) fn of_process(pid: libc::pid_t) -> Self {
        let status = proc_text(format!("/proc/{pid}/status")).unwrap_or_default();
        let inner =
            status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split('\t').next_back());
        let inner = inner.map_or_else(|| pid.to_string(), str::to_owned);
        let inside = read_file(format!("/proc/{pid}/root/tmp/perf-{inner}.map"), LARGEST);
        let text = inside.or_else(|_| read_file(format!("/tmp/perf-{pid}.map"), LARGEST));
        let text = text.unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// `START SIZE name of the function`, numbers in hexadecimal.
    fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let (size, name) = rest.split_once(' ')?;
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let start = number(start)?;
            Some((start, start.checked_add(number(size)?)?, name.trim().to_owned()))
        };
        let mut functions: Vec<_> = text.lines().filter_map(function).collect();
        // Code is discarded and its place reused, so the later line is right.
        functions.reverse();
        functions.sort_by_key(|(start, ..)| *start);
        functions.dedup_by_key(|(start, ..)| *start);
        Self { functions }
    }

    /// Its name and where it begins.
    pub(crate) fn find(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, end, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then_some((name.as_str(), *start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_list_is_read(text in "([0-9a-fx]{0,17} [0-9a-fx]{0,17} [a-z\u{1b}é ]{0,4}\n|.{0,9}){0,20}", near in any::<u8>()) {
            let map = JitMap::parse(&text);
            for (start, end, name) in &map.functions {
                let found = map.find(start.saturating_add(u64::from(near)));
                prop_assert!(found.is_none_or(|(_, from)| from >= *start));
                prop_assert!(start == end || map.find(*start) == Some((name, *start)));
            }
        }
    }

    #[test]
    fn the_later_line_is_right() {
        let map =
            JitMap::parse("1000 20 old\n2000 8 LazyCompile:*go /a b.js:3\nnonsense\n1000 10 new\n");
        assert_eq!(map.find(0x100f), Some(("new", 0x1000)));
        assert_eq!(map.find(0x1010), None);
        assert_eq!(map.find(0x2007), Some(("LazyCompile:*go /a b.js:3", 0x2000)));
        assert_eq!(map.find(0xfff), None);
    }
}
