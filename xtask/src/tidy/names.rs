//! Which file of a crate a path leads to.
//!
//! ```text
//!   crate root ──`mod x;`──► files ──► scopes: what each module declares, imports, writes ──► arrows from file to file
//! ```
//!
//! A path leads to the file that defines what the path names, through any number of imports: who says `super::X`, where the parent
//! only has `pub use sibling::X`, uses the sibling. A module's bare name leads nowhere; paths that begin with that name do. A
//! re-export of what lies below is no use. But a file that uses what it re-exports uses the file below.
//!
//! Types are not known here. So a call of a method is no use of the method's file, and a name that a macro makes is taken to be
//! in the module that the path names.

use super::source::{Sources, Token, tokens};
use std::collections::{BTreeMap, BTreeSet};

/// The first place where one file uses another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FirstUse {
    pub(super) line: usize,
    pub(super) path: String,
}

/// From, to, and place.
pub(super) type FileArrows = BTreeMap<(String, String), FirstUse>;

/// The arrows between a crate's files.
pub(super) fn arrows(sources: &Sources) -> FileArrows {
    let is_root =
        |file: &&String| ["lib.rs", "main.rs"].contains(&file.as_str()) || file.starts_with("bin/");
    let mut arrows = FileArrows::new();
    for root in sources.keys().filter(is_root) {
        Modules::of(sources, root).draw(&mut arrows);
    }
    arrows
}

/// A module's path from the crate's root.
type Place<'a> = Vec<&'a str>;

/// How many imports may lead to each other: without a limit, an import of itself would be followed for ever.
const DEEPEST: u32 = 24;

/// A module.
#[derive(Default)]
struct Scope<'a> {
    file: &'a str,
    children: BTreeSet<&'a str>,
    names: BTreeMap<&'a str, Name<'a>>,
    /// What `use path::*` names.
    globs: Vec<Place<'a>>,
    written: Vec<Written<'a>>,
    /// Words that aren't part of a longer path, and their first lines.
    words: BTreeMap<&'a str, usize>,
}

/// What a name stands for, if not for a child module.
enum Name<'a> {
    Item,
    Import { path: Place<'a>, is_public: bool },
}

/// A path in the code.
struct Written<'a> {
    line: usize,
    path: Place<'a>,
    /// It stands in a `pub use`.
    hands_on: bool,
    glob: bool,
}

