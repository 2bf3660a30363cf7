//! Rewrites a program's critical sections as functions, which another thread may run (R07).
//!
//! J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, *Remote Core Locking*, USENIX ATC 2012, section 4: a tool turns each section into
//! a function, and the variables that it uses into a structure.
//!
//! ```text
//!     compile_commands.json ─► parse (libclang) ─► tree ─► names ─► ways, section ─► capture ─► emit ─► a patch
//!                                   │                       │
//!                                   │  facts: who calls what that needs its own thread
//!                                   └─► guards (C++) ─► scope ─► lambda ─► the same patch
//! ```

pub mod c;
pub mod callees;
pub mod capture;
pub mod config;
pub mod database;
pub mod emit;
pub mod facts;
pub mod guards;
pub mod lambda;
pub mod macros;
pub mod names;
pub mod parse;
pub mod place;
pub mod scope;
pub mod section;
pub mod shapes;
pub mod tree;
pub mod ways;
pub mod writes;

use clang::{Clang, Index};
use config::Config;
use database::Unit;
use emit::Edit;
use facts::Calls;
use names::LockNames;
use scope::{GuardScope, Lambda};
use section::{Finding, LockSite};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tree::{Function, SourceFile};

/// What became of a place that locks a mutex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its section is a function now.
    Converted,
    /// It isn't: why.
    Refused(String),
    /// It needn't be: why.
    Kept(String),
    /// Nobody asked for this mutex.
    Unasked,
}

/// A place that locks a mutex.
#[derive(Clone, Debug)]
pub struct SectionPlace {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The line in which the section ends, if it is one.
    pub last: usize,
    /// The function.
    pub function: String,
    /// The mutex, as an expression.
    pub mutex: String,
    /// The wrapper that is called.
    pub through: Option<String>,
    /// What became of it.
    pub fate: Fate,
}

/// A file that changes.
#[derive(Clone, Debug)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub old: String,
    /// What will be.
    pub new: String,
}

/// What the rewriter has found and written.
#[derive(Clone, Debug, Default)]
pub struct Rewritten {
    /// All places that lock a mutex.
    pub places: Vec<SectionPlace>,
    /// All files that change.
    pub changes: Vec<Change>,
    /// Files that clang could not read as a whole, and its first complaint.
    pub unread: Vec<(PathBuf, String)>,
}

