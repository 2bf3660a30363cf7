//! Real programs from Debian, under plain glibc and under front locks, which take turns: the same output.
//!
//! What is in `apps/` prints what must be the same, and exits with 0. A script or driver that finds a fault
//! by itself exits with something else.

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use lockwright_locks::catalog::front_rules;
use lockwright_tests::{
    Child, End, Outcome, compile, first_and_in_turn, library, preload_list, scratch, source_dir,
};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A program: its file in `apps/`, what to link, what it needs to be installed, seconds it may take.
struct App {
    file: &'static str,
    link: &'static [&'static str],
    packages: &'static str,
    limit: u64,
}

const APPS: [App; 9] = [
    App { file: "sqlite-shell.sh", link: &[], packages: "sqlite3", limit: 120 },
    App { file: "sqlite.c", link: &["-lsqlite3"], packages: "libsqlite3-dev", limit: 120 },
    App { file: "leveldb.c", link: &["-lleveldb"], packages: "libleveldb-dev", limit: 120 },
    App { file: "git.sh", link: &[], packages: "git", limit: 120 },
    App { file: "xz.sh", link: &[], packages: "xz-utils", limit: 120 },
    App { file: "python.sh", link: &[], packages: "python3 libpython3.11-testsuite", limit: 240 },
    App {
        file: "memcached.py",
        link: &[],
        packages: "python3 memcached libmemcached-tools",
        limit: 120,
    },
    App { file: "chromium.sh", link: &[], packages: "chromium chromium-sandbox", limit: 120 },
    App { file: "stress-ng.sh", link: &[], packages: "stress-ng", limit: 120 },
];

/// Front locks beside the default that a program is run under.
const FRONTS: usize = 4;

fn main() {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit(),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    }
}

/// A program that is run several times; compiled, and run plainly, when first needed.
struct Subject {
    app: &'static App,
    binary: OnceLock<Result<PathBuf, String>>,
    plain: OnceLock<Result<Outcome, String>>,
}

impl Subject {
    fn name(&self) -> &'static str {
        self.app.file.split('.').next().unwrap_or(self.app.file)
    }

    fn run(&self, lock: Option<&str>, preload: &OsString) -> Result<Outcome, String> {
        let source = source_dir().join("apps").join(self.app.file);
        let child = match source.extension().and_then(|extension| extension.to_str()) {
            Some("c") => {
                let build = || -> Result<PathBuf> {
                    let binary = scratch("apps")?.join(self.name());
                    compile(&source, &binary, self.app.link)?;
                    Ok(binary)
                };
                let binary = self.binary.get_or_init(|| build().map_err(|e| format!("{e:#}")));
                Child::new(binary.as_ref().map_err(Clone::clone)?)
            }
            Some("py") => Child::new("/usr/bin/python3").args([source]),
            _ => Child::new("bash").args([source]),
        };
        let run = || -> Result<Outcome> {
            let dir = tempfile::tempdir()?;
            child.lock(lock, preload).dir(dir.path()).limit(self.app.limit).run_fairly()
        };
        let outcome = run().map_err(|error| format!("{error:#}"))?;
        let lock = lock.unwrap_or("glibc");
        if outcome.end != End::Code(0) {
            return Err(format!(
                "{} under {lock}: {}\nhint: it needs: apt-get install {}",
                self.name(),
                outcome.describe(),
                self.app.packages
            ));
        }
        Ok(outcome)
    }

    fn plain(&self) -> Result<&Outcome, Failed> {
        let plain = self.plain.get_or_init(|| self.run(None, &OsString::new()));
        plain.as_ref().map_err(Failed::from)
    }

    fn same_under(&self, lock: &str, preload: &OsString) -> Result<(), Failed> {
        let plain = self.plain()?.text();
        let ours = self.run(Some(lock), preload)?.text();
        if plain == ours {
            return Ok(());
        }
        let differing = plain.lines().zip(ours.lines()).find(|(one, two)| one != two);
        let (one, two) = differing.unwrap_or(("(the shorter output)", "(the longer output)"));
        Err(format!("{} prints '{one}' under glibc, '{two}' under {lock}", self.name()).into())
    }
}

fn trials() -> Result<Vec<Trial>> {
    let preload = preload_list(&[&library()?]);
    let mut trials = Vec::new();
    for (turn, app) in APPS.iter().enumerate() {
        let subject = Arc::new(Subject { app, binary: OnceLock::new(), plain: OnceLock::new() });
        let plain = subject.clone();
        let name = format!("{}::glibc", subject.name());
        trials.push(Trial::test(name, move || plain.plain().map(drop)));
        for entry in first_and_in_turn(turn, FRONTS, front_rules()) {
            let (subject, preload) = (subject.clone(), preload.clone());
            let name = format!("{}::{}", subject.name(), entry.id);
            trials.push(Trial::test(name, move || subject.same_under(entry.id, &preload)));
        }
    }
    Ok(trials)
}
