//! Eight shards of a study, some of them killed half-way, make the report that one process makes.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, Outcome};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SHARDS: u32 = 8;

/// 24 runs.
const SIM: &str = "sim --machine m1 --lock mcs,tas,fifo:bypass=1 --threads 2,max --seeds 2 \
                   --sweep gap=0,1k --duration 2ms --warmup 20us --quiet --output report";

/// A figure that plans some of its runs when it has seen others.
const FIGURE: &str = "reproduce libasl-8f --seeds 1 --quick --quiet --output report";

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

fn child(dir: &Path, words: &[String]) -> Child {
    Child::new(env!("CARGO_BIN_EXE_lockwright")).args(words).dir(dir).limit(600)
}

fn shard(command: &str, number: u32) -> Vec<String> {
    let mut words = words(command);
    let folder = words.last_mut().expect("a folder comes last");
    *folder = "shards".to_owned();
    words.extend(["--shard".to_owned(), format!("{number}/{SHARDS}"), "--resume".to_owned()]);
    words
}

/// Bytes of every file in a folder.
fn files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(dir).with_context(|| format!("no {}", dir.display()))?;
    let one = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
    };
    entries.map(one).collect()
}

/// What one process says and writes.
fn whole(command: &str) -> Result<(Outcome, BTreeMap<String, Vec<u8>>)> {
    let dir = TempDir::new()?;
    let outcome = child(dir.path(), &words(command)).run()?;
    Ok((outcome, files(&dir.path().join("report"))?))
}

/// Begins a shard and kills it as soon as it has kept a result; tries again if it was done sooner than it could be killed.
fn kill_after_a_result(dir: &Path, words: &[String], number: u32) -> Result<()> {
    let file = dir.join(format!("shards/shard-{number}-of-{SHARDS}.jsonl"));
    for _ in 0..20 {
        let _ = fs::remove_file(&file);
        let mut running = Command::new(env!("CARGO_BIN_EXE_lockwright"))
            .args(words)
            .current_dir(dir)
            .stdout(Stdio::null())
            .spawn()?;
        // Its header, and a result, or a part of one.
        while fs::read_to_string(&file).unwrap_or_default().lines().count() < 2
            && running.try_wait()?.is_none()
        {}
        running.kill()?; // SIGKILL
        let status = running.wait()?;
        if status.signal() == Some(libc::SIGKILL) {
            return Ok(());
        }
        ensure!(status.success(), "shard {number}: {status}");
    }
    anyhow::bail!("shard {number} was always done sooner than it could be killed")
}

/// Runs all shards, those of `killed` with a kill between, and merges them: the same as one process.
fn check(command: &str, killed: &[u32]) -> Result<()> {
    let (one, report) = whole(command)?;
    ensure!(matches!(one.end, End::Code(0 | 1)), one.describe());
    let dir = TempDir::new()?;
    for number in 1..=SHARDS {
        let words = shard(command, number);
        if killed.contains(&number) {
            kill_after_a_result(dir.path(), &words, number)?;
        }
        let outcome = child(dir.path(), &words).run()?;
        ensure!(outcome.end == End::Code(0), outcome.describe());
        ensure!(
            outcome.text().starts_with(&format!("shard {number}/8 is done: ")),
            outcome.describe()
        );
    }
    let merge = ["sim", "--merge", "shards", "--output", "report"].map(str::to_owned);
    let merged = child(dir.path(), &merge).run()?;
    ensure!(merged.end == one.end, merged.describe());
    ensure!(merged.text() == one.text(), "{}\n{}", one.text(), merged.text());
    let merged = files(&dir.path().join("report"))?;
    ensure!(merged.keys().eq(report.keys()), "{:?} {:?}", merged.keys(), report.keys());
    for (name, bytes) in &report {
        ensure!(&merged[name] == bytes, "{name} differs");
    }
    Ok(())
}

#[test]
fn shards_of_a_study_make_the_report_of_one_run() -> Result<()> {
    check(SIM, &[])
}

#[test]
fn shards_of_a_study_that_were_killed_go_on() -> Result<()> {
    check(SIM, &[2, 7])
}

#[test]
fn shards_of_a_figure_make_the_report_of_one_run_though_two_were_killed() -> Result<()> {
    check(FIGURE, &[3, 4])
}

