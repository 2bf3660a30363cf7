//! Programs that hang: who waits for whom is told first, by each command, under glibc's locks and under ours.

use super::ctl::Program;
use super::{FOLDER, LIBRARY, compiled, compiled_cpp, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::End;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static HUNG: LazyLock<PathBuf> = LazyLock::new(|| compiled("hung", "hung.c", &[]));
static HUNG_CPP: LazyLock<PathBuf> =
    LazyLock::new(|| compiled_cpp("hung-cpp", "hung.cpp", &["-O1"]));

/// A hang lasts. It is told once it has lasted for a while: nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whose locks a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locks {
    Glibcs,
    Ours,
}
use Locks::{Glibcs, Ours};

/// A program that hangs. It ends with its input.
struct Hung {
    program: Program,
    /// The process that hangs: the program, or its child.
    pid: String,
    locks: Locks,
}

impl Hung {
    fn start(path: &Path, way: &str, locks: Locks) -> Result<Self> {
        let mut command = Command::new(path);
        command.arg(way);
        if locks == Ours {
            command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto");
        }
        let program = Program::spawn(&mut command)?;
        let pid = program.said.clone();
        ensure!(pid.parse::<u32>().is_ok(), "{way}: '{pid}'");
        Ok(Self { program, pid, locks })
    }

    /// What a command prints. `doctor` says by its exit code whether we can serve the program: we can.
    fn says(&self, words: &[&str]) -> Result<String> {
        let outcome = lockwright().args(words).run()?;
        ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
        Ok(outcome.text())
    }

    /// The commands that begin with who waits now.
    fn texts(&self) -> Vec<Vec<&str>> {
        let pid = &self.pid[..];
        match self.locks {
            Glibcs => vec![
                vec!["profile", "-q", "-p", pid, "--sample", "--time=10ms"],
                vec!["doctor", pid],
            ],
            Ours => vec![
                vec!["profile", "-q", "-p", pid, "--time=10ms"],
                vec!["switch", pid, "list", "-q", "--time=100ms"],
                vec!["doctor", pid],
            ],
        }
    }

    /// Those whose JSON tells it.
    fn jsons(&self) -> Vec<Vec<&str>> {
        let pid = &self.pid[..];
        let json = "--format=json";
        match self.locks {
            Glibcs => vec![vec!["profile", "-q", "-p", pid, "--sample", "--time=10ms", json]],
            Ours => vec![
                vec!["switch", pid, "list", "-q", "--time=100ms", json],
                vec!["top", pid, "--batch", "--count=1", "--interval=100ms"],
                vec!["profile", "-q", "-p", pid, "--time=10ms", json],
            ],
        }
    }

    fn waiting_now(&self, words: &[&str]) -> Result<Value> {
        let text = self.says(words)?;
        let mut all: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(all["waiting_now"].is_object(), "{words:?}: {text}");
        Ok(all["waiting_now"].take())
    }

    /// Until the answer is the expected one, as it must be some time.
    fn comes_to<T: PartialEq + std::fmt::Debug>(
        &self,
        expected: &T,
        look: impl Fn() -> Result<T>,
    ) -> Result<()> {
        let begun = Instant::now();
        loop {
            let found = look()?;
            if found == *expected {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "{expected:#?} never comes, but {found:#?}");
        }
    }
}

/// Threads' ids, lines and times differ each time: `#` stands for them. Also the lines of a paragraph as one, beginning with its head; those
/// about a thread are sorted, since threads that have waited equally long come in any order.
fn plain(report: &str) -> Vec<String> {
    let first = report.split("\n\n").next().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for line in first.lines() {
        let begins = !line.starts_with("  ")
            || line.starts_with("  thread ")
                && [" waits for ", " has waited "].iter().any(|verb| line.contains(verb))
            || line.starts_with("  and ");
        match lines.last_mut() {
            Some(last) if !begins => *last = format!("{last} {}", line.trim()),
            _ => lines.push(line.trim().to_owned()),
        }
    }
    let mut lines: Vec<String> = lines.iter().map(|line| without_figures(line)).collect();
    if let Some((_, waits)) = lines.split_first_mut() {
        waits.sort();
    }
    lines
}

