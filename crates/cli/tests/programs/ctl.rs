//! `lockwright switch`: a program with a lock that has a name, and one in the heap; and one under stress, switched again and again.

use super::{FOLDER, LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, bail, ensure};
use lockwright_contract::mailbox::{MAGIC, Mailbox};
use lockwright_contract::post::{Post, PostState};
use lockwright_locks::catalog::front_rules;
use lockwright_tests::{End, Outcome, source_dir};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing here takes that long.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A program that ends with its input, so it can't outlive us.
pub(super) struct Program {
    pub(super) child: Child,
    /// Its own: `child` may be a command that has started it.
    pub(super) pid: u32,
    output: BufReader<ChildStdout>,
    /// The first line that it prints.
    pub(super) said: String,
}

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compiled("ctl", "ctl.c", &["-g"]));
static READERS: LazyLock<PathBuf> = LazyLock::new(|| compiled("readers", "readers.c", &["-g"]));

impl Program {
    pub(super) fn start() -> Result<Self> {
        Self::start_file(&PROGRAM)
    }

    /// The same, which nothing can be preloaded into.
    pub(super) fn start_static() -> Result<Self> {
        Self::start_file(&compiled("ctl-static", "ctl.c", &["-static"]))
    }

    /// The same, whose lock in the heap is recursive.
    pub(super) fn start_recursive() -> Result<Self> {
        Self::start_file(&compiled("recursive", "ctl.c", &["-DHEAP_KIND=PTHREAD_MUTEX_RECURSIVE"]))
    }

    /// A program with readers-writer locks, and no mutex.
    pub(super) fn start_readers() -> Result<Self> {
        Self::start_file(&READERS)
    }

    /// Gives it a byte of input, and waits until it says that each of its threads has got on.
    pub(super) fn gets_on(&mut self) -> Result<()> {
        self.child.stdin.as_mut().context("its input")?.write_all(b"x")?;
        let mut said = String::new();
        self.output.read_line(&mut said)?;
        ensure!(said == "more\n", "'{said}'");
        Ok(())
    }

    /// Starts it by `lockwright WORDS -- PROGRAM`, a command that stays.
    pub(super) fn start_by(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
        command.args(words).arg("--").arg(&*PROGRAM);
        command.env("LOCKWRIGHT_LIBRARY", &*LIBRARY).env("XDG_CONFIG_HOME", FOLDER.path());
        let mut new = Self::spawn(&mut command)?;
        let children = format!("/proc/{0}/task/{0}/children", new.pid);
        let children = fs::read_to_string(&children).context(children)?;
        new.pid = children.trim().parse().with_context(|| format!("one child: '{children}'"))?;
        Ok(new)
    }

    pub(super) fn start_file(path: &PathBuf) -> Result<Self> {
        let mut command = Command::new(path);
        Self::spawn(command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto"))
    }

    pub(super) fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        let mut said = String::new();
        output.read_line(&mut said)?;
        Ok(Self { pid: child.id(), child, output, said: said.trim().to_owned() })
    }

    /// Behind `switch PID`.
    pub(super) fn switch(&self, arguments: &[&str]) -> Result<Outcome> {
        lockwright().args(["switch", &self.pid.to_string()]).args(arguments).limit(300).run()
    }

    /// What it prints if all is well.
    pub(super) fn ok(&self, arguments: &[&str]) -> Result<String> {
        let outcome = self.switch(arguments)?;
        ensure!(outcome.end == End::Code(0), "{arguments:?}: {}", outcome.describe());
        Ok(outcome.text())
    }

    fn list(&self) -> Result<Value> {
        let text = self.ok(&["list", "--time=200ms", "--format=json"])?;
        serde_json::from_str(&text).context(text)
    }

