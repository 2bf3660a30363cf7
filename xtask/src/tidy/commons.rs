//! Names of types that too many places define. A reader who meets one of them must look for the one that is meant.

use std::collections::BTreeMap;
use std::path::Path;

/// A name that so many places define is too common.
const MANY: usize = 5;

/// Names that may be common, below this folder, and why.
const COMMON: &[(&str, &str, &str)] = &[
    ("Args", "", "a command's flags, in the command's file"),
    ("Error", "", "a crate's error, as in std"),
    ("Lock", "crates/locks/src/front", "a front lock's rule: the catalogue names it by its file"),
    ("Node", "crates/locks/src", "a waiter's place in a queue, as in the locks' papers"),
];

/// Where each name is defined.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    /// Notes the types that a file defines, up to its tests.
    pub(super) fn look(&mut self, path: &Path, text: &str) {
        let is_source = path.components().any(|part| part.as_os_str() == "src");
        let of_tests =
            path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        let of_tests = of_tests || path.starts_with("tests");
        if !is_source || of_tests || path.extension().is_none_or(|end| end != "rs") {
            return;
        }
        for (number, line) in text.lines().enumerate() {
            if line == "#[cfg(test)]" {
                break;
            }
            let Some(name) = defined(line) else { continue };
            if COMMON.iter().any(|(common, folder, _)| name == *common && path.starts_with(folder))
            {
                continue;
            }
            let places = self.0.entry(name.to_owned()).or_default();
            places.push(format!("{}:{}", path.display(), number + 1));
        }
    }

    pub(super) fn complain(&self, complaints: &mut Vec<String>) {
        for (name, places) in self.0.iter().filter(|(_, places)| places.len() >= MANY) {
            complaints.push(format!(
                "{}: {} types are called '{name}' ({}): give it a name that tells more",
                places[places.len() - 1],
                places.len(),
                places[..places.len() - 1].join(", ")
            ));
        }
    }
}

/// The name of the type or trait that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (kind, rest) = line.strip_prefix("unsafe ").unwrap_or(line).split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    ["struct", "enum", "trait", "union"].contains(&kind).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_definition_is_found() {
        for (line, name) in [
            ("struct Row {", Some("Row")),
            ("    pub(in crate::a) enum Row<'a> {", Some("Row")),
            ("pub unsafe trait Row: Send {", Some("Row")),
            ("pub struct Row;", Some("Row")),
            ("impl Row {", None),
            ("/// struct Row", None),
            ("pub fn row() {", None),
        ] {
            assert_eq!(defined(line), name, "{line}");
        }
    }

    #[test]
    fn the_fifth_type_of_a_name_is_one_too_many() {
        let complaints = |text: &str, files: &[&str]| {
            let mut names = Names::default();
            files.iter().for_each(|file| names.look(Path::new(file), text));
            let mut complaints = Vec::new();
            names.complain(&mut complaints);
            complaints
        };
        let files = ["1", "2", "3", "4", "5"].map(|n| format!("crates/{n}/src/lib.rs"));
        let files = files.each_ref().map(String::as_str);
        assert_eq!(complaints("struct Row;\n", &files[..4]), [""; 0]);
        let [complaint] = &complaints("struct Row;\n", &files)[..] else { panic!("one") };
        assert!(
            complaint.starts_with("crates/5/src/lib.rs:1: 5 types are called 'Row'"),
            "{complaint}"
        );
        assert_eq!(complaints("#[cfg(test)]\nmod tests {\nstruct Row;\n", &files), [""; 0]);
        assert_eq!(complaints("pub(crate) struct Args;\n", &files), [""; 0]);
        assert_eq!(complaints("pub struct Lock;\n", &files).len(), 1, "elsewhere it is common");
        let front = ["a", "b", "c", "d", "e"].map(|n| format!("crates/locks/src/front/{n}.rs"));
        assert_eq!(
            complaints("pub struct Lock;\n", &front.each_ref().map(String::as_str)),
            [""; 0]
        );
        assert_eq!(complaints("struct Row;\n", &["crates/a/tests/a.rs"; 5]), [""; 0]);
    }
}
