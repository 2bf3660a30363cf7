//! Epochs in real programs: what they record, what survives, what they must not disturb; and the examples.

use anyhow::{Context, Result, ensure};
use lockwright_stats::{Epoch, Process, read_dir};
use lockwright_tests::{Child, End, Outcome, compile, library, scratch, source_dir};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn include() -> Result<String> {
    let root = source_dir().parent().context("the tests lie in the workspace")?;
    Ok(format!("-I{}", root.join("include").display()))
}

/// A program of `tests/epochs/` or of `examples/`, built to a folder of the calling test's own.
fn build(source: &Path, test: &str, flags: &[&str]) -> Result<PathBuf> {
    let stem = source.file_stem().context("a source file")?;
    let binary = scratch(&format!("epochs/{test}"))?.join(stem);
    let include = include()?;
    if source.extension().is_some_and(|end| end == "cpp") {
        let outcome = Child::new("c++")
            .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", &include])
            .args(flags)
            .args([source.as_os_str(), "-o".as_ref(), binary.as_os_str()])
            .limit(120)
            .run()?;
        ensure!(outcome.end == End::Code(0), "cannot compile: {}", outcome.describe());
    } else {
        compile(source, &binary, &[&[include.as_str()], flags].concat())?;
    }
    Ok(binary)
}

fn program(name: &str, test: &str) -> Result<PathBuf> {
    build(&source_dir().join("epochs").join(name), test, &[])
}

/// A child under our library that records to `dir`.
fn recorded(binary: &Path, dir: &TempDir) -> Result<Child> {
    Ok(Child::new(binary)
        .lock(Some("fifo"), library()?.as_os_str())
        .env("LOCKWRIGHT_STATS", dir.path()))
}

fn ensure_end(outcome: &Outcome, end: End) -> Result<()> {
    ensure!(outcome.end == end, "{}", outcome.describe());
    Ok(())
}

fn only(dir: &TempDir) -> Result<Process> {
    let mut processes = read_dir(dir.path())?;
    ensure!(processes.len() == 1, "{} recordings", processes.len());
    processes.pop().context("one recording")
}

fn epoch(process: &Process, id: u32) -> Result<&Epoch> {
    process.epochs.iter().find(|epoch| epoch.id == id).with_context(|| format!("no epoch {id}"))
}

/// Counts are exact and quantiles those that the program measured itself, however it ends.
#[test]
fn what_is_recorded_is_what_happened() -> Result<()> {
    let binary = program("counts.c", "counts")?;
    for (how, end) in
        [("return", End::Code(0)), ("_exit", End::Code(0)), ("kill", End::Signal(libc::SIGKILL))]
    {
        let dir = tempfile::tempdir()?;
        let outcome = recorded(&binary, &dir)?.args([how]).run()?;
        ensure_end(&outcome, end)?;
        let process = only(&dir)?;
        assert_eq!(process.lock, "fifo");
        assert_eq!(process.emulated, None);
        assert!(process.command.ends_with(&format!("counts {how}")), "{}", process.command);
        assert!(process.start_ns < process.last_ns);
        let epoch = epoch(&process, 5)?;
        assert_eq!(
            (epoch.name.as_str(), epoch.slo_ns, epoch.percentile),
            ("request", 50_000, 99.9)
        );
        let all = epoch.all();
        assert_eq!(all.count, 10_000, "{how}");
        let own: Vec<u64> =
            outcome.text().split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let (within, around) = own.split_at(4);
        for (at, q) in [0.25, 0.5, 0.75].into_iter().enumerate() {
            let (low, high) = (within[at], around[at]);
            // A 64th for the histogram; 200 ns, since neither clock waits for the instructions before it.
            let ours = low - low / 64 - 200..=high + high / 64 + 200;
            let quantile = all.quantile(q);
            assert!(ours.contains(&quantile), "{how}, {q}: {quantile}, not in {ours:?}");
        }
        // Some 30 executions end within 200 ns of the SLO.
        let slow = within[3].saturating_sub(60)..=around[3] + 60;
        assert!(slow.contains(&all.violations), "{how}: {}, not in {slow:?}", all.violations);
        assert!(all.min_ns >= 4_800 && all.max_ns >= 50_000, "{} {}", all.min_ns, all.max_ns);
    }
    Ok(())
}

#[test]
fn a_running_program_can_be_read() -> Result<()> {
    let binary = program("counts.c", "live")?;
    let mut counts = Vec::new();
    // A run takes a fifth of a second: if we did not get a CPU in that time, there is another one.
    for _ in 0..5 {
        counts = counts_of_a_running(&binary)?;
        assert!(counts.is_sorted(), "{counts:?}");
        counts.dedup();
        if counts.len() > 3 {
            return Ok(());
        }
    }
    panic!("{counts:?}");
}

