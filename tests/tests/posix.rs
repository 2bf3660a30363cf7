//! POSIX corner by corner: every program of `posix/` is compiled, run under plain glibc and under front locks
//! (those that say `whole: yes`, under whole locks that have a file of their own, too), and must print the same; once more while its
//! lock operations are recorded. The locks take turns ([`in_turn`]); in a soak it is all of them.
//!
//! A program's first lines may say:
//! `// library: lib_x` link with `lib_x.c`; `// beside: lib_x` build it, don't link;
//! `// bare: lib_x` the same, linked without libc; `// flag: -rdynamic` for the compiler;
//! `// says: TEXT` our one line on stderr has it in it (otherwise there is no line); `// whole says: TEXT` the same, under whole locks alone;
//! `// whole: yes` also under whole locks; `// counted: yes` also while waits are counted; `// limit: N` seconds until it counts as hung.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockwright_locks::catalog::{CATALOG, front_rules};
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::front::auto;
use lockwright_stats::trace::Trace;
use lockwright_tests::{
    Child, End, Outcome, compile, first_and_in_turn, in_turn, library, preload_list, scratch,
    source_dir,
};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Debian's other allocators. They lock, and they are preloaded too.
const ALLOCATORS: [(&str, &str); 2] =
    [("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")];

/// Programs that are run with other allocators, in either order of preloading.
const WITH_ALLOCATORS: [&str; 4] = ["mutex_kinds", "cond_no_lost_signal", "early", "fork"];

/// Front locks beside the default that a program is run under.
const FRONTS: usize = 4;

/// Whole locks, likewise.
const WHOLE: usize = 4;

fn main() {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit(),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    }
}

/// A program of `posix/`. Compiled and run under plain glibc when first needed.
struct Program {
    name: String,
    source: PathBuf,
    link: Vec<String>,
    beside: Vec<String>,
    bare: Vec<String>,
    flags: Vec<String>,
    says: Vec<String>,
    whole_says: Vec<String>,
    whole: bool,
    counted: bool,
    limit: u64,
    binary: OnceLock<Result<PathBuf, String>>,
    plain: OnceLock<Result<Outcome, String>>,
}

