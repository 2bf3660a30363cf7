//! `lockwright doctor PROGRAM`.

mod process;
mod said;

use super::run::preload;
use crate::hints::{Failure, cause};
use crate::trace::Trace;
use crate::{library, output, trace};
use lockwright_numbers::format::given;
use lockwright_numbers::units;
use lockwright_observer::elf::{self, Program};
use lockwright_observer::find;
use lockwright_observer::objects::ObjectFile;
use lockwright_observer::whose::{self, Whose};
use said::{DoctorReport, is_script};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

fn examples() -> String {
    format!(
        "Examples:
  lockwright doctor /usr/bin/memcached
  lockwright doctor ./script.py
  lockwright doctor --run --limit 10s ./server --port 8080
  lockwright doctor 4242                    a process: who waits now, for whom?

With --run the program runs under our library. The futex waits of the program
and its children are counted by origin: our locks, those of Rust's std, abseil
and others, or glibc. Their shares decide the verdict. Counting stops the
program at each system call, for some 20 us, so only the first {} waits are
counted: after them it runs at its own speed. The program's output goes to
standard error.",
        trace::MOST
    )
}

/// Check whether lockwright can reach a program, and what share of its waits we control
///
/// For a script, it checks the interpreter. Of a process, given by its id, it first says who waits now, and for whom. Exit code 0: reachable; 1: not reachable, or (--run) less than a tenth of its waits are, or (a process) its threads wait for other locks, and for none of pthread's.
#[derive(clap::Args)]
#[command(after_help = examples())]
pub(crate) struct Args {
    /// Run the program and count whose locks it sleeps on
    #[arg(long)]
    run: bool,
    /// End the program after this time, such as 30s; without a unit: seconds
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "run", value_parser = limit)]
    limit: Duration,
    /// The library to preload [default: the one beside this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program, and its arguments for --run; or the id of a process
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// A second to a day.
fn limit(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text)?;
    match (1.0..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not within 1s to 24 hours".into()),
    }
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let (name, arguments) = args.command.split_first().expect("clap asks for a program");
    if let Some(pid) = process_id(name).filter(|_| arguments.is_empty() && !args.run) {
        return process::main(pid);
    }
    let path = find::program(name)?;
    let program = elf::inspect(&path)?;
    let mut report = DoctorReport::default();
    let made_by = program.made_by();
    report.program(&program, made_by);
    if let Some(obstacle) = program.obstacle() {
        report.fact("verdict", format!("not reachable: {}", obstacle.reason()));
        report.fact("hint", obstacle.hint(&program.path));
        output::print(&report.text)?;
        return Ok(ExitCode::FAILURE);
    }
    if program.is_static() {
        report.fact("verdict", "reachable: it is static and links our locks");
        output::print(&report.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let library = library::find(args.library.as_deref())?;
    let replaced = ObjectFile::read(&library, "liblockwright.so".to_owned())?.exports;
    let objects = program.objects()?;
    let found =
        FileContents { imports: imports(&objects), replaced, own: own_locks(made_by, &objects) };
    report.found(&found);
    let verdict = match args.run {
        _ if objects.iter().any(has_thread_sanitizer) => Fitness {
            is_reachable: false,
            words: "not reachable: under ThreadSanitizer the library leaves all locks to glibc"
                .into(),
            hints: vec![Whose::Sanitizer.advice().into()],
        },
        false => found.verdict(&program),
        true => {
            let mut command = Command::new(&path);
            command
                .arg0(name)
                .args(arguments)
                .env("LD_PRELOAD", preload(&library))
                .env(ASAN, asan_options())
                .stdin(Stdio::null())
                .stdout(std::io::stderr());
            let ours = library.file_name().unwrap_or_default().display().to_string();
            let trace = trace::run(command, &ours, args.limit).map_err(|error| {
                Failure::new(format!("cannot trace '{}': {}", path.display(), cause(&error)))
                    .hint("cat /proc/sys/kernel/yama/ptrace_scope; in a container add --cap-add SYS_PTRACE")
            })?;
            let waits = Waits::of(&trace, &ours);
            report.trace(&trace, &waits, args.limit);
            match trace.loaded {
                false => Fitness {
                    is_reachable: false,
                    words: "not reachable: the library was not loaded".into(),
                    hints: vec![format!("LD_DEBUG=files lockwright run -- '{}'", path.display())],
                },
                true => waits.verdict().unwrap_or_else(|| found.verdict_without_waits(&program)),
            }
        }
    };
    report.fact("verdict", verdict.words);
    for hint in verdict.hints {
        report.fact("hint", hint);
    }
    output::print(&report.text)?;
    Ok(if verdict.is_reachable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The process, if that is what the word means: a number, and no program has this name.
fn process_id(word: &OsString) -> Option<libc::pid_t> {
    let pid = word.to_str()?.parse().ok().filter(|pid| *pid > 0)?;
    find::program(word).is_err().then_some(pid)
}

/// Whether our locks can serve the program.
struct Fitness {
    is_reachable: bool,
    words: String,
    hints: Vec<String>,
}

/// What the program's files contain.
struct FileContents {
    /// Lock functions that it imports from the C library.
    imports: BTreeSet<String>,
    /// Functions that our library replaces.
    replaced: BTreeSet<String>,
    /// Locks that need none of these functions, and where they are.
    own: BTreeMap<Whose, String>,
}

impl FileContents {
    fn verdict(&self, program: &Program) -> Fitness {
        let path = program.path.display();
        let run = format!("lockwright doctor --run '{path}'");
        let calls_replaced = !self.imports.is_disjoint(&self.replaced);
        let links_ours = program.links_ours();
        if links_ours || calls_replaced {
            let hint = format!("to see which locks it waits for: {run}");
            let hints = if self.own.is_empty() { Vec::new() } else { vec![hint] };
            let words = match links_ours {
                true => "reachable: it links our locks",
                false => "reachable",
            };
            return Fitness { is_reachable: true, words: words.into(), hints };
        }
        match self.own.iter().find(|(_, place)| place.is_empty()) {
            Some((whose, _)) => Fitness {
                is_reachable: false,
                words: format!("not reachable: no pthread locks, but {whose}"),
                hints: vec![whose.advice().into()],
            },
            None => Fitness {
                is_reachable: true,
                words: "reachable, but its files call no lock functions".into(),
                hints: vec![if is_script(program) {
                    format!("programs that the script starts may use locks: {run}")
                } else {
                    format!("libraries loaded later may use locks: {run}")
                }],
            },
        }
    }

    /// The verdict after a run with hardly any waits.
    fn verdict_without_waits(&self, program: &Program) -> Fitness {
        let verdict = self.verdict(program);
        if !verdict.is_reachable {
            return verdict;
        }
        Fitness {
            hints: vec!["too few waits to judge: give the program more work".into()],
            ..verdict
        }
    }
}

/// The variable with AddressSanitizer's options.
const ASAN: &str = "ASAN_OPTIONS";

/// AddressSanitizer wants to be loaded first, and can't look for leaks in a traced program. Turn both checks off: they
/// don't matter here.
fn asan_options() -> OsString {
    let mut options = std::env::var_os(ASAN).unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("verify_asan_link_order=0:detect_leaks=0");
    options
}

/// Locks other than pthreads' that are linked into the program (with an empty place), or into its libraries.
fn own_locks(made_by: Option<Whose>, objects: &[ObjectFile]) -> BTreeMap<Whose, String> {
    let mut own = BTreeMap::new();
    let Some((first, libraries)) = objects.split_first() else { return own };
    let functions = first.symbols.iter().filter(|symbol| symbol.is_function);
    let linked = whose::linked(functions.map(|symbol| &symbol.name));
    // The language is only a guess. Drop it if the locks of std are visible.
    let made_by = made_by.filter(|_| !linked.contains(&Whose::RustStd));
    own.extend(linked.into_iter().chain(made_by).map(|whose| (whose, String::new())));
    for library in libraries {
        if let Some(whose) = Whose::of_object(&library.name)
            && !matches!(whose, Whose::Glibc | Whose::Linker | Whose::CppAtomic | Whose::Jemalloc)
        {
            own.entry(whose).or_insert_with(|| library.name.clone());
        }
    }
    // jemalloc's locks are pthread mutexes.
    own.remove(&Whose::Jemalloc);
    own
}

fn has_thread_sanitizer(object: &ObjectFile) -> bool {
    // Defined: in the program if TSan is linked statically, else in libtsan. (Our own static library has a weak
    // reference to it.)
    object.symbols.iter().any(|symbol| symbol.name == "__tsan_init")
}

/// Waits of a run, except those for threads to end.
struct Waits {
    /// Our library's file name.
    library: String,
    total: u64,
    ours: u64,
    /// Counts by object and by lock implementation, those with most waits first.
    by_place: Vec<(String, Option<Whose>, u64)>,
}

impl Waits {
    fn of(trace: &Trace, ours: &str) -> Self {
        let mut by_place: Vec<_> = trace
            .waits
            .iter()
            .map(|((object, whose), &count)| (object.clone(), *whose, count))
            .collect();
        by_place.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        let counts = by_place.iter().map(|(_, _, count)| count);
        let own = by_place.iter().filter(|(object, _, _)| object == ours);
        let (total, own) = (counts.sum(), own.map(|(_, _, count)| count).sum());
        Self { library: ours.to_owned(), total, ours: own, by_place }
    }

    /// A percentage of all waits.
    fn share(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.total as f64
    }

    /// `None`: nothing waited. If few of the waits are ours, another lock would change little.
    fn verdict(&self) -> Option<Fitness> {
        const FEW: f64 = 10.0;
        const MOST: f64 = 50.0;
        // Starting and ending a thread may cause waits inside glibc. Fewer waits than this prove nothing.
        const ENOUGH: u64 = 10;
        if self.total < ENOUGH {
            return None;
        }
        let share = self.share(self.ours);
        let word = match share {
            share if share < FEW => "not reachable",
            share if share < MOST => "partly reachable",
            _ => "reachable",
        };
        let mut others = self.by_place.iter().filter(|(object, _, _)| *object != self.library);
        let hints = match others.next() {
            Some((object, whose, _)) if share < MOST => vec![match whose {
                Some(whose) => whose.advice().into(),
                None => format!("link our locks instead of those of '{object}': docs/sync.md"),
            }],
            _ => Vec::new(),
        };
        Some(Fitness {
            is_reachable: share >= FEW,
            words: format!("{word}: {share:.1} % of its waits are ours"),
            hints,
        })
    }
}

/// Functions of the C library that lock, wait or wake.
fn is_lock_function(name: &str) -> bool {
    ["pthread_mutex_", "pthread_cond_", "pthread_rwlock_", "pthread_spin_", "mtx_", "cnd_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Functions that neither lock nor wait. glibc's versions serve our locks, too.
fn only_prepares(name: &str) -> bool {
    ["_init", "_destroy"].iter().any(|end| name.ends_with(end)) || name.contains("attr_")
}

/// The functions of these that the program and its libraries import. The C library's own parts don't count.
fn imports(objects: &[ObjectFile]) -> BTreeSet<String> {
    objects
        .iter()
        .filter(|object| !is_libc(&object.path))
        .flat_map(|object| &object.imports)
        .filter(|name| is_lock_function(name))
        .cloned()
        .collect()
}

fn is_libc(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // libgcc locks only when code is loaded while exceptions are thrown.
    ["libc.so", "libpthread.so", "libm.so", "libdl.so", "librt.so", "ld-linux", "libgcc_s.so"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

impl DoctorReport {
    fn found(&mut self, found: &FileContents) {
        let FileContents { imports, replaced, own } = found;
        if imports.is_empty() {
            self.fact(
                "imports",
                "no pthread locks at its start; libraries loaded later may use some",
            );
        } else {
            let ours = imports.intersection(replaced).count();
            self.fact(
                "imports",
                format!("{} lock functions, {ours} of them replaced", imports.len()),
            );
        }
        let (harmless, others): (Vec<_>, Vec<_>) =
            imports.difference(replaced).map(String::as_str).partition(|name| only_prepares(name));
        for (names, gloss) in [(others, ""), (harmless, " (harmless)")] {
            if !names.is_empty() {
                self.fact("", format!("left to glibc: {}{gloss}", names.join(" ")));
            }
        }
        // The language has a line of its own.
        let own = own.iter().filter(|(whose, _)| !matches!(whose, Whose::Go | Whose::Rust));
        for (number, (whose, place)) in own.enumerate() {
            let label = if number == 0 { "own locks" } else { "" };
            match place.as_str() {
                "" => self.fact(label, whose),
                place => self.fact(label, format!("{whose} ({place})")),
            }
        }
    }

    fn trace(&mut self, trace: &Trace, waits: &Waits, limit: Duration) {
        let end = match trace.end {
            None => format!("stopped by lockwright after {}", given(limit.as_nanos() as u64)),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            },
        };
        self.fact("run", end);
        let joins = match trace.joins {
            0 => String::new(),
            1 => " (and one thread join)".to_owned(),
            joins => format!(" (and {joins} thread joins)"),
        };
        if waits.total == 0 {
            self.fact("waits", format!("none{joins}: nothing was contended"));
            return;
        }
        let (total, ours) = (waits.total, waits.share(waits.ours));
        // All that were counted: there may have been more.
        let first = if total + trace.joins < trace::MOST { "" } else { "the first " };
        self.fact(
            "waits",
            format!("{first}{total} futex waits{joins}, {ours:.1} % of them in our locks"),
        );
        for (object, whose, count) in &waits.by_place {
            let whose = whose.map(|whose| format!(": {whose}")).unwrap_or_default();
            let share = waits.share(*count);
            self.fact("", format!("{count:>9}  {share:5.1} %  {object}{whose}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::only_prepares;

    #[test]
    fn what_neither_locks_nor_waits_is_harmless() {
        for name in ["pthread_rwlock_init", "pthread_rwlock_destroy", "pthread_condattr_setclock"] {
            assert!(only_prepares(name), "{name}");
        }
        for name in ["pthread_rwlock_rdlock", "pthread_mutex_setprioceiling"] {
            assert!(!only_prepares(name), "{name}");
        }
    }
}