    /// Until a look shows that: it must, some time.
    pub(super) fn comes_to(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let list = self.list()?;
            if is_so(&list) {
                return Ok(list);
            }
            ensure!(begun.elapsed() < PATIENCE, "never {what}: {list:#}");
        }
    }

    /// Until the contended lock of that name has that rule.
    pub(super) fn comes_to_run(&self, name: &str, rule: &str) -> Result<()> {
        let has = |list: &Value| lock(list, name).is_some_and(|lock| lock["rule"] == rule);
        self.comes_to(&format!("{name} on {rule}"), has).map(drop)
    }

    /// It still runs, and ends as it would have without us. The rest of what it has printed.
    pub(super) fn end(mut self) -> Result<String> {
        ensure!(self.child.try_wait()?.is_none(), "the program has ended by itself");
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {text}");
        Ok(text)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A contended lock, by how its name begins.
fn lock<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["locks"].as_array()?.iter().find(|lock| {
        lock["name"].as_str().is_some_and(|known| known.starts_with(name)) && lock["contended"] != 0
    })
}

#[test]
fn each_lock_gets_the_rule_that_it_is_given() -> Result<()> {
    let program = Program::start()?;
    let heap = program.said.clone();
    program.comes_to_run("g_lock", "auto")?;
    program.comes_to_run(&heap, "auto")?;
    let said = program.ok(&["g_lock", "fifo"])?;
    ensure!(said.contains("  mutex g_lock (ctl+0x") && said.ends_with(": fifo\n"), "{said}");
    program.comes_to_run("g_lock", "fifo")?;
    program.comes_to_run(&heap, "auto")?;
    // As the list names it.
    program.ok(&[&format!("{heap}, of visit"), "cal"])?;
    program.comes_to_run(&heap, "cal")?;
    program.comes_to_run("g_lock", "fifo")?;
    program.ok(&["set", "g_lock", "spin=7us"])?;
    program.comes_to_run("g_lock", "fifo:spin=7us")?;
    program.ok(&["set", "g_lock", "bypass=9,spin=8us"])?;
    program.comes_to_run("g_lock", "fifo:bypass=9,spin=8us")?;
    program.ok(&["g_lock", "default"])?;
    program.comes_to_run("g_lock", "auto")?;
    program.ok(&["default", "barging"])?;
    program.comes_to_run("g_lock", "barging")?;
    program.comes_to_run(&heap, "cal")?;
    // By the function that waits for both.
    program.ok(&[&heap, "default"])?;
    program.ok(&["visit", "slo"])?;
    program.comes_to_run("g_lock", "slo")?;
    program.comes_to_run(&heap, "slo")?;
    let said = program.ok(&["all", "mutexee"])?;
    ensure!(said.ends_with("(ctl): mutexee\n"), "{said}");
    program.comes_to_run("g_lock", "mutexee")?;
    program.comes_to_run(&heap, "mutexee")?;
    // The list is what the command shows without another word.
    let list: Value = serde_json::from_str(&program.ok(&["--format=json"])?)?;
    ensure!(list["locks"].is_array(), "{list:#}");
    program.end().map(drop)
}

#[test]
fn more_rules_than_there_is_room_for_come_and_go() -> Result<()> {
    let program = Program::start()?;
    let heap = u64::from_str_radix(program.said.trim_start_matches("0x"), 16)?;
    // Each is another rule. 29 fit at a time.
    let fifo = |step: u64| program.switch(&[&format!("{:#x}", heap + 8 * step), "fifo"]);
    for step in 0..29 {
        ensure!(fifo(step)?.end == End::Code(0));
    }
    let outcome = fifo(29)?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(outcome.errors().contains("29 rules at a time"), "{}", outcome.describe());
    // There is room for others where these were.
    program.ok(&["all", "auto"])?;
    ensure!(fifo(30)?.end == End::Code(0));
    ensure!(fifo(0)?.end == End::Code(0));
    program.comes_to_run(&program.said, "fifo")?;
    program.end().map(drop)
}

