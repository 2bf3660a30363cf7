//! `lockwright doctor PROGRAM`.

use super::run::preload;
use crate::elf::{self, ObjectFile, Program};
use crate::hints::{Failure, cause};
use crate::trace::Trace;
use crate::{find, library, output, trace};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Tell whether a program can be reached, and how many of its waits are our locks'
///
/// Exit code 0: reachable; 1: not.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright doctor /usr/bin/memcached
  lockwright doctor --run --limit 10 ./server --port 8080

With --run the program runs under the library, and every futex wait of it and of its children is
counted for the object that asked for it. What the program prints goes to standard error.")]
pub(crate) struct Args {
    /// Run the program, and count whose locks it sleeps on
    #[arg(long)]
    run: bool,
    /// End the program after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "run",
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    limit: u64,
    /// The library to preload [default: beside this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program, and its arguments for --run
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let (name, arguments) = args.command.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    let program = elf::inspect(&path)?;
    let mut report = Report::default();
    report.program(&program);
    if let Some(obstacle) = program.obstacle() {
        report.fact("verdict", format!("not reachable: {}", obstacle.reason()));
        report.fact("hint", obstacle.hint(&program.path));
        output::print(&report.text)?;
        return Ok(ExitCode::FAILURE);
    }
    if program.links_ours {
        report.fact("verdict", "reachable: it is static, and links our locks");
        output::print(&report.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let library = library::find(args.library.as_deref())?;
    let replaced = ObjectFile::read(&library, "liblockwright.so".to_owned())?.exports;
    let imports = imports(&program.objects()?);
    report.imports(&imports, &replaced);
    let mut slept_on_ours = false;
    if args.run {
        let mut command = Command::new(&path);
        command
            .arg0(name)
            .args(arguments)
            .env("LD_PRELOAD", preload(&library))
            .stdin(Stdio::null())
            .stdout(std::io::stderr());
        let ours = library.file_name().unwrap_or_default().display().to_string();
        let trace = trace::run(command, &ours, Duration::from_secs(args.limit)).map_err(|error| {
            Failure::new(format!("cannot trace '{}': {}", path.display(), cause(&error)))
                .hint("cat /proc/sys/kernel/yama/ptrace_scope; in a container add --cap-add SYS_PTRACE")
        })?;
        report.trace(&trace, &ours, args.limit);
        slept_on_ours = trace.waits.contains_key(&ours);
        if !trace.loaded {
            report.fact("verdict", "not reachable: the library was not loaded");
            report.fact("hint", format!("LD_DEBUG=files lockwright run -- '{}'", path.display()));
            output::print(&report.text)?;
            return Ok(ExitCode::FAILURE);
        }
    }
    if slept_on_ours {
        report.fact("verdict", "reachable");
    } else {
        report.verdict(&program, &imports, &replaced);
    }
    output::print(&report.text)?;
    Ok(ExitCode::SUCCESS)
}

/// Functions of the C library that lock, wait or wake.
fn is_lock_function(name: &str) -> bool {
    ["pthread_mutex_", "pthread_cond_", "pthread_rwlock_", "pthread_spin_", "mtx_", "cnd_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Neither locks nor waits: what glibc does there serves our locks too.
fn only_prepares(name: &str) -> bool {
    name.ends_with("_init") || name.contains("attr_")
}

/// What the program and its libraries import of these; the C library's own parts don't count.
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
    ["libc.so", "libpthread.so", "libm.so", "libdl.so", "librt.so", "ld-linux"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_script(program: &Program) -> bool {
    program.path.canonicalize().is_ok_and(|path| path != program.file)
}

#[derive(Default)]
struct Report {
    text: String,
}

impl Report {
    fn fact(&mut self, label: &str, text: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{label:<10}{text}");
    }

    fn program(&mut self, program: &Program) {
        self.fact("program", program.path.display());
        if is_script(program) {
            self.fact("runs by", program.file.display());
        }
        if let Some(interpreter) = &program.interpreter {
            self.fact("linker", interpreter);
        }
        if program.go {
            self.fact("language", "Go: its own locks don't use pthreads, only its C parts do");
        }
    }

    fn imports(&mut self, imports: &BTreeSet<String>, replaced: &BTreeSet<String>) {
        if imports.is_empty() {
            self.fact("imports", "no pthread locks, neither the program nor its libraries");
            return;
        }
        let ours = imports.intersection(replaced).count();
        self.fact("imports", format!("{} lock functions, {ours} of them replaced", imports.len()));
        let (harmless, others): (Vec<_>, Vec<_>) =
            imports.difference(replaced).map(String::as_str).partition(|name| only_prepares(name));
        for (names, gloss) in [(others, ""), (harmless, " (harmless)")] {
            if !names.is_empty() {
                self.fact("", format!("left to glibc: {}{gloss}", names.join(" ")));
            }
        }
    }

    fn trace(&mut self, trace: &Trace, ours: &str, limit: u64) {
        let end = match trace.end {
            None => format!("ended by us after {limit} s"),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            },
        };
        self.fact("run", end);
        let total: u64 = trace.waits.values().sum();
        if total == 0 {
            self.fact("waits", "none: nothing was contended");
            return;
        }
        let share = |count: u64| 100.0 * count as f64 / total as f64;
        let own = trace.waits.get(ours).copied().unwrap_or(0);
        self.fact(
            "waits",
            format!("{total} futex waits, {:.1} % of them in our locks", share(own)),
        );
        let mut waits: Vec<_> = trace.waits.iter().collect();
        waits.sort_by_key(|(object, count)| (std::cmp::Reverse(**count), *object));
        for (object, &count) in waits {
            let gloss = if object.starts_with("libc.so") {
                " (thread joins, barriers and other waits inside glibc)"
            } else {
                ""
            };
            self.fact("", format!("{count:>9}  {:5.1} %  {object}{gloss}", share(count)));
        }
    }

    fn verdict(
        &mut self,
        program: &Program,
        imports: &BTreeSet<String>,
        replaced: &BTreeSet<String>,
    ) {
        let shown = program.path.display();
        if imports.is_disjoint(replaced) {
            self.fact("verdict", "reachable, but nothing to replace was found in its files");
            if is_script(program) {
                self.fact(
                    "hint",
                    format!(
                        "a script, run by {}: try the program that it starts: lockwright doctor INTERPRETER",
                        program.file.display()
                    ),
                );
            }
            self.fact(
                "hint",
                format!("libraries loaded later may lock: lockwright doctor --run '{shown}'"),
            );
        } else {
            self.fact("verdict", "reachable");
        }
    }
}
