//! `lockwright top` and `export`: a program with a lock that one thread holds for long.

use super::{FOLDER, LIBRARY, compiled, lockwright, terminal};
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::End;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program. It ends with its input, so it can't outlive us.
pub(super) struct Program(Child);

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compiled("planted", "top.c", &["-g"]));

impl Program {
    pub(super) fn start() -> Result<Self> {
        let mut command = Command::new(&*PROGRAM);
        command.env("LD_PRELOAD", &*LIBRARY).stdin(Stdio::piped());
        let program = Self(command.spawn()?);
        // Once it has threads, it has our library, too: that may take a while on a busy machine.
        let threads = format!("/proc/{}/task", program.pid());
        let begun = Instant::now();
        while fs::read_dir(&threads)?.count() < 2 {
            ensure!(begun.elapsed() < PATIENCE, "it never starts its threads");
            sleep(Duration::from_millis(5));
        }
        Ok(program)
    }

    pub(super) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// It still runs, and ends as it would have without us.
    pub(super) fn end(mut self) -> Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "the program has ended by itself");
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command of ours that runs on.
fn start(arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
    command.args(arguments).env("LOCKWRIGHT_LIBRARY", &*LIBRARY);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// What the list of processes says of it.
fn listed(pid: &str) -> Result<Value> {
    let outcome = lockwright().args(["top", "--batch", "--count=1", "--interval=100ms"]).run()?;
    let said: Value = serde_json::from_str(&outcome.text()).with_context(|| outcome.describe())?;
    let all = said["processes"].as_array().context("processes")?;
    let own =
        all.iter().find(|process| process["pid"].as_u64() == pid.parse().ok()).context("ours")?;
    Ok(own.clone())
}

/// What the list of processes says that it counts.
fn level(pid: &str) -> Result<String> {
    Ok(listed(pid)?["level"].as_str().context("a level")?.to_owned())
}

/// Waits until it counts that, as it must some time.
fn comes_to_count(pid: &str, what: &str) -> Result<()> {
    let begun = Instant::now();
    while level(pid)? != what {
        ensure!(begun.elapsed() < PATIENCE, "it never counts {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn a_lock_that_is_held_for_long_is_named() -> Result<()> {
    let program = Program::start()?;
    let mut top = start(&["top", &program.pid(), "--batch", "--interval=200ms"])?;
    let begun = Instant::now();
    let mut lines = BufReader::new(top.stdout.take().context("its output")?).lines();
    let names = |sites: &Value| {
        sites.as_array().is_some_and(|all| all.iter().any(|site| site["function"] == "hoard"))
    };
    loop {
        let line = lines.next().context("it has ended")??;
        let look: Value = serde_json::from_str(&line)?;
        ensure!(
            look["pid"].as_u64() == program.pid().parse().ok() && look["ended"] == false,
            "{look}"
        );
        let locks = look["locks"].as_array().context("locks")?;
        for lock in locks {
            let number = |value: &Value| value.as_f64().context("a number");
            let [waiting, threads] = [number(&lock["waiting"])?, number(&look["threads"])?];
            ensure!((0.0..=threads).contains(&waiting), "{look}");
            ensure!(number(&lock["mean_ns"])? <= number(&lock["wait"]["max_ns"])?, "{look}");
        }
        let planted = locks.iter().find(|lock| lock["name"] == "planted");
        if planted
            .is_some_and(|lock| names(&lock["holders"]) && lock["waiting"].as_f64() > Some(0.0))
        {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "{look}");
    }
    // Nobody reads: it ends, and says nothing of that.
    drop(lines);
    let outcome = top.wait_with_output()?;
    ensure!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    comes_to_count(&program.pid(), "off")?;
    program.end()
}

#[test]
fn a_killed_top_leaves_nothing_behind() -> Result<()> {
    let program = Program::start()?;
    let mut top = start(&["top", &program.pid(), "--batch", "--interval=100ms"])?;
    let mut lines = BufReader::new(top.stdout.take().context("its output")?).lines();
    lines.next().context("a line")??;
    comes_to_count(&program.pid(), "counters")?;
    top.kill()?;
    top.wait()?;
    comes_to_count(&program.pid(), "off")?;
    program.end()
}

#[test]
fn the_end_of_the_program_is_the_end_of_the_lines() -> Result<()> {
    let mut program = Program::start()?;
    let top = start(&["top", &program.pid(), "--batch", "--interval=100ms"])?;
    std::thread::sleep(Duration::from_millis(300));
    program.0.kill()?;
    program.0.wait()?;
    let outcome = top.wait_with_output()?;
    let text = String::from_utf8(outcome.stdout)?;
    match text.lines().last() {
        Some(last) => {
            let last: Value = serde_json::from_str(last)?;
            ensure!(outcome.status.success() && last["ended"] == true, "{last}");
        }
        // It came too late.
        None => ensure!(String::from_utf8_lossy(&outcome.stderr).contains(&program.pid())),
    }
    Ok(())
}

/// What a page says of the planted lock.
fn told(page: &str) -> Result<bool> {
    ensure!(page.ends_with("# EOF\n"), "{page}");
    for line in page.lines() {
        let number = line.rsplit(' ').next().unwrap_or_default();
        ensure!(line.starts_with("# ") || number.parse::<f64>().is_ok(), "{line}");
    }
    Ok(page.lines().any(|line| {
        line.starts_with("lockwright_lock_contended_total{") && line.contains(r#"lock="planted""#)
    }))
}

#[test]
fn a_file_for_node_exporter_is_whole_at_any_time() -> Result<()> {
    let program = Program::start()?;
    let file = FOLDER.path().join("locks.prom");
    let path = file.to_str().context("a path")?;
    let mut export =
        start(&["top", "--export", &program.pid(), "--output", path, "--interval=100ms"])?;
    let begun = Instant::now();
    while !fs::read_to_string(&file).ok().map_or(Ok(false), |page| told(&page))? {
        if let Some(status) = export.try_wait()? {
            let mut said = String::new();
            export.stderr.take().context("its errors")?.read_to_string(&mut said)?;
            bail!("export has ended: {status}: {said}");
        }
        ensure!(begun.elapsed() < PATIENCE, "{:?}", fs::read_to_string(&file));
    }
    let program_ended = program.end();
    // With the only process that it was asked for, it ends.
    let outcome = export.wait_with_output()?;
    ensure!(outcome.status.success(), "{outcome:?}");
    program_ended
}

#[test]
fn a_page_is_served_to_those_who_ask_for_it() -> Result<()> {
    let program = Program::start()?;
    let arguments =
        ["top", "--export", &program.pid(), "--listen", "127.0.0.1:0", "--interval=100ms"];
    let mut export = start(&arguments)?;
    let mut said = String::new();
    BufReader::new(export.stderr.take().context("its errors")?).read_line(&mut said)?;
    let address = said.trim().strip_prefix("serves http://").context(said.clone())?;
    let address = address.strip_suffix("/metrics").context("a path")?.to_owned();
    let ask = |request: &str| -> Result<String> {
        let mut server = TcpStream::connect(&address)?;
        write!(server, "{request} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let begun = Instant::now();
    loop {
        let answer = ask("GET /metrics")?;
        let (head, page) = answer.split_once("\r\n\r\n").context("a head")?;
        ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        ensure!(head.contains("Content-Type: application/openmetrics-text;"), "{head}");
        if told(page)? {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "{page}");
    }
    ensure!(ask("GET /")?.starts_with("HTTP/1.1 404 "));
    ensure!(ask("POST /metrics")?.starts_with("HTTP/1.1 405 "));
    export.kill()?;
    export.wait()?;
    program.end()
}

#[test]
fn what_is_no_terminal_gets_a_hint() -> Result<()> {
    let outcome = lockwright().args(["top"]).run()?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(outcome.errors().ends_with("hint: lines of JSON: lockwright top --batch\n"));
    // Nor does it draw on one that only appends.
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
    command.arg("top").env("TERM", "dumb");
    let (child, _end) = terminal::on_a_terminal(command, libc::SIG_DFL)?;
    ensure!(ends(child)? == Some(2));
    Ok(())
}

/// A process that nobody watches doesn't count (unless another test watches all), and tells its lock only where it counts.
#[test]
fn a_lock_that_is_not_known_is_none_and_why_is_said() -> Result<()> {
    let program = Program::start()?;
    let row = listed(&program.pid())?;
    match &row["lock"] {
        Value::String(lock) => ensure!(!lock.is_empty() && row["lock_unknown"].is_null(), "{row}"),
        lock => ensure!(lock.is_null() && row["lock_unknown"].is_string(), "{row}"),
    }
    program.end()
}

/// In a container it has another id, which means another process here.
#[test]
fn a_process_in_a_container_goes_by_the_id_that_was_asked_for() -> Result<()> {
    let apart = ["--pid", "--fork"];
    let may = Command::new("unshare").args(apart).arg("true").stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        println!("skipped: no right to a namespace of process ids");
        return Ok(());
    }
    let mut command = Command::new("unshare");
    command.args(apart).arg(&*PROGRAM).env("LD_PRELOAD", &*LIBRARY).stdin(Stdio::piped());
    let program = Program(command.spawn()?);
    let children = format!("/proc/{0}/task/{0}/children", program.pid());
    let begun = Instant::now();
    loop {
        ensure!(begun.elapsed() < PATIENCE, "nothing is seen of it");
        sleep(Duration::from_millis(50));
        let Some(pid) = fs::read_to_string(&children)?.split(' ').next().map(str::to_owned) else {
            continue;
        };
        let words = ["profile", "-q", "--time", "300ms", "--format", "json", "-p", &pid];
        let profile = lockwright().args(words).run()?;
        let top = lockwright().args(["top", &pid, "--batch", "--count=2"]).run()?;
        let profile = serde_json::from_str::<Value>(&profile.text());
        let top = serde_json::from_str::<Value>(top.text().lines().last().unwrap_or_default());
        let (Ok(profile), Ok(top)) = (profile, top) else { continue }; // it has hardly begun
        let profile = &profile["processes"][0];
        if [profile, &top].iter().all(|seen| seen["locks"].get(0).is_some()) {
            for seen in [profile, &top] {
                ensure!(seen["pid"].as_u64() == pid.parse().ok(), "{pid}: {seen:#}");
            }
            return program.end();
        }
    }
}

/// `top` on a terminal of its own; and that terminal's other end.
fn on_a_terminal(arguments: &[&str], hangup: libc::sighandler_t) -> Result<(Child, File)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
    command.arg("top").args(arguments);
    terminal::on_a_terminal(command, hangup)
}

/// Its exit code.
fn ends(mut child: Child) -> Result<Option<i32>> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()?;
    bail!("it goes on")
}

/// Nobody is told: SIGHUP is ignored, as under `nohup`.
#[test]
fn it_ends_with_its_terminal() -> Result<()> {
    let (child, mut master) = on_a_terminal(&[], libc::SIG_IGN)?;
    ensure!(master.read(&mut [0; 1000])? > 0, "it draws nothing");
    drop(master);
    ensure!(ends(child)? == Some(128 + libc::SIGHUP));
    Ok(())
}

/// As when somebody types ahead, or pastes. It does not look again before they are all done.
#[test]
fn keys_that_come_together_are_all_heard() -> Result<()> {
    let program = Program::start()?;
    let (child, mut master) =
        on_a_terminal(&[&program.pid(), "--interval", "3600s"], libc::SIG_DFL)?;
    ensure!(master.read(&mut [0; 1000])? > 0, "it draws nothing");
    master.write_all(b"e?xq")?;
    // It must be able to draw until its end.
    let reader = std::thread::spawn(move || while master.read(&mut [0; 1000]).is_ok() {});
    ensure!(ends(child)? == Some(0));
    reader.join().expect("it only reads");
    program.end()
}