/// Rewrites the sections of these files. `wanted`: is this one of the sections to convert? All others of the same mutex are, too.
/// `progress` is called before each file is read.
///
/// # Errors
/// There is no libclang.
pub fn rewrite(
    units: &[Unit],
    config: &Config,
    wanted: &dyn Fn(&SectionPlace) -> bool,
    progress: &mut dyn FnMut(&Unit),
) -> Result<Rewritten, String> {
    /// libclang takes one user at a time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    let clang = Clang::new()?;
    let index = Index::new(&clang, false, false);
    let mut result = Rewritten::default();
    let mut names = config.names();
    let (mut files, mut paths, mut builds) = (Vec::new(), Vec::new(), Vec::new());
    for unit in units {
        progress(unit);
        match parse::file(&index, &unit.path, &unit.flags, &config.guards) {
            Ok(mut file) => {
                if let Some(error) = file.errors.pop() {
                    result.unread.push((unit.path.clone(), error));
                    file.functions.clear();
                    file.scopes.clear();
                }
                files.push(file);
                paths.push(&unit.path);
                let others = unit.others.iter();
                let read = |flags: &Vec<String>| {
                    parse::file(&index, &unit.path, flags, &config.guards).ok()
                };
                let others = others.filter_map(read);
                builds.push(others.collect::<Vec<_>>());
            }
            Err(cause) => result.unread.push((unit.path.clone(), cause)),
        }
    }
    names.find_wrappers(&files);
    for (file, path) in files.iter().zip(&paths) {
        let calls_lock = |name: &&String| {
            let mut calls = file.callees.iter().filter(|(caller, _)| caller == *name);
            calls.any(|(_, called)| called.iter().any(|it| names.0.contains_key(it)))
        };
        for name in file.left_out.iter().filter(calls_lock) {
            let why = format!("'{name}' has an #include in its body: not looked at");
            result.unread.push(((*path).clone(), why));
        }
    }
    let calls = Calls::of(&files, config.harmless.iter().cloned().collect());
    let in_others: Vec<Vec<OtherBuild>> = builds
        .iter()
        .map(|others| others.iter().map(|file| OtherBuild::of(file, &names, &calls)).collect())
        .collect();
    let mut sites = Vec::new();
    for (number, file) in files.iter().enumerate() {
        for function in &file.functions {
            for site in section::sites(file, function, &names, &calls) {
                let place = SectionPlace {
                    path: paths[number].clone(),
                    line: line_of(file, site.at),
                    last: match &site.found {
                        Finding::Section(it) => line_of(file, it.end),
                        _ => line_of(file, site.at),
                    },
                    function: function.name.clone(),
                    mutex: site.mutex.clone(),
                    through: match &site.found {
                        Finding::Section(it) => {
                            it.act.through.as_ref().map(|(name, _)| name.clone())
                        }
                        _ => None,
                    },
                    fate: Fate::Unasked,
                };
                sites.push((number, function, site, place));
            }
        }
    }
    let mut scopes = Vec::new();
    for (number, file) in files.iter().enumerate() {
        for scope in &file.scopes {
            let place = SectionPlace {
                path: paths[number].clone(),
                line: line_of(file, scope.guard.start),
                last: line_of(file, scope.end),
                function: scope.function.clone(),
                mutex: scope.mutex.clone(),
                through: None,
                fate: Fate::Unasked,
            };
            scopes.push((number, scope, place));
        }
    }
    let places = sites.iter().map(|(.., place)| place);
    let chosen: HashSet<String> = places
        .chain(scopes.iter().map(|(.., place)| place))
        .filter(|place| wanted(place))
        .map(|place| place.mutex.clone())
        .collect();
    let mut edits: Vec<Vec<Edit>> = vec![Vec::new(); files.len()];
    // Wrappers by name, and the files in which somebody asks for their mutexes.
    let mut accessors: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    // Where a file declares what its sections need: before the first, and before others that are not inside of the same `#if`s.
    let mut heads: Vec<Vec<usize>> = vec![Vec::new(); files.len()];
    for (number, function, site, mut place) in sites {
        if chosen.contains(&place.mutex) {
            let file = &files[number];
            let is_everywhere = match &site.found {
                Finding::Section(it) => {
                    in_others[number].iter().all(|other| other.has(it, file, function))
                }
                _ => true,
            };
            let (fate, emitted) = if file.text.contains('\r') {
                (Fate::Refused(CR.to_owned()), None)
            } else if is_rewritten(file) {
                (Fate::Refused(AGAIN.to_owned()), None)
            } else if file.is_cpp {
                (Fate::Refused("in C++, guards alone are rewritten".to_owned()), None)
            } else if is_everywhere {
                convert((number, file), function, &site, &names)
            } else {
                (Fate::Refused("another build of the file has no such section".to_owned()), None)
            };
            place.fate = fate;
            if let Some(emitted) = emitted {
                let at = emit::before_function(&file.text, function.range.start);
                let conditions = |at: usize| emit::conditions(&file.text, 0, at).0;
                let here = conditions(at);
                if !heads[number].iter().any(|head| here.starts_with(&conditions(*head))) {
                    heads[number].push(at);
                }
                if let Some(wrapper) = &place.through {
                    accessors.entry(wrapper.clone()).or_default().insert(number);
                }
                edits[number].push(emitted.place);
                edits[number].push(Edit { range: at..at, text: emitted.before });
            }
        }
        result.places.push(place);
    }
    let (mut end_of_last, mut heads_of_guards) = ((0, 0), BTreeSet::new());
    for (number, scope, mut place) in scopes {
        let file = &files[number];
        if chosen.contains(&place.mutex) {
            place.fate = if end_of_last.0 == number && scope.guard.start < end_of_last.1 {
                Fate::Kept("inside of another section".to_owned())
            } else {
                let is_plain = !file.text.contains('\r');
                match lambda_of(&builds[number], scope, &calls) {
                    Err(why) => Fate::Refused(why),
                    Ok(_) if !is_plain => Fate::Refused(CR.to_owned()),
                    Ok(_) if is_rewritten(file) => Fate::Refused(AGAIN.to_owned()),
                    Ok(lambda) => {
                        edits[number].extend(lambda::edits(&file.text, scope, lambda));
                        heads_of_guards.insert(number);
                        end_of_last = (number, scope.end);
                        Fate::Converted
                    }
                }
            };
        }
        result.places.push(place);
    }
    for number in heads_of_guards {
        let at = lambda::head(&files[number]);
        edits[number].insert(0, Edit { range: at..at, text: lambda::PRELUDE.to_owned() });
    }
    for (wrapper, users) in accessors {
        let Some(names::Wrapper { accessor: Some(it), mutex, .. }) = names.0.get(&wrapper) else {
            continue;
        };
        let head = &it.head;
        let mut is_declared = false;
        for number in users {
            let is_other = it.is_weak && number != it.file;
            let weak = if is_other { " __attribute__((weak))" } else { "" };
            let mut text = format!("{head}{weak};\n");
            if heads[number].len() > 1 {
                let guard = format!("DECLARED_{}", names::accessor(&wrapper));
                text = format!("#ifndef {guard}\n#define {guard}\n{text}#endif\n");
            }
            for &at in heads[number].iter().filter(|at| number != it.file || **at < it.behind) {
                is_declared |= number == it.file;
                edits[number].insert(0, Edit { range: at..at, text: text.clone() });
            }
        }
        let declared = if is_declared { String::new() } else { format!("{head};\n") };
        let text = format!(
            "\n\n/* lockwright: the mutex of {wrapper}. */\n{declared}{head}\n{{\n    return {mutex};\n}}"
        );
        edits[it.file].push(Edit { range: it.behind..it.behind, text });
    }
    for (number, heads) in heads.into_iter().enumerate() {
        for at in heads {
            edits[number].insert(0, Edit { range: at..at, text: emit::PRELUDE.to_owned() });
        }
    }
    for ((file, path), edits) in files.into_iter().zip(paths).zip(edits) {
        if !edits.is_empty() {
            let new = emit::apply(&file.text, edits);
            result.changes.push(Change { path: path.clone(), old: file.text, new });
        }
    }
    Ok(result)
}

