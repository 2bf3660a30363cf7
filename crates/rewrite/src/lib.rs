//! Rewrites a program's critical sections as functions, which another thread may run (R07).
//!
//! J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, *Remote Core Locking*, USENIX ATC 2012, section 4: a tool turns each section into
//! a function, and the variables that it uses into a structure.
//!
//! ```text
//!     compile_commands.json ─► parse (libclang) ─► tree ─► names ─► section ─► capture ─► emit ─► a patch
//!                                                           │
//!                                      facts: who calls what that needs its own thread
//! ```

pub mod capture;
pub mod database;
pub mod emit;
pub mod facts;
pub mod names;
pub mod parse;
pub mod section;
pub mod tree;

use clang::{Clang, Index};
use database::Unit;
use emit::Edit;
use facts::Calls;
use names::Names;
use section::{Found, Site};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tree::{File, Function};

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
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The function.
    pub function: String,
    /// The mutex, as an expression.
    pub mutex: String,
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
    pub places: Vec<Place>,
    /// All files that change.
    pub changes: Vec<Change>,
    /// Files that clang could not read as a whole, and its first complaint.
    pub unread: Vec<(PathBuf, String)>,
}

/// Rewrites the sections of these files. `harmless`: functions that any thread may call for another one, whatever they do. `wanted`: says by the mutex, the wrapper and the function, whether a section is to be converted.
/// `progress` is called before each file is read.
///
/// # Errors
/// There is no libclang.
pub fn rewrite(
    units: &[Unit],
    mut names: Names,
    harmless: &[String],
    wanted: &dyn Fn(&[&str]) -> bool,
    progress: &mut dyn FnMut(&Unit),
) -> Result<Rewritten, String> {
    let clang = Clang::new()?;
    let index = Index::new(&clang, false, false);
    let mut result = Rewritten::default();
    let (mut files, mut paths) = (Vec::new(), Vec::new());
    for unit in units {
        progress(unit);
        match parse::file(&index, &unit.path, &unit.flags) {
            Ok(mut file) => {
                if let Some(error) = file.errors.pop() {
                    result.unread.push((unit.path.clone(), error));
                    file.functions.clear();
                }
                files.push(file);
                paths.push(&unit.path);
            }
            Err(cause) => result.unread.push((unit.path.clone(), cause)),
        }
    }
    names.find_wrappers(&files);
    let calls = Calls::of(&files, harmless.iter().cloned().collect());
    let mut edits: Vec<Vec<Edit>> = vec![Vec::new(); files.len()];
    // Wrappers by name, and in which files, from where on, their mutexes' functions are declared.
    let mut accessors: BTreeMap<String, BTreeMap<usize, usize>> = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        let mut first = None;
        for function in &file.functions {
            let mut before = String::new();
            for site in section::sites(file, function, &names, &calls) {
                let (fate, emitted) = convert((number, file), function, &site, &names, wanted);
                if let Some(emitted) = emitted {
                    before += &emitted.before;
                    edits[number].push(emitted.place);
                }
                let at = *first
                    .get_or_insert_with(|| emit::before_function(&file.text, function.range.start));
                if let (Fate::Converted, Found::Section(section)) = (&fate, &site.found)
                    && let Some((wrapper, _)) = &section.act.through
                {
                    accessors.entry(wrapper.clone()).or_default().insert(number, at);
                }
                result.places.push(Place {
                    path: paths[number].clone(),
                    line: file.text[..site.at].matches('\n').count() + 1,
                    function: function.name.clone(),
                    mutex: site.mutex,
                    fate,
                });
            }
            if before.is_empty() {
                if edits[number].is_empty() {
                    first = None;
                }
                continue;
            }
            let at = emit::before_function(&file.text, function.range.start);
            edits[number].push(Edit { range: at..at, text: before });
        }
        if let Some(at) = first.filter(|_| !edits[number].is_empty()) {
            edits[number].insert(0, Edit { range: at..at, text: emit::PRELUDE.to_owned() });
        }
    }
    for (wrapper, users) in accessors {
        let Some(names::Wrapper { accessor: Some(it), mutex, .. }) = names.0.get(&wrapper) else {
            continue;
        };
        for (number, at) in &users {
            if *number != it.file || *at < it.behind {
                let is_other = it.is_weak && *number != it.file;
                let weak = if is_other { " __attribute__((weak))" } else { "" };
                let head = format!("{}{weak};\n", it.head);
                edits[*number].insert(0, Edit { range: *at..*at, text: head });
            }
        }
        let is_declared = users.get(&it.file).is_some_and(|at| *at < it.behind);
        let head = &it.head;
        let declared = if is_declared { String::new() } else { format!("{head};\n") };
        let text = format!(
            "\n\n/* lockwright: the mutex of {wrapper}. */\n{declared}{head}\n{{\n    return {mutex};\n}}"
        );
        edits[it.file].push(Edit { range: it.behind..it.behind, text });
    }
    for ((file, path), edits) in files.into_iter().zip(paths).zip(edits) {
        if !edits.is_empty() {
            let new = emit::apply(&file.text, edits);
            result.changes.push(Change { path: path.clone(), old: file.text, new });
        }
    }
    Ok(result)
}

fn convert(
    (number, file): (usize, &File),
    function: &Function,
    site: &Site,
    names: &Names,
    wanted: &dyn Fn(&[&str]) -> bool,
) -> (Fate, Option<emit::Emitted>) {
    let section = match &site.found {
        Found::Refused(why) => return (Fate::Refused(why.clone()), None),
        Found::Kept(why) => return (Fate::Kept((*why).to_owned()), None),
        Found::Section(section) => section,
    };
    let wrapper = section.act.through.as_ref().map_or("", |(name, _)| name);
    if !wanted(&[&section.act.mutex, wrapper, &function.name]) {
        return (Fate::Unasked, None);
    }
    match capture::of(file, function, section) {
        Err(why) => (Fate::Refused(why), None),
        Ok(captures) => {
            let is_weak = |wrapper: &str| {
                let accessor = names.0.get(wrapper).and_then(|it| it.accessor.as_ref());
                accessor.is_some_and(|it| it.is_weak && it.file != number)
            };
            let emitted = emit::section(file, function, section, &captures, &is_weak);
            (Fate::Converted, Some(emitted))
        }
    }
}
