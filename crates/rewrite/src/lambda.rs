//! Writes the scopes of C++'s guards as lambdas.

use crate::c::open_ifs;
use crate::emit::{self, Edit, line_start};
use crate::scope::{Form, GuardScope, Lambda, Leave};
use crate::tree::SourceFile;
use std::fmt::Write;

/// What a C++ file has before its first declaration, if it has a section.
pub const PRELUDE: &str = include_str!("guards_prelude.hpp");

/// Where the prelude stands: before the first declaration, and before the `#if`s around it. Nothing but the preprocessor's lines is above,
/// so no namespace is open there.
pub fn head(file: &SourceFile) -> usize {
    let first = emit::before_function(&file.text, file.first.unwrap_or_default());
    let open = open_ifs(&file.text[..first]).unwrap_or_default();
    open.first().copied().unwrap_or(first)
}

/// The section's changes.
pub fn edits(text: &str, scope: &GuardScope, lambda: &Lambda) -> Vec<Edit> {
    let Lambda { handle, form, exits } = lambda;
    let start = line_start(text, scope.guard.start);
    let indent: String =
        text[start..].chars().take_while(|it| it.is_whitespace() && *it != '\n').collect();
    let (mut head, mut tail) = (String::new(), "});".to_owned());
    let run = format!("lw_sections::run({handle}, [&]");
    match form {
        Form::Falls => write!(head, "{run} {{"),
        Form::Ends => {
            tail += " return;";
            write!(head, "{run} {{")
        }
        Form::Returns(None) => write!(head, "return {run} {{"),
        Form::Returns(Some(type_)) => write!(head, "return {run}() -> {type_} {{"),
        Form::MayReturn(type_) => {
            tail = "return std::nullopt; }); lw_result) return std::move(*lw_result);".to_owned();
            write!(head, "if (auto lw_result = {run}() -> std::optional<{type_}> {{")
        }
        Form::MayLeave => {
            tail = "return 0; });".to_owned();
            for leave in [Leave::Return, Leave::Break, Leave::Continue] {
                if exits.iter().any(|(it, _)| *it == leave) {
                    let (code, word) = (leave.code(), leave.word());
                    write!(tail, "\n{indent}if (lw_exit == {code}) {word};").expect("a String");
                }
            }
            write!(head, "const int lw_exit = {run}() -> int {{")
        }
    }
    .expect("a String");
    let mut all = vec![Edit { range: scope.guard.clone(), text: head }];
    for (leave, range) in exits {
        let value = text[range.clone()].trim_start_matches("return").trim();
        let text = match form {
            // As `return` converts it, before it goes into the optional.
            Form::MayReturn(type_) => format!("return static_cast<{type_}>({value})"),
            _ => format!("return {}", leave.code()),
        };
        all.push(Edit { range: range.clone(), text });
    }
    let line = line_start(text, scope.end);
    let is_alone = text[line..scope.end].trim().is_empty();
    let (at, tail) = if is_alone {
        (line, format!("{indent}{tail}\n"))
    } else {
        (scope.end, format!("{tail} "))
    };
    all.push(Edit { range: at..at, text: tail });
    all
}

/// A lambda's trailing type; `None`: it has none.
///
/// # Errors
/// A lambda can't have it.
pub fn trailing(result: Option<&str>) -> Result<Option<String>, String> {
    let Some(written) = result.filter(|it| *it != "auto") else { return Ok(None) };
    // Where the function stands, what is in such a namespace has its plain name.
    let written = written.replace("(anonymous namespace)::", "");
    if ["(anonymous", "(unnamed", "(lambda"].iter().any(|it| written.contains(it)) {
        return Err("returns a type that has no name".to_owned());
    }
    if written.ends_with("&&") {
        return Err("returns an rvalue reference".to_owned());
    }
    Ok(Some(written))
}
