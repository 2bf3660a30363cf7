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

/// Every `#if` in it ends in it.
pub fn is_balanced(text: &str) -> bool {
    let mut open = 0_usize;
    for line in text.lines() {
        let Some(directive) = line.trim_start().strip_prefix('#').map(str::trim_start) else {
            continue;
        };
        if directive.starts_with("if") {
            open += 1;
        } else if directive.starts_with("e") && directive.starts_with("error") {
            continue;
        } else if directive.starts_with("endif") || directive.starts_with("el") {
            if open == 0 {
                return false;
            }
            open -= usize::from(directive.starts_with("endif"));
        }
    }
    open == 0
}
