//! A crate's files, and their tokens, as far as the checks of dependencies need them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The files under a crate's `src`: relative path and text.
pub(super) type Sources = BTreeMap<String, String>;

pub(super) fn sources(folder: &Path) -> Sources {
    let mut found = Sources::new();
    let src = folder.join("src");
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && let (Ok(inside), Ok(text)) = (path.strip_prefix(&src), fs::read_to_string(&path))
            {
                found.insert(inside.to_string_lossy().into_owned(), text);
            }
        }
    }
    found
}

/// A token: a word, `::`, or another single character.
pub(super) type Token<'a> = (usize, &'a str);

/// The code's tokens with line numbers, without comments, strings and tests.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut all = with_strings(text);
    all.retain(|(_, word)| !word.contains('"'));
    all
}

/// What a token that is a string says.
pub(super) fn said(word: &str) -> Option<&str> {
    let (first, last) = (word.find('"')?, word.rfind('"')?);
    word.get(first + 1..last)
}

/// The same with the strings, each with its quotes.
pub(super) fn with_strings(text: &str) -> Vec<Token<'_>> {
    let mut found: Vec<Token<'_>> = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if let Some(after) = rest.strip_prefix("//") {
            2 + after.find('\n').unwrap_or(after.len())
        } else if let Some(after) = rest.strip_prefix("/*") {
            after.find("*/").map_or(rest.len(), |end| end + 4)
        } else if let Some((quotes, hashes)) = raw(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let end = rest[quotes..].find(&end).map_or(rest.len(), |at| quotes + at + end.len());
            found.push((line, &rest[..end]));
            end
        } else if first == '"' {
            let end = quoted(rest, '"');
            found.push((line, &rest[..end]));
            end
        } else if first == '\'' && is_char(rest) {
            quoted(rest, '\'')
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            found.push((line, &rest[..end]));
            end
        } else {
            let end = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            if !first.is_whitespace() {
                found.push((line, &rest[..end]));
            }
            end
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    without_tests(found)
}

/// If a raw string begins here: the offset of its content, and its number of hashes.
fn raw(rest: &str) -> Option<(usize, usize)> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then(|| (rest.len() - after.len() + hashes + 1, hashes))
}

/// Is it a character literal, rather than a lifetime?
fn is_char(rest: &str) -> bool {
    let mut inside = rest.chars().skip(1);
    matches!((inside.next(), inside.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// The length of a string or character literal that ends with `quote`.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// Removes the items after `#[cfg(test)]`.
fn without_tests(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let words = tokens[at..].iter().map(|(_, word)| *word);
        if !words.take(7).eq(["#", "[", "cfg", "(", "test", ")", "]"]) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        at += 7;
        let mut depth = 0;
        while let Some((_, word)) = tokens.get(at) {
            at += 1;
            match *word {
                "{" => depth += 1,
                "}" => depth -= 1,
                ";" => {}
                _ => continue,
            }
            if depth == 0 {
                break;
            }
        }
    }
    kept
}
