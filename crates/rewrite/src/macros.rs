//! What macros do with the text around them: which macros a text uses, and which of them write.

use crate::c::tokens;
use crate::tree::{Macro, SourceFile};
use std::collections::HashSet;
use std::ops::Range;

/// Operators that write to what is before them.
pub const ASSIGNS: [&str; 11] = ["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];

/// Does this operator write to something?
pub fn writes(token: &str) -> bool {
    ASSIGNS.contains(&token) || is_step(token)
}

/// Does this operator write to what is before or behind it?
pub fn is_step(token: &str) -> bool {
    ["++", "--"].contains(&token)
}

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

/// Does this text, or a macro in it, write to anything?
pub fn may_assign(file: &SourceFile, text: &str) -> bool {
    let own = tokens(text);
    let own = own.iter().map(|(_, token)| *token);
    let inner = used(file, own.clone()).into_iter().flat_map(|it| &it.tokens);
    inner.map(String::as_str).chain(own).any(writes)
}

/// The calls of macros that may write to what they are given, by the tokens that they take.
pub fn writing_calls(file: &SourceFile, all: &[(usize, &str)]) -> Vec<Range<usize>> {
    let may_write = |name: &str| {
        let mut inner = used(file, [name].into_iter()).into_iter().flat_map(|it| &it.tokens);
        file.writers.contains(name)
            || inner.any(|it| writes(it) || it == "&" || file.writers.contains(it))
    };
    let at = |number: usize| all.get(number).map_or("", |(_, token)| *token);
    let calls = (0..all.len()).filter(|&number| at(number + 1) == "(" && may_write(at(number)));
    let calls = calls.map(|number| {
        let mut depth = 0;
        let end = (number + 1..all.len()).find(|&inner| {
            depth += i32::from(at(inner) == "(") - i32::from(at(inner) == ")");
            depth == 0
        });
        number..end.unwrap_or(all.len())
    });
    calls.collect()
}
