//! The locks that the user means.

use crate::hints::{Failure, nearest};
use crate::output::{self, shown};
use lockwright_observer::counts::snapshot::{Lock, LockKind, Of};
use lockwright_observer::counts::used::used_in;
use lockwright_observer::objects::ObjectFile;
use lockwright_observer::process::{Process, mappings};
use lockwright_observer::table::{Rule, Table};
use lockwright_observer::targets::{MUTEX_SIZE, is_rwlocks, named, of_kind};
use lockwright_observer::written::written;
use lockwright_symbols::{Place, Symboliser};
use std::collections::BTreeSet;

/// A set of a process's locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Every mutex: the default, and no rules.
    All,
    /// The mutexes that no rule names.
    Default,
    /// The mutexes that these rule targets select.
    Rules(Vec<String>),
}

/// What a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// It names a lock for mutexes.
    Mutexes,
    /// It says who goes first at readers-writer locks.
    ReadersWriter,
    /// It is removed.
    Both,
}

/// A function's locks get rules of their own, this many at most, those with the most waiting time first: a table has 29 places.
const OWN_RULES: usize = 8;

impl Target {
    /// Finds the target with this name. `locks` are those that have been contended.
    ///
    /// A function stands for the mutexes that are first contended by its calls (a `call` rule), and for the locks for which its calls are
    /// known to have waited, or to have made others wait: those have been contended already, perhaps first by another function.
    pub(crate) fn find(
        process: &Process,
        text: &str,
        rule: For,
        locks: impl FnOnce() -> Vec<(String, u64)>,
    ) -> Result<Self, Failure> {
        match text {
            "all" => return Ok(Self::All),
            "default" => return Ok(Self::Default),
            _ => {}
        }
        if let Some(address) = address(text) {
            return at(process, text, address).map(Self::Rules);
        }
        if let Some(kind) = text.strip_prefix("kind:") {
            return Ok(Self::Rules(vec![of_kind(kind)?]));
        }
        let objects = objects(process, |_| true)?;
        if objects.iter().any(|object| object.name == text) && !text.contains([';', '=']) {
            return Ok(Self::Rules(vec![format!("lib:{text}")]));
        }
        let found = match text.split_once("+0x") {
            Some((variable, offset)) => inside(&objects, variable, offset),
            None => Some(named(&objects, text, false)).filter(|found| !found.is_empty()),
        };
        if let Some(found) = found {
            return Ok(Self::Rules(found));
        }
        let calls = named(&objects, text, true);
        let found = of_function(process, text, &calls, rule);
        if !found.is_empty() {
            return Ok(Self::Rules(found));
        }
        if !calls.is_empty() {
            let pid = process.pid;
            return Err(Failure::new(format!(
                "'{text}' hasn't waited for a readers-writer lock just now, nor made others wait"
            ))
            .hint(format!(
                "all of them: lockwright switch {pid} kind:rwlock rwlock:prefer=patient"
            )));
        }
        let locks = locks();
        let of_list: Vec<_> =
            locks.iter().filter(|(name, address)| name == text && *address != 0).collect();
        if !of_list.is_empty() {
            return Ok(Self::Rules(
                of_list.into_iter().map(|(_, address)| absolute(*address)).collect(),
            ));
        }
        Err(unknown(process, text, &objects, &locks))
    }

    /// The targets of its rules.
    pub(crate) fn rules(&self) -> &[String] {
        match self {
            Self::Rules(targets) => targets,
            Self::All | Self::Default => &[],
        }
    }

    /// Gives these mutexes a lock in a table; `None` removes their own rule.
    pub(crate) fn put(&self, table: &mut Table, lock: Option<&str>) {
        match (self, lock) {
            (Self::All, Some(lock)) => {
                table.default = lock.to_owned();
                table.rules.retain(|rule| is_rwlocks(&rule.lock)); // those are no mutexes
            }
            (Self::Default, Some(lock)) => table.default = lock.to_owned(),
            (Self::All, None) => table.rules.retain(|rule| is_rwlocks(&rule.lock)),
            (Self::Default, None) => {}
            (Self::Rules(targets), lock) => table.set(targets, lock),
        }
    }