/// What must be the same in all builds of a section: where it ends, its exits, whether it waits, and its variables.
#[derive(PartialEq, Eq)]
struct Outline {
    end: usize,
    exits: usize,
    waits: bool,
    /// `None`: they can't be had.
    variables: Option<capture::Named>,
}

impl Outline {
    fn of(file: &SourceFile, function: &Function, section: &section::Section) -> Self {
        let captures = capture::of(file, function, section).ok();
        Self {
            end: section.end,
            exits: section.exits.len(),
            waits: section.waits.is_some(),
            variables: captures.map(|it| it.named(function)),
        }
    }
}

/// What another build of a file says of its sections.
struct OtherBuild {
    /// Sections by where they begin.
    sections: HashMap<usize, Outline>,
    /// What the build leaves out.
    skipped: Vec<Range<usize>>,
    /// pthread's locks are macros: [`emit::PRELUDE`] leaves a mutex to them.
    has_macros: bool,
}

impl OtherBuild {
    fn of(file: &SourceFile, names: &LockNames, calls: &Calls) -> Self {
        let functions = file.functions.iter();
        let sites = functions.flat_map(|function| {
            let sites = section::sites(file, function, names, calls).into_iter();
            sites.map(move |site| (function, site))
        });
        let sections = sites.filter_map(|(function, site)| match site.found {
            Finding::Section(it) => Some((it.lock.start, Outline::of(file, function, &it))),
            _ => None,
        });
        let is_macro = |name: &str| file.macros.contains_key(name);
        let has_macros = is_macro("pthread_mutex_lock") && is_macro("pthread_mutex_unlock");
        let skipped = file.skipped.clone();
        Self { sections: sections.collect(), skipped, has_macros }
    }