fn without_figures(line: &str) -> String {
    let mut line = line.to_owned();
    if let Some((before, time)) = line.split_once(" has waited ")
        && let Some((_, after)) = time.split_once(" for ")
    {
        line = format!("{before} waits for {after}");
    }
    for before in ["thread ", "by ", "process ", ".c:", ".cpp:"] {
        let parts = line.split(before).map(str::to_owned).collect::<Vec<_>>();
        let cut = |part: &String| {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() < part.len() { format!("#{rest}") } else { part.clone() }
        };
        line = parts[..1]
            .iter()
            .cloned()
            .chain(parts[1..].iter().map(cut))
            .collect::<Vec<_>>()
            .join(before);
    }
    line
}

/// Each wait as JSON has it: thread, lock, kind, who holds it, and its name; sorted.
fn waits(now: &Value) -> Vec<String> {
    let name = |value: &Value| value["name"].as_str().unwrap_or("-").to_owned();
    let all = now["waits"].as_array().into_iter().flatten();
    let mut all: Vec<String> = all
        .map(|wait| {
            let word = |at: &str| wait.pointer(at).and_then(Value::as_str).unwrap_or_default();
            let (thread, holder) = (name(&wait["thread"]), name(&wait["holder"]["thread"]));
            let line = format!(
                "{thread}: {}, {} - {}: {holder}",
                word("/lock"),
                word("/kind"),
                word("/holder/who")
            );
            without_figures(&line)
        })
        .collect();
    all.sort();
    all
}

/// The number of waits in each circle, and of threads in line.
fn shape(now: &Value) -> (Vec<usize>, u64) {
    let circles = now["deadlocks"].as_array().into_iter().flatten();
    let circles = circles.map(|circle| circle.as_array().map_or(0, Vec::len)).collect();
    (circles, now["in_line"].as_u64().unwrap_or(u64::MAX))
}

/// A circle that a deadline breaks up is no deadlock.
#[test]
fn waits_with_a_deadline_are_told_as_such() -> Result<()> {
    Expected {
        way: "timed",
        text: &[
            "waiting now: 2 threads",
            "thread # (anna) waits for journal (mutex, with a deadline), in trades (hung.c:#): held by # (bert), which waits, too",
            "thread # (bert) waits for ledger (mutex, with a deadline), in trades (hung.c:#): held by # (anna), which waits, too",
        ],
        json: &["anna: journal, mutex - thread: bert", "bert: ledger, mutex - thread: anna"],
        circle: None,
        in_line: 0,
    }
    .check_both(&HUNG, false)
}

/// They fail, but first they say what can be seen.
#[test]
fn commands_that_need_our_library_tell_who_waits_in_any_process() -> Result<()> {
    let hung = Hung::start(&HUNG, "two", Glibcs)?;
    let pid = &hung.pid[..];
    for words in [
        &["profile", "-q", "-p", pid, "--time=10ms"][..],
        &["switch", pid, "list", "-q", "--time=100ms"],
        &["top", pid, "--batch", "--count=1"],
    ] {
        hung.comes_to(&true, || {
            let outcome = lockwright().args(words).run()?;
            ensure!(outcome.end == End::Code(2), "{words:?}: {}", outcome.describe());
            Ok((outcome.text() + &outcome.errors()).starts_with(TWO))
        })
        .with_context(|| format!("{words:?}"))?;
    }
    hung.program.end().map(drop)
}

/// In a file the report begins as on a terminal.
#[test]
fn files_begin_with_who_waits_too() -> Result<()> {
    let hung = Hung::start(&HUNG, "two", Ours)?;
    let [text, page] = ["hung.txt", "hung.html"].map(|name| FOLDER.path().join(name));
    hung.comes_to(&true, || {
        let [text_to, page_to] = [&text, &page].map(|file| file.to_str().unwrap_or_default());
        let options = ["--output", text_to, "--html", page_to];
        hung.says(&[&["profile", "-q", "-p", &hung.pid, "--time=10ms"], &options[..]].concat())?;
        let text = fs::read_to_string(&text)?;
        Ok(text.starts_with(TWO) && fs::read_to_string(&page)?.contains(TWO))
    })?;
    hung.program.end().map(drop)
}

/// What is expected of a way to hang.
struct Expected<'a> {
    way: &'a str,
    /// The report's first lines: head and waits.
    text: &'a [&'a str],
    /// The waits in JSON.
    json: &'a [&'a str],
    /// The number of threads in a circle.
    circle: Option<usize>,
    /// The number of threads in line.
    in_line: u64,
}

