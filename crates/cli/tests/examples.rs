//! Every example of every `--help` works. The examples come from the command's own help, so a new one needs no line here: it is run in a
//! folder where each `./NAME` is a program of ours, `4242` and `$(pidof server)` are processes that run, and what the tables below name is
//! there. The tables also say which examples we cut short, and which may end with another exit code than 0, and why. A line of a table that
//! no example needs any more fails the test.

mod built;
mod helps;
#[path = "examples/read.rs"]
mod read;
#[path = "examples/tables.rs"]
mod tables;
mod terminal;

use anyhow::{Context, Result, bail, ensure};
use built::LIBRARY;
use lockwright_tests::{Child, End, Outcome, compile, executable};
use read::{Section, sections};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tables::{
    ALONE, BEFORE, CUT, ENDS, FILES, How, MAY_BE_REFUSED, NAMES, STAND_INS, is_bare, is_key, keys,
};
use tempfile::TempDir;

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two sections at a time.
const WORKERS: usize = 2;

#[test]
fn every_example_of_every_help_works() -> Result<()> {
    let sections = sections()?;
    let all: usize = sections.iter().map(|section| section.examples.len()).sum();
    ensure!(all > 80, "{all} examples: the help isn't read as it is written");
    let shop = Shop::prepared()?;
    let told = Mutex::new(Told::default());
    let (alone, together): (Vec<_>, Vec<_>) =
        sections.iter().partition(|section| ALONE.contains(&section.command.as_str()));
    for (sections, workers) in [(together, WORKERS), (alone, 1)] {
        let left = Mutex::new(sections.into_iter());
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| play(&shop, &left, &told));
            }
        });
    }
    let told = told.into_inner().expect("no panic");
    // For `--nocapture`.
    eprintln!("{}", told.log);
    let stale: Vec<_> = keys().into_iter().filter(|key| !told.used.contains(key)).collect();
    ensure!(stale.is_empty(), "no example needs these lines of the tables: {stale:#?}");
    let failed = told.failures.len();
    ensure!(failed == 0, "{failed} of {all} examples fail:\n{}", told.failures.join("\n\n"));
    Ok(())
}

/// Plays sessions until none is left.
fn play<'a>(shop: &Shop, left: &Mutex<impl Iterator<Item = &'a Section>>, told: &Mutex<Told>) {
    loop {
        let Some(section) = left.lock().expect("no panic").next() else { return };
        let found = Session::begun(shop, section).map(Session::played);
        let mut told = told.lock().expect("no panic");
        match found {
            Ok(found) => told.add(found),
            Err(error) => told.failures.push(format!("{}: {error:#}", section.command)),
        }
    }
}

/// What came of examples.
#[derive(Default)]
struct Told {
    failures: Vec<String>,
    /// Keys of the tables that served.
    used: BTreeSet<&'static str>,
    /// A line for each example.
    log: String,
}

impl Told {
    fn add(&mut self, other: Told) {
        self.failures.extend(other.failures);
        self.used.extend(other.used);
        self.log += &other.log;
    }
}

/// What all sections share: our program, and the commands that stand in for others.
struct Shop(TempDir);

impl Shop {
    fn prepared() -> Result<Self> {
        let folder = TempDir::new()?;
        let at = |name: &str| folder.path().join(name);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        compile(&sources.join("foo.c"), &at("libfoo.so"), &["-shared", "-fPIC"])?;
        let here = format!("-L{}", folder.path().display());
        let flags = [&here, "-lfoo", "-Wl,-rpath,$ORIGIN"];
        compile(&sources.join("server.c"), &at("server"), &flags)?;
        fs::create_dir(at("bin"))?;
        for (name, text, _) in STAND_INS {
            executable(&at("bin").join(name), *text)?;
        }
        symlink(env!("CARGO_BIN_EXE_lockwright"), at("bin/lockwright"))?;
        // Before there are threads whose children could inherit what it opens.
        LazyLock::force(&LIBRARY);
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The examples of one help, one after the other, as somebody tries them who has a folder and two processes.
struct Session<'a> {
    shop: &'a Shop,
    section: &'a Section,
    folder: TempDir,
    port: u16,
    /// `4242`, once an example speaks of it: under our library, or (true) not.
    processes: BTreeMap<bool, Process>,
    /// Those of `$(pidof server)`.
    others: Vec<Process>,
    /// Why an earlier example was refused.
    refusal: Option<&'static str>,
    told: Told,
}

impl<'a> Session<'a> {
    fn begun(shop: &'a Shop, section: &'a Section) -> Result<Self> {
        let folder = TempDir::new()?;
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (processes, others) = (BTreeMap::new(), Vec::new());
        let mut told = Told::default();
        told.used.extend(ALONE.iter().filter(|command| **command == section.command));
        Ok(Self { shop, section, folder, port, processes, others, refusal: None, told })
    }