/// Where a path leads: to a module, to an item of one, or out of the crate.
enum Reached<'a> {
    Module(Place<'a>),
    Item(Place<'a>),
    Outside,
}

/// A crate's modules, by their places.
struct Modules<'a>(BTreeMap<Place<'a>, Scope<'a>>);

impl<'a> Modules<'a> {
    /// Those that the file `root` declares, and so on.
    fn of(sources: &'a Sources, root: &'a str) -> Self {
        let mut modules = Self(BTreeMap::new());
        // A file, its place, and the folder where its children are.
        let mut files = vec![(root, Vec::new(), String::new())];
        while let Some((file, place, folder)) = files.pop() {
            let tokens = tokens(&sources[file]);
            for child in modules.read(file, &place, &tokens) {
                let below = &child[place.len()..];
                let path = format!("{folder}{}", below.join("/"));
                let mut places = [format!("{path}.rs"), format!("{path}/mod.rs")].into_iter();
                let found = places.find_map(|path| sources.get_key_value(&path));
                if let Some((file, _)) = found {
                    files.push((file, child, format!("{path}/")));
                }
            }
        }
        modules
    }

    /// Reads a file; returns the places of the modules that lie in other files.
    fn read(&mut self, file: &'a str, place: &Place<'a>, tokens: &[Token<'a>]) -> Vec<Place<'a>> {
        let word = |at: usize| tokens.get(at).map_or("", |(_, word)| *word);
        let mut elsewhere = Vec::new();
        // Modules in this file, and the depth of braces of each.
        let mut inside = vec![(place.clone(), 0)];
        self.0.insert(place.clone(), Scope { file, ..Scope::default() });
        // The depth of braces in the enum at hand, if any.
        let (mut variants, mut is_enum) = (0, false);
        let (mut depth, mut at) = (0, 0);
        while let Some(&(line, first)) = tokens.get(at) {
            let (here, ground) = inside.last().expect("the file's own").clone();
            let is_declared = depth == ground;
            let before = if at == 0 { "" } else { word(at - 1) };
            let scope = self.0.get_mut(&here).expect("just made");
            let mut next = at + 1;
            match first {
                "{" => {
                    depth += 1;
                    if std::mem::take(&mut is_enum) {
                        variants = depth;
                    }
                }
                "}" => {
                    depth -= 1;
                    if depth < variants {
                        variants = 0;
                    }
                    if depth < ground {
                        inside.pop();
                    }
                }
                "mod" if is_declared && [";", "{"].contains(&word(at + 2)) => {
                    let name = word(at + 1);
                    scope.children.insert(name);
                    let child: Place<'a> = here.iter().copied().chain([name]).collect();
                    if word(at + 2) == ";" {
                        elsewhere.push(child);
                    } else {
                        self.0.insert(child.clone(), Scope { file, ..Scope::default() });
                        depth += 1;
                        inside.push((child, depth));
                    }
                    next = at + 3;
                }
                "use" if word(at + 1) != "<" => {
                    let is_public = ["pub", ")"].contains(&before);
                    let mut tree = Vec::new();
                    next = leaves(tokens, at + 1, &[], &mut tree);
                    for leaf in tree {
                        scope.import(leaf, is_public, is_declared);
                    }
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static"
                    if is_declared =>
                {
                    is_enum = first == "enum";
                    let name = [word(at + 1), word(at + 2)].into_iter().find(|one| *one != "mut");
                    scope.names.insert(name.unwrap_or(""), Name::Item);
                }
                "macro_rules" if is_declared => {
                    scope.names.insert(word(at + 2), Name::Item);
                    next = at + 3;
                }
                // A variant's name, where it is defined.
                _ if variants > 0 && depth == variants && ["{", ",", "]"].contains(&before) => {}
                _ if is_word(first) && before != "::" && before != "." => {
                    is_enum |= first == "enum";
                    let mut path = vec![first];
                    while word(next) == "::" && is_word(word(next + 1)) {
                        path.push(word(next + 1));
                        next += 2;
                    }
                    let is_type = first.starts_with(char::is_uppercase);
                    let is_called = ["(", "!"].contains(&word(next)) && before != "fn";
                    if path.len() > 1 {
                        let written = Written { line, path, hands_on: false, glob: false };
                        scope.written.push(written);
                    }
                    // A function's name may also be that of a local variable.
                    if next - at > 1 || is_type || is_called {
                        scope.words.entry(first).or_insert(line);
                    }
                }
                _ => {}
            }
            at = next;
        }
        elsewhere
    }

    /// Where `path` leads, written in the module at `from`.
    fn find(&self, from: &Place<'a>, path: &[&'a str], depth: u32) -> Reached<'a> {
        let mut here = from.clone();
        let mut rest = path;
        match path[0] {
            "crate" => (here, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some((&"super", after)) = rest.split_first() {
                    here.pop();
                    rest = after;
                }
            }
            _ => {}
        }
        let is_bare = rest.len() == path.len();
        for (number, name) in rest.iter().copied().enumerate() {
            let is_last = number + 1 == rest.len();
            match self.look(&here, name, is_last, depth) {
                Some(Reached::Module(place)) => here = place,
                Some(found) => return found,
                // The first name of a path may be another crate's, or a local one.
                None if is_bare && number == 0 => return Reached::Outside,
                None => return Reached::Item(here),
            }
        }
        Reached::Module(here)
    }

    /// What `name` stands for in the module at `here`. A module and a function may have one name; a path goes on from the module.
    fn look(
        &self,
        here: &Place<'a>,
        name: &'a str,
        is_last: bool,
        depth: u32,
    ) -> Option<Reached<'a>> {
        let scope = self.0.get(here)?;
        let depth = depth.checked_sub(1)?;
        let child = || {
            let below = here.iter().copied().chain([name]).collect();
            scope.children.contains(name).then_some(Reached::Module(below))
        };
        let named = || match scope.names.get(name)? {
            Name::Item => Some(Reached::Item(here.clone())),
            Name::Import { path, .. } => Some(self.find(here, path, depth)),
        };
        let found = if is_last { named().or_else(child) } else { child().or_else(named) };
        found.or_else(|| {
            let from = |glob: &Place<'a>| match self.find(here, glob, depth) {
                Reached::Module(place) => self.look(&place, name, is_last, depth),
                Reached::Item(_) | Reached::Outside => None,
            };
            scope.globs.iter().find_map(from)
        })
    }

    /// Adds the arrows of all modules.
    fn draw(&self, arrows: &mut FileArrows) {
        for (place, scope) in &self.0 {
            let mut add = |line: usize, path: &[&str], found: Reached<'a>, hands_on: bool| {
                let Reached::Item(at) = found else { return };
                let to = self.0.get(&at).map_or(scope.file, |target| target.file);
                if to != scope.file && !(hands_on && at.starts_with(place)) {
                    let between = (scope.file.to_owned(), to.to_owned());
                    arrows.entry(between).or_insert(FirstUse { line, path: path.join("::") });
                }
            };
            for Written { line, path, hands_on, glob } in &scope.written {
                let found = self.find(place, path, DEEPEST);
                if let (true, Reached::Module(at)) = (glob, &found)
                    && let Some(from) = self.0.get(at)
                {
                    // Of all that it could use, it uses what it mentions.
                    for name in from.names.keys().filter(|name| scope.words.contains_key(*name)) {
                        if let Some(found) = self.look(at, name, true, DEEPEST) {
                            add(*line, path, found, false);
                        }
                    }
                }
                add(*line, path, found, *hands_on);
            }
            for (name, line) in &scope.words {
                if let Some(Name::Import { path, is_public: true }) = scope.names.get(name) {
                    add(*line, path, self.find(place, path, DEEPEST), false);
                }
            }
        }
    }
}

