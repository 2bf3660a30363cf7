//! A soak that a signal ends leaves nothing behind, and goes on where it was. Its cargo is a script, so it takes seconds.

use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::executable;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Says what it was asked to do. The first time that it comes to the models of this lock, it starts what a test may start, one of
/// them in a session of its own, and waits for it.
const CARGO: &str = r#"#!/bin/sh
echo "$LOCKWRIGHT_MODEL $LOCKWRIGHT_MODEL_MS $*" >>"$HERE/runs"
echo "    complete to 2 preemptions"
test "$LOCKWRIGHT_MODEL" = mcs && test ! -e "$HERE/pids" || exit 0
sleep 986 &
echo $! >"$HERE/draft"
setsid sh -c 'sleep 987 & echo $! >>"$HERE/draft"; echo $$ >>"$HERE/draft"; mv "$HERE/draft" "$HERE/pids"; wait' &
wait
"#;

/// All that the tests need is installed, as far as this one knows.
const DPKG_QUERY: &str = r#"#!/bin/sh
grep -o '"[a-z0-9][a-z0-9.+-]*"' "$SOURCE" | sed 's/"//g; s/$/ installed/'
"#;

/// A place with a target folder, programs, and a source of its own.
struct Place(TempDir);

impl Place {
    fn new() -> Result<Self> {
        let place = Self(tempfile::tempdir()?);
        fs::create_dir_all(place.path("target/debug"))?;
        fs::write(place.path("target/CACHEDIR.TAG"), "")?;
        let (xtask, own) =
            (Path::new(env!("CARGO_BIN_EXE_xtask")), place.path("target/debug/xtask"));
        if fs::hard_link(xtask, &own).is_err() {
            executable(&own, fs::read(xtask)?)?;
        }
        fs::create_dir(place.path("bin"))?;
        for (name, text) in [("cargo", CARGO), ("dpkg-query", DPKG_QUERY)] {
            executable(&place.path("bin").join(name), text)?;
        }
        fs::create_dir(place.path("source"))?;
        fs::write(place.path("source/file"), "")?;
        for words in ["init --quiet", "add file", "commit --quiet --message one"] {
            let status = Command::new("git")
                .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"])
                .args(words.split(' '))
                .current_dir(place.path("source"))
                .status()?;
            ensure!(status.success(), "git {words}: {status}");
        }
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn soak(&self) -> Result<Child> {
        self.xtask(&["soak", "--only", "models-locks-", "--model", "0.5"])
    }

    fn xtask(&self, words: &[&str]) -> Result<Child> {
        let path = std::env::var("PATH")?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test.rs");
        let child = Command::new(self.path("target/debug/xtask"))
            .args(words)
            .current_dir(self.path("source"))
            .env("CARGO", self.path("bin/cargo"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HERE", self.0.path())
            .env("SOURCE", source)
            .env_remove("LOCKWRIGHT_MODEL")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        child.with_context(|| format!("cannot start {words:?}"))
    }

    /// What cargo was asked to do.
    fn runs(&self) -> Result<Vec<String>> {
        Ok(fs::read_to_string(self.path("runs"))?.lines().map(str::to_owned).collect())
    }
}

/// Waits until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > Duration::from_secs(120) {
            bail!("after two minutes: not {what}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Has it ended? A zombie, which waits for its parent, has.
fn has_ended(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_zombie = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'));
    is_zombie || Pid::from_raw(pid).is_none_or(|pid| test_kill_process(pid).is_err())
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Begins a soak, and ends it by a signal while it is in a model. All that it has started ends.
fn end_in_a_model(place: &Place, signal: Signal) -> Result<()> {
    let mut soak = place.soak()?;
    let pids = place.path("pids");
    until("in the model", || {
        if let Some(status) = soak.try_wait()? {
            bail!("the soak ended before it came to the model: {status}");
        }
        Ok(pids.exists())
    })?;
    let pids: Vec<i32> =
        fs::read_to_string(&pids)?.lines().map(str::parse).collect::<Result<_, _>>()?;
    assert!(pids.len() == 3 && !pids.iter().any(|pid| has_ended(*pid)), "{pids:?}");
    kill_process(Pid::from_child(&soak), signal)?;
    soak.wait()?;
    until("ended", || Ok(pids.iter().all(|pid| has_ended(*pid))))
}

#[test]
fn a_soak_that_a_signal_ends_leaves_nothing_behind() -> Result<()> {
    end_in_a_model(&Place::new()?, Signal::TERM)
}

#[test]
fn a_soak_that_was_killed_in_a_model_goes_on_with_it() -> Result<()> {
    let place = Place::new()?;
    end_in_a_model(&place, Signal::KILL)?;
    let before = place.runs()?;
    let (cut, done) = before.split_last().context("it ran")?;
    let file = place.path("target/soak/passed.tsv");
    let passed = fs::read_to_string(&file)?;
    assert_eq!(passed.lines().count(), done.len(), "the last one has not passed: {passed}");
    // A kill may tear the line that is being written.
    OpenOptions::new().append(true).open(&file)?.write_all(&passed.as_bytes()[..20])?;

    let output = place.soak()?.wait_with_output()?;
    assert!(output.status.success(), "{}", said(&output));
    let after = place.runs()?;
    // What was cut off runs again, with the same limits, and what has passed doesn't.
    assert!(cut.starts_with("mcs 1800000 test "), "{cut}");
    let again = &after[before.len()..];
    assert_eq!(again[0], *cut);
    assert!(!again.iter().any(|run| done.contains(run)), "{after:?}");
    let told = format!("all {} steps have passed at ", done.len() + again.len());
    assert!(said(&output).contains(&told), "{}", said(&output));

    // Nothing is left to do.
    assert!(place.soak()?.wait_with_output()?.status.success());
    assert_eq!(place.runs()?, after);
    Ok(())
}

#[test]
fn what_fuzz_has_passed_need_not_run_in_the_soak() -> Result<()> {
    let place = Place::new()?;
    let end = |words: &[&str]| place.xtask(words)?.wait_with_output().context("it ends");
    let output = end(&["fuzz", "--only", "fuzz-"])?;
    assert!(output.status.success(), "{}", said(&output));
    let runs = place.runs()?;
    assert!(runs.iter().any(|run| run.contains("-p lockwright-policy --lib verify")), "{runs:?}");
    for words in [["fuzz", "--only", "fuzz-"], ["soak", "--only", "fuzz-"]] {
        let output = end(&words)?;
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_eq!(place.runs()?, runs);
    let output = end(&["fuzz", "--only", "fuzz-text", "--again"])?;
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(place.runs()?.len(), runs.len() + 1);
    // The soak's other steps are none of its own.
    let output = end(&["fuzz", "--only", "stress"])?;
    assert_eq!(
        (output.status.code(), said(&output).trim_end()),
        (Some(2), "error: no step begins with 'stress'\nhint: cargo xtask fuzz --list")
    );
    Ok(())
}

#[test]
fn a_guarded_command_ends_as_it_would_alone() -> Result<()> {
    let own = std::process::id().to_string();
    let guarded = |script: &str| {
        let words = ["guard", &own, "--", "sh", "-c", script];
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output()
    };
    let output = guarded("echo out; exit 7")?;
    assert_eq!((output.status.code(), said(&output)), (Some(7), "out\n".to_owned()));
    let status = guarded("kill -TERM $$")?.status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::TERM.as_raw()));
    // What it leaves behind is ended, whatever session that is in.
    let output = guarded("setsid sleep 985 >/dev/null 2>&1 & echo $!")?;
    assert!(has_ended(said(&output).trim().parse()?));
    // Whoever asked for it has ended before it began.
    let words = ["guard", "1", "--", "echo", "begun"];
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output()?;
    assert!(!output.status.success() && !said(&output).contains("begun"), "{}", said(&output));
    Ok(())
}