#[test]
fn a_run_that_was_cut_off_makes_its_report_when_it_goes_on() -> Result<()> {
    let (one, report) = whole(SIM)?;
    let dir = TempDir::new()?;
    let words = [words(SIM), vec!["--resume".to_owned()]].concat();
    // As a kill leaves it.
    let first = child(dir.path(), &words).run()?;
    let kept = dir.path().join("report/shard-1-of-1.jsonl");
    let text = fs::read_to_string(&kept)?;
    fs::write(&kept, &text[..text.len() / 3])?;
    let again = child(dir.path(), &words).run()?;
    for outcome in [first, again] {
        ensure!(outcome.end == one.end && outcome.text() == one.text(), outcome.describe());
    }
    let mut files = files(&dir.path().join("report"))?;
    files.remove("shard-1-of-1.jsonl");
    ensure!(files == report);
    Ok(())
}

#[test]
fn a_machine_that_has_changed_is_another_plan() -> Result<()> {
    let dir = TempDir::new()?;
    let m1 = include_str!("../../sim/profiles/m1.toml");
    fs::write(dir.path().join("own.toml"), m1)?;
    let command = "sim --machine own.toml --lock mcs --seed 1 --duration 50us --output shards \
                   --quiet --shard 1/1";
    let outcome = child(dir.path(), &words(command)).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let merge = ["sim", "--merge", "shards"].map(str::to_owned);
    ensure!(child(dir.path(), &merge).run()?.end == End::Code(0));
    let line = m1.lines().find(|line| line.starts_with("nop_ns = ")).context("a figure")?;
    fs::write(dir.path().join("own.toml"), m1.replacen(line, "nop_ns = 0.111", 1))?;
    let merged = child(dir.path(), &merge).run()?;
    ensure!(merged.end == End::Code(2), merged.describe());
    ensure!(merged.errors().contains("files or settings that differ"), merged.describe());
    Ok(())
}

/// A shard's file whose header asks for another command than the one that made it.
fn forged(dir: &Path, command: &[&str], output: Option<&str>) -> Result<Outcome> {
    let file = dir.join("shards/shard-1-of-1.jsonl");
    if !file.exists() {
        let one = "sim --machine m1 --lock mcs --seed 1 --duration 50us --quiet --output shards";
        let words = [words(one), words("--shard 1/1")].concat();
        let made = child(dir, &words).run()?;
        ensure!(made.end == End::Code(0), made.describe());
    }
    let text = fs::read_to_string(&file)?;
    let (header, results) = text.split_once('\n').context("a header")?;
    let mut header: serde_json::Value = serde_json::from_str(header)?;
    header["command"] = command.iter().map(|word| (*word).to_owned()).collect();
    fs::write(&file, format!("{header}\n{results}"))?;
    let merge = ["sim", "--merge", "shards"]
        .into_iter()
        .chain(output.into_iter().flat_map(|dir| ["--output", dir]));
    child(dir, &merge.map(str::to_owned).collect::<Vec<_>>()).run()
}

#[test]
fn a_header_has_no_command_run() -> Result<()> {
    let dir = TempDir::new()?;
    let worker = r#"{"lock":"pthread"}"#;
    for command in [
        &["run", "--", "touch", "pwned"][..],
        &["profile --record", "--output", "pwned", "--", "true"],
        &["sim --merge", "shards"],
        &["sim", "--merge", "shards"],
        &["list"],
        &["sim", "--list"],
        &["sim", "--machine", "m1", "--lock", "mcs", "--seed", "1", "--timeline", "pwned"],
        &["reproduce", "--list"],
        &["bench", "--worker", worker],
        &["sim", "--help"],
        &[],
    ] {
        let refused = forged(dir.path(), command, None)?;
        ensure!(refused.end == End::Code(2), "{command:?}: {}", refused.describe());
        ensure!(refused.text().is_empty(), "{command:?}: {}", refused.describe());
        let lines: Vec<_> = refused.errors().lines().map(str::to_owned).collect();
        ensure!(
            matches!(&lines[..], [error, hint] if error.starts_with("error: ") && hint.starts_with("hint: ")),
            "{command:?}: {}",
            refused.describe()
        );
    }
    ensure!(!dir.path().join("pwned").exists());
    Ok(())
}

