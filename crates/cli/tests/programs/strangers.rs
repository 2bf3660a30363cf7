//! Other people's libraries beside ours, and programs that are not made like most: all is as without us.

use super::*;
use std::ffi::OsStr;

static STRANGERS: LazyLock<PathBuf> = LazyLock::new(|| compiled("strangers", "strangers.c", &[]));

/// One of the libraries of `wraps.c`. `is_exact`: it sees so many calls each time.
fn wraps(what: &str, is_exact: bool) -> PathBuf {
    let flags = [format!("-D{what}"), format!("-DEXACT={}", u8::from(is_exact))];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    compiled(&format!("{what}.so"), "wraps.c", &[&flags[..], &["-shared", "-fPIC"]].concat())
}

/// What it is told, our own lines apart.
fn told(outcome: &Outcome) -> (Vec<String>, Vec<String>) {
    let errors = outcome.errors();
    errors.lines().map(str::to_owned).partition(|line| line.starts_with("lockwright: "))
}

fn same(ours: &Outcome, plain: &Outcome) -> Result<()> {
    ensure!(plain.end == End::Code(0), "without us: {}", plain.describe());
    ensure!(ours.end == plain.end && ours.stdout == plain.stdout, "{}", ours.describe());
    ensure!(told(ours).1 == told(plain).1, "{}\nwithout us: {}", ours.describe(), plain.describe());
    Ok(())
}

/// Runs the program with the library in front of ours, as `run` puts it, and behind ours, as a script may. `function`: what we say that it
/// has; empty: we say nothing.
fn in_front_and_behind(library: &Path, variables: &[(&str, &str)], function: &str) -> Result<()> {
    let child = |child: Child| {
        variables.iter().fold(child, |child, (name, value)| child.env(name, value)).limit(60)
    };
    let plain = child(Child::new(&*STRANGERS)).env("LD_PRELOAD", library).run()?;
    let run = [OsStr::new("run"), OsStr::new("--")];
    let front =
        child(lockwright()).env("LD_PRELOAD", library).args(run).args([&*STRANGERS]).run()?;
    same(&front, &plain)?;
    ensure!(told(&front).0.is_empty(), "{}", front.describe());
    // In the second case the shell says it, and the program that it starts has our locks.
    for script in [
        "LD_PRELOAD=$LD_PRELOAD:$1 exec $2",
        "LD_PRELOAD=$LD_PRELOAD:$1 exec sh -c '$0; exit $?' $2",
    ] {
        let script = [OsStr::new("sh"), "-c".as_ref(), script.as_ref(), "sh".as_ref()];
        let behind =
            child(lockwright()).args(run).args(script).args([library, &STRANGERS]).run()?;
        same(&behind, &plain)?;
        let said = told(&behind).0;
        let is_told = |line: &String| {
            line.contains(function) && line.contains(library.to_str().expect("a path in UTF-8"))
        };
        let lines = usize::from(!function.is_empty());
        ensure!(said.len() == lines && said.iter().all(is_told), "{}", behind.describe());
    }
    Ok(())
}

#[test]
fn a_library_that_wraps_mutexes_sees_every_call() -> Result<()> {
    in_front_and_behind(&wraps("MUTEX", true), &[], "pthread_mutex_lock")
}

#[test]
fn a_library_that_fakes_the_clock_keeps_waits_as_long_as_they_are() -> Result<()> {
    let library = wraps("CLOCK", false);
    for seconds in ["1000000", "-1000000"] {
        in_front_and_behind(&library, &[("SECONDS_OFF", seconds)], "pthread_cond_timedwait")?;
    }
    Ok(())
}

#[test]
fn a_library_that_wraps_malloc_may_lock_there() -> Result<()> {
    in_front_and_behind(&wraps("MALLOC", false), &[], "")
}

#[test]
fn a_library_that_wraps_files_sees_the_programs() -> Result<()> {
    in_front_and_behind(&wraps("FILES", true), &[], "")
}

#[test]
fn a_library_that_wraps_thread_creation_sees_each_thread() -> Result<()> {
    in_front_and_behind(&wraps("THREADS", true), &[], "")
}

/// Its own command puts its library behind ours.
#[test]
fn faketime_keeps_waits_as_long_as_they_are() -> Result<()> {
    for offset in ["+10d", "-10d"] {
        let faked = ["faketime".as_ref(), "-f".as_ref(), OsStr::new(offset)];
        let plain = Child::new("env").args(faked).args([&*STRANGERS]).limit(60).run()?;
        let run = lockwright().args(["run", "--"]).args(faked).args([&*STRANGERS]);
        let inside = run.limit(60).run()?;
        same(&inside, &plain)?;
        let said = told(&inside).0;
        ensure!(said.len() == 1 && said[0].contains("libfaketime"), "{}", inside.describe());
        let outside = Child::new("env")
            .args(faked)
            .args([env!("CARGO_BIN_EXE_lockwright"), "run", "--"])
            .args([&*STRANGERS])
            .env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
            .limit(60)
            .run()?;
        same(&outside, &plain)?;
        ensure!(told(&outside).0.is_empty(), "{}", outside.describe());
    }
    Ok(())
}

/// Runs it as the child of a program that runs under us, and without us: nothing but the locks differs.
fn as_a_child(program: &Path) -> Result<()> {
    let plain = Child::new(program).run()?;
    let child = lockwright().args(["run", "--", "sh", "-c", "$1; exit $?", "sh"]).args([program]);
    let ours = child.run()?;
    same(&ours, &plain)?;
    ensure!(told(&ours).0.is_empty(), "{}", ours.describe());
    // Nor if the variable names the library itself.
    let child = Child::new("sh").args(["-c", "$1; exit $?", "sh"]).args([program]);
    let ours = child.env("LD_PRELOAD", &*LIBRARY).run()?;
    ensure!(ours.end == plain.end && ours.stdout == plain.stdout, "{}", ours.describe());
    Ok(())
}

#[test]
fn a_program_with_musl_runs_as_if_we_were_not_there() -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/strangers.c");
    for (name, flags) in [
        ("musl", &["-O2"][..]),
        ("musl-pie", &["-O2", "-fPIE", "-static-pie"]),
        ("musl-static", &["-O2", "-static"]),
    ] {
        let program = FOLDER.path().join(name);
        let musl = Child::new("musl-gcc").args(flags).args([&source, Path::new("-o"), &program]);
        let outcome = musl.limit(120).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        as_a_child(&program)?;
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_program_says_nothing_of_us() -> Result<()> {
    let linker = "-Wl,--dynamic-linker=/lib/ld-linux.so.2";
    let flags = ["-m32", "-fPIE", "-pie", "-nostdlib", "-fno-stack-protector", linker];
    as_a_child(&compiled("narrow", "narrow.c", &flags))
}

/// It is given nothing, or closes all that it was given.
#[test]
fn a_program_that_cleans_up_runs() -> Result<()> {
    let plain = Child::new(&*STRANGERS).run()?;
    for way in [
        "env -i $1",
        "unset LD_PRELOAD; $1",
        "exec python3 -c 'import os, sys; os.closerange(3, 70000); os.execv(sys.argv[1], sys.argv[1:])' $1",
    ] {
        let run = lockwright().args(["run", "--", "sh", "-c", way, "sh"]).args([&*STRANGERS]);
        let ours = run.run()?;
        same(&ours, &plain)?;
        ensure!(told(&ours).0.is_empty(), "{way}: {}", ours.describe());
    }
    Ok(())
}
