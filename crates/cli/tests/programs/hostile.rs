//! Text that others wrote is shown, but no terminal obeys it.

use super::*;
use lockwright_stats::trace::{LockInfo, Meta, Step, Trace, TraceThread};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

/// Sets a terminal's title, its colour (in two ways), and turns what follows around.
const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}31m\u{202e}";
/// The same, shown.
const SHOWN: &str = r"x\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}31m\u{202e}";

/// Nothing but lines, though it was there.
fn check(outcome: &Outcome, shown: &str) {
    for text in [outcome.text(), outcome.errors()] {
        let acts = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
        assert!(!text.contains(acts), "{text:?}");
    }
    // Lines may be broken between words.
    let text = (outcome.text() + &outcome.errors()).replace("\n  ", " ");
    assert!(text.contains(shown), "{}", outcome.describe());
}

#[test]
fn traces_are_only_text() -> Result<()> {
    let steps = vec![
        Step::Acquire { lock: 0, wait_ns: 0 },
        Step::Compute(u64::MAX),
        Step::Release(0),
        Step::Idle(u64::MAX),
    ];
    let meta = Meta {
        processes: vec![HOSTILE.into()],
        lock: format!("{HOSTILE}\nerror: forged"),
        emulated: Some(HOSTILE.into()),
        cpus: 2,
        span_ns: 1000,
        ..Meta::default()
    };
    let trace = Trace {
        meta,
        locks: vec![LockInfo { address: 64, ..LockInfo::default() }],
        threads: vec![TraceThread { steps, start_ns: u64::MAX, ..TraceThread::default() }],
    };
    let path = FOLDER.path().join(format!("{HOSTILE}.bin"));
    fs::write(&path, trace.to_bytes())?;
    let show = |command: &[&str]| lockwright().args(command).args([&path]).run();
    let outcome = show(&["profile", "--record", "--show"])?;
    check(&outcome, &format!("on lock {SHOWN}\\nerror: forged and 2 CPUs"));
    check(&outcome, &format!("emulated ({SHOWN})"));
    let outcome = show(&["profile", "--record", "--json", "--show"])?;
    check(&outcome, r#""x\u001b]0;owned\u0007\u001b[31m\u009b31m\u202e""#);
    let json: serde_json::Value = serde_json::from_slice(&outcome.stdout)?;
    assert_eq!(json["emulated"], HOSTILE);
    let outcome =
        show(&["sim", "--machine", "m1", "--lock", "mcs", "--duration", "1us", "--trace"])?;
    check(&outcome, &format!("emulated machine ({SHOWN})"));
    // A file that is none says so with its name.
    fs::write(&path, "something else")?;
    check(&show(&["profile", "--record", "--show"])?, SHOWN);
    Ok(())
}

/// A process's name is any bytes but zero: every command finds it, and shows it in one line.
#[test]
fn a_process_may_have_any_name() -> Result<()> {
    let program = FOLDER.path().join(OsStr::from_bytes(b"od\xff\nd"));
    symlink("/bin/sleep", &program)?;
    let running =
        lockwright().args(["run", "--"]).args([&program]).args(["600"]).limit(600).start()?;
    let pid = running.pid().to_string();
    let named = |words: &[&str]| lockwright().args(words).run();
    // It begins as this command.
    let begun = Instant::now();
    let switch = loop {
        let outcome = named(&["switch", &pid])?;
        if outcome.end == End::Code(0) || begun.elapsed() > Duration::from_secs(120) {
            break outcome;
        }
    };
    let begin = format!("{pid} (od\u{fffd}\\nd): auto; counts: ");
    ensure!(switch.text().starts_with(&begin), "{}", switch.describe());
    for words in [
        &["switch", &pid, "list", "-q", "--time=100ms"][..],
        &["top", &pid, "--batch", "--count=1", "--interval=100ms"],
        &["profile", "-q", "-p", &pid, "--time=100ms"],
        &["profile", "-q", "-p", &pid, "--time=100ms", "--sample"],
    ] {
        let outcome = named(words)?;
        ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
    }
    Ok(())
}

#[test]
fn names_of_programs_are_only_text() -> Result<()> {
    let program = FOLDER.path().join(HOSTILE);
    executable(&program, fs::read(&*CONTEND)?)?;
    let name = |command: &[&str]| lockwright().args(command).args([&program]).run();
    check(&name(&["doctor"])?, SHOWN);
    check(&name(&["run", "--stats", "--"])?, SHOWN);
    fs::remove_file(&program)?;
    check(&name(&["run", "--"])?, SHOWN);
    check(&name(&["doctor"])?, SHOWN);
    Ok(())
}

#[test]
fn options_variables_and_files_are_only_text() -> Result<()> {
    check(&run(&["--lock", HOSTILE, "--", "true"])?, SHOWN);
    let bad = lockwright().env("LOCKWRIGHT_LOCK", HOSTILE).args(["run", "--", "true"]).run()?;
    check(&bad, SHOWN);
    let config = file("hostile.toml", "default = \"x\\u001b]0;owned\\u0007\"");
    check(&run(&["--config", &config, "--", "true"])?, r"x\u{1b}]0;owned\u{7}");
    check(&lockwright().args(["doctor", "--topology", "--set", HOSTILE]).run()?, SHOWN);
    Ok(())
}

/// The library itself, whose line goes to the program's standard error.
#[test]
fn the_librarys_line_is_only_text() -> Result<()> {
    for (variable, text) in [
        ("LOCKWRIGHT_LOCK", "fifo\u{1b}[31m\u{9b}\n\u{7f}"),
        ("LOCKWRIGHT_RULES", "\u{1b}[31m"),
        ("LOCKWRIGHT_STATS", "/nowhere/\u{1b}[31m"),
    ] {
        let program = Child::new(&*CONTEND).env("LD_PRELOAD", &*LIBRARY).env(variable, text);
        let outcome = program.run()?;
        assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(0), COUNT), "{variable}");
        assert_eq!(outcome.errors().lines().count(), 1, "{}", outcome.describe());
        check(&outcome, r"\x1b[31m");
    }
    Ok(())
}