#[test]
fn a_merge_writes_only_where_it_is_told_to() -> Result<()> {
    let dir = TempDir::new()?;
    let sim = words("sim --machine m1 --lock mcs --seed 1 --duration 50us --quiet");
    let mut sim: Vec<&str> = sim.iter().map(String::as_str).collect();
    sim.extend(["--output", "--output", "theirs", "--output=theirs"]);
    // Whatever it says, `theirs` isn't made.
    let _ = forged(dir.path(), &sim, Some("ours"))?;
    ensure!(!dir.path().join("theirs").exists());
    sim.truncate(sim.len() - 4);
    sim.extend(["--output", "theirs"]);
    let merged = forged(dir.path(), &sim, None)?;
    ensure!(merged.end == End::Code(0), merged.describe());
    ensure!(!dir.path().join("theirs").exists());

    fs::write(dir.path().join("precious"), "kept")?;
    let bench =
        "bench --lock in:mcs --threads 1 --rounds 1 --json precious --csv precious --svg theirs";
    let bench = words(bench);
    let bench: Vec<&str> = bench.iter().map(String::as_str).collect();
    let refused = forged(dir.path(), &bench, None)?;
    ensure!(refused.end == End::Code(2), refused.describe());
    ensure!(fs::read_to_string(dir.path().join("precious"))? == "kept", refused.describe());
    ensure!(!dir.path().join("theirs").exists(), refused.describe());
    Ok(())
}

/// Without what depends on the machine's speed.
fn without_times(text: &str) -> Result<serde_json::Value> {
    let mut all: serde_json::Value = serde_json::from_str(text)?;
    for one in all.as_array_mut().context("a list")? {
        let one = one.as_object_mut().context("an object")?;
        for mutant in
            one.get_mut("mutants").and_then(|all| all.as_array_mut()).into_iter().flatten()
        {
            mutant.as_object_mut().context("an object")?.remove("ms");
        }
        for key in ["seconds", "schedules_per_second"] {
            one.remove(key);
        }
    }
    Ok(all)
}

/// An exploration in eight shards says what it says in one, but for its times.
fn explored(command: &str, killed: &[u32]) -> Result<()> {
    let dir = TempDir::new()?;
    let one = child(dir.path(), &words(command)).run()?;
    let with_folder = format!("{command} --output shards");
    for number in 1..=SHARDS {
        let words = shard(&with_folder, number);
        if killed.contains(&number) {
            kill_after_a_result(dir.path(), &words, number)?;
        }
        let outcome = child(dir.path(), &words).run()?;
        ensure!(outcome.end == End::Code(0), outcome.describe());
    }
    let merged = child(dir.path(), &["sim", "--merge", "shards"].map(str::to_owned)).run()?;
    ensure!(merged.end == one.end, merged.describe());
    let (merged, one) = (without_times(&merged.text())?, without_times(&one.text())?);
    ensure!(merged == one, "{one}\n{merged}");
    Ok(())
}

#[test]
fn shards_of_an_exploration_say_what_one_says_though_two_were_killed() -> Result<()> {
    explored("explore mcs,fifo --schedules 20000 --json", &[1, 6])
}

#[test]
fn two_runs_of_one_shard_of_an_exploration_agree_but_for_their_times() -> Result<()> {
    let dir = TempDir::new()?;
    for folder in ["one", "two"] {
        let one = format!("explore mcs --schedules 2000 --shard 1/1 --output {folder}");
        let outcome = child(dir.path(), &words(&one)).run()?;
        ensure!(outcome.end == End::Code(0), outcome.describe());
    }
    let merged = child(dir.path(), &words("merge one two")).run()?;
    ensure!(merged.end == End::Code(0), merged.describe());
    Ok(())
}

