//! Checks the dependencies (arrows) between the modules of a crate. In some crates they must not form a cycle. In a crate with
//! layers, none may point to a higher layer. That is more than [`circles`](super::circles) asks: two folders may be in a cycle
//! although no files are.
//!
//! A module here is one that the crate's root declares, including all files below it. An arrow is a path in its code
//! that begins with `crate::` or, if it leaves the module, with `super::`. Comments and tests don't count.

use super::source::{Sources, Token, sources, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crates whose modules must not import each other in a cycle.
const NO_CIRCLES: &[&str] =
    &["crates/bench", "crates/contract", "crates/native", "crates/observer", "crates/runtime"];

/// The layers of a crate, the top one first. A module may use modules in its own and lower layers. Each module belongs
/// to one layer; the root is called [`ROOT`]. Crates without layers are only checked for cycles.
pub(super) const FLOORS: &[(&str, &[&[&str]])] = &[
    (
        "crates/bench",
        &[
            &[ROOT],
            &["grid", "report", "plot"],
            &["args", "suite", "summary", "run", "rcl"],
            &["worker", "child", "hogs", "measured"],
            &["plan"],
            &["subject", "compute"],
            &["spec"],
            &["point"],
            &["stats", "paired", "system", "progress", "names"],
        ],
    ),
    (
        "crates/runtime",
        &[
            &[ROOT],
            // Entry points. Only `init` knows the watchers.
            &[
                "init",
                "sync",
                "delegated",
                "sections",
                "mutex",
                "cond",
                "rwlock",
                "spin",
                "semaphore",
                "epoch",
                "got",
                "trampoline",
                "deepbind",
            ],
            // Decisions.
            &[
                "config",
                "preference",
                "environment",
                "pause",
                "policy",
                "posts",
                "programs",
                "rules",
                "switch",
                "machine",
                "queued",
                "whole",
                "guard",
            ],
            // Watchers. `watch` calls them without naming them.
            &["trace", "recording", "emulate", "observe", "order"],
            // The bottom layer.
            &[
                "watch", "fast", "listed", "shared", "thread", "fork", "clock", "access", "env",
                "apart", "attached", "urgency", "caller", "files", "leave",
            ],
            &["layout", "real", "object", "probes"],
        ],
    ),
];

/// Modules that only one other module may use, regardless of layers: the crate, those modules, and the user.
const KNOWN_TO_ONE: &[(&str, &[&str], &str)] =
    &[("crates/runtime", &["emulate", "trace", "recording", "order"], "init")];

/// The crate's root: `lib.rs`, or `main.rs`.
pub(super) const ROOT: &str = "lib";

/// Complains about cycles and about arrows to a higher layer.
pub(super) fn check(root: &Path, complaints: &mut Vec<String>) {
    for folder in NO_CIRCLES {
        circles(folder, &sources(&root.join(folder)), complaints);
    }
    for (folder, floors) in FLOORS {
        upward(folder, &sources(&root.join(folder)), floors, complaints);
    }
    for (folder, hidden, one) in KNOWN_TO_ONE {
        known(folder, &sources(&root.join(folder)), hidden, one, complaints);
    }
}

/// The first place where one module uses another.
#[derive(Clone, Debug, PartialEq)]
struct FirstUse {
    file: String,
    line: usize,
    path: String,
}

/// From, to, and place.
type Arrows = BTreeMap<(String, String), FirstUse>;

/// The crate's modules and the arrows between them.
fn graph(sources: &Sources) -> (BTreeSet<String>, Arrows) {
    let place = |file: &str| -> Vec<String> {
        let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let root = matches!(stem, "lib" | "main");
        stem.split('/').filter(|_| !root).map(str::to_owned).collect()
    };
    let top = |place: &[String]| place.first().map_or(ROOT.to_owned(), String::clone);
    let modules: BTreeSet<String> = sources.keys().map(|file| top(&place(file))).collect();
    let mut arrows = Arrows::new();
    for (file, text) in sources {
        let here = place(file);
        for (line, target) in paths(text, &here, &modules) {
            // A name that isn't a module is an item of the root.
            let to = if modules.contains(&target) { target.clone() } else { ROOT.to_owned() };
            if to != top(&here) {
                let path = format!("crate::{target}");
                let site = FirstUse { file: file.clone(), line, path };
                arrows.entry((top(&here), to)).or_insert(site);
            }
        }
    }
    (modules, arrows)
}

/// What the code of module `here` uses from the crate: the first path segment below the root, and the line.
fn paths(text: &str, here: &[String], modules: &BTreeSet<String>) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let word = |at: usize| tokens.get(at).map_or("", |(_, word)| *word);
    let mut found = Vec::new();
    // Inline modules in this file: the brace depth at which each ends.
    let (mut inside, mut depth) = (Vec::new(), 0);
    let mut at = 0;
    while let Some((line, first)) = tokens.get(at) {
        let mut next = at + 1;
        match *first {
            "mod" if word(at + 2) == "{" => inside.push(depth),
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inside.pop_if(|ends| *ends == depth);
            }
            "crate" | "super" if word(at + 1) == "::" => {
                let mut above = 0;
                while word(next - 1) == "super" && word(next) == "::" {
                    (above, next) = (above + 1, next + 2);
                }
                // Is the target inside the current module, or in one of its parents below the root?
                let to_root = *first == "crate" || above == here.len() + inside.len();
                next = if *first == "crate" { at + 2 } else { next - 1 };
                if to_root {
                    found.extend(heads(&tokens[next..]).map(|name| (*line, name.to_owned())));
                }
            }
            // The root uses its modules without a prefix.
            name if here.is_empty() && modules.contains(name) && word(at + 1) == "::" => {
                let prefixed = at > 0 && word(at - 1) == "::";
                if !prefixed {
                    found.push((*line, name.to_owned()));
                }
            }
            _ => {}
        }
        at = next;
    }
    found
}

