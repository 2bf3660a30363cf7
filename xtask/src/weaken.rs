//! `cargo xtask weaken`: is every stated ordering needed, and do the models notice a lost wake?
//!
//! Builds an instrumented copy of the locks and their models under the target directory. In it, each ordering and each
//! wake is a numbered site. Then runs the models once per mutation of a site. A mutant that no model catches must have
//! a comment `// SURVIVES: reason` on its line or just above it. Use `// EXPLORED: reason` if the models may miss it
//! but `lockwright explore` finds it (crates/sim/tests/explore.rs). The sources themselves are never changed.

use crate::answer::No;
use crate::pool::parallel;
use anyhow::{Context, Result, bail, ensure};
use lockwright_locks::catalog::front_rules;
use lockwright_numbers::units;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Weaken each memory ordering and drop each wake-up of the locks, one at a time: some model must notice.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Mutate only files whose path contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Mutate only the hand-over in each file: its first wake-up and its last release.
    #[arg(long)]
    quick: bool,
    /// Time for the models of one mutant, such as 90s; without a unit: seconds.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = units::seconds)]
    limit: f64,
    /// Time for one model, such as 300ms; without a unit: seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::seconds)]
    model: f64,
}

/// A place in the sources that can be weakened.
struct Site {
    file: String,
    line: usize,
    text: &'static str,
    weaker: &'static [&'static str],
    survives: Option<String>,
}

/// The prefix of the reason if the models find a mutation only by chance.
const EXPLORED: &str = "explore finds it: ";

const ORDERINGS: [(&str, &[&str]); 4] = [
    ("AcqRel", &["Acquire", "Release"]),
    ("Acquire", &["Relaxed"]),
    ("Release", &["Relaxed"]),
    ("SeqCst", &["AcqRel"]),
];

/// One change at one site.
struct Mutant<'a> {
    number: usize,
    site: &'a Site,
    which: usize,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let copy = target_dir(root).join("weaken");
    let sites = instrument(root, &copy)?;
    let mutants = chosen(&sites, &args);
    ensure!(
        !mutants.is_empty(),
        "--only '{}': no lock file of that name has an ordering or a wake to weaken\nhint: cargo xtask weaken --only front",
        args.only.as_deref().unwrap_or_default()
    );
    let files: BTreeSet<_> = mutants.iter().map(|mutant| models_of(&mutant.site.file)).collect();
    let files: Vec<_> = files.into_iter().collect();
    let tests = files.iter().flat_map(|(_, tests)| *tests).copied().collect();
    let models = Models {
        tests: build(&copy, &target_dir(root), &tests)?,
        limit: Duration::from_secs_f64(args.limit),
        ms: (1e3 * if args.quick { args.model.min(0.3) } else { args.model }) as u64,
    };
    // Time for all models of the mutant, too: else the last of them would not have their turn.
    let patient = Models { ms: 4 * models.ms, limit: 4 * models.limit, ..models.clone() };
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    // A failure without a mutation would count as catching every mutant.
    for (of, broken) in files.iter().zip(parallel(jobs, &files, |of| models.caught_by(None, of))) {
        if let Some(model) = broken? {
            bail!("without a mutation, a model of '{}' fails: {model}", of.0);
        }
    }
    println!("{:<24} {:<20} result", "site", "mutation");
    let results = parallel(jobs, &mutants, |mutant| {
        let of = models_of(&mutant.site.file);
        let mut caught = models.caught_by(Some(mutant), &of)?;
        if caught.is_none() && mutant.site.survives.is_none() {
            // Perhaps the search was too short, because the machine stood still or was busy. Try again with more time.
            caught = patient.caught_by(Some(mutant), &of)?;
        }
        println!("{}", mutant.describe(caught.as_deref()));
        anyhow::Ok(caught.is_some())
    });
    let mut files: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (mutant, caught) in mutants.iter().zip(results) {
        let site = mutant.site;
        let counts = files.entry(&site.file).or_default();
        match (caught?, &site.survives) {
            (true, None) => counts[0] += 1,
            // If a site has two mutations, the comment may be about the other one.
            (true, Some(_)) if site.weaker.len() > 1 => counts[0] += 1,
            (true, Some(why)) if why.starts_with(EXPLORED) => counts[0] += 1,
            (false, Some(_)) => counts[1] += 1,
            _ => {
                counts[2] += 1;
                wrong.push(format!("{}:{}", site.file, site.line));
            }
        }
    }
    println!("\n{:<24} caught  survives, as it says  not as it says", "file");
    for (file, [caught, survives, wrong]) in &files {
        println!("{file:<24} {caught:>6}  {survives:>20}  {wrong:>14}");
    }
    let total = |which: usize| files.values().map(|counts| counts[which]).sum::<usize>();
    println!("{:<24} {:>6}  {:>20}  {:>14}", "all", total(0), total(1), total(2));
    ensure!(
        wrong.is_empty(),
        No(format!("{} mutants are not as the files say: {}", wrong.len(), wrong.join(", ")))
    );
    Ok(())
}