#[test]
fn epochs_get_another_slo_and_back() -> Result<()> {
    let program = Program::start()?;
    let slo = |ns: u64, is_set: bool| {
        move |list: &Value| {
            let all = list["epochs"].as_array().into_iter().flatten();
            let mut named = all.filter(|epoch| epoch["name"] == "get" && epoch["id"] == 5);
            named.any(|epoch| epoch["slo_ns"] == ns && epoch["is_set"] == is_set)
        }
    };
    let list = program.comes_to("the program's SLO", slo(70_000_000, false))?;
    ensure!(list["epochs"].as_array().context("epochs")?.len() == 1, "{list}");
    program.ok(&["slo", "get", "1ns"])?;
    program.comes_to("ours", slo(1, true))?;
    // Nothing takes less.
    program.comes_to("only misses", |list| {
        let epoch = &list["epochs"][0];
        epoch["ended_per_s"].as_f64() > Some(0.0) && epoch["ended_per_s"] == epoch["missed_per_s"]
    })?;
    program.ok(&["slo", "5", "own"])?;
    program.comes_to("its own again", slo(70_000_000, false))?;
    let outcome = program.switch(&["slo", "gte", "100us"])?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    let pid = program.child.id();
    ensure!(
        outcome
            .errors()
            .ends_with(&format!("it has get; lockwright switch {pid} slo 'get' 100us\n")),
        "{}",
        outcome.describe()
    );
    program.end().map(drop)
}

/// With the library in the process too, and without: the list is that of the runtime that serves.
#[test]
fn delegated_data_run_as_told() -> Result<()> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let include = format!("-I{}", include.display());
    let archive = LIBRARY.with_file_name("liblockwright_static.a").display().to_string();
    let path = compiled("delegated", "delegated.c", &["-O1", "-g", &include, &archive, "-lm"]);
    for preloaded in [false, true] {
        let mut command = Command::new(&path);
        if preloaded {
            command.env("LD_PRELOAD", &*LIBRARY);
        }
        let program = Program::spawn(&mut command)?;
        let is = |run_by: &str, by_hand: bool| {
            let run_by = run_by.to_owned();
            move |list: &Value| {
                let data = &list["delegated"][0];
                data["name"] == "g_table"
                    && data["run_by"] == *run_by
                    && data["is_by_hand"] == by_hand
            }
        };
        program.comes_to("listed", |list| list["delegated"][0]["name"] == "g_table")?;
        program.ok(&["delegate", "g_table", "always"])?;
        program.comes_to("a combiner", is("a combiner", true))?;
        // Its waits are observed, though no thread waits for the mutex.
        program.comes_to("observed", |list| lock(list, "g_table").is_some())?;
        program.ok(&["delegate", "all", "never"])?;
        program.comes_to("each", is("each thread", true))?;
        program.ok(&["delegate", "g_table", "if-faster"])?;
        program.comes_to("as it pays", |list| list["delegated"][0]["is_by_hand"] == false)?;
        let wrong = program.switch(&["delegate", "g_tabel", "never"])?;
        let said = wrong.describe();
        ensure!(wrong.end == End::Code(2) && said.contains("delegate 'g_table'"), "{said}");
        ensure!(program.end()? == "done\n", "sections were torn");
    }
    Ok(())
}

#[test]
fn counts_are_asked_for_copied_and_begun_anew() -> Result<()> {
    let program = Program::start()?;
    let said = program.ok(&["level", "full"])?;
    ensure!(said.ends_with("(ctl) counts: full\n"), "{said}");
    // What a command asks for while it looks is not what the process counts by itself.
    program.comes_to("full", |list| list["level"] == "full")?;
    program.comes_to("contended", |list| lock(list, "g_lock").is_some())?;
    let file = FOLDER.path().join("ctl.observe");
    let path = file.to_str().context("a path")?;
    let read = || -> Result<Value> {
        program.ok(&["dump", path])?;
        let outcome = lockwright().args(["profile", "--format=json", "--read", path]).run()?;
        let all: Value =
            serde_json::from_str(&outcome.text()).with_context(|| outcome.describe())?;
        Ok(all["processes"][0].clone())
    };
    let before = read()?;
    let waits = |process: &Value| -> Result<u64> {
        let locks = process["locks"].as_array().context("locks")?;
        let lock = locks.iter().find(|lock| lock["name"] == "g_lock").context("g_lock")?;
        lock["contended"].as_u64().context("a number")
    };
    // From here on nothing is counted, so nothing comes between.
    program.ok(&["level", "off"])?;
    program.comes_to("off", |list| list["level"] == "off")?;
    ensure!(waits(&read()?)? >= waits(&before)?);
    let said = program.ok(&["reset"])?;
    ensure!(said.contains("reset the counts of ") && said.ends_with(" locks to 0\n"), "{said}");
    let after = read()?;
    ensure!(after["elapsed_ns"].as_u64() < before["elapsed_ns"].as_u64(), "{after}");
    // It goes on, for a while.
    program.ok(&["level", "counters", "--for", "100ms"])?;
    program.comes_to("off", |list| list["level"] == "off")?;
    program.comes_to("contended", |list| lock(list, "g_lock").is_some())?;
    program.end().map(drop)
}