#[test]
fn more_blocks_than_fit_into_memory_are_lacking_by_their_number() -> Result<()> {
    let dir = TempDir::new()?;
    // As Ctrl-C leaves it, early: a header, and one block of a billion.
    let words_of = |shard: u32| {
        words(&format!("explore mcs --schedules 1024000000000 --shard {shard}/2 --output shards"))
    };
    for shard in [1, 2] {
        let mut running = Command::new(env!("CARGO_BIN_EXE_lockwright"))
            .args(words_of(shard))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn()?;
        let file = dir.path().join(format!("shards/shard-{shard}-of-2.jsonl"));
        let lines = || fs::read_to_string(&file).unwrap_or_default();
        while lines().matches('\n').count() < 2 && running.try_wait()?.is_none() {}
        running.kill()?;
        running.wait()?;
        let kept: String = lines().split_inclusive('\n').take(2).collect();
        fs::write(&file, kept)?;
    }
    let merged = child(dir.path(), &words("merge shards")).run()?;
    ensure!(merged.end == End::Code(2), merged.describe());
    let lacks = "shard 1/2 lacks 499999999 results, shard 2/2 lacks 499999999 results";
    ensure!(merged.errors().contains(lacks), merged.describe());
    Ok(())
}

#[test]
fn a_disk_that_is_full_leaves_whole_lines() -> Result<()> {
    let dir = TempDir::new()?;
    // At most 4 KiB a file: as if there were no more.
    let sim = SIM.replace("--output report", "--output shards --shard 1/1 --resume");
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec \"$0\" {sim}");
    let full = Child::new("dash")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_lockwright")])
        .dir(dir.path())
        .run()?;
    ensure!(full.end == End::Code(2), full.describe());
    ensure!(full.errors().contains("cannot write 'shards/shard-1-of-1.jsonl'"), full.describe());
    let kept = fs::read_to_string(dir.path().join("shards/shard-1-of-1.jsonl"))?;
    ensure!(kept.ends_with('\n') && kept.lines().count() > 1, "{kept}");
    let done = child(dir.path(), &words(&sim)).run()?;
    ensure!(done.end == End::Code(0), done.describe());
    Ok(())
}

#[test]
fn shards_of_an_exploration_find_what_one_finds() -> Result<()> {
    let mutants = "explore ticket --mutants --schedules 2000 --json";
    explored(mutants, &[])?;
    let dir = TempDir::new()?;
    let all = child(dir.path(), &words(mutants)).run()?.text();
    let all: serde_json::Value = serde_json::from_str(&all)?;
    let found = all[0]["mutants"].as_array().context("mutants")?;
    let found = found.iter().find(|mutant| mutant["found"] == true).context("one that is found")?;
    let found = found["mutant"].as_str().context("its name")?;
    // Found early: one that searches on may have looked at a few more schedules.
    let one = format!("explore ticket --mutant {found} --schedules 9000 --jobs 1 --json");
    explored(&one, &[])
}

/// Names of files are bytes. A report goes wherever it is told to; a shard's file names its command, as text.
#[test]
fn a_folder_whose_name_is_no_text_gets_a_report_and_no_shard() -> Result<()> {
    let dir = TempDir::new()?;
    let folder = OsStr::from_bytes(b"caf\xe9");
    let sim = "sim --machine m1 --lock mcs --threads 2 --seeds 1 --duration 1ms --quiet --output";
    let bench = "bench --lock std --threads 2 --time 2ms --rounds 1 --quiet --output";
    for command in [sim, bench] {
        let run = |more: &[&str]| {
            let words = command.split(' ').map(OsStr::new).chain([folder]);
            let words = words.chain(more.iter().map(OsStr::new));
            Child::new(env!("CARGO_BIN_EXE_lockwright")).args(words).dir(dir.path()).run()
        };
        for flags in [&["--resume"][..], &["--shard", "1/2"]] {
            let outcome = run(flags)?;
            let told = "error: \"caf\\xE9\" is not UTF-8, and results are kept with their command, as text\n\
                        hint: take another name, as in --output DIR\n";
            ensure!(outcome.end == End::Code(2) && outcome.errors() == told, outcome.describe());
            ensure!(!dir.path().join(folder).exists(), "{command}: it began");
        }
        let outcome = run(&[])?;
        ensure!(outcome.end == End::Code(0), outcome.describe());
        ensure!(dir.path().join(folder).join("results.json").exists(), outcome.describe());
        fs::remove_dir_all(dir.path().join(folder))?;
    }
    Ok(())
}
