//! Checks the project's conventions, beyond what the compiler and clippy know. Each complaint says what to do instead.

mod arrows;
mod circles;
mod columns;
mod commons;
mod environment;
mod names;
mod source;

use crate::answer::No;
use crate::book;
use crate::root::root;
use anyhow::{Context, Result};
use lockwright_contract::environment::VARIABLES;
use lockwright_locks::catalog::{CATALOG, all};
use lockwright_locks::entry::{Entry, Kind};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rewrite the generated parts (the locks of docs/locks.md, docs/environment.md) instead of complaining about them.
    #[arg(long)]
    write: bool,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let root = root();
    let mut complaints = Vec::new();
    let mut variables = environment::Seen::default();
    let mut types = commons::Names::default();
    let mut columns = columns::Columns::default();
    for path in sources(&root)? {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let file = File { path: &path, text: &text };
        words(&file, &mut complaints);
        variables.look(&path, &text);
        types.look(&path, &text);
        columns.look(&path, &text);
        match path.extension().and_then(|end| end.to_str()) {
            Some("rs") => rust(&file, &mut complaints),
            Some("md") => markdown(&file, &mut complaints),
            _ => {}
        }
    }
    for entry in all() {
        lock_file(&root, entry, &mut complaints)?;
    }
    lost(&root, WHOLE, &mut complaints);
    arrows::check(&root, &mut complaints);
    circles::check(&root, &mut complaints);
    crate::soak::check(&root, &mut complaints);
    variables.complain(VARIABLES, &mut complaints);
    types.complain(&mut complaints);
    columns.complain(&root, &mut complaints)?;
    complaints.extend(book::unlisted(&root)?);
    let locks = Generated { what: "locks", page: root.join("docs/locks.md"), text: table() };
    locks.check(args.write, &mut complaints)?;
    let page = environment::file(&root);
    let variables = Generated { what: "variables", page, text: environment::page() };
    variables.check(args.write, &mut complaints)?;
    if complaints.is_empty() {
        println!("tidy");
        return Ok(());
    }
    for complaint in &complaints {
        eprintln!("error: {complaint}");
    }
    let things = if complaints.len() == 1 { "thing" } else { "things" };
    Err(No(format!("{} {things} to tidy", complaints.len())).into())
}

/// Files that git tracks or could add, relative to the root. A file that somebody has just written is checked before its commit.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let words = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.context("cannot run 'git ls-files'")?;
    Ok(String::from_utf8(output.stdout)?.lines().map(PathBuf::from).collect())
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn is_in(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }
    /// Does it contain only tests?
    fn is_test(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "tests") && !self.is_in("tests/src")
            || self.path.ends_with("tests.rs")
    }
    fn at(&self, line: usize) -> String {
        format!("{}:{}", self.path.display(), line + 1)
    }
}

/// Words that must not occur in the project, and what to do instead. Each is split into two pieces, so that this file
/// may contain it.
const BANNED: &[(&str, &str, &str)] = &[
    ("TO", "DO", "do it, or open an issue"),
    ("FIX", "ME", "fix it, or open an issue"),
    ("todo", "!(", "write it"),
    ("unimplemented", "!(", "write it"),
    ("/tmp/", "target", "no machine's paths in the project"),
    ("/wo", "rk/", "no machine's paths in the project"),
    ("black", "list", "say 'denied'"),
    ("critical ", "region", "say 'critical section'"),
    ("hand", " over-", "say 'hand-over'"),
];

fn words(file: &File<'_>, complaints: &mut Vec<String>) {
    if file.path.ends_with("Cargo.lock") {
        return;
    }
    for (number, line) in file.text.lines().enumerate() {
        for (head, tail, instead) in BANNED {
            if line.contains(&format!("{head}{tail}")) {
                complaints.push(format!("{}: '{head}{tail}': {instead}", file.at(number)));
            }
        }
    }
}