    /// The lock that the table's rules give these mutexes, if they name them.
    pub(crate) fn lock<'a>(&self, table: &'a Table) -> &'a str {
        let rule = match self {
            Self::Rules(targets) => table.rules.iter().find(|rule| targets.contains(&rule.target)),
            Self::All | Self::Default => None,
        };
        rule.map_or(&table.default, |rule| &rule.lock)
    }

    /// Does this lock belong to the target, under a table that contains the target's rules?
    pub(crate) fn has(&self, table: &Table, lock: &Lock) -> bool {
        match self {
            Self::All => true,
            Self::Default => table.rule_at(lock.place).is_none(),
            Self::Rules(targets) => {
                let by_place =
                    table.rule_at(lock.place).is_some_and(|rule| targets.contains(&rule.target));
                by_place
                    || matches!(lock.of, Of::Lock(address) if targets.contains(&absolute(address)))
            }
        }
    }
}

/// Rule targets for the locks of a function.
fn of_function(process: &Process, function: &str, calls: &[String], rule: For) -> Vec<String> {
    // A process whose counts can't be read has its calls.
    let used = used_in(process, function).unwrap_or_default();
    let is_for = |kind| match kind {
        LockKind::Mutex => rule != For::ReadersWriter,
        LockKind::ReadWrite => rule != For::Mutexes,
        LockKind::Semaphore | LockKind::Spin | LockKind::Condition => false,
    };
    let used = used.iter().filter(|lock| is_for(lock.kind)).take(OWN_RULES);
    let mut found: Vec<_> = used.map(|lock| absolute(lock.address)).collect();
    if found.is_empty() && rule == For::Mutexes && !calls.is_empty() {
        output::say(&format!(
            "note: '{function}' wasn't seen at a mutex that threads wait for: only those that its own calls contend for first get the rule \
             (is there a function in between? lockwright profile -p {} --wrapper FUNCTION)\n",
            process.pid
        ));
    }
    // Who calls isn't known where readers-writer locks ask.
    if rule != For::ReadersWriter {
        found.extend_from_slice(calls);
    }
    found
}

/// The rule target for the mutex at an address.
pub(crate) fn absolute(address: u64) -> String {
    format!("mutex:+{address:#x}-{:#x}", address + MUTEX_SIZE)
}

/// Parses `0x7f12`, ignoring what the list adds to it: `0x7f12, of work`, `0x7f12 [heap]`.
fn address(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    let is_ours = digits[end..].is_empty() || digits[end..].starts_with([',', ' ']);
    u64::from_str_radix(&digits[..end], 16).ok().filter(|_| is_ours)
}

fn at(process: &Process, text: &str, address: u64) -> Result<Vec<String>, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    let is_there = |end: u64| maps.iter().any(|map| (map.start..map.end).contains(&end));
    let pid = process.pid;
    if !address.checked_add(MUTEX_SIZE - 1).is_some_and(|last| is_there(address) && is_there(last))
    {
        return Err(Failure::new(format!("nothing lies at '{text}' in process {pid}"))
            .hint(format!("to see which locks it waits for: lockwright switch {pid}")));
    }
    if !address.is_multiple_of(8) {
        return Err(Failure::new(format!(
            "no mutex lies at '{text}': mutexes start at a multiple of 8"
        ))
        .hint(format!("to see which locks it waits for: lockwright switch {pid}")));
    }
    Ok(vec![absolute(address)])
}

/// Rule targets for the mutex at an offset in a variable.
fn inside(objects: &[ObjectFile], variable: &str, offset: &str) -> Option<Vec<String>> {
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let whole = named(objects, variable, false);
    let part = |target: &String| {
        let (start, range) = target.rsplit_once('+')?;
        let (low, high) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let (low, high) = (number(low)?.checked_add(offset)?, number(high)?);
        (low < high).then(|| format!("{start}+{low:#x}-{:#x}", low + MUTEX_SIZE))
    };
    let parts: Option<Vec<String>> = whole.iter().map(part).collect();
    parts.filter(|parts| !parts.is_empty())
}

