//! C's text: its tokens, and its declarations.

/// Splits text into C's tokens, comments apart: each with its place.
pub fn tokens(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, Vec::new());
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
    while at < bytes.len() {
        let rest = &text[at..];
        let length = match bytes[at] {
            _ if rest.starts_with("/*") => {
                at += rest.find("*/").map_or(rest.len(), |end| end + 2);
                continue;
            }
            _ if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            byte if is_word(byte) => bytes[at..].iter().take_while(|&&byte| is_word(byte)).count(),
            quote @ (b'"' | b'\'') => {
                let mut end = 1;
                while at + end < bytes.len() && bytes[at + end] != quote {
                    end += if bytes[at + end] == b'\\' { 2 } else { 1 };
                }
                (end + 1).min(rest.len())
            }
            _ => {
                let longer = ["<<=", ">>=", "...", "->", "++", "--", "&&", "||", "<<", ">>"];
                let more = ["<=", ">=", "==", "!=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="];
                let found = longer.iter().chain(&more).find(|token| rest.starts_with(**token));
                found.map_or_else(|| rest.chars().next().map_or(1, char::len_utf8), |it| it.len())
            }
        };
        found.push((at, &text[at..at + length]));
        at += length;
    }
    found
}

/// The number of the token that closes the parenthesis `open`.
pub fn closing(all: &[(usize, &str)], open: usize) -> Option<usize> {
    let mut depth = 0;
    (open..all.len()).find(|&at| {
        depth += i32::from(all[at].1 == "(") - i32::from(all[at].1 == ")");
        depth == 0
    })
}

/// C's declaration of something of this type.
pub fn declared(type_text: &str, name: &str) -> String {
    for open in ["(*", "(^"] {
        if let Some(at) = type_text.find(open) {
            let (head, tail) = type_text.split_at(at + open.len());
            return format!("{head}{name}{tail}");
        }
    }
    if let Some(at) = type_text.find('[') {
        let (head, tail) = type_text.split_at(at);
        let space = if head.ends_with(['*', ' ']) { "" } else { " " };
        return format!("{head}{space}{name}{tail}");
    }
    let space = if type_text.ends_with('*') { "" } else { " " };
    format!("{type_text}{space}{name}")
}

/// Where the `#if`s are that don't end in this text. `None`: one ends or goes on here that began before.
pub fn open_ifs(text: &str) -> Option<Vec<usize>> {
    let (mut at, mut open) = (0, Vec::new());
    for line in text.split_inclusive('\n') {
        let directive = line.trim_start().strip_prefix('#').map_or("", str::trim_start);
        if directive.starts_with("if") {
            open.push(at);
        } else if directive.starts_with("endif") {
            open.pop()?;
        } else if directive.starts_with("el") {
            open.last()?;
        }
        at += line.len();
    }
    Some(open)
}
