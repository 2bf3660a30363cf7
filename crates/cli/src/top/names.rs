//! Names that are too long for their column.

/// Shortens names to this many columns. Names that share a long beginning or end lose a part of what they share, so that they stay apart.
pub(super) fn short_all(names: &[String], columns: usize) -> Vec<String> {
    let all: Vec<Vec<char>> = names.iter().map(|name| name.chars().collect()).collect();
    let short = |(at, name): (usize, &Vec<char>)| {
        if name.len() <= columns {
            return name.iter().collect();
        }
        let others = all.iter().enumerate().filter(|(other, _)| *other != at);
        cut(name, &others.map(|(_, other)| shared(name, other)).collect::<Vec<_>>(), columns)
    };
    all.iter().enumerate().map(short).collect()
}

/// Shortens a name of which nothing is known.
pub(super) fn short(name: &str, columns: usize) -> String {
    cut(&name.chars().collect::<Vec<_>>(), &[], columns)
}

/// Cuts the end of a line that is too long.
pub(super) fn fit(line: &str, columns: usize) -> String {
    match line.chars().count() > columns {
        true => line.chars().take(columns.saturating_sub(1)).chain(['…']).collect(),
        false => line.to_owned(),
    }
}

/// How many characters two names share at the beginning, and how many at the end.
fn shared(one: &[char], other: &[char]) -> (usize, usize) {
    let most = one.len().min(other.len());
    let begin = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let end = one.iter().rev().zip(other.iter().rev()).take(most - begin);
    (begin, end.take_while(|(one, other)| one == other).count())
}

/// Cuts a part out of a name: one that the most others share, and of these the one closest to the middle.
fn cut(name: &[char], shared: &[(usize, usize)], columns: usize) -> String {
    if name.len() <= columns {
        return name.iter().collect();
    }
    let part = name.len() + 1 - columns.max(1);
    let middle = (name.len() - part) / 2;
    let is_shared = |from: usize, &(begin, end): &(usize, usize)| {
        from + part <= begin || from >= name.len() - end
    };
    let from = (0..=name.len() - part)
        .max_by_key(|&from| {
            let others = shared.iter().filter(|shared| is_shared(from, shared)).count();
            // The first and the last letters say most.
            let has_ends = from > 0 && from + part < name.len();
            (others, has_ends, std::cmp::Reverse(from.abs_diff(middle)))
        })
        .unwrap_or(0);
    let rest = &name[from + part..];
    name[..from].iter().chain(&['…']).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(names: &[&str], columns: usize) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let short = short_all(&names, columns);
        assert!(short.iter().all(|name| name.chars().count() <= columns), "{short:?}");
        short
    }

    #[test]
    fn what_names_share_is_cut() {
        let same_begin = [
            "std::map<std::string, Session>::lock+0x18",
            "std::map<std::string, Session>::lock+0x40",
            "std::map<std::string, Session>::lock+0x68",
        ];
        let short = all(&same_begin, 20);
        for (short, ending) in short.iter().zip(["0x18", "0x40", "0x68"]) {
            assert!(short.ends_with(ending) && short.starts_with("std::"), "{short}");
        }
        let same_end = ["0x7f3a12c4a010, of insert_row", "0x7f3a12c4b050, of insert_row"];
        assert_eq!(all(&same_end, 20), ["0x7f3a12c4a01…rt_row", "0x7f3a12c4b05…rt_row"]);
        assert_eq!(all(&same_end, 40), same_end);
    }

    #[test]
    fn names_that_share_nothing_are_cut_in_the_middle() {
        assert_eq!(all(&["abcdefghijklm", "planted"], 9), ["abcd…jklm", "planted"]);
        assert_eq!(short("abcdefghijklm", 5), "ab…lm");
        assert_eq!((fit("abcdef", 4), fit("abc", 4)), ("abc…".to_owned(), "abc".to_owned()));
    }

    #[test]
    fn groups_of_names_stay_apart() {
        let names: Vec<String> =
            ["std::unordered_map<long>::shard", "folly::SharedMutexImpl::words"]
                .iter()
                .flat_map(|name| (0..9).map(move |at| format!("{name}[{at}].lock")))
                .collect();
        let mut short = short_all(&names, 18);
        assert!(short.iter().all(|name| name.contains("].lock")), "{short:?}");
        short.dedup();
        assert_eq!(short.len(), names.len(), "{short:?}");
    }
}