impl Expected<'_> {
    /// `all`: with each command, not just one for people and one for programs.
    fn check(&self, path: &Path, locks: Locks, all: bool) -> Result<()> {
        let hung = Hung::start(path, self.way, locks)?;
        let how_many = |list: usize| if all { list } else { 1 };
        let texts = hung.texts();
        let mut text: Vec<String> = self.text.iter().map(|line| (*line).to_owned()).collect();
        text[1..].sort();
        for words in &texts[..how_many(texts.len())] {
            hung.comes_to(&text, || Ok(plain(&hung.says(words)?)))
                .with_context(|| format!("{} {locks:?} {words:?}", self.way))?;
        }
        let jsons = hung.jsons();
        let json: Vec<String> = self.json.iter().map(|line| (*line).to_owned()).collect();
        let shape_of_all = (self.circle.into_iter().collect::<Vec<_>>(), self.in_line);
        for words in &jsons[..how_many(jsons.len())] {
            let look = || {
                let now = hung.waiting_now(words)?;
                Ok((waits(&now), shape(&now)))
            };
            hung.comes_to(&(json.clone(), shape_of_all.clone()), look)
                .with_context(|| format!("{} {locks:?} {words:?}", self.way))?;
        }
        hung.program.end().map(drop)
    }

    fn check_both(&self, path: &Path, all: bool) -> Result<()> {
        self.check(path, Glibcs, all)?;
        self.check(path, Ours, all)
    }
}

const TWO: &str = "deadlock: 2 threads wait for each other, and none will ever go on";
const THREE: &str = "deadlock: 3 threads wait for each other, and none will ever go on";
const EVER: &str = "waiting for ever: 1 thread";
const NOW: &str = "waiting now: 1 thread";

/// Each thread of a circle waits for the next one: with two locks, with three, and with a thread's end among them.
#[test]
fn circles_are_deadlocks_and_told_as_such_by_each_command() -> Result<()> {
    Expected {
        way: "two",
        text: &[
            TWO,
            "thread # (anna) waits for journal (mutex), in transfers (hung.c:#): held by # (bert), which waits, too",
            "thread # (bert) waits for ledger (mutex), in transfers (hung.c:#): held by # (anna), which waits, too",
        ],
        json: &["anna: journal, mutex - thread: bert", "bert: ledger, mutex - thread: anna"],
        circle: Some(2),
        in_line: 0,
    }
    .check_both(&HUNG, true)?;
    Expected {
        way: "three",
        text: &[
            THREE,
            "thread # (anna) waits for journal (mutex), in transfers (hung.c:#): held by # (bert), which waits, too",
            "thread # (bert) waits for archive (mutex), in transfers (hung.c:#): held by # (carl), which waits, too",
            "thread # (carl) waits for ledger (mutex), in transfers (hung.c:#): held by # (anna), which waits, too",
        ],
        json: &[
            "anna: journal, mutex - thread: bert",
            "bert: archive, mutex - thread: carl",
            "carl: ledger, mutex - thread: anna",
        ],
        circle: Some(3),
        in_line: 0,
    }
    .check_both(&HUNG, false)?;
    Expected {
        way: "joined",
        text: &[
            TWO,
            "thread # (anna) waits for ledger (mutex), in takes (hung.c:#): held by # (bert), which waits, too",
            "thread # (bert) waits for the end of thread # (anna), in waits_for_the_end (hung.c:#): it waits, too",
        ],
        json: &[
            "anna: ledger, mutex - thread: bert",
            "bert: the end of thread # (anna), join - thread: anna",
        ],
        circle: Some(2),
        in_line: 0,
    }
    .check_both(&HUNG, false)
}

/// Nobody will ever release the lock: its holder is the waiter itself, has ended, or lives in the parent process.
#[test]
fn locks_that_nobody_can_release_are_told() -> Result<()> {
    let ended = "thread # (anna) waits for ledger (mutex), in takes (hung.c:#): held by thread #, which has ended without releasing it";
    for (way, thread, text, holder) in [
        (
            "itself",
            "anna",
            "thread # (anna) waits for ledger (mutex), in takes (hung.c:#): it holds that lock itself",
            "itself: -",
        ),
        ("ended", "anna", ended, "ended: -"),
        ("cancelled", "anna", ended, "ended: -"),
        (
            "forked",
            "copy",
            "thread # (copy) waits for ledger (mutex), in takes (hung.c:#): held by thread # (bert) of the parent process #, \
             which the fork didn't copy",
            "not-copied: bert",
        ),
        (
            "forked-twice",
            "copy",
            "thread # (copy) waits for ledger (mutex), in takes (hung.c:#): held by thread # (bert) of process #, an ancestor, \
             which the forks didn't copy",
            "not-copied: bert",
        ),
    ] {
        Expected {
            way,
            text: &[EVER, text],
            json: &[&format!("{thread}: ledger, mutex - {holder}")],
            circle: None,
            in_line: 0,
        }
        .check_both(&HUNG, way == "forked")?;
    }
    Ok(())
}