/// Maximum number of lines of a file, without its tests, by folder: what is preloaded only hands on.
const LENGTHS: &[(&str, usize)] = &[("crates/preload", 160), ("", 500)];

/// Longer files, each of which holds one concept whole, and which one: split, it would be harder to follow.
const WHOLE: &[(&str, &str)] = &[
    (
        "crates/locks/src/delegation/dynamic.rs",
        "when to delegate: the lock, its ledger, its trials",
    ),
    ("crates/locks/src/front/line.rs", "the line: who stands in it, who may pass its head"),
    ("crates/locks/src/front/waiter.rs", "a waiter's node"),
    (
        "crates/locks/src/front/learn/saturation.rs",
        "saturation: how it is learnt, and what follows",
    ),
    ("crates/locks/src/delegation/server.rs", "a server: who asks, who runs, who goes home"),
];

/// Maximum number of lines of a test file, and of any file including the tests at its end.
const WITH_TESTS: usize = 900;

/// Code that must get locks from the catalogue's lists. It names no lock, except in a lock's own file. Tests may name
/// the lock that they are about.
const NAMELESS: &[&str] =
    &["crates/locks/src", "crates/sim/src", "crates/model/src", "xtask/src/weaken.rs"];

fn names(file: &File<'_>, lines: &[&str], complaints: &mut Vec<String>) {
    let is_catalog = file.path.ends_with("catalog.rs");
    if is_catalog || file.is_test() || !NAMELESS.iter().any(|folder| file.is_in(folder)) {
        return;
    }
    let own = file.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("").replace('_', "-");
    for (number, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or(line);
        if line.contains("#[cfg(test)]") || file.path.ends_with("planted.rs") {
            return;
        }
        // Every second piece between quotes is in a literal.
        for literal in code.split('"').skip(1).step_by(2) {
            let said = literal.split(',').map(|one| one.split(':').next().unwrap_or(one));
            let is_lock = |id: &str| CATALOG.iter().any(|entry| entry.id == id && id != own);
            if let Some(id) = said.into_iter().find(|id| is_lock(id)) {
                let at = file.at(number);
                complaints.push(format!("{at}: names the lock '{id}': ask the catalogue"));
            }
        }
    }
}

/// A file must be short enough to read in one go, unless it is one of `whole`. Test files may be longer.
fn lengths(file: &File<'_>, lines: &[&str], whole: &[(&str, &str)], complaints: &mut Vec<String>) {
    let (_, most) =
        LENGTHS.iter().find(|(folder, _)| file.is_in(folder)).expect("the last fits all");
    let tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests");
    let code =
        if file.is_test() { 0 } else { lines.windows(2).position(tests).unwrap_or(lines.len()) };
    let path = file.path.display();
    let is_whole = whole.iter().any(|(one, _)| file.path == Path::new(one));
    // As many lines of tests as the longest of the other files may have.
    let with_tests = if is_whole { code + (WITH_TESTS - most) } else { WITH_TESTS };
    if code > *most && !is_whole {
        complaints.push(format!(
            "{path}: {code} lines, at most {most} here: split it, or say in WHOLE which one concept it holds"
        ));
    } else if code <= *most && is_whole {
        complaints.push(format!("{path}: only {code} lines: strike it from WHOLE"));
    } else if lines.len() > with_tests {
        let all = lines.len();
        complaints.push(format!(
            "{path}: {all} lines, at most {with_tests} with its tests: move the tests to a separate file"
        ));
    }
}

/// Each file of [`WHOLE`] must exist.
fn lost(root: &Path, whole: &[(&str, &str)], complaints: &mut Vec<String>) {
    for (path, concept) in whole.iter().filter(|(path, _)| !root.join(path).exists()) {
        complaints.push(format!("{path} ({concept}) is no file: strike it from WHOLE"));
    }
}

