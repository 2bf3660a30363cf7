//! Checks the configuration file, and converts it to the variable that the library reads: `LOCKWRIGHT_RULES`.
//!
//! The library neither knows symbols nor reads files, so names are converted to address ranges here.

use crate::catalog;
use crate::hints::{Failure, cause, nearest, warn};
use crate::machine::MachineFile;
use crate::policy::slots::Slots;
use lockwright_observer::elf::Program;
use lockwright_observer::objects::ObjectFile;
use lockwright_observer::targets::{named, of_kind};
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;
use toml::Spanned;

/// The file's contents, in the library's notation.
#[derive(Debug)]
pub(crate) struct Config {
    /// The default lock, if the file names one.
    pub(crate) default: Option<String>,
    /// The value of `LOCKWRIGHT_RULES`.
    pub(crate) rules: String,
    /// The locks that the rules use.
    pub(crate) locks: Vec<String>,
    /// The policies that locks of the file ask, by slots.
    pub(crate) policies: Slots,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<Spanned<String>>,
    #[serde(default)]
    lock: Vec<Spanned<Rule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    library: Option<Spanned<String>>,
    #[serde(alias = "rwlock")]
    mutex: Option<Spanned<String>>,
    caller: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    object: Option<Spanned<String>>,
    #[serde(rename = "use")]
    lock: Spanned<String>,
}

/// The library's limits for rules and for their bytes; see `crates/runtime/src/config.rs`.
const RULES_MAX: usize = 29;
const BYTES_MAX: usize = 16 * 1024;

/// Reads the file, and resolves its names in `program` and in the libraries that it loads.
pub(crate) fn read(path: &Path, program: &Program) -> Result<Config, Failure> {
    let shown = path.display();
    let text = lockwright_files::read_text(path, 1 << 20).map_err(|error| {
        Failure::new(format!("cannot read '{shown}': {}", cause(&error)))
            .hint("lockwright run --help")
    })?;
    let mut file: File = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line(&text, span.start));
        let words = error.message().lines().collect::<Vec<_>>().join(" ");
        Failure::new(format!("'{shown}' line {line}: {words}"))
            .hint(if words.contains("string") {
                "names want quotes, as in default = \"auto\"; lockwright run --help"
            } else {
                "keys are default and [[lock]] with library, kind, mutex or caller (the latter two with or without object), and use; lockwright run --help"
            })
    })?;
    let source = Source { shown: shown.to_string(), text: &text };
    let mut policies = Slots::default();
    let default = file.default.iter_mut().map(|lock| ("default", lock));
    let used = file.lock.iter_mut().map(|rule| ("use", &mut rule.as_mut().lock));
    for (key, lock) in default.chain(used) {
        let place = source.place(lock.span().start, key);
        let lock = lock.as_mut();
        *lock = policies.translated(lock, &place)?;
    }
    if let Some(default) = &file.default {
        source.check("default", default)?;
    }
    if let Some(machine) = (!file.lock.is_empty()).then(MachineFile::here).flatten() {
        for rule in &mut file.lock {
            let lock = rule.as_mut().lock.as_mut();
            *lock = machine.tuned(lock);
        }
    }
    let objects = if file.lock.is_empty() { Vec::new() } else { program.objects()? };
    if let ([], [first, ..]) = (&*objects, &*file.lock) {
        return Err(source
            .fail(first.span().start, "[[lock]]", "the program is static: rules need a dynamic one")
            .hint("one lock for all of it: lockwright run --lock fifo -- PROGRAM"));
    }
    let mut rules = String::new();
    for rule in &file.lock {
        translate(&source, rule, &objects, &mut rules)?;
        // Several functions can share one name, so the number of rules is known only now.
        if rules.split(';').count() > RULES_MAX || rules.len() > BYTES_MAX {
            let cause = format!("more than {RULES_MAX} rules or {BYTES_MAX} bytes of them");
            return Err(source
                .fail(rule.span().start, "[[lock]]", cause)
                .hint("name whole libraries, or functions by their full signature"));
        }
    }
    let locks = file.lock.iter().map(|rule| rule.get_ref().lock.get_ref().clone()).collect();
    Ok(Config { default: file.default.map(Spanned::into_inner), rules, locks, policies })
}

fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

/// The file's path and text, for messages.
struct Source<'a> {
    shown: String,
    text: &'a str,
}

impl Source<'_> {
    fn place(&self, at: usize, key: &str) -> String {
        format!("'{}' line {}, {key}: ", self.shown, line(self.text, at))
    }

    fn fail(&self, at: usize, key: &str, cause: impl std::fmt::Display) -> Failure {
        Failure::new(format!("{}{cause}", self.place(at, key)))
    }

    fn check(&self, key: &str, lock: &Spanned<String>) -> Result<(), Failure> {
        let checked = catalog::check(lock.get_ref()).map(drop);
        checked.map_err(|failure| failure.within(&self.place(lock.span().start, key)))
    }

    fn check_rule(&self, lock: &Spanned<String>, targets: &[String]) -> Result<(), Failure> {
        let checked = catalog::check_rule(lock.get_ref(), targets);
        checked.map_err(|failure| failure.within(&self.place(lock.span().start, "use")))
    }
}

