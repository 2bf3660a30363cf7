//! What writes to a variable: operators, addresses that are taken, macros, and assembly.

use crate::c::{closing, tokens};
use crate::macros;
use crate::tree::SourceFile;
use std::ops::Range;

/// Operators that write to what is before them.
const ASSIGNS: [&str; 11] = ["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];
/// What begins a statement in assembly.
const ASSEMBLY: [&str; 3] = ["asm", "__asm", "__asm__"];

/// Does this operator write to something?
pub fn writes(token: &str) -> bool {
    ASSIGNS.contains(&token) || is_step(token)
}

/// Does this operator write to what is before or behind it?
fn is_step(token: &str) -> bool {
    ["++", "--"].contains(&token)
}

fn token_at<'a>(all: &[(usize, &'a str)], number: usize) -> &'a str {
    all.get(number).map_or("", |(_, token)| *token)
}

/// The first and the last token of the variable there, with the parentheses around it.
fn in_parentheses(all: &[(usize, &str)], number: usize) -> (usize, usize) {
    let (mut first, mut last) = (number, number);
    while first > 0 && token_at(all, first - 1) == "(" && token_at(all, last + 1) == ")" {
        (first, last) = (first - 1, last + 1);
    }
    (first, last)
}

/// Do the tokens around the variable there write to it, or take its address?
pub fn is_written(all: &[(usize, &str)], number: usize) -> bool {
    is_assigned(all, number) || has_address_taken(all, number)
}

/// Do the tokens around the variable there write to it?
pub fn is_assigned(all: &[(usize, &str)], number: usize) -> bool {
    let (first, last) = in_parentheses(all, number);
    writes(token_at(all, last + 1)) || first > 0 && is_step(token_at(all, first - 1))
}

/// Is the address of the variable there taken?
pub fn has_address_taken(all: &[(usize, &str)], number: usize) -> bool {
    let (first, last) = in_parentheses(all, number);
    let before = |back: usize| first.checked_sub(back).map_or("", |at| token_at(all, at));
    let is_value = |token: &str| {
        // A `)` may end a cast.
        token.ends_with(|it: char| it.is_alphanumeric() || it == '_' || it == ']')
            && !["return", "sizeof", "case"].contains(&token)
    };
    before(1) == "&" && !is_value(before(2)) && !["->", "["].contains(&token_at(all, last + 1))
}

/// Does this text, or a macro in it, write to anything?
pub fn may_assign(file: &SourceFile, text: &str) -> bool {
    let own = tokens(text);
    let own = own.iter().map(|(_, token)| *token);
    let inner = macros::used(file, own.clone()).into_iter().flat_map(|it| &it.tokens);
    inner.map(String::as_str).chain(own).any(writes)
}

/// The calls of macros that may write to what they are given, and assembly, by the tokens that they take.
pub fn writing_calls(file: &SourceFile, all: &[(usize, &str)]) -> Vec<Range<usize>> {
    let is_call = |number: &usize| {
        let name = token_at(all, *number);
        let is_macro = file.macros.get(name).is_some_and(|it| it.parameters.is_some());
        token_at(all, number + 1) == "(" && (is_macro || file.writers.contains(name))
    };
    let end = |number: usize| {
        let open = (number..all.len()).find(|&it| token_at(all, it) == "(");
        open.and_then(|open| closing(all, open)).unwrap_or(all.len())
    };
    let calls = (0..all.len()).filter(is_call).map(|number| number..end(number));
    let calls = calls.filter(|call| {
        // An argument may be a macro, too.
        let given = all[call.clone()].iter().map(|(_, token)| *token);
        let mut inner = macros::used(file, given.clone()).into_iter().flat_map(|it| &it.tokens);
        given.clone().any(|it| file.writers.contains(it))
            || inner.any(|it| writes(it) || it == "&" || file.writers.contains(it))
    });
    let assembly = (0..all.len()).filter(|number| ASSEMBLY.contains(&token_at(all, *number)));
    calls.chain(assembly.map(|number| number..end(number))).collect()
}
