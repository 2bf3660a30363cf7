//! Which locks a program of the tests runs under. Under all of them the gate would take an hour. So each program gets the default and some
//! of the others by turns: every lock meets some of the programs. A soak leaves none out.

/// Set: whatever the tests take by turns, all of it is run (`cargo xtask soak`).
pub const SOAK: &str = "LOCKWRIGHT_SOAK";

/// Does this run leave nothing out?
pub fn is_soak() -> bool {
    std::env::var_os(SOAK).is_some()
}

/// `few` of `all`, beginning where the one before `turn` ended; in a soak all.
pub fn in_turn<T>(turn: usize, few: usize, all: impl IntoIterator<Item = T>) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    if is_soak() { all } else { some(turn, few, all) }
}

/// The first of `all`, the default, and `few` of the others as [`in_turn`] takes them.
pub fn first_and_in_turn<T>(turn: usize, few: usize, all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = all.into_iter();
    let first = all.next();
    first.into_iter().chain(in_turn(turn, few, all)).collect()
}

fn some<T>(turn: usize, few: usize, all: Vec<T>) -> Vec<T> {
    let count = all.len().max(1);
    let is_taken = |place: usize| (place + count - turn * few % count) % count < few;
    all.into_iter().enumerate().filter(|&(place, _)| is_taken(place)).map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_begins_where_the_last_one_ended() {
        let turn = |turn| some(turn, 2, vec!['a', 'b', 'c', 'd', 'e']);
        assert_eq!(turn(0), ['a', 'b']);
        assert_eq!(turn(1), ['c', 'd']);
        assert_eq!(turn(2), ['a', 'e']);
        assert_eq!(turn(3), ['b', 'c']);
        assert_eq!(some(7, 9, vec![1, 2]), [1, 2]);
        assert!(some::<u8>(3, 2, Vec::new()).is_empty());
    }
}
