//! Columns of the reports' tables: docs/glossary.md must have each one's name.
//!
//! The names are the strings in what a table is made with: the argument of `table`, `blocks` or `header`, and the variables and
//! constants that it names, as far as the same file makes them. `{...}` in a name is data (a lock, a class of cores), and stands in the
//! glossary as `…`. A name that is data as a whole, such as a thread's, can't be checked; nor can one that another file hands over, unless
//! that file makes a table of it, too. Of the project's own pages (`xtask`) only the demo's are for users.

use super::source::{Token, said, with_strings};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Where columns are explained.
const GLOSSARY: &str = "docs/glossary.md";

/// The glossary's section whose tables begin each line with columns' names.
const SECTION: &str = "## Columns";

/// Whose tables users see.
const FOLDERS: &[&str] = &["crates", "xtask/src/demo"];

/// The crate that draws tables: its headers are others'.
const DRAWERS: &[&str] = &["crates/text", "crates/plot"];

/// Functions that take a table's header first.
const MAKERS: &[&str] = &["table", "blocks"];

/// The modules that they are called by.
const PATHS: &[&str] = &["output", "page", "table"];

/// Methods, and functions of the same file, that do so.
const OWN_MAKERS: &[&str] = &["header"];

/// A function without variables that are known.
const NOWHERE: Range<usize> = 0..0;

/// The names, and where each is first used.
#[derive(Default)]
pub(super) struct Columns(BTreeMap<String, String>);

impl Columns {
    /// Notes the columns of a file's tables.
    pub(super) fn look(&mut self, path: &Path, text: &str) {
        let is_ours = FOLDERS.iter().any(|folder| path.starts_with(folder))
            && !DRAWERS.iter().any(|folder| path.starts_with(folder));
        let is_source = path.components().any(|part| part.as_os_str() == "src");
        let is_test =
            path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        if !is_ours || !is_source || is_test || path.extension().is_none_or(|end| end != "rs") {
            return;
        }
        for (line, name) in TableCode::of(text).columns() {
            let at = || format!("{}:{line}", path.display());
            self.0.entry(name).or_insert_with(at);
        }
    }

    pub(super) fn complain(&self, root: &Path, complaints: &mut Vec<String>) -> Result<()> {
        let glossary = fs::read_to_string(root.join(GLOSSARY));
        let glossary = glossary.with_context(|| format!("cannot read {GLOSSARY}"))?;
        complaints.extend(self.missing(&glossary));
        Ok(())
    }

    fn missing(&self, glossary: &str) -> Vec<String> {
        let known = known(glossary);
        let missing = self.0.iter().filter(|(name, _)| !known.contains(name.as_str()));
        let complaint = |(name, at): (&String, &String)| {
            format!(
                "{at}: {GLOSSARY} lacks the column '{name}': explain it there, or use one that it has"
            )
        };
        missing.map(complaint).collect()
    }
}

/// The names in backquotes in the first cells of the glossary's tables of columns.
fn known(glossary: &str) -> BTreeSet<&str> {
    let (_, section) = glossary.split_once(SECTION).unwrap_or(("", ""));
    let section = section.split("\n## ").next().unwrap_or(section);
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// A column's name as the glossary has it: `of {base}` is `of …`. None: it says nothing, or is no name.
fn name(text: &str) -> Option<String> {
    let mut parts = text.trim().split('{');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        name += "…";
        name += part.split_once('}').map_or("", |(_, rest)| rest);
    }
    name.chars().any(char::is_alphabetic).then_some(name)
}

/// A file's tokens.
struct TableCode<'a>(Vec<Token<'a>>);

impl<'a> TableCode<'a> {
    fn of(text: &'a str) -> Self {
        Self(with_strings(text))
    }