    fn played(mut self) -> Told {
        for example in &self.section.examples {
            let begun = Instant::now();
            let ran = self.ran(example);
            let took = begun.elapsed().as_secs_f64();
            let verdict = match &ran {
                Ok(None) => "ok",
                Ok(Some(refused)) => refused,
                Err(_) => "FAILED",
            };
            let _ = writeln!(self.told.log, "{took:6.2} s  {verdict:<7} {example}");
            if let Err(error) = ran {
                let from = &self.section.command;
                self.told.failures.push(format!("{from} --help: {example}\n{error:#}"));
            }
        }
        self.told
    }

    /// Runs an example; if it was refused for a reason that the tables know, the reason.
    fn ran(&mut self, example: &str) -> Result<Option<&'static str>> {
        let mut line = example.to_owned();
        for (theirs, ours, _) in NAMES.iter().filter(|(theirs, ..)| example.contains(theirs)) {
            self.used(theirs);
            line = line.replace(theirs, ours);
        }
        for cut in CUT.iter().filter(|cut| is_key(cut.key, example)) {
            self.used(cut.key);
            line = cut.applied(&line);
        }
        self.furnish(example, &line)?;
        let command = &self.section.command;
        let before = BEFORE.iter().filter(|before| before.command == *command);
        for before in before.filter(|before| is_key(before.key, &line)) {
            self.used(before.key);
            for line in before.lines {
                let line = &self.filled(example, line)?;
                let outcome = self.bash(line)?.run()?;
                if let Some(why) = self.refused(line, &outcome) {
                    return Ok(Some(why));
                }
                ensure!(outcome.end == End::Code(0), "before: '{line}': {}", outcome.describe());
            }
        }
        let line = self.filled(example, &line)?;
        let (before, how) = (SystemTime::now(), How::of(example));
        let outcome = match how {
            How::Ends => self.bash(&line)?.run()?,
            How::Screen => self.on_a_terminal(&line)?,
            How::Serves => self.served(&line)?,
        };
        self.judged(example, how, &line, &outcome, before)
    }