/// The mutants that `args` select.
fn chosen<'a>(sites: &'a [Site], args: &Args) -> Vec<Mutant<'a>> {
    let mut quick = BTreeMap::new();
    for (number, site) in sites.iter().enumerate().filter(|(_, site)| site.survives.is_none()) {
        match site.text {
            "wake" => _ = quick.entry((&site.file, "wake")).or_insert(number),
            "Release" => _ = quick.insert((&site.file, "Release"), number),
            _ => {}
        }
    }
    let quick: BTreeSet<usize> = quick.into_values().collect();
    let wanted = |(number, site): &(usize, &Site)| {
        args.only.as_ref().is_none_or(|only| site.file.contains(only))
            && (!args.quick || quick.contains(number))
    };
    let each = |(number, site): (usize, &'a Site)| {
        (0..site.weaker.len()).map(move |which| Mutant { number, site, which })
    };
    sites.iter().enumerate().filter(wanted).flat_map(each).collect()
}

impl Mutant<'_> {
    fn describe(&self, caught: Option<&str>) -> String {
        let site = self.site;
        let result = match (caught, &site.survives) {
            (Some(model), Some(why)) if site.weaker.len() == 1 && !why.starts_with(EXPLORED) => {
                format!("CAUGHT, but the file says it survives: {model}")
            }
            (Some(model), _) => format!("caught: {model}"),
            (None, Some(reason)) => format!("survives: {reason}"),
            (None, None) => "SURVIVES, and the file does not say why".into(),
        };
        let place = format!("{}:{}", site.file, site.line);
        let mutation = format!("{} -> {}", site.text, site.weaker[self.which]);
        format!("{place:<24} {mutation:<20} {result}")
    }
}

fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Copies three of the workspace's crates to `copy`. In the locks, every site becomes a call.
fn instrument(root: &Path, copy: &Path) -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    for name in ["platform", "locks", "model"] {
        // Not `crates`: cargo distinguishes packages by their paths in the workspace, and the target directory is
        // shared.
        let (from, to) = (root.join("crates").join(name), copy.join("weakened").join(name));
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        copy_tree(&from, &to, &mut |path, text| {
            let inside = path.strip_prefix(&from).unwrap_or(path).to_string_lossy().into_owned();
            match inside.strip_prefix("src/") {
                Some(file) if name == "locks" && file != "testing.rs" => {
                    mutate(file, &text, &mut sites)
                }
                _ => text,
            }
        })?;
    }
    let platform = copy.join("weakened/platform/src");
    let lib = fs::read_to_string(platform.join("lib.rs"))?;
    fs::write(
        platform.join("lib.rs"),
        format!("{lib}\n#[allow(missing_docs)]\npub mod weaken;\n"),
    )?;
    fs::write(platform.join("weaken.rs"), SITE)?;
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let kept: Vec<&str> =
        manifest.lines().filter(|line| !line.starts_with("default-members")).collect();
    let manifest = kept
        .join("\n")
        .replace(r#"members = ["crates/*", "tests", "xtask"]"#, r#"members = ["crates/*"]"#)
        .replace("crates/", "weakened/");
    fs::write(copy.join("Cargo.toml"), manifest)?;
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(sites)
}