    fn word(&self, at: usize) -> &'a str {
        self.0.get(at).map_or("", |(_, word)| word)
    }

    /// The names in the headers of all tables, with their lines.
    fn columns(&self) -> Vec<(usize, String)> {
        let own = (0..self.0.len()).filter(|at| self.word(*at) == "fn");
        let own: BTreeSet<_> = own.map(|at| self.word(at + 1)).collect();
        // `use ...::table as new`
        let renamed =
            (0..self.0.len()).filter(|at| self.word(*at) == "table" && self.word(at + 1) == "as");
        let renamed: BTreeSet<_> = renamed.map(|at| self.word(at + 2)).collect();
        let mut found = Vec::new();
        for at in 1..self.0.len() {
            let (word, before) = (self.word(at), self.word(at - 1));
            let (is_method, is_path) = (before == ".", before == "::");
            let makes = match () {
                () if self.word(at + 1) != "(" || before == "fn" => false,
                () if MAKERS.contains(&word) && is_path => {
                    PATHS.contains(&self.word(at.wrapping_sub(2)))
                }
                () if MAKERS.contains(&word) => !is_method && !own.contains(word),
                () if OWN_MAKERS.contains(&word) => is_method || !is_path && own.contains(word),
                () => renamed.contains(word) && !is_method && !is_path,
            };
            if makes {
                let function = (0..at).rev().find(|at| self.word(*at) == "fn").unwrap_or(0);
                let argument = self.argument(at + 2, 0);
                self.strings(argument, function..at, true, &mut BTreeSet::new(), &mut found);
            }
            if let Some(names) = self.named(at) {
                self.strings(names, NOWHERE, true, &mut BTreeSet::new(), &mut found);
            }
        }
        found
    }

    /// The names of columns that are a type of their own, called `Column`: what makes one begins with its name, or a function `name` has
    /// all of them.
    fn named(&self, at: usize) -> Option<Range<usize>> {
        let is_column = self.word(at.wrapping_sub(2)) == "Column" && self.word(at - 1) == "::";
        match self.word(at) {
            "new" if is_column && self.word(at + 1) == "(" => Some(self.argument(at + 2, 0)),
            "name" if self.word(at - 1) == "fn" && self.has_columns() => {
                let begin = (at..self.0.len()).find(|at| self.word(*at) == "{")? + 1;
                Some(begin..self.end(begin, &[]))
            }
            _ => None,
        }
    }

    /// Is there an enumeration of columns?
    fn has_columns(&self) -> bool {
        (1..self.0.len()).any(|at| self.word(at) == "Column" && self.word(at - 1) == "enum")
    }

    /// The strings of an expression, and of the variables of this function and the constants that it names.
    fn strings(
        &self,
        expression: Range<usize>,
        function: Range<usize>,
        is_header: bool,
        seen: &mut BTreeSet<&'a str>,
        found: &mut Vec<(usize, String)>,
    ) {
        for at in expression {
            let word = self.word(at);
            if let Some(text) = said(word) {
                found.extend(name(text).map(|name| (self.0[at].0, name)));
                continue;
            }
            let is_variable = word.starts_with(|c: char| c.is_alphabetic())
                && ![".", "::"].contains(&self.word(at.wrapping_sub(1)))
                && !["(", "::", "!"].contains(&self.word(at + 1));
            if !is_variable || !seen.insert(word) {
                continue;
            }
            let (mut made, mut scope) = (self.made(word, &["let"], function.clone()), &function);
            if made.is_empty() {
                made = self.made(word, &["const", "static"], 0..self.0.len());
            }
            // A header that a caller hands over, who gives it the same name.
            if made.is_empty() && is_header {
                made = self.made(word, &["let"], 0..self.0.len());
                scope = &NOWHERE;
            }
            for one in made {
                self.strings(one, scope.clone(), false, seen, found);
            }
        }
    }

    /// What a variable or constant is made of, and what is added to it.
    fn made(&self, name: &str, kinds: &[&str], within: Range<usize>) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        for at in within {
            if kinds.contains(&self.word(at)) {
                let of = at + if self.word(at + 1) == "mut" { 2 } else { 1 };
                if self.word(of) == name {
                    let end = self.end(of + 1, &[";", "="]);
                    if self.word(end) == "=" {
                        all.push(end + 1..self.end(end + 1, &[";"]));
                    }
                }
            }
            let adds = ["push", "extend", "append", "insert"];
            if kinds.contains(&"let")
                && self.word(at) == name
                && self.word(at + 1) == "."
                && adds.contains(&self.word(at + 2))
            {
                let number = usize::from(self.word(at + 2) == "insert");
                all.push(self.argument(at + 4, number));
            }
        }
        all
    }

    /// An argument of a call whose first one begins at `at`.
    fn argument(&self, at: usize, number: usize) -> Range<usize> {
        let mut begin = at;
        for _ in 0..number {
            begin = self.end(begin, &[","]) + 1;
        }
        begin..self.end(begin, &[","])
    }

    /// Where one of these stands next, outside of brackets, or the bracket around all ends.
    fn end(&self, begin: usize, stops: &[&str]) -> usize {
        let mut depth = 0_usize;
        for at in begin..self.0.len() {
            match self.word(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" if depth == 0 => return at,
                ")" | "]" | "}" => depth -= 1,
                word if depth == 0 && stops.contains(&word) => return at,
                _ => {}
            }
        }
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str) -> Vec<String> {
        TableCode::of(text).columns().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn headers_are_found_however_they_are_made() {
        assert_eq!(
            columns(
                "fn f() { let t = output::table(&[\"lock\", \"\", \"P99\"]).least(&[\"no\"]); }"
            ),
            ["lock", "P99"]
        );
        assert_eq!(
            columns("fn f() { table(&HEADER) }\nconst HEADER: [&str; 2] = [\"a\", \"b\"];"),
            ["a", "b"]
        );
        assert_eq!(
            columns(
                "fn f() { let mut names = vec![\"a\"]; names.push(\"b\"); names.insert(1, \"c\"); blocks(&names, \"d\"); }"
            ),
            ["a", "b", "c"]
        );
        assert_eq!(
            columns(
                "fn f() { let to = format!(\"to {base}\"); page::table([\"figure\", &to], 2, rows) }"
            ),
            ["figure", "to …"]
        );
        assert_eq!(columns("use t::{plain, table as new}; fn f() { new(&[\"a\"]) }"), ["a"]);
        assert_eq!(
            columns(
                "fn f() { let names = [\"a\"]; drawn.header(header(&names)) } fn header(n: &[&str]) {}"
            ),
            ["a", "a"]
        );
        // By way of a function of the same file.
        assert_eq!(
            columns(
                "fn f() { let header = [\"a\"]; mine(&header) } fn mine(header: &[&str]) { table(header) }"
            ),
            ["a"]
        );
    }

    #[test]
    fn what_is_no_header_is_not_found() {
        for text in [
            "fn table(rows: &[Row]) {} fn f() { let rows = \"a\"; table(rows) }",
            "fn f() { self.table(\"a\") }",
            "fn f() { let cells = \"a\"; transfers::table(&cells) }",
            "fn f() { let header = [\"{}\", \"-\"]; table(&header) }",
            "#[cfg(test)]\nmod tests { fn f() { table(&[\"a\"]) } }",
            "fn f() { /* table(&[\"a\"]) */ }",
        ] {
            assert_eq!(columns(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_column_that_the_glossary_lacks_is_found() {
        let glossary = "# Glossary\n\n`stray`\n\n## Columns\n\n| column | meaning |\n|---|---|\n| `lock`, `to …` | which `P50` |\n\n## More\n\n| `late` | - |\n";
        let mut columns = Columns::default();
        let path = Path::new("crates/cli/src/x.rs");
        columns.look(path, "fn f() {\n table(&[\"lock\", \"to {}\"])\n}");
        assert_eq!(columns.missing(glossary), [""; 0]);
        columns.look(path, "fn f() {\n table(&[\"stray\", \"late\"]);\n table(&[\"P50\"])\n}");
        let missing = columns.missing(glossary);
        assert_eq!(missing.len(), 3, "{missing:?}");
        assert!(
            missing[2]
                .starts_with("crates/cli/src/x.rs:2: docs/glossary.md lacks the column 'stray'"),
            "{missing:?}"
        );
        let mut others = Columns::default();
        for path in [
            "crates/text/src/x.rs",
            "crates/cli/tests/x.rs",
            "xtask/src/eval.rs",
            "docs/glossary.md",
        ] {
            others.look(Path::new(path), "fn f() { table(&[\"stray\"]) }");
        }
        assert_eq!(others.missing(glossary), [""; 0]);
    }

    /// The check would be worth nothing if it saw no tables.
    #[test]
    fn the_commands_own_tables_are_seen() {
        let root = crate::root::root();
        for (file, column) in [
            ("crates/cli/src/compare/report.rs", "surely"),
            ("crates/cli/src/top/columns.rs", "wait/s"),
            ("crates/cli/src/observed/columns.rs", "total wait"),
            ("crates/cli/src/sim/report.rs", "op/s"),
            ("crates/bench/src/report/tables.rs", "of the ceiling"),
        ] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert!(columns(&text).iter().any(|name| name == column), "{file}: no {column}");
        }
    }
}