fn rust(file: &File<'_>, complaints: &mut Vec<String>) {
    let lines: Vec<&str> = file.text.lines().collect();
    lengths(file, &lines, WHOLE, complaints);
    if !lines.first().is_some_and(|line| line.starts_with("//!") || line.starts_with("#!")) {
        complaints.push(format!("{}: no '//!' line that says what it is", file.at(0)));
    }
    names(file, &lines, complaints);
    if ["crates/locks/src", "crates/runtime/src"].iter().any(|folder| file.is_in(folder)) {
        orderings(file, &lines, complaints);
    }
}

/// Non-relaxed orderings, which need a comment just above.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

fn orderings(file: &File<'_>, lines: &[&str], complaints: &mut Vec<String>) {
    for (number, line) in lines.iter().enumerate() {
        if line.contains("#[cfg(test)]") {
            break;
        }
        let code = line.split("//").next().unwrap_or(line);
        if code.trim_start().starts_with("use ") {
            continue;
        }
        let uses = ORDERINGS.iter().any(|order| {
            code.contains(&format!(", {order})"))
                || code.contains(&format!("({order})"))
                || code.contains(&format!(", {order},"))
        });
        if !uses {
            continue;
        }
        let near = &lines[number.saturating_sub(12)..(number + 2).min(lines.len())];
        let explained = near.iter().any(|line| {
            line.contains("ORDERING:") || line.contains("pairs with") || line.contains("// Acquire")
        });
        if !explained {
            let at = file.at(number);
            complaints
                .push(format!("{at}: an ordering without '// ORDERING: ..., pairs with ...'"));
        }
    }
    labels(file, complaints);
}

/// A label in "pairs with" must exist, in this file or in its folder (for the rules of front locks: or in the one above).
fn labels(file: &File<'_>, complaints: &mut Vec<String>) {
    for (number, line) in file.text.lines().enumerate() {
        let Some((_, rest)) = line.split_once("pairs with [") else { continue };
        let Some((label, _)) = rest.split_once(']') else { continue };
        let mark = format!("[{label}]");
        let folder = root().join(file.path);
        let folder = folder.parent().expect("a file lies in a folder");
        let stands = |text: &str| {
            text.lines().any(|line| line.contains(&mark) && !line.contains(&format!("with {mark}")))
        };
        // The rules' folder lies below that of the line.
        let folders = [Some(folder), folder.parent().filter(|_| folder.ends_with("rule"))];
        let beside = folders.into_iter().flatten().flat_map(fs::read_dir).flatten().flatten();
        let mut texts = beside.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        if !stands(file.text) && !texts.any(|text| stands(&text)) {
            complaints.push(format!("{}: nothing is labelled '{mark}'", file.at(number)));
        }
    }
}

fn markdown(file: &File<'_>, complaints: &mut Vec<String>) {
    let mut in_code = false;
    let mut titles = 0;
    for line in file.text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        titles += usize::from(!in_code && line.starts_with("# "));
    }
    // CONTRIBUTING.md has two parts with titles; the book's index contains the titles of its parts.
    let is_exempt = ["CONTRIBUTING.md", "SUMMARY.md"].iter().any(|name| file.path.ends_with(name));
    if titles != 1 && !is_exempt {
        complaints.push(format!("{}: {titles} titles instead of one", file.path.display()));
    }
}