/// Whose locks the rules of a table are, for people: `mutex g_lock (server+0x4080)`, `library libfoo.so`.
pub(crate) fn whose(process: &Process, table: &Table) -> Vec<String> {
    let parts: Vec<_> = table.rules.iter().map(|rule| part(&rule.target)).collect();
    let is_named = |name: &str| parts.iter().flatten().any(|(_, file, _)| *file == name);
    // Without its symbols a rule is shown by its address.
    let objects = match parts.iter().any(Option::is_some) {
        true => objects(process, is_named).unwrap_or_default(),
        false => Vec::new(),
    };
    let named = |rule: &Rule, part: &Option<(&str, &str, u64)>| {
        let (what, file, offset) = (*part)?;
        let object = objects.iter().find(|object| object.name == file)?;
        let (what, name) = match what {
            "call" => ("caller", function(object, offset)?),
            "mutex" if is_rwlocks(&rule.lock) => ("rwlock", object.variable(offset)?),
            _ => (what, object.variable(offset)?),
        };
        Some(format!("{what} {} ({}+{offset:#x})", shown(&name), shown(file)))
    };
    let mut symbols = None;
    let whose = |(rule, part): (&Rule, _)| {
        let variable = || variable_at(process, rule, &mut symbols);
        let named = named(rule, part).or_else(variable);
        named.unwrap_or_else(|| shown(&rule.whose()).into_owned())
    };
    table.rules.iter().zip(&parts).map(whose).collect()
}

/// `mutex g_lock (0x55d0c4a012a0)`, for a rule that names an address where a variable lies.
fn variable_at(process: &Process, rule: &Rule, symbols: &mut Option<Symboliser>) -> Option<String> {
    let digits = rule.target.strip_prefix("mutex:+0x")?.split('-').next()?;
    let address = u64::from_str_radix(digits, 16).ok()?;
    if symbols.is_none() {
        *symbols = Some(Symboliser::of_process(process.pid).ok()?);
    }
    let place = symbols.as_mut()?.data(address);
    let what = if is_rwlocks(&rule.lock) { "rwlock" } else { "mutex" };
    matches!(place, Place::Symbol { .. })
        .then(|| format!("{what} {} ({address:#x})", shown(&place.to_string())))
}

/// A description of a table: the process's default, and a line for each rule.
pub(crate) fn describe(process: &Process, table: &Table) -> String {
    let mut text = format!("{} ({}): {}\n", process.pid, process.name(), table.default);
    for (whose, rule) in whose(process, table).iter().zip(&table.rules) {
        text.push_str(&format!("  {whose}: {}\n", rule.lock));
    }
    text
}

/// The function that begins at this offset from the load base.
fn function(object: &ObjectFile, offset: u64) -> Option<String> {
    let mut functions = object.symbols.iter().filter(|symbol| symbol.is_function);
    functions.find(|known| known.offset == offset).map(|known| written(&known.name))
}

/// `mutex`, `server` and 0x4080 of `mutex:server+0x4080-0x40a8`. A kind has no file.
fn part(target: &str) -> Option<(&str, &str, u64)> {
    let (what, range) = target.split_once(':')?;
    let (file, range) = range.rsplit_once("+0x")?;
    let (low, _) = range.split_once('-')?;
    let is_there = !file.is_empty() && what != "kind";
    Some((what, file, u64::from_str_radix(low, 16).ok()?)).filter(|_| is_there)
}