/// A holder in another process releases the lock some time, although it is no thread of the one that waits.
#[test]
fn locks_that_processes_share_are_no_hopeless_ones() -> Result<()> {
    for locks in [Glibcs, Ours] {
        let hung = Hung::start(&HUNG, "shared", locks)?;
        for words in hung.texts() {
            let told = || {
                let text = plain(&hung.says(&words)?);
                let is_told = text.iter().any(|line| {
                    line.starts_with("thread # (copy) waits for ")
                        && line.ends_with(": held by thread # (hung) of process #")
                });
                ensure!(text[0] != EVER, "{text:?}");
                Ok(text[0] == NOW && is_told)
            };
            hung.comes_to(&true, told).with_context(|| format!("{locks:?} {words:?}"))?;
        }
        hung.program.end()?;
    }
    Ok(())
}

/// The holder sleeps: in a system call, or for a signal of another thread.
#[test]
fn what_the_holder_sleeps_for_is_told() -> Result<()> {
    const READS: &str = "held by # (bert), which sleeps in read, in loads (hung.c:#)";
    for (way, lock, doing) in [
        ("recursive", "unlucky (recursive mutex)", READS),
        ("inheriting", "unlucky (priority-inheriting mutex)", READS),
        ("robust", "unlucky (robust mutex)", READS),
        (
            "condition",
            "ledger (mutex)",
            "held by # (bert), which waits for another thread's signal, in awaits (hung.c:#)",
        ),
    ] {
        let (name, kind) = lock.trim_end_matches(')').split_once(" (").context("a kind")?;
        Expected {
            way,
            text: &[
                NOW,
                &format!("thread # (anna) waits for {lock}, in takes (hung.c:#): {doing}"),
            ],
            json: &[&format!("anna: {name}, {kind} - thread: bert")],
            circle: None,
            in_line: 0,
        }
        .check_both(&HUNG, false)?;
    }
    Expected {
        way: "chain",
        text: &[
            "waiting now: 2 threads",
            "thread # (anna) waits for journal (mutex), in takes (hung.c:#): held by # (bert), which waits, too",
            "thread # (bert) waits for ledger (mutex), in takes (hung.c:#): held by # (carl), which sleeps in read, in loads \
             (hung.c:#)",
        ],
        json: &["anna: journal, mutex - thread: bert", "bert: ledger, mutex - thread: carl"],
        circle: None,
        in_line: 0,
    }
    .check_both(&HUNG, false)
}

/// Under our locks, only the first of those who wait knows the holder; the others stand in line.
#[test]
fn threads_that_wait_alike_are_told_together() -> Result<()> {
    let first = "thread # (anna) waits for ledger (mutex), in takes (hung.c:#): held by # (bert), which sleeps in read, in loads \
                 (hung.c:#)";
    let wait = "anna: ledger, mutex - thread: bert";
    Expected {
        way: "loading",
        text: &["waiting now: 4 threads", "and 3 more threads there for the same lock", first],
        json: &[wait; 4],
        circle: None,
        in_line: 0,
    }
    .check(&HUNG, Glibcs, true)?;
    Expected {
        way: "loading",
        text: &[NOW, "and 3 more threads in line behind them", first],
        json: &[wait],
        circle: None,
        in_line: 3,
    }
    .check(&HUNG, Ours, true)
}

#[test]
fn readers_and_writers_that_hold_an_rwlock_are_told() -> Result<()> {
    Expected {
        way: "behind-a-reader",
        text: &[
            NOW,
            "thread # (anna) waits for table (readers-writer lock, for writing), in writes (hung.c:#): held by a reader, which the \
             lock doesn't name: perhaps this thread itself",
        ],
        json: &["anna: table, readers-writer lock, for writing - readers: -"],
        circle: None,
        in_line: 0,
    }
    .check_both(&HUNG, false)?;
    Expected {
        way: "behind-a-writer",
        text: &[
            NOW,
            "thread # (anna) waits for table (readers-writer lock, for reading), in reads (hung.c:#): held by # (bert), which \
             sleeps in clock_nanosleep, in naps (hung.c:#)",
        ],
        json: &["anna: table, readers-writer lock, for reading - thread: bert"],
        circle: None,
        in_line: 0,
    }
    .check_both(&HUNG, false)
}