    /// Has it the section, too, or leaves it or its mutex out?
    fn has(&self, section: &section::Section, file: &SourceFile, function: &Function) -> bool {
        let (at, text) = (section.lock.start, &file.text);
        self.sections.get(&at).is_some_and(|it| *it == Outline::of(file, function, section))
            || self.skipped.iter().any(|part| part.contains(&at))
            || self.has_macros && text[at..].starts_with("pthread_mutex_lock")
    }
}

fn line_of(file: &SourceFile, at: usize) -> usize {
    file.text[..at].matches('\n').count() + 1
}

/// Why a file with such lines has no patch.
const CR: &str = "the file's lines end in CR LF";

/// Why a file that has been rewritten stays: its sections' functions would have names of their own, twice.
const AGAIN: &str = "the file has been rewritten already (patch -R takes that back)";

fn is_rewritten(file: &SourceFile) -> bool {
    let marks = [emit::PRELUDE, lambda::PRELUDE].map(|it| it.lines().next().unwrap_or_default());
    marks.iter().any(|mark| file.text.contains(mark))
}

/// In a section, they might let go of a mutex that another thread has locked.
const BY_HAND: &[&str] = &[
    "std::mutex::lock",
    "std::mutex::unlock",
    "std::mutex::try_lock",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_mutex_trylock",
];

/// What a guard's scope becomes, if every build of its file has it, too.
fn lambda_of<'a>(
    others: &[SourceFile],
    scope: &'a GuardScope,
    calls: &Calls,
) -> Result<&'a Lambda, String> {
    let lambda = scope.fate.as_ref().map_err(Clone::clone)?;
    let called: Vec<&str> = scope.called.iter().map(String::as_str).collect();
    if let Some(objection) = calls.objection(&called) {
        return Err(facts::told(objection));
    }
    if called.iter().any(|it| BY_HAND.contains(it)) {
        return Err("locks or unlocks a mutex by hand".to_owned());
    }
    let is_same = |it: &GuardScope| (&it.guard, it.end) == (&scope.guard, scope.end);
    let has = |other: &SourceFile| {
        let mut same = other.scopes.iter().filter(|it| is_same(it));
        same.any(|it| it.fate.as_ref().is_ok_and(|it| it == lambda))
            || other.skipped.iter().any(|part| part.contains(&scope.guard.start))
    };
    if !others.iter().all(has) {
        return Err("another build of the file has no such section".to_owned());
    }
    Ok(lambda)
}

fn convert(
    (number, file): (usize, &SourceFile),
    function: &Function,
    site: &LockSite,
    names: &LockNames,
) -> (Fate, Option<emit::Emitted>) {
    let section = match &site.found {
        Finding::Refused(why) => return (Fate::Refused(why.clone()), None),
        Finding::Kept(why) => return (Fate::Kept((*why).to_owned()), None),
        Finding::Section(section) => section,
    };
    match capture::of(file, function, section) {
        Err(why) => (Fate::Refused(why), None),
        Ok(captures) => {
            let accessor = |wrapper: &str| names.0.get(wrapper).and_then(|it| it.accessor.as_ref());
            let is_weak =
                |wrapper: &str| accessor(wrapper).is_some_and(|it| it.is_weak && it.file != number);
            let is_static =
                |wrapper: &str| accessor(wrapper).is_some_and(|it| it.head.starts_with("static"));
            let emitted = emit::section(file, function, section, &captures, &is_weak, &is_static);
            (Fate::Converted, Some(emitted))
        }
    }
}

impl Rewritten {
    /// All changes as one patch, for `patch -p1` in `root`.
    pub fn patch(&self, root: &Path) -> String {
        let mut patch = String::new();
        for Change { path, old, new } in &self.changes {
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            let diff = diffy::DiffOptions::new()
                .set_original_filename(format!("a/{name}"))
                .set_modified_filename(format!("b/{name}"))
                .create_patch(old, new)
                .to_string();
            patch += &diff;
        }
        patch
    }
}