/// How many executions of epoch 5 there are, again and again as long as the program runs.
fn counts_of_a_running(binary: &Path) -> Result<Vec<u64>> {
    let dir = tempfile::tempdir()?;
    let mut child = Command::new(binary)
        .arg("return")
        .env("LD_PRELOAD", library()?)
        .env("LOCKWRIGHT_STATS", dir.path())
        .stdout(Stdio::null())
        .spawn()?;
    let start = Instant::now();
    let mut counts = Vec::new();
    while child.try_wait()?.is_none() && start.elapsed() < Duration::from_secs(60) {
        let count = read_dir(dir.path())?
            .iter()
            .flat_map(|process| &process.epochs)
            .filter(|epoch| epoch.id == 5)
            .map(|epoch| epoch.all().count)
            .sum::<u64>();
        counts.push(count);
        thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    Ok(counts)
}

#[test]
fn each_process_has_a_file_of_its_own() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let outcome = recorded(&program("fork.c", "fork")?, &dir)?.run()?;
    ensure_end(&outcome, End::Code(0))?;
    let processes = read_dir(dir.path())?;
    let mut counts = Vec::new();
    for process in &processes {
        let epoch = epoch(process, 7)?;
        counts.push(epoch.all().count);
        let is_again = process.command.ends_with("again");
        let expected = if is_again { ("7", 99.0) } else { ("step", 95.0) };
        assert_eq!((epoch.name.as_str(), epoch.percentile), expected);
        assert_eq!(process.lock, "fifo");
    }
    counts.sort_unstable();
    // The program that a child becomes, the child before that, the grandchild, the child, the parent.
    assert_eq!(counts, [1, 2, 3, 7, 15]);
    // One epoch begins before the fork and ends in both.
    assert_eq!(processes.iter().filter(|process| epoch(process, 8).is_ok()).count(), 2);
    Ok(())
}

#[test]
fn a_tighter_outer_slo_leaves_the_inner_window_alone() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let outcome = recorded(&program("nested.c", "nested")?, &dir)?.run()?;
    ensure_end(&outcome, End::Code(0))?;
    let process = only(&dir)?;
    let [outer, inner, infeasible, easy] = [1, 2, 3, 4]
        .map(|id| epoch(&process, id).map(|epoch| (epoch.all(), epoch.is_infeasible())));
    let (outer, inner, infeasible, easy) = (outer?, inner?, infeasible?, easy?);
    assert!(outer.0.window_ns < 16 && outer.0.violations == 300, "{outer:?}");
    assert_eq!((inner.0.window_ns, inner.0.violations), (100_000_000, 0));
    // Out of reach: the window closes, and it is still too slow.
    assert!(outer.1 && infeasible.1 && infeasible.0.window_ns * 64 < 20_000, "{infeasible:?}");
    assert!(!easy.1 && !inner.1);
    assert_eq!(easy.0.window_ns, 100_000_000);
    Ok(())
}

#[test]
fn threads_that_come_and_go_cost_no_memory() -> Result<()> {
    let outcome = Child::new(program("threads.c", "threads")?)
        .lock(Some("fifo"), library()?.as_os_str())
        .run()?;
    ensure_end(&outcome, End::Code(0))?;
    assert_eq!(outcome.text(), "no growth\n");
    Ok(())
}

#[test]
fn signal_handlers_may_have_epochs() -> Result<()> {
    let binary = program("signals.c", "signals")?;
    let dir = tempfile::tempdir()?;
    for child in
        [Child::new(&binary).lock(Some("fifo"), library()?.as_os_str()), recorded(&binary, &dir)?]
    {
        let outcome = child.run_fairly()?;
        ensure_end(&outcome, End::Code(0))?;
        assert_eq!(outcome.text(), "handled\n");
        // More epochs than can be recorded, which is said; nothing else is.
        assert!(
            outcome.errors().lines().all(|line| line.contains("more than 128")),
            "{}",
            outcome.errors()
        );
    }
    Ok(())
}

#[test]
fn epochs_before_our_constructor_and_after_main_do_no_harm() -> Result<()> {
    let folder = scratch("epochs/early")?;
    let early = folder.join("lib_early.so");
    compile(&source_dir().join("epochs/lib_early.c"), &early, &["-shared", "-fPIC", &include()?])?;
    let link = [early.to_str().context("a path in UTF-8")?, "-Wl,-rpath,$ORIGIN"];
    let binary = build(&source_dir().join("epochs/early.c"), "early", &link)?;
    let dir = tempfile::tempdir()?;
    let outcome = recorded(&binary, &dir)?.run()?;
    ensure_end(&outcome, End::Code(0))?;
    assert_eq!((outcome.text().as_str(), outcome.errors().as_str()), ("3\n", ""));
    let process = only(&dir)?;
    let first = epoch(&process, 1)?;
    assert_eq!((first.name.as_str(), first.percentile), ("early", 90.0));
    // What ended before we read the environment is not recorded.
    assert_eq!([1, 2, 3].map(|id| epoch(&process, id).unwrap().all().count), [1, 1, 1]);
    Ok(())
}