/// The function that instrumented sites call. It returns the stated ordering, except at the site under test.
const SITE: &str = r#"extern crate std;
use crate::{Ordering, Platform, Requeue};
use std::sync::OnceLock;

fn active() -> (usize, usize) {
    static ACTIVE: OnceLock<(usize, usize)> = OnceLock::new();
    *ACTIVE.get_or_init(|| {
        let get = |name| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX);
        (get("LOCKWRIGHT_SITE"), get("LOCKWRIGHT_MUTATION"))
    })
}

pub fn order(site: usize, stated: Ordering, weaker: [Ordering; 2]) -> Ordering {
    let (active, which) = active();
    if site == active { weaker[which] } else { stated }
}

pub fn unpark<P: Platform>(site: usize, word: *const P::Word, count: u32) {
    if site != active().0 {
        P::unpark(word, count);
    }
}

pub fn unpark_moved<P: Requeue>(site: usize, word: *const P::Word, count: u32) -> u32 {
    if site != active().0 { P::unpark_moved(word, count) } else { 0 }
}
"#;

fn copy_tree(from: &Path, to: &Path, edit: &mut impl FnMut(&Path, String) -> String) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut entries = fs::read_dir(from)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &target, edit)?;
        } else {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read '{}'", path.display()))?;
            fs::write(&target, edit(&path, text))?;
        }
    }
    Ok(())
}

/// Replaces the sites of one file by calls, and records them.
fn mutate(file: &str, text: &str, sites: &mut Vec<Site>) -> String {
    let mut out = String::new();
    let mut in_tests = false;
    let mut in_use = false;
    let mut above = None;
    for (index, line) in text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        in_use |=
            line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
        let code_end = line.find("//").unwrap_or(line.len());
        let (code, comment) = line.split_at(code_end);
        // On the line itself, or in the comment just above it.
        let said = |word, prefix: &str| {
            let (_, reason) = comment.split_once(word)?;
            Some(format!("{prefix}{}", reason.trim()))
        };
        let said = said("SURVIVES:", "").or_else(|| said("EXPLORED:", EXPLORED));
        let is_comment = code.trim().is_empty();
        let survives = said.or_else(|| above.take());
        above = if is_comment { survives.clone() } else { None };
        if in_tests || in_use || file == "catalog.rs" {
            out.push_str(code);
        } else {
            let mut site = |text, weaker| {
                sites.push(Site {
                    file: file.into(),
                    line: index + 1,
                    text,
                    weaker,
                    survives: survives.clone(),
                });
                sites.len() - 1
            };
            mutate_code(code, &mut out, &mut site);
        }
        in_use &= !code.contains(';');
        out.push_str(comment);
        out.push('\n');
    }
    out
}

