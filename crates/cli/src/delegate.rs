//! `--delegate`, an experiment: threads run the sections of those that wait, in an unmodified program (docs/delegate.md).
//!
//! The library that does this is a second one, `liblockwright_delegate.so`, in front of ours. It writes an account of what happened into a
//! folder (`account.rs` there), which is read here.

use crate::hints::{Failure, nearest};
use crate::launch;
use lockwright_files::read_file;
use lockwright_numbers::format::thousands;
use lockwright_observer::elf::Program;
use lockwright_observer::objects::ObjectFile;
use lockwright_observer::written::{is_called, written};
use lockwright_text::wrapped;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const FILE: &str = "liblockwright_delegate.so";
const PLACES: &str = "LOCKWRIGHT_DELEGATE";
const ACCOUNT: &str = "LOCKWRIGHT_DELEGATE_ACCOUNT";
/// The word for all calls of `pthread_mutex_lock`.
const ALL: &str = "all";
/// As many places as the library takes.
const MOST: usize = 63;

/// The option, for commands that run a program.
#[derive(clap::Args)]
pub(crate) struct Delegating {
    /// Experiment (x86-64): let other threads run the sections that FUNCTION locks, on the waiting threads' own stacks; `all`: every
    /// function's. May be repeated. docs/delegate.md says what must not happen in such sections
    #[arg(long, value_name = "FUNCTION")]
    delegate: Vec<String>,
}

/// A program that will run with it.
pub(crate) struct Delegation {
    folder: TempDir,
}

impl Delegating {
    /// Is it asked for?
    pub(crate) fn is_on(&self) -> bool {
        !self.delegate.is_empty()
    }

    /// Prepares `command`, which runs `program` with our library in `library`. `None`: it isn't asked for.
    pub(crate) fn prepare(
        &self,
        command: &mut Command,
        program: &Program,
        library: &Path,
    ) -> Result<Option<Delegation>, Failure> {
        if !self.is_on() {
            return Ok(None);
        }
        can_run()?;
        let objects = program.objects()?;
        if let Some(object) = objects.iter().find(|object| object.has_rseq) {
            return Err(Failure::refused(format!(
                "--delegate: '{}' uses restartable sequences, which the kernel keeps for each of its own threads",
                object.path.display()
            ))
            .hint("without --delegate"));
        }
        let places = places(&self.delegate, &objects)?;
        let ours = beside(library)?;
        let folder = launch::folder("delegate", "run --delegate")?;
        launch::share(&folder);
        let list = command.get_envs().find(|(key, _)| *key == "LD_PRELOAD").and_then(|(_, to)| to);
        let mut list = list.unwrap_or(library.as_os_str()).to_owned();
        list = [ours.as_os_str(), list.as_os_str()].join(":".as_ref());
        let places = [program.file.as_os_str(), places.as_ref()].join(":".as_ref());
        command.env("LD_PRELOAD", list).env(PLACES, places).env(ACCOUNT, folder.path());
        Ok(Some(Delegation { folder }))
    }
}

/// Can a thread run another one's context here?
fn can_run() -> Result<(), Failure> {
    const FSGSBASE: u64 = 2;
    // SAFETY: no preconditions.
    let has =
        cfg!(target_arch = "x86_64") && unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE != 0;
    let why = "--delegate: this machine's programs can't set their thread pointer (x86-64 with FSGSBASE, Linux 5.9)";
    if has { Ok(()) } else { Err(Failure::refused(why).hint("without --delegate")) }
}

/// The library that delegates, which lies beside ours.
fn beside(library: &Path) -> Result<PathBuf, Failure> {
    let file = library.with_file_name(FILE);
    if file.is_file() {
        return Ok(file);
    }
    Err(Failure::new(format!("--delegate: cannot find '{}'", file.display()))
        .hint("cargo build --release -p lockwright-delegate"))
}

/// The places in these functions, as the library reads them.
fn places(functions: &[String], objects: &[ObjectFile]) -> Result<String, Failure> {
    if functions.iter().any(|name| name == ALL) {
        return Ok(ALL.into());
    }
    let mut words = Vec::new();
    for name in functions {
        let before = words.len();
        for (number, object) in objects.iter().enumerate() {
            let file = if number == 0 { "" } else { object.name.as_str() };
            let wanted = object.symbols.iter().filter(|symbol| {
                symbol.is_function && symbol.size > 0 && is_called(&symbol.name, name)
            });
            words.extend(wanted.map(|symbol| {
                format!("{file}+{:x}-{:x}", symbol.offset, symbol.offset + symbol.size)
            }));
        }
        if words.len() == before {
            let all = objects.iter().flat_map(|object| &object.symbols);
            let names: Vec<_> = all
                .filter(|symbol| symbol.is_function)
                .map(|symbol| written(&symbol.name))
                .collect();
            let hint = match nearest(name, names.iter().map(String::as_str)) {
                Some(close) => format!("did you mean '{close}'?"),
                None => {
                    "if it is inlined, name its caller; who locks: lockwright profile -- PROGRAM"
                        .into()
                }
            };
            return Err(Failure::new(format!("--delegate: the program has no function '{name}'"))
                .hint(hint));
        }
    }
    if words.len() > MOST {
        let many = words.len();
        return Err(Failure::new(format!(
            "--delegate: {many} functions have these names, {MOST} may"
        ))
        .hint("--delegate all"));
    }
    Ok(words.join(","))
}