#[test]
fn variables_override_and_bad_ones_are_said_once() -> Result<()> {
    let binary = program("nested.c", "variables")?;
    let dir = tempfile::tempdir()?;
    let child =
        recorded(&binary, &dir)?.env("LOCKWRIGHT_SLO", "777").env("LOCKWRIGHT_PERCENTILE", "99.5");
    let outcome = child.run()?;
    ensure_end(&outcome, End::Code(0))?;
    assert_eq!(outcome.errors(), "");
    for epoch in only(&dir)?.epochs {
        assert_eq!((epoch.slo_ns, epoch.percentile), (777, 99.5), "{}", epoch.id);
    }

    let bad = [
        ("LOCKWRIGHT_SLO", "20us", "20us"),
        ("LOCKWRIGHT_PERCENTILE", "50", "from 90 to 99.9"),
        ("LOCKWRIGHT_STATS", "/no such folder", "No such file or directory"),
        ("LOCKWRIGHT_STATS", "/dev/null", "Not a directory"),
    ];
    for (variable, value, said) in bad {
        let child =
            Child::new(&binary).lock(Some("fifo"), library()?.as_os_str()).env(variable, value);
        let outcome = child.run()?;
        ensure_end(&outcome, End::Code(0))?;
        let errors = outcome.errors();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(
            errors.contains(variable) && errors.contains(value) && errors.contains(said),
            "{errors}"
        );
    }
    Ok(())
}

/// The library's message must not end the program by SIGPIPE.
#[test]
fn nobody_need_listen_to_us() -> Result<()> {
    let binary = program("nested.c", "deaf")?;
    // The pipe's reader has ended for certain when the program starts. (Rust ignores SIGPIPE; the shell resets it.)
    let script = format!(
        "exec 3>&1; {{ read -r go; LD_PRELOAD={} {} 2>&1 >/dev/null; echo $? >&3; }} <fifo | {{ exec <&-; echo go; }} >fifo",
        library()?.display(),
        binary.display()
    );
    let dir = tempfile::tempdir()?;
    let script = format!("cd {}; mkfifo fifo; {script}", dir.path().display());
    let child = Child::new("env").args(["--default-signal=PIPE", "sh", "-c", &script]);
    let outcome = child.env("LOCKWRIGHT_SLO", "bad").run()?;
    ensure_end(&outcome, End::Code(0))?;
    assert_eq!(outcome.text(), "0\n", "{}", outcome.describe());
    Ok(())
}

/// A limit on the size of files, which the kernel enforces by a deadly signal.
#[test]
fn a_limit_on_files_is_respected() -> Result<()> {
    let binary = program("nested.c", "limit")?;
    let dir = tempfile::tempdir()?;
    let script =
        format!("ulimit -f 100; LD_PRELOAD={} exec {}", library()?.display(), binary.display());
    let outcome =
        Child::new("sh").args(["-c", &script]).env("LOCKWRIGHT_STATS", dir.path()).run()?;
    ensure_end(&outcome, End::Code(0))?;
    assert!(outcome.errors().contains("File too large"), "{}", outcome.errors());
    Ok(())
}

/// The examples say the same with and without us, however they are built; what they annotate is recorded.
#[test]
fn examples_run_with_and_without_us() -> Result<()> {
    let root = source_dir().parent().context("the tests lie in the workspace")?;
    let cases: [(&str, &str, &[&str], bool); 7] = [
        ("bank.c", "pie", &["-fPIE", "-pie"], true),
        ("bank.c", "no-pie", &["-fno-pie", "-no-pie"], true),
        ("bank.c", "debug", &["-O0"], true),
        ("bank.c", "c99", &["-std=c99", "-Wpedantic", "-D_POSIX_C_SOURCE=200809L"], true),
        ("bank.c", "static", &["-static"], false),
        ("cache.cpp", "pie", &[], true),
        ("cache.cpp", "no-pie", &["-std=c++14", "-fno-pie", "-no-pie"], true),
    ];
    for (name, how, flags, is_reached) in cases {
        let test = format!("{name}-{how}");
        let binary = build(&root.join("examples").join(name), &test, flags)?;
        let plain = Child::new(&binary).args(["2000"]).run()?;
        ensure_end(&plain, End::Code(0))?;
        let expected = if name == "bank.c" { "64000\n" } else { "4000 misses\n" };
        assert_eq!(plain.text(), expected, "{test}");
        let dir = tempfile::tempdir()?;
        let ours = recorded(&binary, &dir)?.args(["2000"]).run()?;
        ensure_end(&ours, End::Code(0))?;
        assert_eq!((ours.text(), ours.errors()), (plain.text(), String::new()), "{test}");
        if !is_reached {
            assert_eq!(read_dir(dir.path())?, [], "{test}");
            continue;
        }
        let process = only(&dir)?;
        let counts: Vec<(&str, u64)> =
            process.epochs.iter().map(|epoch| (epoch.name.as_str(), epoch.all().count)).collect();
        let expected: &[_] = if name == "bank.c" {
            &[("transfer", 4 * 2020 + 1), ("audit", 81)]
        } else {
            &[("2", 50), ("look-up", 8000)]
        };
        let mut counts = counts;
        counts.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(counts, expected, "{test}");
    }
    Ok(())
}