/// A lock's file has these parts: a drawing, invariants or a reference to them, an entry, a type.
fn lock_file(root: &Path, entry: &Entry, complaints: &mut Vec<String>) -> Result<()> {
    for (text, what) in [(entry.idea, "idea"), (entry.source, "source"), (entry.advice, "advice")] {
        if text.len() < 10 || text.contains('\n') {
            complaints.push(format!("lock '{}': its {what} is not one line", entry.id));
        }
    }
    if entry.preset_of.is_some() {
        return Ok(()); // the catalogue has everything about it
    }
    let name = format!("{}.rs", entry.id.replace('-', "_"));
    let folders = ["front/rule", "spin", "queue", "numa", "block", "amp", "delegation", "rw"];
    let path = folders.iter().map(|folder| root.join("crates/locks/src").join(folder).join(&name));
    let Some(path) = path.into_iter().find(|path| path.exists()) else {
        complaints.push(format!("lock '{}' has no file called {name}", entry.id));
        return Ok(());
    };
    let text = fs::read_to_string(&path)?;
    let header: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let parts = [
        (
            header.contains("nvariant") || header.contains("//! 1. "),
            "numbered invariants in its header",
        ),
        (header.contains("```text"), "a drawing (```text) in its header"),
        (text.contains("pub const ENTRY"), "'pub const ENTRY'"),
        match entry.kind {
            Kind::Front => (text.contains("pub struct Lock;"), "its rule, 'pub struct Lock;'"),
            Kind::Whole | Kind::Delegated | Kind::ReadWrite => {
                (text.contains("pub type Lock<P>"), "'pub type Lock<P>'")
            }
        },
    ];
    for (present, part) in parts {
        if !present {
            complaints.push(format!("{}: lacks {part}", path.display()));
        }
    }
    Ok(())
}

/// A part of a page that is generated from a list in the source.
struct Generated {
    what: &'static str,
    page: PathBuf,
    text: String,
}

impl Generated {
    fn check(&self, write: bool, complaints: &mut Vec<String>) -> Result<()> {
        let Self { what, page, text: made } = self;
        let name = page.display();
        let (begin, end) = (
            format!("<!-- {what}: made by `cargo xtask tidy --write` -->"),
            format!("<!-- /{what} -->"),
        );
        let text = fs::read_to_string(page).with_context(|| format!("cannot read '{name}'"))?;
        let parts = text
            .split_once(&begin)
            .and_then(|(before, rest)| rest.split_once(&end).map(|(_, after)| (before, after)));
        let Some((before, after)) = parts else {
            complaints.push(format!("{name}: lacks '{begin}' or '{end}'"));
            return Ok(());
        };
        let fresh = format!("{before}{begin}\n{made}{end}{after}");
        if fresh == text {
            return Ok(());
        }
        if write {
            fs::write(page, fresh).with_context(|| format!("cannot write '{name}'"))?;
        } else {
            complaints.push(format!("{name}: its {what} are stale: cargo xtask tidy --write"));
        }
        Ok(())
    }
}

