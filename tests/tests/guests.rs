//! We are guests in somebody's program: what else looks at it sees what it saw without us, and what the program has
//! to itself stays its own.

use anyhow::{Result, ensure};
use lockwright_tests::{Child, End, Outcome, compile, library, preload_list, scratch, source_dir};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A program of `guests/`. `test`: whose it is, since tests run at the same time.
fn program(name: &str, test: &str, flags: &[&str]) -> Result<PathBuf> {
    let binary = scratch(&format!("guests/{test}"))?.join(name);
    compile(&source_dir().join("guests").join(format!("{name}.c")), &binary, flags)?;
    Ok(binary)
}

/// What of standard error is not ours.
fn others(outcome: &Outcome) -> Vec<String> {
    let errors = outcome.errors();
    errors.lines().filter(|line| !line.starts_with("lockwright: ")).map(str::to_owned).collect()
}

/// Runs a correct program and one with a race by `tool`, with us and without; the verdicts are the same.
///
/// `says`: the line that we say; empty: none. `finds`: the tool finds the race.
fn same_verdict(
    program: &Path,
    tool: &[&str],
    environment: &[(&str, &str)],
    says: &str,
    finds: bool,
) -> Result<()> {
    let library = library()?;
    for how in ["correct", "race"] {
        let run = |preloads: &[&Path]| {
            let mut command = Child::new("setarch").args(["--addr-no-randomize"]).args(tool);
            for (name, value) in environment {
                command = command.env(name, value);
            }
            let list = preload_list(preloads);
            command.args([program]).args([how]).env("LD_PRELOAD", list).limit(120).run()
        };
        let plain = run(&[])?;
        let ours = run(&[&library])?;
        ensure!(plain.end == ours.end, "{how}: {}, not {}", ours.describe(), plain.end);
        ensure!(plain.text() == ours.text(), "{how}: {}", ours.describe());
        if how == "correct" {
            ensure!(plain.end == End::Code(0), "without us: {}", plain.describe());
            ensure!(others(&ours) == others(&plain), "{}", ours.describe());
        } else {
            ensure!((plain.end != End::Code(0)) == finds, "without us: {}", plain.describe());
        }
        let errors = ours.errors();
        let said: Vec<_> = errors.lines().filter(|line| line.starts_with("lockwright: ")).collect();
        let is_told = match says {
            "" => said.is_empty(),
            says => said.len() == 1 && said[0].contains(says),
        };
        ensure!(is_told, "{how}: it says {said:?}");
    }
    Ok(())
}

#[test]
fn nothing_changes_under_no_tool() -> Result<()> {
    let program = program("correct", "plain", &[])?;
    same_verdict(&program, &[], &[], "", false)
}

#[test]
fn thread_sanitizer_finds_what_it_found() -> Result<()> {
    let program = program("correct", "tsan", &["-O1", "-fsanitize=thread"])?;
    same_verdict(&program, &[], &[], "ThreadSanitizer", true)
}

#[test]
fn helgrind_finds_what_it_found() -> Result<()> {
    let program = program("correct", "helgrind", &["-O1"])?;
    let tool = ["valgrind", "-q", "--tool=helgrind", "--error-exitcode=9"];
    same_verdict(&program, &tool, &[], "helgrind", true)
}

#[test]
fn drd_finds_what_it_found() -> Result<()> {
    let program = program("correct", "drd", &["-O1"])?;
    let tool = ["valgrind", "-q", "--tool=drd", "--error-exitcode=9"];
    same_verdict(&program, &tool, &[], "drd", true)
}

/// What a tool says of threads that share nothing, it says of us.
#[test]
fn no_tool_finds_a_race_in_us() -> Result<()> {
    for (tool, flags) in [
        (&["valgrind", "-q", "--tool=helgrind", "--error-exitcode=9"][..], &["-O1"][..]),
        (&["valgrind", "-q", "--tool=drd", "--error-exitcode=9"], &["-O1"]),
        (&[], &["-O1", "-fsanitize=thread"]),
    ] {
        let program = program("apart", "apart", flags)?;
        let child = Child::new("setarch").args(["--addr-no-randomize"]).args(tool).args([program]);
        let outcome = child.env("LD_PRELOAD", preload_list(&[&library()?])).limit(120).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        ensure!(others(&outcome).is_empty(), "{}", outcome.describe());
    }
    Ok(())
}

#[test]
fn memcheck_finds_what_it_found() -> Result<()> {
    let program = program("correct", "memcheck", &["-O1"])?;
    let tool = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9"];
    same_verdict(&program, &tool, &[], "memcheck", false)
}