impl Program {
    fn read(source: PathBuf) -> Result<Program> {
        let text = fs::read_to_string(&source)
            .with_context(|| format!("cannot read '{}'", source.display()))?;
        let said = |key: &str| {
            text.lines()
                .take_while(|line| line.starts_with("//"))
                .filter_map(|line| line[2..].trim().strip_prefix(key)?.strip_prefix(": "))
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        Ok(Program {
            name: source.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            link: said("library"),
            beside: said("beside"),
            bare: said("bare"),
            flags: said("flag"),
            says: said("says"),
            whole_says: said("whole says"),
            whole: said("whole") == ["yes"],
            counted: said("counted") == ["yes"],
            limit: match said("limit").first() {
                Some(limit) => limit.parse().with_context(|| format!("limit of {source:?}"))?,
                None => 60,
            },
            source,
            binary: OnceLock::new(),
            plain: OnceLock::new(),
        })
    }

    fn binary(&self) -> Result<&Path, Failed> {
        let build = || -> Result<PathBuf> {
            // A folder each: two programs may need the same library at the same time.
            let dir = scratch("posix")?.join(&self.name);
            fs::create_dir_all(&dir)?;
            let mut flags = self.flags.clone();
            let library = |name: &String, flags: &[&str]| {
                let source = self.source.with_file_name(name).with_extension("c");
                compile(&source, &dir.join(name).with_extension("so"), flags)
            };
            for name in self.link.iter().chain(&self.beside) {
                library(name, &["-shared", "-fPIC"])?;
            }
            for name in &self.bare {
                library(name, &["-shared", "-fPIC", "-nostdlib"])?;
            }
            for name in &self.link {
                flags.push(dir.join(name).with_extension("so").to_string_lossy().into_owned());
                flags.push("-Wl,-rpath,$ORIGIN".into());
            }
            let binary = dir.join(&self.name);
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            compile(&self.source, &binary, &flags)?;
            Ok(binary)
        };
        let binary = self.binary.get_or_init(|| build().map_err(|error| format!("{error:#}")));
        binary.as_deref().map_err(Failed::from)
    }

    fn run(&self, lock: Option<&str>, preload: &OsString) -> Result<Outcome, Failed> {
        self.run_as(lock, preload, |child| child)
    }

    fn run_as(
        &self,
        lock: Option<&str>,
        preload: &OsString,
        change: impl FnOnce(Child) -> Child,
    ) -> Result<Outcome, Failed> {
        let child = change(Child::new(self.binary()?).limit(self.limit));
        let child = match lock {
            Some(_) => child.lock(lock, preload),
            None if preload.is_empty() => child,
            None => child.env("LD_PRELOAD", preload),
        };
        Ok(child.run_fairly()?)
    }

    /// Without the line that we are to say.
    fn heard(&self, outcome: Outcome) -> Result<Outcome, Failed> {
        self.heard_of(outcome, &self.says)
    }

    fn heard_of(&self, mut outcome: Outcome, says: &[String]) -> Result<Outcome, Failed> {
        for text in says {
            let errors = outcome.errors();
            if errors.lines().count() != 1 || !errors.contains(text) {
                return Err(format!("'{}': no one line with '{text}': {errors}", self.name).into());
            }
            outcome.stderr.clear();
        }
        Ok(outcome)
    }

    /// What it prints under plain glibc.
    fn plain(&self) -> Result<&Outcome, Failed> {
        let plain = self.plain.get_or_init(|| {
            let none = OsString::new();
            self.run(None, &none).map_err(|error| error.message().unwrap_or_default().to_string())
        });
        plain.as_ref().map_err(Failed::from)
    }

    fn passes_plainly(&self) -> Result<(), Failed> {
        let plain = self.plain()?;
        ensure_end(&self.name, "glibc", plain)
    }

    fn same_under(&self, entry: &Entry, preload: &OsString) -> Result<(), Failed> {
        let says = if entry.kind == Kind::Whole { &self.whole_says } else { &self.says };
        let (plain, lock) = (self.plain()?, entry.id);
        let ours = self.heard_of(self.run(Some(lock), preload)?, says)?;
        ensure_end(&self.name, lock, &ours)?;
        same(&self.name, lock, plain, &ours)
    }

    /// While waits are counted it prints the same.
    fn same_when_counted(&self, level: &str, preload: &OsString) -> Result<(), Failed> {
        let dir = tempfile::tempdir()?;
        let count = |child: Child| {
            child.env("LOCKWRIGHT_OBSERVE", level).env("LOCKWRIGHT_OBSERVE_DIR", dir.path())
        };
        let ours = self.heard(self.run_as(Some("auto"), preload, count)?)?;
        ensure_end(&self.name, level, &ours)?;
        same(&self.name, level, self.plain()?, &ours)?;
        match fs::read_dir(dir.path())?.next() {
            Some(_) => Ok(()),
            None => Err(format!("'{}' has counted nothing", self.name).into()),
        }
    }

    /// While its operations and their order are recorded it prints the same, and what was recorded can be read.
    fn same_when_recorded(&self, lock: &str, preload: &OsString) -> Result<(), Failed> {
        let (dir, order) = (tempfile::tempdir()?, tempfile::tempdir()?);
        // A file for the order takes some 10 ms, and programs that are about forks make thousands of processes.
        let is_ordered = !self.name.contains("fork");
        let record = |child: Child| {
            let child = child.env("LOCKWRIGHT_TRACE", dir.path());
            if is_ordered { child.env("LOCKWRIGHT_ORDER", order.path()) } else { child }
        };
        let ours = self.heard(self.run_as(Some(lock), preload, record)?)?;
        ensure_end(&self.name, lock, &ours)?;
        same(&self.name, lock, self.plain()?, &ours)?;
        let trace = Trace::collect(dir.path())?;
        match trace.meta.processes.iter().any(|command| command.contains(&self.name)) {
            true => Ok(()),
            false => Err(format!("no '{}' in {:?}", self.name, trace.meta.processes).into()),
        }
    }
}

fn ensure_end(name: &str, lock: &str, outcome: &Outcome) -> Result<(), Failed> {
    if outcome.end == End::Code(0) {
        return Ok(());
    }
    Err(format!("'{name}' under {lock}: {}", outcome.describe()).into())
}

fn same(name: &str, lock: &str, plain: &Outcome, ours: &Outcome) -> Result<(), Failed> {
    if !ours.stderr.is_empty() {
        return Err(format!("'{name}' under {lock} says on stderr: {}", ours.errors()).into());
    }
    let (theirs, ours) = (plain.text(), ours.text());
    if theirs == ours {
        return Ok(());
    }
    let differing = theirs.lines().zip(ours.lines()).find(|(one, two)| one != two);
    let (one, two) = differing.unwrap_or(("(the shorter output)", "(the longer output)"));
    Err(format!("'{name}' prints '{one}' under glibc, '{two}' under {lock}").into())
}

fn trials() -> Result<Vec<Trial>> {
    let library = library()?;
    let ours = preload_list(&[&library]);
    let mut sources = Vec::new();
    for entry in fs::read_dir(source_dir().join("posix"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".c") && !name.starts_with("lib_") {
            sources.push(path.clone());
        }
    }
    sources.sort();
    ensure!(!sources.is_empty(), "no programs in '{}'", source_dir().join("posix").display());

    let mut trials = Vec::new();
    for (turn, source) in sources.into_iter().enumerate() {
        let program = Arc::new(Program::read(source)?);
        let plain = program.clone();
        trials
            .push(Trial::test(format!("{}::glibc", program.name), move || plain.passes_plainly()));
        let has_file = |e: &&Entry| e.kind == Kind::Whole && e.preset_of.is_none();
        let whole = CATALOG.iter().copied().filter(has_file).filter(|_| program.whole);
        let fronts = first_and_in_turn(turn, FRONTS, front_rules());
        for entry in fronts.into_iter().chain(in_turn(turn, WHOLE, whole)) {
            let (program, ours) = (program.clone(), ours.clone());
            let name = format!("{}::{}", program.name, entry.id);
            trials.push(Trial::test(name, move || program.same_under(entry, &ours)));
        }
        let (recorded, list) = (program.clone(), ours.clone());
        let name = format!("{}::fifo_recorded", program.name);
        trials.push(Trial::test(name, move || recorded.same_when_recorded("fifo", &list)));
        for level in ["counters", "full"].into_iter().filter(|_| program.counted) {
            let (program, list) = (program.clone(), ours.clone());
            let name = format!("{}::auto_{level}", program.name);
            trials.push(Trial::test(name, move || program.same_when_counted(level, &list)));
        }
        if WITH_ALLOCATORS.contains(&program.name.as_str()) {
            for (name, file) in ALLOCATORS {
                let file = Path::new(file);
                let orders = [("before", [&*library, file]), ("after", [file, &library])];
                for (order, files) in orders {
                    let (program, list) = (program.clone(), preload_list(&files));
                    let name = format!("{}::auto_{order}_{name}", program.name);
                    trials.push(Trial::test(name, move || program.same_under(&auto::ENTRY, &list)));
                }
            }
        }
    }
    trials.extend(naming_trials(&ours)?);
    trials.extend(beside_tsan(&library)?);
    Ok(trials)
}

/// How the library answers to what stands in `LOCKWRIGHT_LOCK`.
fn naming_trials(ours: &OsString) -> Result<Vec<Trial>> {
    let program = Arc::new(Program::read(source_dir().join("posix/mutex_kinds.c"))?);
    // What is given; what the one line on stderr must hold (no line, if that is empty).
    let cases: [(&str, &str, &[&str]); 7] = [
        ("a_misspelt_lock_is_told_and_glibc_serves", "fifi", &["fifi", "fifo"]),
        ("a_strange_name_is_told_and_glibc_serves", "quicksilver", &["quicksilver"]),
        ("an_unknown_option_is_told_and_glibc_serves", "fifo:colour=3", &["colour"]),
        ("a_bad_value_is_told_and_glibc_serves", "fifo:bypass=many", &["many"]),
        ("glibc_is_a_name", "glibc", &[]),
        ("no_name_is_the_default", "", &[]),
        ("auto_is_a_name", "auto", &[]),
    ];
    let trial = |(name, lock, parts): (&str, &'static str, &'static [&'static str])| {
        let (program, ours) = (program.clone(), ours.clone());
        Trial::test(format!("naming::{name}"), move || {
            let mut outcome = program.run(Some(lock), &ours)?;
            ensure_end(&program.name, lock, &outcome)?;
            let errors = outcome.errors();
            let lines = errors.lines().count();
            if parts.is_empty() != errors.is_empty() || lines > 1 {
                return Err(format!("'{lock}': {lines} lines on stderr: {errors}").into());
            }
            if let Some(part) = parts.iter().find(|part| !errors.contains(*part)) {
                return Err(format!("'{lock}': no '{part}' in: {errors}").into());
            }
            outcome.stderr.clear();
            same(&program.name, lock, program.plain()?, &outcome)
        })
    };
    Ok(cases.map(trial).into())
}

/// gcc's libtsan before us, as for an instrumented program: it takes glibc's functions by version.
fn beside_tsan(library: &Path) -> Result<Option<Trial>> {
    let asked = Child::new("cc").args(["-print-file-name=libtsan.so"]).run()?;
    let Ok(tsan) = fs::canonicalize(asked.text().trim()) else {
        eprintln!("cc has no libtsan here: nothing is run beside it");
        return Ok(None);
    };
    let preload = preload_list(&[&tsan, library]);
    Ok(Some(Trial::test("beside_tsan::ping_pong", move || {
        let mut program = Program::read(source_dir().join("posix/ping_pong.c"))?;
        program.name.push_str("_tsan");
        program.flags.push("-fsanitize=thread".into());
        // It must end, and right; what it says of us is not asked here.
        ensure_end(&program.name, "fifo", &program.run(Some("fifo"), &preload)?)
    })))
}