/// The program and its loaded libraries, as far as their names are `wanted`.
fn objects(process: &Process, wanted: impl Fn(&str) -> bool) -> Result<Vec<ObjectFile>, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    let mut seen = BTreeSet::new();
    let program = process.program();
    let is_code = |path: &std::path::Path| maps.iter().any(|map| map.is_code && map.path == path);
    let mut objects = Vec::new();
    for map in maps.iter().filter(|map| map.is_file() && is_code(&map.path)) {
        let name = map.path.file_name().unwrap_or_default().display().to_string();
        // Our own functions don't call locks.
        if !wanted(&name)
            || !seen.insert(map.path.clone())
            || name.contains("lockwright") && map.path != program
        {
            continue;
        }
        // A file that no longer exists can't be read.
        objects.extend(ObjectFile::read(&process.sees(&map.path), name));
    }
    Ok(objects)
}

fn unknown(
    process: &Process,
    text: &str,
    objects: &[ObjectFile],
    locks: &[(String, u64)],
) -> Failure {
    let pid = process.pid;
    let program = objects.first().map_or(&[][..], |program| &program.symbols);
    let known = |symbol: &lockwright_observer::objects::Symbol| written(&symbol.name);
    let mut names: Vec<String> = locks.iter().map(|(name, _)| name.clone()).collect();
    names.extend(objects.iter().map(|object| object.name.clone()));
    names.extend(program.iter().map(known));
    let failure = Failure::new(format!(
        "process {pid} ({}) has no lock, function or library '{text}'",
        process.name()
    ));
    match nearest(text, names.iter().map(String::as_str)) {
        Some(near) => failure
            .hint(format!("did you mean '{near}'? to see its locks: lockwright switch {pid}")),
        None => failure.hint(format!("to see its locks: lockwright switch {pid}")),
    }
}

/// The locks of a process that have been contended, by the names that the list shows.
pub(crate) fn contended(process: &Process) -> Vec<(String, u64)> {
    use lockwright_observer::counts::{live::Live, outcome::outcome};
    let look = || -> Result<Vec<(String, u64)>, Failure> {
        let Some(snapshot) = Live::find(process)?.snapshot(process)? else { return Ok(Vec::new()) };
        let mut symbols =
            Symboliser::of_process(process.pid).map_err(|error| process.gone(&error))?;
        let seen = outcome(&snapshot, &mut symbols, 0, 0);
        Ok(seen.locks.into_iter().map(|lock| (lock.name, lock.address)).collect())
    };
    look().unwrap_or_default() // used only to match names: an error just means no match
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_list_says_is_an_address() {
        for (text, found) in [
            ("0x7f10", Some(0x7f10)),
            ("0x7f10, of work", Some(0x7f10)),
            ("0x7f10 [heap]", Some(0x7f10)),
            ("0x", None),
            ("0x7f10z", None),
            ("g_lock", None),
        ] {
            assert_eq!(address(text), found, "{text}");
        }
    }

    #[test]
    fn the_parts_of_a_range_are_read() {
        assert_eq!(part("mutex:a+b+0x4080-0x40a8"), Some(("mutex", "a+b", 0x4080)));
        assert_eq!(part("call:server+0x10-0x20"), Some(("call", "server", 0x10)));
        for none in ["lib:libfoo.so", "mutex:+0x10-0x38", "kind:normal+0x0-0x38"] {
            assert_eq!(part(none), None, "{none}");
        }
    }

    #[test]
    fn all_drops_the_rules_and_a_new_rule_comes_first() {
        let mut table = Table::read("auto\nlib:a=fifo;");
        let one = Target::Rules(vec![absolute(0x40)]);
        one.put(&mut table, Some("cal"));
        assert_eq!(table.words(), "auto\nmutex:+0x40-0x68=cal;lib:a=fifo;");
        assert_eq!((one.lock(&table), Target::Default.lock(&table)), ("cal", "auto"));
        Target::Default.put(&mut table, Some("mcs"));
        one.put(&mut table, None);
        assert_eq!(table.words(), "mcs\nlib:a=fifo;");
        Target::All.put(&mut table, Some("tas"));
        assert_eq!(table.words(), "tas\n");
    }
}