impl<'a> Scope<'a> {
    fn import(&mut self, leaf: Leaf<'a>, is_public: bool, is_declared: bool) {
        let Leaf { line, path, name, glob } = leaf;
        self.written.push(Written { line, path: path.clone(), hands_on: is_public, glob });
        if glob {
            self.globs.push(path);
        } else if name != "_" {
            let import = Name::Import { path, is_public };
            match self.names.get(name) {
                Some(Name::Item) => {}        // a macro, made a name
                Some(_) if !is_declared => {} // a function's own import
                _ => drop(self.names.insert(name, import)),
            }
        }
    }
}

/// One name that a `use` imports.
struct Leaf<'a> {
    line: usize,
    path: Place<'a>,
    name: &'a str,
    glob: bool,
}

/// Reads one tree of a `use`, after `prefix`. Returns where the tokens go on.
fn leaves<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    prefix: &[&'a str],
    found: &mut Vec<Leaf<'a>>,
) -> usize {
    let word = |at: usize| tokens.get(at).map_or("", |(_, word)| *word);
    let line = tokens.get(at).map_or(0, |(line, _)| *line);
    let mut path = prefix.to_vec();
    if word(at) == "::" {
        path.push("::"); // another crate
        at += 1;
    }
    loop {
        match word(at) {
            "{" => {
                at += 1;
                while !["}", ""].contains(&word(at)) {
                    at = leaves(tokens, at, &path, found);
                    at += usize::from(word(at) == ",");
                }
                return at + 1;
            }
            "*" => {
                found.push(Leaf { line, path, name: "", glob: true });
                return at + 1;
            }
            "self" if !path.is_empty() => at += 1,
            name if is_word(name) => {
                path.push(name);
                at += 1;
            }
            _ => return at.max(1) + 1,
        }
        if word(at) == "::" {
            at += 1;
            continue;
        }
        let mut name = path.last().copied().unwrap_or("");
        if word(at) == "as" {
            name = word(at + 1);
            at += 2;
        }
        found.push(Leaf { line, path, name, glob: false });
        return at;
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows_of(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Sources =
            files.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect();
        arrows(&sources).keys().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    #[test]
    fn a_path_leads_to_the_file_that_defines_what_it_names() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; pub use d::D;"),
            (
                "a.rs",
                "use crate::{b::{self, f}, c::{deep::{C, Other as _}}};\nfn g() { b::f(); crate::e::e!(); crate::D; }",
            ),
            ("b/mod.rs", "pub(crate) use super::d::D as f; pub fn own() {}"),
            ("c.rs", "pub mod deep;"),
            ("c/deep.rs", "pub struct C; pub trait Other {}"),
            ("d.rs", "pub struct D;"),
            ("e.rs", "macro_rules! e { () => {} } pub(crate) use e;"),
        ];
        // `b` is only on the way to `d`.
        let wanted = ["a.rs -> c/deep.rs", "a.rs -> d.rs", "a.rs -> e.rs", "b/mod.rs -> d.rs"];
        assert_eq!(arrows_of(&files), wanted);
    }

    #[test]
    fn a_child_that_uses_what_its_parent_hands_on_uses_its_sibling() {
        let files = [
            ("lib.rs", "mod p;"),
            ("p.rs", "mod x; mod y; pub use y::Y; use std::fmt;"),
            ("p/x.rs", "use super::Y; use super::fmt; fn f(_: super::super::p::Y) {}"),
            ("p/y.rs", "pub struct Y;"),
        ];
        assert_eq!(arrows_of(&files), ["p/x.rs -> p/y.rs"]);
    }

    #[test]
    fn who_uses_what_it_hands_on_uses_the_file_below() {
        let parent = |code: &str| {
            let parent = format!("mod y; pub(crate) use y::{{Y, y}}; {code}");
            let files = [("lib.rs", "mod p;"), ("p.rs", &parent), ("p/y.rs", "use super::Own;")];
            arrows_of(&files).concat()
        };
        assert_eq!(parent("struct Own;"), "p/y.rs -> p.rs");
        let both = "p.rs -> p/y.rsp/y.rs -> p.rs";
        assert_eq!(parent("struct Own(Y);"), both);
        assert_eq!(parent("fn f() { y() } struct Own;"), both);
        assert_eq!(parent("fn f() { y::g() } struct Own;"), both);
        // A variable, a field, a method, a variant.
        let others = "fn f(y: u32) { y + s.y + s.y() + Own::Y } enum Own { Z, Y }";
        assert_eq!(parent(others), "p/y.rs -> p.rs");
    }

    #[test]
    fn what_all_of_a_module_is_imported_for_is_what_the_file_mentions() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use super::b::*; fn f(_: C) { Kind::One } mod inner { use super::*; }"),
            ("b.rs", "pub use crate::c::*; pub use crate::d::D; pub struct Unused;"),
            ("c.rs", "pub struct C; pub struct Kind;"),
            ("d.rs", "pub struct D; pub enum E { A } use E::*;"),
        ];
        assert_eq!(arrows_of(&files), ["a.rs -> c.rs", "b.rs -> d.rs"]);
    }

    #[test]
    fn comments_tests_and_declarations_are_no_use() {
        let files = [
            ("lib.rs", "mod a; mod b; mod tests_only;"),
            (
                "a.rs",
                "//! [`crate::b::B`]\nfn f() -> &'static str { \"crate::b::B\" }\n#[cfg(test)]\nmod tests { use crate::b::B; }",
            ),
            (
                "b.rs",
                "#[cfg(test)]\nuse crate::a::f; pub(in crate::a) struct B; fn g() -> impl Sized + use<> {}",
            ),
            ("lost.rs", "use crate::b::B;"),
        ];
        assert_eq!(arrows_of(&files), [""; 0]);
    }

    #[test]
    fn a_module_within_a_file_is_part_of_the_file() {
        let files = [
            ("lib.rs", "mod a; mod b; struct Root;"),
            ("a.rs", "mod inner { use super::X; use super::super::b::B; mod out; } struct X;"),
            ("a/inner/out.rs", "use super::super::X; use crate::Root;"),
            ("b.rs", "pub use self::B2 as B; struct B2; use b::Loop; use Loop as b;"),
        ];
        let wanted = ["a.rs -> b.rs", "a/inner/out.rs -> a.rs", "a/inner/out.rs -> lib.rs"];
        assert_eq!(arrows_of(&files), wanted);
    }
}