/// What one process did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DelegationAccount {
    sent: u64,
    own: u64,
    free: u64,
    /// Not sent: why, and how many.
    refused: Vec<(&'static str, u64)>,
    /// Sent home: by what, and how many.
    home: Vec<(String, u64)>,
}

/// Why a section was not sent, in the library's order.
const REFUSED: [&str; 4] = [
    "of another kind of mutex than normal, or one too many",
    "since the program handles its faults, or its threads can't be sent",
    "of threads with restartable sequences",
    "between threads with other protection keys or another GS base",
];

impl DelegationAccount {
    /// Reads the library's file. `None`: it isn't one.
    fn read(bytes: &[u8]) -> Option<Self> {
        const NAME: usize = 32;
        const ROW: usize = 64;
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let head = number(0)?;
        let (version, hooks) = (head & 0xffff_ffff, (head >> 32) as usize);
        if version != 1 || hooks > 4096 {
            return None;
        }
        let refused_at = 8 + hooks * NAME;
        let home_at = refused_at + 8 * REFUSED.len();
        let rows_at = (home_at + 8 * (hooks + 1)).next_multiple_of(ROW);
        let mut account = Self::default();
        for (why, at) in REFUSED.into_iter().zip((refused_at..).step_by(8)) {
            account.refused.push((why, number(at)?));
        }
        for hook in 0..=hooks {
            let name = match hook < hooks {
                true => bytes.get(8 + hook * NAME..)?.split(|byte| *byte == 0).next()?,
                false => b"too long",
            };
            account.home.push((String::from_utf8_lossy(name).into(), number(home_at + 8 * hook)?));
        }
        for row in bytes.get(rows_at..)?.chunks_exact(ROW) {
            let count =
                |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("8 bytes"));
            account.sent += count(8);
            account.own += count(16);
            account.free += count(24);
        }
        Some(account)
    }

    fn sections(&self) -> u64 {
        self.sent + self.own + self.free + self.refused.iter().map(|(_, count)| count).sum::<u64>()
    }

    fn text(&self) -> String {
        let mut text = format!(
            "delegate (experiment): of {} sections, {} ran on other threads, {} on their own after asking, and {} \
             found their mutex free.\n",
            thousands(self.sections()),
            thousands(self.sent),
            thousands(self.own),
            thousands(self.free),
        );
        for (why, count) in self.refused.iter().filter(|(_, count)| *count > 0) {
            let _ = writeln!(text, "Not sent: {} {why}.", thousands(*count));
        }
        let mut home: Vec<_> = self.home.iter().filter(|(_, count)| *count > 0).collect();
        home.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let home: Vec<_> =
            home.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
        if !home.is_empty() {
            let _ = writeln!(text, "Went home in the middle: {}.", home.join(", "));
        }
        text.lines().map(|line| wrapped(line) + "\n").collect()
    }
}

impl Delegation {
    /// What happened in all processes of the program so far. The folder goes, unless some of them still run, and count there.
    pub(crate) fn report(self) -> String {
        let files = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let files: Vec<_> = files.map(|file| file.path()).collect();
        let runs = |file: &PathBuf| {
            let pid = file.extension().unwrap_or_default();
            Path::new("/proc").join(pid).exists()
        };
        if files.iter().any(runs) {
            let _ = self.folder.keep();
        }
        let mut all = DelegationAccount::default();
        for one in
            files.iter().filter_map(|file| DelegationAccount::read(&read_file(file, 1 << 20).ok()?))
        {
            all.sent += one.sent;
            all.own += one.own;
            all.free += one.free;
            if all.home.is_empty() {
                (all.refused, all.home) = (one.refused, one.home);
                continue;
            }
            let refused = all.refused.iter_mut().zip(&one.refused);
            refused.for_each(|(sum, more)| sum.1 += more.1);
            all.home.iter_mut().zip(&one.home).for_each(|(sum, more)| sum.1 += more.1);
        }
        match all.sections() {
            0 => "delegate (experiment): no section had to wait where --delegate allows\n".into(),
            _ => all.text(),
        }
    }
}