fn mutate_code(
    code: &str,
    out: &mut String,
    site: &mut impl FnMut(&'static str, &'static [&'static str]) -> usize,
) {
    const WAKES: [&str; 2] = ["unpark", "unpark_moved"];
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        if !is_name(before) {
            let wake = rest.strip_prefix("P::").and_then(|call| {
                let (name, arguments) = call.split_once('(')?;
                WAKES.contains(&name).then_some((name, arguments))
            });
            if let Some((name, arguments)) = wake {
                let number = site("wake", &["none"]);
                let _ = write!(out, "lockwright_platform::weaken::{name}::<P>({number}, ");
                (rest, before) = (arguments, '(');
                continue;
            }
            let word = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            if let Some((text, weaker)) = ORDERINGS.iter().find(|(text, _)| *text == word) {
                let number = site(text, weaker);
                let path = "lockwright_platform::Ordering";
                let (one, two) = (weaker[0], weaker[weaker.len() - 1]);
                let _ = write!(
                    out,
                    "lockwright_platform::weaken::order({number}, {path}::{text}, [{path}::{one}, {path}::{two}])"
                );
                (rest, before) = (&rest[word.len()..], 'x');
                continue;
            }
        }
        out.push(first);
        before = first;
        rest = &rest[first.len_utf8()..];
    }
}

/// Builds those files of models in the copy that are needed. Returns their executables by name. The target directory is
/// shared, so only our own crates are rebuilt.
fn build(copy: &Path, target: &Path, tests: &BTreeSet<&str>) -> Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--no-run", "--message-format=json", "-q", "-p", "lockwright-model"])
        .args(tests.iter().flat_map(|test| ["--test", test]))
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "the instrumented copy in '{}' does not build\n{}",
        copy.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let mut tests = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if let (Some(path), Some(name)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        {
            tests.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(tests)
}

/// The models that cover a file: the first words of their names, and their tests. A front lock's own file is covered by
/// the models of that lock. Code that all front locks share is covered by the models of each, and of rules that exist
/// only in models.
fn models_of(file: &str) -> (String, &'static [&'static str]) {
    let own = |lock: &str| lock.trim_end_matches(".rs").replace('_', "-");
    match file.split_once('/') {
        Some(("front", lock)) => {
            let lock = lock.trim_start_matches("rule/");
            let rules = || front_rules().map(|entry| entry.id);
            let named: Vec<&str> = rules().filter(|id| *id == own(lock)).collect();
            // The line is the same under each lock, so two are enough.
            let words = if named.is_empty() { rules().take(2).collect() } else { named };
            (
                words.join(",") + ",condvar,backwards,patient,posix",
                match lock {
                    "leaving.rs" => &["leaving", "locks", "timed", "condvar", "posix"],
                    _ => &["locks", "timed", "leaving", "condvar", "posix"],
                },
            )
        }
        Some(("posix", _)) => ("posix".into(), &["posix"]),
        // `rwlock` is also used by other locks.
        Some(("rw", "rwlock.rs" | "waiting.rs")) => ("rwlock".into(), &["rwlock", "read_write"]),
        Some(("rw", lock)) => (own(lock), &["read_write"]),
        Some(("condvar", _)) => ("condvar".into(), &["condvar"]),
        // Parts of locks in separate files.
        Some(("amp", "rearranger.rs" | "lengths.rs")) => ("cal-textbook".into(), &["locks"]),
        Some(("numa", "shuffling.rs")) => ("shfllock".into(), &["locks"]),
        Some((_, lock)) => (own(lock), &["locks"]),
        None => (own(file), &["wide"]),
    }
}

/// The models' executables, and their time limits.
#[derive(Clone)]
struct Models {
    tests: BTreeMap<String, PathBuf>,
    limit: Duration,
    ms: u64,
}

impl Models {
    /// The first model that fails.
    fn caught_by(
        &self,
        mutant: Option<&Mutant>,
        (words, tests): &(String, &[&str]),
    ) -> Result<Option<String>> {
        let start = Instant::now();
        for test in *tests {
            let path = self.tests.get(*test).with_context(|| format!("no test '{test}'"))?;
            let mut said = tempfile::tempfile()?;
            let mut child = Command::new(path)
                // Threads that are torn away at a drawn step are shuttle's.
                .args(["loom", "torn_away", "--test-threads=1", "--nocapture"])
                .env("LOCKWRIGHT_SITE", mutant.map_or(usize::MAX, |one| one.number).to_string())
                .env("LOCKWRIGHT_MUTATION", mutant.map_or(0, |one| one.which).to_string())
                .env("LOCKWRIGHT_MODEL", words)
                .env("LOCKWRIGHT_MODEL_MS", self.ms.to_string())
                .env("RUST_BACKTRACE", "0")
                .stdout(said.try_clone()?)
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot run '{}'", path.display()))?;
            let passed = passes(&mut child, self.limit.saturating_sub(start.elapsed()))?;
            let mut text = String::new();
            said.rewind()?;
            said.read_to_string(&mut text)?;
            let of = |line| str::split_once(line, "loom: ").or(str::split_once(line, "shuttle: "));
            let last = text.lines().rev().find_map(of);
            if last.is_none() && start.elapsed() > self.limit {
                break; // time was up before it began
            }
            let (_, model) = last.with_context(|| format!("no model of '{words}' in '{test}'"))?;
            if !passed {
                return Ok(Some(model.to_owned()));
            }
        }
        Ok(None)
    }
}

/// Did the models pass, or run out of time? A model that doesn't end hasn't noticed anything.
fn passes(child: &mut Child, limit: Duration) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
