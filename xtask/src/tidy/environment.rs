//! Checks the environment variables: each `LOCKWRIGHT_*` in the source must be in the list
//! (`lockwright_contract::environment`), and each variable in the list must be read where the list says.

use lockwright_contract::environment::{Reader, VARIABLES, Variable};
use regex_lite::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The list itself. An occurrence there doesn't count as a use.
const LIST: &str = "crates/contract/src/environment.rs";
/// Folders whose files may use variables.
const SOURCE: &[&str] = &["crates", "include", "xtask", "examples", "tests", "eval", "contrib"];

/// The variables found in the files.
#[derive(Default)]
pub(super) struct Seen {
    /// Every name, with its first occurrence.
    names: Vec<(String, String)>,
    /// Names that form a whole string literal, by kind of folder: the library's, the commands', others.
    library: BTreeSet<String>,
    program: BTreeSet<String>,
}

impl Seen {
    /// Scans one more source file.
    pub(super) fn look(&mut self, path: &Path, text: &str) {
        if path == Path::new(LIST) || !SOURCE.iter().any(|folder| path.starts_with(folder)) {
            return;
        }
        let name =
            Regex::new(r#"("?)(LOCKWRIGHT_[A-Z][A-Z0-9_]*[A-Z0-9])("?)"#).expect("a pattern");
        for (number, line) in text.lines().enumerate() {
            // Include guards are not variables.
            if line.starts_with("#ifndef ")
                || line.starts_with("#define ")
                || line.starts_with("#endif")
            {
                continue;
            }
            for found in name.captures_iter(line) {
                let name = found[2].to_owned();
                if &found[1] == "\"" && &found[3] == "\"" {
                    let of_library = ["crates/runtime/src", "crates/delegate/src"]
                        .iter()
                        .any(|library| path.starts_with(library));
                    let set = if of_library { &mut self.library } else { &mut self.program };
                    set.insert(name.clone());
                }
                let at = format!("{}:{}", path.display(), number + 1);
                if self.names.iter().all(|(known, _)| *known != name) {
                    self.names.push((name, at));
                }
            }
        }
    }

    /// Complains about differences from the list.
    pub(super) fn complain(&self, list: &[Variable], complaints: &mut Vec<String>) {
        for (name, at) in &self.names {
            if list.iter().all(|variable| variable.name != name) {
                complaints.push(format!("{at}: '{name}' is not in {LIST}: add it"));
            }
        }
        for variable in list {
            let name = variable.name;
            let (library, program) = (self.library.contains(name), self.program.contains(name));
            let problem = match (variable.reader.is_library(), library, variable.reader) {
                (true, false, _) => "the library does not read it",
                (false, true, _) => "the library reads it, too",
                (_, _, Reader::Commands(_) | Reader::Tests | Reader::Build) if !program => {
                    "nobody reads it"
                }
                _ => continue,
            };
            complaints.push(format!("{LIST}: '{name}': {problem}"));
        }
    }
}

/// The part of docs/environment.md that is generated from the list.
pub(super) fn page() -> String {
    let mut page = String::new();
    let part = |variable: &Variable| match variable.reader {
        Reader::Library | Reader::Both(_) => "The library's",
        Reader::Commands(_) => "The command's",
        Reader::Tests | Reader::Build => "The project's own build's and tests'",
    };
    for title in ["The library's", "The command's", "The project's own build's and tests'"] {
        page += &format!("\n## {title}\n");
        for variable in VARIABLES.iter().filter(|one| part(one) == title) {
            let Variable { name, reader, values, default, meaning, when, set_by } = variable;
            // In Markdown, vertical bars and angle brackets must be escaped.
            page += &format!("\n### `{name}`\n\n{meaning}\n\n| | |\n|---|---|\n");
            let commands = reader.commands().iter().map(|command| format!("`{command}`"));
            let commands = commands.collect::<Vec<_>>().join(", ");
            let who = match reader {
                Reader::Library => "the library".to_owned(),
                Reader::Both(_) => format!("the library, and {commands}"),
                Reader::Commands(_) => commands,
                Reader::Tests => "tests only".to_owned(),
                Reader::Build => "the build only".to_owned(),
            };
            for (what, text) in [
                ("who reads it", who.as_str()),
                ("values", values),
                ("default", default),
                ("read", when),
            ] {
                page += &format!("| {what} | {text} |\n");
            }
            if !set_by.is_empty() {
                page += &format!("| set by | `{}` |\n", set_by.replace(", ", "`, `"));
            }
        }
    }
    page + "\n"
}

/// The file that contains this part.
pub(super) fn file(root: &Path) -> PathBuf {
    root.join("docs/environment.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[Variable] = &[
        Variable { name: VARIABLES[0].name, reader: Reader::Library, ..VARIABLES[0] },
        Variable { name: VARIABLES[1].name, reader: Reader::Tests, ..VARIABLES[1] },
    ];

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let (mut seen, mut found) = (Seen::default(), Vec::new());
        files.iter().for_each(|(path, text)| seen.look(Path::new(path), text));
        seen.complain(LIST, &mut found);
        found
    }

    #[test]
    fn a_variable_that_one_side_lacks_is_found() {
        let read = |name: &str| format!("x(\"{name}\")");
        let (first, second) = (read(LIST[0].name), read(LIST[1].name));
        let fine = [("crates/runtime/src/a.rs", first.as_str()), ("tests/b.rs", second.as_str())];
        assert_eq!(complaints(&fine), Vec::<String>::new());
        // The second variable isn't read: a comment doesn't count.
        let comment = format!("// {}", LIST[1].name);
        let unread = [fine[0], ("tests/b.rs", comment.as_str())];
        assert!(complaints(&unread)[0].ends_with("nobody reads it"), "{:?}", complaints(&unread));
        // Only the command reads the library's variable.
        let moved = [("crates/cli/src/a.rs", first.as_str()), fine[1]];
        assert!(complaints(&moved)[0].ends_with("the library does not read it"));
        let unknown = ["LOCKWRIGHT", "_NEW"].concat();
        let found = complaints(&[fine[0], fine[1], ("include/c.h", &unknown)]);
        assert!(
            found[0].starts_with(&format!("include/c.h:1: '{unknown}' is not in")),
            "{found:?}"
        );
        let guard = format!("#ifndef {unknown}\n#define {unknown}\n");
        assert_eq!(complaints(&[fine[0], fine[1], ("include/c.h", &guard)]), Vec::<String>::new());
    }
}