/// The first segments after a `::`: one, or those of a group.
fn heads<'a>(tokens: &[Token<'a>]) -> impl Iterator<Item = &'a str> {
    let mut heads = Vec::new();
    let (mut depth, mut begins) = (0, true);
    for (_, word) in tokens {
        match *word {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => begins = depth == 1,
            word => {
                if begins && depth < 2 && word != "*" && word != "self" {
                    heads.push(word);
                }
                begins = false;
            }
        }
        if depth == 0 {
            break;
        }
    }
    heads.into_iter()
}

/// Reports one cycle for each set of modules that reach each other.
fn circles(folder: &str, sources: &Sources, complaints: &mut Vec<String>) {
    let (modules, arrows) = graph(sources);
    let mut told = BTreeSet::new();
    for module in &modules {
        let Some(circle) = shortest(module, &arrows) else { continue };
        if circle.iter().any(|(from, _)| told.contains(*from)) {
            continue;
        }
        told.extend(circle.iter().map(|(from, _)| (*from).clone()));
        let mut text = format!("{folder}: {} modules name each other in a circle", circle.len());
        for (from, to) in circle {
            let FirstUse { file, line, path } = &arrows[&(from.clone(), to.clone())];
            text += &format!("\n    {from} -> {to}: src/{file}:{line}: {path}");
        }
        complaints.push(text);
    }
}

/// The shortest path from `module` back to itself.
fn shortest<'a>(module: &'a str, arrows: &'a Arrows) -> Option<Vec<(&'a String, &'a String)>> {
    let mut came: BTreeMap<&String, (&String, &String)> = BTreeMap::new();
    let mut front = vec![module];
    while !front.is_empty() {
        let mut next = Vec::new();
        for arrow @ (from, to) in arrows.keys().map(|(from, to)| (from, to)) {
            if front.contains(&from.as_str()) && !came.contains_key(to) {
                came.insert(to, arrow);
                next.push(to.as_str());
            }
        }
        if let Some(mut last) = came.get(&module.to_owned()).copied() {
            let mut way = vec![last];
            while last.0 != module {
                last = came[last.0];
                way.insert(0, last);
            }
            return Some(way);
        }
        front = next;
    }
    None
}

/// Reports arrows to a higher layer, modules without a layer, and layers with unknown modules.
fn upward(folder: &str, sources: &Sources, floors: &[&[&str]], complaints: &mut Vec<String>) {
    if floors.is_empty() {
        return;
    }
    let (modules, arrows) = graph(sources);
    let floor = |module: &str| floors.iter().position(|floor| floor.contains(&module));
    for module in modules.iter().filter(|module| floor(module).is_none()) {
        complaints.push(format!("{folder}: module '{module}' is in no layer: see FLOORS"));
    }
    for name in floors.iter().copied().flatten().filter(|name| !modules.contains(**name)) {
        complaints
            .push(format!("{folder}: '{name}' is in a layer, but isn't a module: see FLOORS"));
    }
    for ((from, to), FirstUse { file, line, path }) in &arrows {
        if let (Some(low), Some(high)) = (floor(from), floor(to))
            && high < low
        {
            complaints.push(format!(
                "{folder}/src/{file}:{line}: {path}: an arrow up, from '{from}' to '{to}'"
            ));
        }
    }
}