/// A command that says of a program that it does 1000 while its default is `auto`, and 10 else: between any two looks.
fn counter(program: &Program, name: &str) -> Result<String> {
    let file = FOLDER.path().join(name);
    fs::write(&file, "0\n")?;
    let script = FOLDER.path().join(format!("{name}.sh"));
    let text = format!(
        "case $('{0}' switch {1} list -q --time=100ms) in *': auto; '*) step=1000;; *) step=10;; esac\nn=$(($(cat '{2}') + step))\necho $n | tee '{2}'\n",
        env!("CARGO_BIN_EXE_lockwright"),
        program.child.id(),
        file.display(),
    );
    fs::write(&script, text)?;
    Ok(format!("sh '{}'", script.display()))
}

#[test]
fn what_is_worse_is_rolled_back() -> Result<()> {
    let program = Program::start()?;
    let counter = counter(&program, "worse")?;
    let arguments = ["all", "barging", "--guard=600ms", "--counter", &counter];
    let outcome = program.switch(&arguments)?;
    ensure!(outcome.end == End::Code(1), "{}", outcome.describe());
    let verdict = "barging is worse: less than half the work per second, 4 times in a row;";
    ensure!(outcome.text().starts_with(verdict), "{}", outcome.describe());
    let verdict = outcome.text().split_once("\n\n").map(|(first, _)| first.replace("\n  ", " "));
    ensure!(
        verdict.is_some_and(|verdict| verdict.ends_with("; rolled back to auto")),
        "{}",
        outcome.describe()
    );
    ensure!(outcome.text().contains("\ncounted/s "), "{}", outcome.describe());
    program.comes_to_run("g_lock", "auto")?;
    // Whatever it finds, what it says is so.
    let begun = Instant::now();
    let outcome = loop {
        let outcome = program.switch(&["set", "g_lock", "spin=9us", "--guard=600ms"])?;
        // On a machine that is busy elsewhere, no epoch may end in a time slice.
        if !outcome.text().contains("\nthroughput is unknown") || begun.elapsed() > PATIENCE {
            break outcome;
        }
        program.ok(&["all", "auto"])?;
    };
    let rule = match outcome.end {
        End::Code(0) => "auto:spin=9us",
        End::Code(1) => "auto",
        _ => bail!("{}", outcome.describe()),
    };
    ensure!(outcome.text().contains("\nepochs/s "), "{}", outcome.describe());
    program.comes_to_run("g_lock", rule)?;
    // The same again changes nothing: then there is nothing to compare, and that is said.
    program.ok(&["all", "auto"])?;
    let outcome = program.switch(&["all", "auto", "--guard=600ms"])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(outcome.errors().contains("compared nothing"), "{}", outcome.describe());
    program.end().map(drop)
}

#[test]
fn a_process_that_can_not_count_says_why() -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec env LD_PRELOAD=\"$1\" \"$0\""]);
    let program = Program::spawn(command.arg(&*PROGRAM).arg(&*LIBRARY))?;
    let begun = Instant::now();
    loop {
        let outcome = program.switch(&["level", "full"])?;
        if outcome.end == End::Code(2) {
            let why = "has no shared memory to count locks in: file too large";
            ensure!(outcome.errors().contains(why), "{}", outcome.describe());
            return program.end().map(drop);
        }
        // No thread has had to wait so far.
        let said = outcome.text();
        ensure!(
            said.ends_with("counts: full, as soon as a thread has to wait for a lock\n"),
            "{said}"
        );
        ensure!(begun.elapsed() < PATIENCE, "no thread ever waits");
    }
}