fn translate(
    source: &Source<'_>,
    rule: &Spanned<Rule>,
    objects: &[ObjectFile],
    rules: &mut String,
) -> Result<(), Failure> {
    let at = rule.span().start;
    let rule = rule.get_ref();
    source.check_rule(&rule.lock, &[])?;
    let lock = rule.lock.get_ref();
    match (&rule.library, &rule.mutex, &rule.caller, &rule.kind) {
        (Some(library), None, None, None) => {
            if let Some(object) = &rule.object {
                return Err(source
                    .fail(object.span().start, "object", "goes with mutex or caller only")
                    .hint("leave it out: library already names the file"));
            }
            let name = library.get_ref();
            if name.is_empty() || name.contains([';', '=', '/']) {
                return Err(source
                    .fail(library.span().start, "library", format!("'{name}' is not a file's name"))
                    .hint("for example library = \"libleveldb.so.1\""));
            }
            if !objects.iter().any(|object| object.name == *name) {
                let known = nearest(name, objects.iter().map(|object| object.name.as_str()));
                warn(
                    format!(
                        "'{}' line {}: '{name}' isn't loaded when the program starts",
                        source.shown,
                        line(source.text, library.span().start)
                    ),
                    known.map_or("fine if it is loaded later, by dlopen".to_owned(), |known| {
                        format!("did you mean '{known}'? fine if it is loaded later, by dlopen")
                    }),
                );
            }
            let target = format!("lib:{name}");
            source.check_rule(&rule.lock, std::slice::from_ref(&target))?;
            append(rules, format_args!("{target}={lock}"));
            Ok(())
        }
        (None, Some(mutex), None, None) => symbol(source, rule, mutex, false, objects, rules),
        (None, None, Some(caller), None) => symbol(source, rule, caller, true, objects, rules),
        (None, None, None, Some(kind)) => {
            if let Some(object) = &rule.object {
                return Err(source
                    .fail(object.span().start, "object", "goes with mutex or caller only")
                    .hint("leave it out: kind means the mutexes of the whole process"));
            }
            let place = source.place(kind.span().start, "kind");
            let target = of_kind(kind.get_ref()).map_err(|failure| failure.within(&place))?;
            source.check_rule(&rule.lock, std::slice::from_ref(&target))?;
            append(rules, format_args!("{target}={lock}"));
            Ok(())
        }
        (None, None, None, None) => Err(source
            .fail(at, "[[lock]]", "needs one of library, mutex, caller and kind")
            .hint("add mutex = \"NAME\", caller = \"FUNCTION\", library = \"FILE\" or kind = \"recursive\"")),
        _ => Err(source
            .fail(at, "[[lock]]", "needs exactly one of library, mutex, caller and kind")
            .hint("write one [[lock]] for each")),
    }
}

fn symbol(
    source: &Source<'_>,
    rule: &Rule,
    wanted: &Spanned<String>,
    is_function: bool,
    objects: &[ObjectFile],
    rules: &mut String,
) -> Result<(), Failure> {
    let key = if is_function { "caller" } else { "mutex" };
    let name = wanted.get_ref();
    let objects = match &rule.object {
        None => objects,
        Some(object) => {
            let found = objects.iter().position(|known| known.name == *object.get_ref());
            let at = found.ok_or_else(|| {
                let names: Vec<_> = objects.iter().map(|known| known.name.as_str()).collect();
                source
                    .fail(
                        object.span().start,
                        "object",
                        format!("the program doesn't load '{}'", object.get_ref()),
                    )
                    .hint(format!("it loads {}", names.join(", ")))
            })?;
            &objects[at..=at]
        }
    };
    let targets = named(objects, name, is_function);
    source.check_rule(&rule.lock, &targets)?;
    for target in &targets {
        append(rules, format_args!("{target}={}", rule.lock.get_ref()));
    }
    if !targets.is_empty() {
        return Ok(());
    }
    let what = if is_function { "function" } else { "variable" };
    let names = objects
        .iter()
        .flat_map(|object| &object.symbols)
        .filter(|symbol| symbol.is_function == is_function)
        .map(|symbol| symbol.name.as_str());
    let hint = match nearest(name, names) {
        Some(close) => format!("did you mean '{close}'?"),
        None => match objects.first() {
            Some(object) => {
                format!("nm -C '{}' (a stripped file has few names left)", object.path.display())
            }
            None => "lockwright doctor PROGRAM".to_owned(),
        },
    };
    Err(source
        .fail(wanted.span().start, key, format!("no {what} '{name}' in {}", list(objects)))
        .hint(hint))
}

fn list(objects: &[ObjectFile]) -> String {
    match objects {
        [] => "the program".to_owned(),
        [one] => format!("'{}'", one.name),
        [program, ..] => format!("'{}' or the libraries that it loads at its start", program.name),
    }
}

fn append(rules: &mut String, rule: std::fmt::Arguments<'_>) {
    if !rules.is_empty() {
        rules.push(';');
    }
    let _ = rules.write_fmt(rule);
}