/// The numbered files of one process id do not hide each other.
#[test]
fn recordings_are_files_of_their_processes() -> Result<()> {
    let dir = tempfile::tempdir()?;
    ensure_end(&recorded(&program("fork.c", "files")?, &dir)?.run()?, End::Code(0))?;
    let mut names: Vec<String> = fs::read_dir(dir.path())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(names.iter().filter(|name| name.ends_with("-1.stats")).count() == 1, "{names:?}");
    Ok(())
}

/// The server of docs/slow-server.md, with its fault and without: every change is in the journal, once, before it is answered.
#[test]
fn the_books_server_notes_each_change_once() -> Result<()> {
    let root = source_dir().parent().context("a workspace")?;
    for (variant, flags) in [("faulty", &[][..]), ("fixed", &["-DFIXED"])] {
        let binary = build(&root.join("examples/kv.c"), &format!("kv-{variant}"), flags)?;
        let folder = TempDir::new()?;
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Child::new(&binary).lock(Some("fifo"), library()?.as_os_str());
        let mut server = child.args([port.to_string()]).dir(folder.path()).limit(60).start()?;
        let mut client = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(client) => break client,
                Err(_) => ensure!(server.end()?.is_none(), "{}", server.outcome()?.describe()),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let load =
            Child::new(&binary).args([&port.to_string(), "load", "1", "4"]).limit(60).run()?;
        ensure_end(&load, End::Code(0))?;
        assert!(load.text().starts_with("requests/s: "), "{}", load.describe());
        client.write_all(b"set 5 42\nget 5\n")?;
        let mut answer = [0; 10];
        client.read_exact(&mut answer)?;
        assert_eq!(&answer, b"5 42\n5 42\n", "{variant}");
        let journal = fs::read_to_string(folder.path().join("kv.journal"))?;
        assert!(journal.ends_with(" set 5 42\n"), "{variant}: {journal}");
        let numbers =
            journal.lines().map(|line| line.split(' ').next().unwrap_or_default().parse());
        let mut numbers = numbers.collect::<Result<Vec<usize>, _>>()?;
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(1..=numbers.len()), "{variant}: {journal}");
        server.stop()?;
    }
    Ok(())
}

/// The programs of the quick starts are on their pages alone.
#[test]
fn programs_of_the_quick_starts_run_under_us() -> Result<()> {
    let docs = source_dir().parent().context("a workspace")?.join("docs");
    let folder = TempDir::new()?;
    for (page, language, file, said) in [
        ("start-c.md", "c", "hits.c", "4000000\n"),
        ("start-cpp.md", "cpp", "hits.cpp", "1000\n"),
        ("start-python.md", "python", "hits.py", "800000\n"),
        ("start-java.md", "java", "Hits.java", "2000000\n"),
    ] {
        let text = fs::read_to_string(docs.join(page))?;
        let block = text
            .split_once(&format!("```{language}\n"))
            .and_then(|(_, rest)| rest.split_once("```"));
        let (program, _) = block.with_context(|| format!("{page} has no program"))?;
        let source = folder.path().join(file);
        fs::write(&source, program)?;
        let child = match language {
            "python" => Child::new("python3").args([&source]),
            "java" => {
                let compiled =
                    Child::new("javac").args([file]).dir(folder.path()).limit(120).run()?;
                ensure!(compiled.end == End::Code(0), "cannot compile: {}", compiled.describe());
                Child::new("java").args(["Hits"]).dir(folder.path())
            }
            _ => Child::new(build(&source, page, &[])?),
        };
        let outcome = child.lock(Some("fifo"), library()?.as_os_str()).limit(120).run()?;
        ensure_end(&outcome, End::Code(0))?;
        assert_eq!(outcome.text(), said, "{page}");
    }
    Ok(())
}