#[test]
fn address_sanitizer_finds_nothing_in_us() -> Result<()> {
    let program = program("correct", "asan", &["-O1", "-fsanitize=address"])?;
    let options = [("ASAN_OPTIONS", "verify_asan_link_order=0")];
    same_verdict(&program, &[], &options, "", false)
}

/// The lines that strace writes about a program, with its threads and the children that it waits for.
fn calls(test: &str, preload: &Path, program: &[&OsStr]) -> Result<Vec<String>> {
    let log = scratch(&format!("guests/{test}"))?.join("calls");
    let outcome = Child::new("strace")
        .args(["-f", "-o"])
        .args([&log])
        .args(["-E".as_ref(), OsStr::new(&format!("LD_PRELOAD={}", preload.display()))])
        .args(program)
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    Ok(fs::read_to_string(log)?.lines().map(str::to_owned).collect())
}

/// A program that never waits for a lock pays for being preloaded into, and for next to nothing else.
/// A program may define these functions, and lock a mutex there. (`clock_gettime` is called until our constructor has run.)
#[test]
fn no_function_is_called_by_name_that_may_lock_our_mutexes() -> Result<()> {
    let outcome =
        Child::new("nm").args(["--dynamic", "--undefined-only"]).args([library()?]).run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let text = outcome.text();
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    let names: Vec<_> = names.map(|name| name.split('@').next().unwrap_or(name)).collect();
    ensure!(names.contains(&"clock_gettime"), "{text}");
    for name in ["syscall", "sched_yield"] {
        ensure!(!names.contains(&name), "the library asks for {name}: {text}");
    }
    Ok(())
}

#[test]
fn a_short_program_makes_no_system_calls_for_us() -> Result<()> {
    let dir = scratch("guests/short")?;
    let source = dir.join("empty.c");
    fs::write(&source, "extern int nothing;\n")?;
    let empty = dir.join("empty.so");
    compile(&source, &empty, &["-shared", "-fPIC"])?;
    let count =
        |library: &Path| Ok::<_, anyhow::Error>(calls("short", library, &["true".as_ref()])?.len());
    let (least, ours) = (count(&empty)?, count(&library()?)?);
    // One for a segment more, one that asks for a filter of system calls.
    ensure!(ours <= least + 3, "{ours} system calls, {least} with an empty library");
    Ok(())
}

/// What a program costs that never waits for a lock: pages that the kernel must map or copy for us, relocations, names that the dynamic
/// linker must look up. Each page takes longer than a thousand instructions.
#[test]
fn a_short_program_touches_few_pages_for_us() -> Result<()> {
    let dir = scratch("guests/pages")?;
    let source = dir.join("empty.c");
    fs::write(&source, "extern int nothing;\n")?;
    let empty = dir.join("empty.so");
    compile(&source, &empty, &["-shared", "-fPIC"])?;
    // The least of several: what else the kernel does meanwhile, and which pages it maps along, differs a little.
    let faults = |library: &Path| -> Result<i64> {
        let mut least = i64::MAX;
        for _ in 0..32 {
            let child = std::process::Command::new("true").env("LD_PRELOAD", library).spawn()?;
            let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
            // SAFETY: our own child, which nobody else waits for; both are writable.
            let ended =
                unsafe { libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()) };
            ensure!(ended == child.id() as i32 && status == 0, "true ends with {status}");
            // SAFETY: the kernel has filled it.
            least = least.min(unsafe { usage.assume_init() }.ru_minflt);
        }
        Ok(least)
    };
    let (least, ours) = (faults(&empty)?, faults(&library()?)?);
    ensure!(ours <= least + 22, "{ours} page faults, {least} with an empty library");

    let count = |tool: &str, arguments: &[&str], kind: &str| -> Result<usize> {
        let outcome = Child::new(tool).args(arguments).args([library()?]).run()?;
        Ok(outcome.text().lines().filter(|line| line.contains(kind)).count())
    };
    let relative = count("readelf", &["--relocs", "--wide"], "_RELATIVE")?;
    // Each lock of the catalogue has about eight.
    ensure!(relative <= 1600, "{relative} relocations");
    let names = count("nm", &["--dynamic", "--undefined-only"], " ")?;
    ensure!(names <= 33, "the dynamic linker looks up {names} names");
    Ok(())
}