/// The guards of C++ are passed by, in stacks too.
#[test]
fn cpp_programs_that_hang_are_understood() -> Result<()> {
    Expected {
        way: "two",
        text: &[
            TWO,
            "thread # (payer) waits for wages (mutex), in Bank::transfer (hung.cpp:#): held by # (payee), which waits, too",
            "thread # (payee) waits for savings (mutex), in Bank::transfer (hung.cpp:#): held by # (payer), which waits, too",
        ],
        json: &["payee: savings, mutex - thread: payer", "payer: wages, mutex - thread: payee"],
        circle: Some(2),
        in_line: 0,
    }
    .check_both(&HUNG_CPP, false)?;
    Expected {
        way: "joined",
        text: &[
            TWO,
            "thread # (closer) waits for the end of thread # (looker), in Bank::close (hung.cpp:#): it waits, too",
            "thread # (looker) waits for rates (readers-writer lock, for reading), in Bank::look (hung.cpp:#): held by # (closer), \
             which waits, too",
        ],
        json: &[
            "closer: the end of thread # (looker), join - thread: looker",
            "looker: rates, readers-writer lock, for reading - thread: closer",
        ],
        circle: Some(2),
        in_line: 0,
    }
    .check_both(&HUNG_CPP, false)
}

/// A pool that has nothing to do waits for events alone; and nobody wants the lock that one of its threads has. Nor is an event a lock whose
/// words are like a mutex's.
#[test]
fn a_pool_without_work_waits_for_nobody() -> Result<()> {
    for (way, locks) in [("idle", Glibcs), ("idle", Ours), ("event", Glibcs), ("event", Ours)] {
        let hung = Hung::start(&HUNG, way, locks)?;
        for words in hung.texts() {
            let text = hung.says(&words)?;
            ensure!(!text.starts_with("waiting") && !text.starts_with("deadlock"), "{text}");
            ensure!(!text.contains("desk, a"), "{text}");
        }
        for words in hung.jsons() {
            let now = hung.waiting_now(&words)?;
            ensure!((waits(&now), shape(&now)) == (vec![], (vec![], 0)), "{locks:?}: {now:#}");
        }
        hung.program.end()?;
    }
    Ok(())
}

/// Threads that work wait for each other all the time: for a moment, unless the machine stands still. And never in a circle, or for ever.
#[test]
fn threads_that_work_are_not_told() -> Result<()> {
    for locks in [Glibcs, Ours] {
        let hung = Hung::start(&HUNG, "busy", locks)?;
        let words = &hung.jsons()[0];
        let (mut calm, begun) = (0, Instant::now());
        while calm < 3 {
            let now = hung.waiting_now(words)?;
            let all = waits(&now);
            let hopeless = ["itself:", "ended:", "not-copied:", "stranger:"];
            ensure!(
                !all.iter().any(|wait| hopeless.iter().any(|who| wait.contains(who))),
                "{now:#}"
            );
            ensure!(shape(&now).0.is_empty(), "{now:#}");
            calm += u32::from(all.is_empty());
            ensure!(begun.elapsed() < PATIENCE, "{locks:?}: {now:#}");
        }
        hung.program.end()?;
    }
    Ok(())
}

/// All its threads are stopped, so the holder is.
#[test]
fn a_holder_that_is_stopped_is_told() -> Result<()> {
    for locks in [Glibcs, Ours] {
        let hung = Hung::start(&HUNG, "condition", locks)?;
        let pid = hung.pid.parse()?;
        // Without our library: a process that is stopped answers nothing.
        let words = ["profile", "-q", "-p", &hung.pid, "--sample", "--time=10ms"];
        let line = |doing: &str| {
            let wait = "thread # (anna) waits for ledger (mutex), in takes (hung.c:#): held by # (bert), which";
            vec![NOW.to_owned(), format!("{wait} {doing}")]
        };
        let waits = line("waits for another thread's signal, in awaits (hung.c:#)");
        hung.comes_to(&waits, || Ok(plain(&hung.says(&words)?)))?;
        // SAFETY: our own child, which nobody has waited for.
        ensure!(unsafe { libc::kill(pid, libc::SIGSTOP) } == 0);
        let expected = line("is stopped by a signal or a debugger");
        hung.comes_to(&expected, || Ok(plain(&hung.says(&words)?)))?;
        // SAFETY: the same child, which is stopped and so has not been reaped.
        ensure!(unsafe { libc::kill(pid, libc::SIGCONT) } == 0);
        hung.program.end()?;
    }
    Ok(())
}