/// Reports arrows to a hidden module from any module other than its only user.
fn known(
    folder: &str,
    sources: &Sources,
    hidden: &[&str],
    one: &str,
    complaints: &mut Vec<String>,
) {
    for ((from, to), FirstUse { file, line, path }) in &graph(sources).1 {
        if hidden.contains(&to.as_str()) && from != one {
            complaints.push(format!("{folder}/src/{file}:{line}: {path}: only '{one}' may use it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Sources {
        files.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect()
    }

    fn arrows_of(files: &[(&str, &str)]) -> Vec<String> {
        let (_, arrows) = graph(&crate_of(files));
        arrows.keys().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    #[test]
    fn a_path_is_an_arrow_wherever_it_stands() {
        let code = "//! See [`crate::d`].\nuse crate::{\n    b::{self, d::X},\n    c,\n};\n\
                    fn f() -> &'static str { crate::e::f(); \"crate::d\" }\n\
                    #[cfg(test)]\nmod tests {\n    use crate::d;\n}\nfn g() { super::g::h() }\n";
        let mut files = vec![("lib.rs", "mod a;"), ("a.rs", code)];
        files.extend(["b.rs", "c.rs", "d.rs", "e.rs", "g.rs"].map(|file| (file, "")));
        assert_eq!(arrows_of(&files), ["a -> b", "a -> c", "a -> e", "a -> g"]);
    }

    #[test]
    fn super_leads_out_of_a_module_only_from_its_top() {
        let files = [
            ("lib.rs", "mod a; mod b; pub struct Item;"),
            ("a.rs", "mod x; mod inner { use super::x; }"),
            ("a/x.rs", "use super::y; use super::super::b; use crate::Item;"),
            ("b/mod.rs", "mod inner { use super::super::a; }"),
        ];
        assert_eq!(arrows_of(&files), ["a -> b", "a -> lib", "b -> a"]);
    }

    #[test]
    fn a_circle_is_told_once_with_its_names() {
        let files = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c; use c::f;"),
            ("a.rs", "\nuse crate::b::X;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use super::a;"),
            ("d.rs", "use crate::a;"),
        ]);
        let mut found = Vec::new();
        circles("crates/x", &files, &mut found);
        let wanted = "crates/x: 3 modules name each other in a circle\
                      \n    a -> b: src/a.rs:2: crate::b\
                      \n    b -> c: src/b.rs:1: crate::c\
                      \n    c -> a: src/c.rs:1: crate::a";
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn the_root_is_in_a_circle_with_those_that_need_its_items() {
        let files =
            crate_of(&[("lib.rs", "mod a; pub use a::X; struct Y;"), ("a.rs", "use crate::Y;")]);
        let mut found = Vec::new();
        circles("crates/x", &files, &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_hidden_module_is_known_to_one() {
        let files = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::c;"),
            ("b.rs", "use crate::c::f;"),
            ("c.rs", "use crate::d;"),
            ("d.rs", ""),
        ]);
        let mut found = Vec::new();
        known("crates/x", &files, &["c"], "a", &mut found);
        assert_eq!(found, ["crates/x/src/b.rs:1: crate::c: only 'a' may use it"]);
    }

    #[test]
    fn floors_let_arrows_down_and_sideways() {
        let files = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c; use a::X;"),
            ("a.rs", "use crate::b; use crate::c;"),
            ("b.rs", "use crate::a;"),
            ("c.rs", "use crate::b;"),
        ]);
        let said = |floors: &[&[&str]]| {
            let mut found = Vec::new();
            upward("crates/x", &files, floors, &mut found);
            found
        };
        let up = "crates/x/src/c.rs:1: crate::b: an arrow up, from 'c' to 'b'";
        assert_eq!(said(&[&[ROOT], &["a", "b"], &["c"]]), [up]);
        assert_eq!(said(&[&[ROOT], &["a", "b", "c"]]), Vec::<String>::new());
        assert_eq!(said(&[&[ROOT], &["a", "b"], &["d"]]).len(), 2);
        assert_eq!(said(&[]), Vec::<String>::new());
    }
}