/// A guard that measures for a minute, and is at the new lock.
fn guarded(program: &Program) -> Result<Child> {
    let guard = Command::new(env!("CARGO_BIN_EXE_lockwright"))
        .args(["switch", &program.child.id().to_string(), "all", "fifo", "--guard=60s", "-q"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    program.comes_to("under way", |list| list["default"] == "fifo")?;
    Ok(guard)
}

/// What it says on standard error, and its exit code.
fn said(guard: Child) -> Result<(String, Option<i32>)> {
    let outcome = guard.wait_with_output()?;
    Ok((String::from_utf8(outcome.stderr)?, outcome.status.code()))
}

fn is_back(list: &Value) -> bool {
    let has_rules = list["rules"].as_array().is_some_and(|rules| !rules.is_empty());
    list["default"] == "auto" && !has_rules && list["posted"].is_null()
}

#[test]
fn a_guard_that_is_killed_is_missed_and_the_old_lock_comes_back() -> Result<()> {
    let program = Program::start()?;
    let mut guard = guarded(&program)?;
    guard.kill()?;
    guard.wait()?;
    program.comes_to("back", is_back)?;
    program.comes_to_run("g_lock", "auto")?;
    // The next command finds nothing in its way.
    program.ok(&["all", "cal"])?;
    program.comes_to_run("g_lock", "cal")?;
    program.end().map(drop)
}

#[test]
fn a_guard_that_is_stopped_for_too_long_says_that_it_has_lost() -> Result<()> {
    let program = Program::start()?;
    let guard = guarded(&program)?;
    let send = |signal| {
        // SAFETY: no preconditions; our own child.
        ensure!(unsafe { libc::kill(guard.id() as libc::pid_t, signal) } == 0);
        Ok(())
    };
    send(libc::SIGSTOP)?;
    program.comes_to("back", is_back)?;
    send(libc::SIGCONT)?;
    let (errors, code) = said(guard)?;
    ensure!(code == Some(2) && errors.contains("was stopped for longer than 3 s"), "{errors}");
    ensure!(is_back(&program.list()?));
    program.end().map(drop)
}

#[test]
fn a_guard_that_is_asked_to_end_goes_back_at_once() -> Result<()> {
    let program = Program::start()?;
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        let guard = guarded(&program)?;
        // SAFETY: no preconditions; our own child.
        ensure!(unsafe { libc::kill(guard.id() as libc::pid_t, signal) } == 0);
        let (errors, code) = said(guard)?;
        ensure!(code == Some(128 + signal), "{signal}: {code:?}: {errors}");
        ensure!(is_back(&program.list()?), "{signal}");
    }
    program.end().map(drop)
}

/// Ctrl-C reaches the counter's command, too.
#[test]
fn a_counter_that_ctrl_c_ends_has_not_failed() -> Result<()> {
    let (program, folder) = (Program::start()?, tempfile::tempdir()?);
    let counts = folder.path().join("counts");
    let counter = format!("echo > '{}'; sleep 100; echo 1", counts.display());
    let mut guard = Command::new(env!("CARGO_BIN_EXE_lockwright"))
        .args(["switch", &program.child.id().to_string(), "all", "fifo", "--guard=600ms", "-q"])
        .args(["--counter", &counter])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    while !counts.exists() {
        ensure!(guard.try_wait()?.is_none(), "it ended before it counted");
        sleep(Duration::from_millis(10));
    }
    // SAFETY: no preconditions; our own children.
    ensure!(unsafe { libc::kill(-(guard.id() as libc::pid_t), libc::SIGINT) } == 0);
    let (errors, code) = said(guard)?;
    ensure!(code == Some(130), "{code:?}: {errors}");
    ensure!(is_back(&program.list()?));
    program.end().map(drop)
}

#[test]
fn another_command_ends_a_guard_and_keeps_nothing_of_it() -> Result<()> {
    let program = Program::start()?;
    let guard = guarded(&program)?;
    let second = program.switch(&["all", "barging", "--guard=600ms"])?;
    ensure!(second.end == End::Code(2), "{}", second.describe());
    ensure!(second.errors().contains("one at a time"), "{}", second.describe());
    program.ok(&["g_lock", "cal"])?;
    let (errors, code) = said(guard)?;
    ensure!(code == Some(2) && errors.contains("another command has switched"), "{errors}");
    let list = program.list()?;
    ensure!(list["default"] == "auto" && list["rules"][0]["lock"] == "cal", "{list}");
    program.end().map(drop)
}

#[test]
fn what_is_not_there_says_what_is() -> Result<()> {
    let program = Program::start()?;
    program.comes_to("contended", |list| lock(list, "g_lock").is_some())?;
    let refused = |arguments: &[&str], message: &str, hint: &str| -> Result<()> {
        let outcome = program.switch(arguments)?;
        ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
        let errors = outcome.errors();
        ensure!(errors.contains(message) && errors.contains(hint), "{}", outcome.describe());
        Ok(())
    };
    refused(&["g_lok", "fifo"], "no lock, function or library 'g_lok'", "did you mean 'g_lock'?")?;
    refused(&["0x10", "fifo"], "nothing lies at '0x10'", "lockwright switch ")?;
    refused(&["set", "g_lock", "spn=5"], "spn", "did you mean")?;
    program.end().map(drop)
}

/// A child of a fork has its own mailbox: it keeps what it has.
#[test]
fn a_program_under_stress_takes_each_of_many_switches() -> Result<()> {
    const SWITCHES: usize = 1000;
    let path = FOLDER.path().join("switching");
    lockwright_tests::compile(&source_dir().join("stress/switching.c"), &path, &[])?;
    let program = Program::start_file(&path)?;
    let mailbox = program.said.split(' ').next().unwrap_or_default();
    let at = u64::from_str_radix(mailbox.trim_start_matches("0x"), 16)?;
    let memory =
        File::options().read(true).write(true).open(format!("/proc/{}/mem", program.child.id()))?;
    // The word is the first field of the posts.
    let word = offset_of!(Mailbox, posts);
    let seen = || -> Result<Post> {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, at + word as u64)?;
        Ok(Post::of(u32::from_ne_bytes(bytes)))
    };
    let write = |offset: usize, bytes: &[u8]| memory.write_all_at(bytes, at + offset as u64);
    let set = |post: Post| write(word, &post.word().to_ne_bytes());
    let mut magic = [0; 8];
    memory.read_exact_at(&mut magic, at + offset_of!(Mailbox, magic) as u64)?;
    ensure!(u64::from_ne_bytes(magic) == MAGIC);
    let locks: Vec<&str> = front_rules().map(|entry| entry.id).collect();
    for lock in locks.iter().cycle().take(SWITCHES) {
        let before = seen()?;
        ensure!(!before.is(PostState::Taken), "two at a time");
        let post = before.next();
        let text = format!("{lock}\n");
        set(post)?;
        write(offset_of!(Mailbox, text), text.as_bytes())?;
        write(offset_of!(Mailbox, len), &(text.len() as u32).to_ne_bytes())?;
        set(post.with(PostState::Posted))?;
        let begun = Instant::now();
        loop {
            let now = seen()?;
            ensure!(now != post.with(PostState::Refused), "{lock} is refused");
            if now == post.with(PostState::Done) {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "nobody takes {lock}");
            sleep(Duration::from_micros(50));
        }
    }
    let mut program = program;
    let mut input = program.child.stdin.take().context("its input")?;
    input.write_all(b"\n")?;
    program.child.stdin = Some(input);
    let text = program.end()?;
    let mut lines = text.lines().skip(1);
    let counts = lines.next().context("counts")?;
    ensure!(lines.next() == Some("ok"), "{text}");
    ensure!(counts.split(' ').all(|count| count != "0"), "something was never done: {text}");
    Ok(())
}
