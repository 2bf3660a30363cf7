//! The macros that a text uses.

use crate::c::closing;
use crate::tree::{Macro, SourceFile};
use std::collections::HashSet;
use std::ops::Range;

/// The macros among these tokens, and those in them.
pub fn used<'a>(file: &'a SourceFile, all: impl Iterator<Item = &'a str>) -> Vec<&'a Macro> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut next: Vec<&str> = all.collect();
    let mut found = Vec::new();
    while let Some(name) = next.pop() {
        if let Some(macro_) = file.macros.get(name).filter(|_| seen.insert(name)) {
            next.extend(macro_.tokens.iter().map(String::as_str));
            found.push(macro_);
        }
    }
    found
}

/// The names of the macros among these tokens, and of those in them.
pub fn names<'a>(
    file: &'a SourceFile,
    all: impl Iterator<Item = &'a str> + Clone,
) -> HashSet<&'a str> {
    let inner = used(file, all.clone()).into_iter().flat_map(|it| &it.tokens);
    let all = all.chain(inner.map(String::as_str));
    all.filter(|token| file.macros.contains_key(*token)).collect()
}

/// The calls of macros that drop all that they are given (`assert`, in some builds), by places in the text.
pub fn dropping_calls(file: &SourceFile, all: &[(usize, &str)]) -> Vec<Range<usize>> {
    let at = |number: usize| all.get(number).map_or("", |(_, token)| *token);
    let drops = |name: &str| {
        let own = file.macros.get(name).is_some_and(Macro::drops_all);
        own || file.droppers.contains(name)
    };
    let calls = (0..all.len()).filter(|&number| at(number + 1) == "(" && drops(at(number)));
    let places = calls.map(|number| {
        let end = closing(all, number + 1).map_or(usize::MAX, |end| all[end].0);
        all[number].0..end
    });
    places.collect()
}