/// The same in a few words, for a line of `top`.
pub(crate) fn brief(pid: libc::pid_t) -> Option<String> {
    let account = account_of(pid)?;
    let most = account.home.iter().max_by_key(|(_, count)| *count);
    let home = most.filter(|(_, count)| *count > 0);
    let home = home.map(|(name, count)| format!(", home most by {name}: {}", thousands(*count)));
    let (sent, all) = (thousands(account.sent), thousands(account.sections()));
    Some(format!("delegate: {sent} of {all} elsewhere{}", home.unwrap_or_default()))
}

/// The same as JSON: sections by where they ran, and by what sent them home.
pub(crate) fn json(pid: libc::pid_t) -> Option<serde_json::Value> {
    let account = account_of(pid)?;
    let counts = |all: Vec<(String, u64)>| -> serde_json::Map<_, _> {
        all.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name, count.into()))
            .collect()
    };
    let refused = account.refused.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect();
    Some(serde_json::json!({
        "elsewhere": account.sent,
        "own": account.own,
        "free": account.free,
        "not_sent": counts(refused),
        "home": counts(account.home),
    }))
}

/// What the process with this folder among its variables has done so far; `None`: it doesn't delegate.
pub(crate) fn of_process(pid: libc::pid_t) -> Option<String> {
    Some(account_of(pid)?.text())
}

fn account_of(pid: libc::pid_t) -> Option<DelegationAccount> {
    let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{ACCOUNT}=");
    let folder =
        variables.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(prefix.as_bytes()))?;
    let file = Path::new(std::str::from_utf8(folder).ok()?).join(format!("delegate.{pid}"));
    DelegationAccount::read(&read_file(file, 1 << 20).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_observer::objects::Symbol;
    use std::collections::BTreeSet;

    /// An account as the library writes it: two hooks, a row.
    fn account() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        for name in ["read", "pthread_cond_wait"] {
            let mut room = [0; 32];
            room[..name.len()].copy_from_slice(name.as_bytes());
            bytes.extend(room);
        }
        for count in [7_u64, 0, 0, 1, 3, 12, 2] {
            bytes.extend(count.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        for count in [0_u64, 1_234_567, 2_000_000, 30, 8, 0, 0, 0] {
            bytes.extend(count.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_account_is_read_and_told() {
        let account = DelegationAccount::read(&account()).unwrap();
        assert_eq!((account.sent, account.own, account.free), (1_234_567, 2_000_000, 30));
        assert_eq!(account.sections(), 3_234_605);
        let text = account.text();
        assert!(text.contains("of 3,234,605 sections, 1,234,567 ran on other"), "{text}");
        assert!(text.contains("Not sent: 7 of another kind"), "{text}");
        assert!(text.contains("pthread_cond_wait 12, read 3, too long 2."), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn what_is_no_account_is_none() {
        let whole = account();
        for length in [0, 7, 8, 100, 120] {
            assert_eq!(DelegationAccount::read(&whole[..length]), None, "{length} bytes");
        }
        let mut other = whole.clone();
        other[0] = 2;
        assert_eq!(DelegationAccount::read(&other), None, "another version");
        other = whole;
        other[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(DelegationAccount::read(&other), None, "too many hooks");
    }

    #[test]
    fn functions_are_places() {
        let symbol = |name: &str, is_function: bool, offset: u64| Symbol {
            name: name.to_owned(),
            is_function,
            offset,
            size: 16,
        };
        let object = |name: &str, symbols: Vec<Symbol>| ObjectFile {
            name: name.to_owned(),
            path: name.into(),
            imports: BTreeSet::new(),
            exports: BTreeSet::new(),
            slots: BTreeSet::new(),
            has_rseq: false,
            symbols,
        };
        let objects = [
            object(
                "prog",
                vec![symbol("store", true, 0x1200), symbol("store_lock", false, 0x9000)],
            ),
            object("libdb.so", vec![symbol("store", true, 0x20), symbol("_Z3getv", true, 0x40)]),
        ];
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            places(&names, &objects)
        };
        assert_eq!(of(&["store"]).unwrap(), "+1200-1210,libdb.so+20-30");
        assert_eq!(of(&["get"]).unwrap(), "libdb.so+40-50");
        assert_eq!(of(&["get", "all"]).unwrap(), "all");
        let failure = of(&["stores"]).unwrap_err();
        assert_eq!(failure.message(), "--delegate: the program has no function 'stores'");
        assert!(of(&["store_lock"]).is_err(), "a variable");
    }
}