fn table() -> String {
    let mut table = String::from("| lock | kind | idea | order |\n|---|---|---|---|\n");
    for entry in all() {
        let kind = match entry.kind {
            Kind::Front => "front",
            Kind::Whole => "textbook",
            Kind::Delegated => "delegated",
            Kind::ReadWrite => "readers-writer",
        };
        table += &format!("| `{}` | {kind} | {} | {} |\n", entry.id, entry.idea, entry.order);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let file = File { path: Path::new(path), text };
        let mut found = Vec::new();
        words(&file, &mut found);
        if path.ends_with(".rs") {
            rust(&file, &mut found);
        } else {
            markdown(&file, &mut found);
        }
        found
    }

    #[test]
    fn an_ordering_without_its_partner_is_found() {
        let bare = "//! A lock.\nfn f() {\n    w.store(0, Release);\n}\n";
        assert_eq!(complaints("crates/locks/src/x.rs", bare).len(), 1);
        let told = "//! A lock.\nfn f() {\n    // ORDERING: Release, for g.\n    w.store(0, Release);\n}\n";
        assert_eq!(complaints("crates/locks/src/x.rs", told), Vec::<String>::new());
        assert_eq!(complaints("crates/cli/src/x.rs", bare), Vec::<String>::new());
    }

    #[test]
    fn a_label_that_stands_nowhere_is_found() {
        let text = "//! A lock.\n// ORDERING: Release, pairs with [nowhere-at-all].\n";
        assert_eq!(complaints("crates/locks/src/x.rs", text).len(), 1);
    }

    #[test]
    fn a_locks_name_is_found_where_lists_decide_what_is_checked() {
        let named = |id: &str| format!("//! A list.\nconst LOCKS: &str = \"{id}\";\n");
        for text in ["mcs", "mcs:x=1", "condvar,fifo"] {
            assert_eq!(complaints("crates/sim/src/x.rs", &named(text)).len(), 1, "{text}");
        }
        for (path, text) in [
            ("crates/locks/src/queue/mcs.rs", "mcs"),
            ("crates/locks/src/catalog.rs", "mcs"),
            ("crates/sim/src/x.rs", "front"),
            ("crates/sim/tests/x.rs", "mcs"),
        ] {
            assert_eq!(complaints(path, &named(text)), Vec::<String>::new(), "{path}");
        }
        let tested = format!("//! A file.\n#[cfg(test)]\n{}", &named("mcs")[12..]);
        assert_eq!(complaints("crates/sim/src/x.rs", &tested), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_too_long_without_its_tests_is_found() {
        let file = |code: usize, tests: usize| {
            let tests =
                ["#[cfg(test)]\nmod tests {\n", &"    // a line\n".repeat(tests), "}\n"].concat();
            ["//! A file.\n", &"// a line\n".repeat(code - 1), &tests].concat()
        };
        let found = |path: &str, code, tests| complaints(path, &file(code, tests));
        assert_eq!(found("crates/cli/src/x.rs", 500, 397), Vec::<String>::new());
        assert_eq!(found("crates/cli/src/x.rs", 501, 0).len(), 1);
        assert_eq!(found("crates/cli/src/x.rs", 500, 398).len(), 1);
        assert_eq!(found("crates/preload/src/x.rs", 161, 0).len(), 1);
        for path in ["crates/cli/tests/x.rs", "crates/cli/src/x/tests.rs", "tests/tests/x.rs"] {
            assert_eq!(found(path, 800, 0), Vec::<String>::new(), "{path}");
            assert_eq!(found(path, 901, 0).len(), 1, "{path}");
        }
        assert_eq!(found("tests/src/x.rs", 501, 0).len(), 1);
    }

    #[test]
    fn a_file_that_holds_one_concept_whole_may_be_longer() {
        let whole = &[("crates/cli/src/x.rs", "a concept")];
        let found = |path: &str, code: usize, tests: usize| {
            let mut lines = vec!["//! A file."; code];
            lines.extend(["#[cfg(test)]", "mod tests {"]);
            lines.extend(vec!["    // a line"; tests]);
            let file = File { path: Path::new(path), text: "" };
            let mut complaints = Vec::new();
            lengths(&file, &lines, whole, &mut complaints);
            complaints.concat()
        };
        assert_eq!(found("crates/cli/src/x.rs", 501, 0), "");
        assert_eq!(found("crates/cli/src/x.rs", 1000, 398), "");
        assert!(found("crates/cli/src/x.rs", 1000, 399).contains("at most 1400 with its tests"));
        assert!(found("crates/cli/src/x.rs", 500, 0).contains("strike it"));
        assert!(found("crates/cli/src/y.rs", 501, 0).contains("split it"));
        let mut complaints = Vec::new();
        lost(&root(), &[("Cargo.toml", "-"), ("gone.rs", "a concept")], &mut complaints);
        assert_eq!(complaints, ["gone.rs (a concept) is no file: strike it from WHOLE"]);
    }

    #[test]
    fn banned_words_and_second_titles_are_found() {
        let word = ["TO", "DO"].concat();
        assert_eq!(complaints("a.md", &format!("# A\n{word}\n")).len(), 1);
        assert_eq!(complaints("a.md", "# A\n# B\n").len(), 1);
        assert_eq!(complaints("a.md", "# A\n```sh\n# comment\n```\n"), Vec::<String>::new());
    }
}