    /// Is it as the help says?
    fn judged(
        &mut self,
        example: &str,
        how: How,
        line: &str,
        outcome: &Outcome,
        before: SystemTime,
    ) -> Result<Option<&'static str>> {
        if let Some(why) = self.refused(example, outcome) {
            return Ok(Some(why));
        }
        let other = ENDS.iter().find(|(key, ..)| is_key(key, example));
        if let Some((key, ..)) = other {
            self.used(key);
        }
        let codes = other.map_or(how.codes(), |(_, codes, _)| *codes);
        let ends = matches!(outcome.end, End::Code(code) if codes.contains(&code));
        ensure!(ends, "as '{line}': exit code not in {codes:?}: {}", outcome.describe());
        let errors = outcome.errors();
        ensure!(!errors.lines().any(is_complaint), "as '{line}': {}", outcome.describe());
        let is_silent = outcome.stdout.is_empty() && outcome.stderr.is_empty();
        ensure!(
            !is_silent || has_written(self.folder.path(), before)?,
            "as '{line}': it says nothing, and writes nothing"
        );
        Ok(None)
    }

    /// Why it was refused, if the tables know that reason.
    fn refused(&mut self, example: &str, outcome: &Outcome) -> Option<&'static str> {
        let errors = outcome.errors();
        for refusal in MAY_BE_REFUSED.iter().filter(|refusal| is_key(refusal.key, example)) {
            self.used(refusal.key);
            if errors.contains(refusal.says) {
                self.refusal = Some(refusal.why);
            }
        }
        self.refusal.filter(|_| outcome.end == End::Code(2))
    }

    /// Makes the programs and files that the example finds there.
    fn furnish(&mut self, example: &str, line: &str) -> Result<()> {
        for (name, text) in FILES.iter().filter(|(name, _)| example.contains(name)) {
            self.used(name);
            let path = self.at(name.rsplit(' ').next().unwrap_or(name));
            if !path.exists() {
                executable(&path, *text)?;
            }
        }
        for word in [line, "./server"].join(" ").split_whitespace() {
            if let Some(name) = word.strip_prefix("./").filter(|name| !name.contains('/')) {
                let path = self.at(name);
                if !path.exists() && !example.contains(&format!("--output {word}")) {
                    symlink(self.shop.path("server"), path)?;
                }
            }
        }
        // As a user's home is.
        let completions = [".config/fish/completions", ".local/share/bash-completion/completions"];
        for folder in [&completions[..], &[".zfunc"]].concat() {
            fs::create_dir_all(self.at(folder))?;
        }
        for (name, ..) in STAND_INS.iter().filter(|(name, ..)| example.contains(name)) {
            self.used(name);
        }
        Ok(())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The line, with a process, its lock, and a port.
    fn filled(&mut self, example: &str, line: &str) -> Result<String> {
        let line = line.replace("{port}", &self.port.to_string());
        if !line.contains("{pid}") {
            return Ok(line);
        }
        let bare = is_bare(&self.section.command, example);
        let process = match self.processes.entry(bare) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(none) => none.insert(Process::started(self.shop, bare)?),
        };
        let pid = process.child.id().to_string();
        Ok(line.replace("{pid}", &pid).replace("{lock}", &process.lock))
    }

    /// What a user's shell in this folder has in its environment, for this line.
    fn environment(&mut self, line: &str) -> Result<Vec<(&'static str, OsString)>> {
        let (home, path) = (self.folder.path(), std::env::var("PATH")?);
        let path = format!("{}:{path}", self.shop.path("bin").display());
        let mut variables = vec![
            ("HOME", home.into()),
            ("XDG_CONFIG_HOME", home.join(".config").into()),
            ("PATH", path.into()),
            ("LOCKWRIGHT_LIBRARY", LIBRARY.as_os_str().into()),
            ("COLUMNS", "80".into()),
        ];
        if line.contains("pidof") {
            let server = Process::started(self.shop, is_bare(&self.section.command, line))?;
            variables.push(("SERVER_PID", server.child.id().to_string().into()));
            self.others.push(server);
        }
        if line.contains("--load") {
            variables.push(("PORT", self.port.to_string().into()));
        }
        Ok(variables)
    }

    /// A shell that runs this line.
    fn bash(&mut self, line: &str) -> Result<Child> {
        let set = self.section.variables.join("\n");
        let mut child = Child::new("bash").dir(self.folder.path());
        for (name, value) in self.environment(line)? {
            child = child.env(name, value);
        }
        Ok(child.args(["-o", "pipefail", "-c", &format!("{set}\n{line}")]))
    }

    /// On a terminal, with `q` pressed until it ends.
    fn on_a_terminal(&mut self, line: &str) -> Result<Outcome> {
        let begun = Instant::now();
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(self.folder.path());
        command.env("TERM", "xterm").envs(self.environment(line)?);
        let (mut child, mut terminal) = terminal::on_a_terminal(command, libc::SIG_DFL)?;
        let mut keys = terminal.try_clone()?;
        // It must be able to draw until its end, which is also that of the terminal.
        let drawn = thread::spawn(move || {
            let (mut drawn, mut some) = (Vec::new(), [0; 1000]);
            while let Ok(count @ 1..) = terminal.read(&mut some) {
                drawn.extend_from_slice(&some[..count]);
            }
            drawn
        });
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                child.kill()?;
                break child.wait()?;
            }
            thread::sleep(Duration::from_millis(50));
            // It may have ended by now.
            let _ = keys.write_all(b"q");
        };
        drop(keys);
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code),
            (None, signal) => End::Signal(signal.unwrap_or(0)),
        };
        let stdout = drawn.join().expect("it only reads");
        let (stderr, stall) = (Vec::new(), Duration::ZERO);
        Ok(Outcome { end, stdout, stderr, took: begun.elapsed(), stall, seen: None })
    }

    /// Until it has answered; then SIGTERM ends it.
    fn served(&mut self, line: &str) -> Result<Outcome> {
        let mut running = self.bash(&format!("exec {line}"))?.start()?;
        let answer = loop {
            if let Some(end) = running.end()? {
                bail!("it ends before it serves: {end}: {}", running.outcome()?.describe());
            }
            match self.asked() {
                Ok(answer) => break answer,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
            ensure!(running.took() < PATIENCE, "it never serves");
        };
        ensure!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        running.stop()
    }

    fn asked(&self) -> Result<String> {
        let mut server = TcpStream::connect(("127.0.0.1", self.port))?;
        server.set_read_timeout(Some(PATIENCE))?;
        server.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        ensure!(!answer.is_empty(), "no answer");
        Ok(answer)
    }

    fn used(&mut self, key: &'static str) {
        self.told.used.insert(key);
    }
}

/// Does it say that the example is wrong?
fn is_complaint(line: &str) -> bool {
    ["error: ", "Usage: ", "lockwright: unknown", "lockwright: bad", "bash: ", "jq: "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Is there a file in it that is not older?
fn has_written(folder: &Path, before: SystemTime) -> Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = fs::symlink_metadata(entry.path())?;
        let is_new = match about.is_dir() {
            true => has_written(&entry.path(), before)?,
            // The file system's clock is coarse.
            false => {
                about.is_file()
                    && about.len() > 0
                    && about.modified()? + Duration::from_millis(20) >= before
            }
        };
        if is_new {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A running ./server. It ends with its input, so it can't outlive us.
struct Process {
    child: std::process::Child,
    /// Where its lock in the heap lies.
    lock: String,
}

impl Process {
    /// `bare`: without our library.
    fn started(shop: &Shop, bare: bool) -> Result<Self> {
        let mut command = Command::new(shop.path("server"));
        command.env_remove("PORT").stdin(Stdio::piped()).stdout(Stdio::piped());
        if !bare {
            command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto");
        }
        let mut child = command.spawn()?;
        let mut lock = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut lock)?;
        Ok(Self { child, lock: lock.trim().to_owned() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