/// Files have the program's lowest free number while they are open: what is read is read once, when a thread first
/// waits, not again each second.
#[test]
fn a_program_that_runs_on_finds_its_descriptors_to_itself() -> Result<()> {
    let contend = program("contend", "descriptors", &[])?;
    let calls = calls("descriptors", &library()?, &[contend.as_os_str(), "32".as_ref()])?;
    let opened: Vec<_> = calls.iter().filter(|call| call.contains(" openat(")).collect();
    let kernels = |call: &&&String| call.contains("\"/proc") || call.contains("\"/sys");
    let looks = opened.iter().filter(|call| call.contains("\"/proc/self/cgroup\"")).count();
    ensure!(looks == 1, "{looks} looks: {:#?}", opened.iter().filter(kernels).collect::<Vec<_>>());
    let leaky = opened.iter().filter(kernels).find(|call| !call.contains("O_CLOEXEC"));
    ensure!(leaky.is_none(), "{leaky:?}");
    Ok(())
}

/// What a filter kills for that is older than the program, we do without.
#[test]
fn a_fenced_program_lives() -> Result<()> {
    let (fence, contend) = (program("fence", "fence", &[])?, program("contend", "fence", &[])?);
    let library = library()?;
    for lock in ["auto", "asl", "mcs"] {
        let rules = format!("lib:contend={lock}");
        let outcome = Child::new(&fence)
            .args([library.as_os_str(), contend.as_os_str(), "12".as_ref()])
            .env("LOCKWRIGHT_LOCK", lock)
            .env("LOCKWRIGHT_RULES", rules)
            .run()?;
        ensure!(outcome.end == End::Code(0), "{lock}: {}", outcome.describe());
        ensure!(
            outcome.text() == "done\n" && outcome.errors().is_empty(),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

/// What is told at the start of a program that could do without us until its first contention.
#[test]
fn a_bad_variable_is_told_at_once() -> Result<()> {
    let library = library()?;
    for (variable, value) in [
        ("LOCKWRIGHT_LOCK", "fifi"),
        ("LOCKWRIGHT_LOCK", "fifo:bypass=many"),
        ("LOCKWRIGHT_RULES", "nonsense"),
        ("LOCKWRIGHT_TOPOLOGY", "big:4000"),
        ("LOCKWRIGHT_EMULATE", "big:4000,little:0x2"),
    ] {
        let child = Child::new("true").env("LD_PRELOAD", &library).env(variable, value);
        let outcome = child.run()?;
        let errors = outcome.errors();
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        ensure!(errors.lines().any(|line| line.contains("lockwright: ")), "{variable}: '{errors}'");
    }
    Ok(())
}

/// Runs a contended program that records into `folder`, under a umask that hides nothing.
fn record(test: &str, folder: &Path) -> Result<Outcome> {
    let contend = program("contend", test, &[])?;
    let script = "umask 0; LD_PRELOAD=$1 exec $2";
    Child::new("sh")
        .args(["-c".as_ref(), script.as_ref(), "sh".as_ref()] as [&OsStr; 3])
        .args([library()?.as_os_str(), contend.as_os_str()])
        .env("LOCKWRIGHT_TRACE", folder)
        .env("LOCKWRIGHT_STATS", folder)
        .run()
}

/// Addresses are in there.
#[test]
fn recordings_are_their_owners_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let outcome = record("modes", folder.path())?;
    ensure!(outcome.end == End::Code(0) && outcome.stderr.is_empty(), "{}", outcome.describe());
    let mut files = 0;
    for entry in fs::read_dir(folder.path())? {
        let entry = entry?;
        let mode = entry.metadata()?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "{:?}: {mode:o}", entry.file_name());
        files += 1;
    }
    ensure!(files == 2, "{files} files");
    Ok(())
}

fn refused(test: &str, folder: &Path, why: &str) -> Result<()> {
    let outcome = record(test, folder)?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let errors = outcome.errors();
    let told = errors.lines().filter(|line| line.contains("nothing is recorded")).count();
    ensure!(told == 2 && errors.lines().count() == 2 && errors.contains(why), "{errors}");
    Ok(())
}

#[test]
fn a_link_is_not_followed_to_where_recordings_go() -> Result<()> {
    let (dir, place) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let link = dir.path().join("link");
    symlink(place.path(), &link)?;
    refused("link", &link, "it is a symbolic link")?;
    refused("link", &link.join(""), "it is a symbolic link")?;
    ensure!(fs::read_dir(place.path())?.next().is_none(), "something was written");
    Ok(())
}

#[test]
fn nothing_is_recorded_in_another_users_folder() -> Result<()> {
    let dir: TempDir = tempfile::tempdir()?;
    // Ours, if we may give it away; else the system's own, where we may not write anyway.
    let folder = match std::os::unix::fs::chown(dir.path(), Some(65534), None) {
        Ok(()) => dir.path(),
        Err(_) => Path::new("/"),
    };
    ensure!(fs::metadata(folder)?.uid() != fs::metadata("/proc/self")?.uid(), "it is ours");
    refused("foreign", folder, "it belongs to another user")
}
